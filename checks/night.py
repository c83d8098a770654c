"""What a night of a matrix came to, as a page.

    triage matrix run --shard 1/4 --night NAME --json > night-1.json     # and the other shards
    python checks/night.py night-*.json > docs/measured/night.md

A shard that was stopped (`--max-time`) and went on has a file for each time. All are of one store
(`TRIAGE_HOME`), in the order in which they ran there. Verdicts are read from its last run, and held
to what the matrix expects.
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
from packaging.version import Version

from harness.cells.matrix_file import find_matrix_file, read_matrix
from harness.cells.matrix_rules import Expectations, happened
from harness.values.row import Facts
from harness.values.verdict import VerdictKind

Row = dict[str, Any]
LONG = 120
"""Seconds from which on minutes are said."""

INTRODUCTION = """\
# A night of the shipped matrix

`triage matrix run --shard I/4 --night NAME` over [matrix.yaml](../matrix.yaml), without a GPU.
`python checks/night.py` makes this page from what the shards print and from their store.
Everything here is *compiled*; nothing was executed.
"""


def rows() -> list[Row]:
    """The rows of the last run in the store."""
    words = ["export", "--format", "jsonl"]
    done = subprocess.run(
        [sys.executable, "-m", "harness", *words], check=True, stdout=subprocess.PIPE
    )
    return list(map(json.loads, done.stdout.splitlines()))


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


def effort(documents: Sequence[Row]) -> Iterator[str]:
    """What each part took."""
    cores = os.cpu_count() or 1
    yield "| part | cells worked on | wall | cells a second | CPU of compilers | left |"
    yield "|---|---|---|---|---|---|"
    run, before = None, 0
    cells, seconds = 0, 0.0
    for number, document in enumerate(documents, start=1):
        # A document counts all cells of the night that its store has.
        total = sum(document["cells"].values())
        if document["run"] != run:
            run, before = document["run"], 0
        carried = document["carried"]
        worked, before = total - before - carried, total
        wall, cpu = document["wall_seconds"], document["cpu_seconds"]
        cells, seconds = cells + worked, seconds + cpu
        left = document["left"]
        took = f"{wall / 60:.0f} min" if wall >= LONG else f"{wall:.1f} s"
        yield (
            f"| {number} | {worked:,} ({carried:,} needed no work) | {took} | {worked / wall:.1f} |"
            f" {cpu:,.0f} s, {cpu / wall / cores:.0%} of {cores} cores |"
            f" {left['cells']:,} cells, {left['captures']:,} captures |"
        )
    yield ""
    yield (
        f"In all {cells:,} cells took {seconds:,.0f} CPU seconds of compilers; four runners of two"
        f" cores have {4 * 2 * 2 * 3600:,} in two hours."
    )


def changed(found: Sequence[Row]) -> Iterator[str]:
    """Where a newer Triton, or the newest ptxas in place of the bundled one, changes verdicts."""
    counted: dict[tuple[str, ...], list[Row]] = {}
    same = 0
    for older, newer in pairs(found):
        name = "ptxas" if older["triton"] == newer["triton"] else "triton"
        if older["verdict"] == newer["verdict"]:
            same += 1
            continue
        what = f"{name} {older[name]} -> {newer[name]}"
        facts = (newer["kernel"], newer["target"], what, older["verdict"], newer["verdict"])
        counted.setdefault(facts, []).append(newer)
    yield f"{same:,} pairs have the same verdict, {sum(map(len, counted.values())):,} do not:"
    yield ""
    yield "| kernel | target | what is newer | before | after | cells | one of them |"
    yield "|---|---|---|---|---|---|---|"
    for place, group in sorted(counted.items()):
        yield f"| {' | '.join(place)} | {len(group)} | `{group[0]['short']}` |"


def pairs(found: Sequence[Row]) -> Iterator[tuple[Row, Row]]:
    """Cells that differ in their Triton, or in their ptxas, alone."""
    places: dict[tuple[str, ...], list[Row]] = {}
    for row in found:
        if row["triton"] and row["ptxas"]:
            config = json.dumps(row["config"], sort_keys=True)
            place = (row["kernel"], row["launch"], config, row["target"])
            places.setdefault(place, []).append(row)
    for group in places.values():
        bundled = sorted(
            (row for row in group if row["ptxas_origin"] == "bundled"),
            key=lambda row: Version(row["triton"]),
        )
        if len(bundled) > 1:
            yield bundled[-2], bundled[-1]
        for row in bundled:
            others = [each for each in group if each["triton"] == row["triton"]]
            newest = max(others, key=lambda each: Version(each["ptxas"]))
            if newest is not row:
                yield row, newest


def unsound(found: Sequence[Row]) -> Iterator[str]:
    """Kernels of which fewer than half of the cells compile soundly on a target."""
    yield "| kernel | target | sound | of | the others |"
    yield "|---|---|---|---|---|"
    places: dict[tuple[str, str], Counter[str]] = {}
    for row in found:
        places.setdefault((row["kernel"], row["target"]), Counter())[row["verdict"]] += 1
    for (kernel, target), verdicts in sorted(places.items()):
        total, ok = verdicts.total(), verdicts.pop("ok", 0)
        if ok * 2 < total:
            others = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
            yield f"| {kernel} | {target} | {ok} | {total} | {others} |"


def page(documents: Sequence[Row], found: Sequence[Row], note: str) -> Iterator[str]:
    """Lines of Markdown."""
    yield from (INTRODUCTION, *filter(None, [note]), "")
    yield from effort(documents)
    yield ""
    verdicts = Counter(row["verdict"] for row in found)
    said = ", ".join(f"{count:,} {verdict}" for verdict, count in verdicts.most_common())
    yield f"{len(found):,} cells: {said}."
    yield from ("", "## Newer compilers", "")
    yield from changed(found)
    yield from ("", "## Kernels with few sound configs", "")
    yield from unsound(found)
    yield from ("", "## Unexpected", "")
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in unexpected(found):
        place: tuple[str, ...] = (row["kernel"], compiler_of(row), row["target"], row["verdict"])
        groups.setdefault(place, []).append(row)
    if not groups:
        yield "No cell fails unexpectedly."
        return
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
    parser.add_argument("--note", default="", help="What else is to be known of the machine.")
    options = parser.parse_args()
    documents = [json.loads(path.read_text()) for path in options.documents]
    print("\n".join(page(documents, rows(), options.note)))


if __name__ == "__main__":
    main()
