"""What a night of a matrix came to, as a page.

    triage matrix run --shard 1/4 --night NAME --json > night-1.json     # and the other shards
    python benchmarks/night.py night-*.json > docs/night.md

A shard that was stopped (`--max-time`) and went on has a file for each time. Verdicts are read from
the store (`TRIAGE_HOME`), the last of each cell, and held to what the matrix expects.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from harness.matrix.expectations import Expectations, happened
from harness.matrix.file import find_matrix_file, read_matrix
from harness.values.change import Facts
from harness.values.verdict import VerdictKind

Row = dict[str, Any]


def rows() -> list[Row]:
    """The last row of every cell of the store."""
    words = ["export", "--all", "--format", "jsonl"]
    done = subprocess.run(
        [sys.executable, "-m", "harness", *words], check=True, stdout=subprocess.PIPE
    )
    return list({row["cell"]: row for row in map(json.loads, done.stdout.splitlines())}.values())


def unexpected(found: Sequence[Row]) -> Iterator[Row]:
    """Those that fail without an expectation that says so, as `triage matrix run` counts them."""
    expectations = Expectations(read_matrix(find_matrix_file()).expect)
    for row in found:
        facts = msgspec.convert(row, Facts, strict=False)
        kind = VerdictKind(facts.verdict)
        if kind.compiles or kind.tells_nothing:
            continue
        expected = expectations.of(facts)
        if expected is None or not happened(facts, expected):
            yield row


def compiler_of(row: Row) -> str:
    """Kind and version."""
    return f"{row['compiler']} {row['compiler_version']}"


def page(documents: Sequence[Row], found: Sequence[Row]) -> Iterator[str]:
    """Lines of Markdown."""
    cores = os.cpu_count() or 1
    yield "| part | cells worked on | wall | cells a second | CPU of compilers | left |"
    yield "|---|---|---|---|---|---|"
    for document in documents:
        worked = sum(document["cells"].values()) - document["carried"]
        wall, cpu = document["wall_seconds"], document["cpu_seconds"]
        left = document["left"]
        yield (
            f"| run {document['run']} | {worked:,} | {wall / 60:.0f} min | {worked / wall:.1f} |"
            f" {cpu / wall / cores:.0%} of {cores} cores |"
            f" {left['cells']:,} cells, {left['captures']:,} captures |"
        )
    yield ""
    verdicts = Counter(row["verdict"] for row in found)
    said = ", ".join(f"{count:,} {verdict}" for verdict, count in verdicts.most_common())
    yield f"{len(found):,} cells: {said}."
    yield ""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in unexpected(found):
        place: tuple[str, ...] = (row["kernel"], compiler_of(row), row["target"], row["verdict"])
        groups.setdefault(place, []).append(row)
    yield f"{sum(map(len, groups.values())):,} fail unexpectedly:"
    yield ""
    yield "| kernel | compiler | target | verdict | cells | one of them | why |"
    yield "|---|---|---|---|---|---|---|"
    for place, group in sorted(groups.items()):
        first = group[0]
        reason = " ".join(first["reason"].split()).replace("|", "\\|")
        yield f"| {' | '.join(place)} | {len(group)} | `{first['short']}` | {reason[:160]} |"


def main() -> None:
    """Print the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("documents", nargs="*", type=Path)
    options = parser.parse_args()
    documents = [json.loads(path.read_text()) for path in options.documents]
    print("\n".join(page(documents, rows())))


if __name__ == "__main__":
    main()
