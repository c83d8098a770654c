"""Many kernels in one table: the results of each on each target, and the failures they share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from harness.tables.rows import grid_of
from harness.tables.said import Block, Counted, Tone, say, verdict_said
from harness.tables.samples import Sample, samples_said
from harness.tables.survivors import Fate, survivors
from harness.values.row import Row
from harness.values.toolchain import assembler_name
from harness.values.verdict import VerdictKind


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """`targets` in order of first appearance are the columns; the largest failure comes first.

    `lines` are by kernel, launch and toolchain: how many configs of each verdict, by target. Each
    of the `failures` is of one target, over all kernels.
    """

    targets: tuple[str, ...]
    lines: dict[tuple[str, str, str], dict[str, Counter[VerdictKind]]]
    failures: tuple[Fate, ...]
    headline: str
    samples: tuple[Sample, ...]


def summarize(rows: Sequence[Row], samples: Sequence[Sample] = ()) -> Summary:
    """Count the rows by kernel and target, and merge what fails by signature and target.

    `samples` say which configs were left out.
    """
    counts: dict[tuple[str, str, str], dict[str, Counter[VerdictKind]]] = {}
    for row in rows:
        words = [row.compiler_name]
        # Which ptxas a Triton bundles depends on the target, and targets share a line.
        bundled = row.ptxas_origin == "bundled"
        words.append(f"bundled {assembler_name(row.assembler)}" if bundled else row.tool)
        key = (row.kernel, row.launch, ", ".join([*words, "frozen PTX"] if row.frozen else words))
        counts.setdefault(key, {}).setdefault(row.target, Counter())[row.verdict] += 1
    failing: dict[tuple[VerdictKind, str | None, str], list[Row]] = {}
    for row in rows:
        if not row.verdict.compiles:
            failing.setdefault((row.verdict, row.signature, row.target), []).append(row)
    failures = [survivors(group).fates[0] for group in failing.values()]
    targets = tuple(dict.fromkeys(row.target for row in rows))
    kernels = len({kernel for kernel, *_ in counts})
    verdicts = Counter(row.verdict for row in rows)
    counted = ", ".join(f"{count:,} {verdict}" for verdict, count in verdicts.most_common())
    untried = sum(sum(sample.left_out.values()) for sample in samples)
    more = f"; {untried:,} more not tried" if untried else ""
    return Summary(
        targets=targets,
        lines=counts,
        failures=tuple(sorted(failures, key=lambda failure: -len(failure.rows))),
        headline=(
            f"{plural(kernels, 'kernel')} on {plural(len(targets), 'target')}, "
            f"{plural(len(rows), 'config')} in all: {counted}{more}."
        ),
        samples=tuple(samples),
    )


def plural(count: int, word: str, words: str = "") -> str:
    """`1 kernel`, `2,000 kernels`; `words` where it is not the word with an s."""
    return f"{count:,} {word if count == 1 else words or f'{word}s'}"


# Many kernels for people: a line a kernel, a column a target, and what fails across them.

_SHOWN = 4


def summary_said(summary: Summary) -> list[Block]:
    """The table, the headline, and each failure once."""
    columns = summary_columns(summary)
    table = grid_of(columns, {}, tuple(columns))
    failures = (
        Counted(len(failure.rows), verdict_said(failure.verdict, [say(failure_words(failure))]))
        for failure in summary.failures
    )
    left_out = samples_said(summary.samples)
    return [table, say(summary.headline, Tone.HEAD), *left_out, *failures]


def summary_columns(summary: Summary) -> dict[str, list[str]]:
    """Title to cells; the toolchain is a column only where there are several."""
    # A kernel's name, and its launch where one was asked for that is not everybody's first.
    launches: dict[str, set[str]] = {}
    for kernel, launch, _ in summary.lines:
        launches.setdefault(kernel, set()).add(launch)
    columns = {
        "kernel": [
            f"{kernel} · {launch}" if len(launches[kernel]) > 1 else kernel
            for kernel, launch, _ in summary.lines
        ]
    }
    toolchains = [toolchain for *_, toolchain in summary.lines]
    if len(set(toolchains)) > 1:
        columns["toolchain"] = toolchains
    for target in summary.targets:
        verdicts = [by_target.get(target, Counter()) for by_target in summary.lines.values()]
        columns[target] = [
            ", ".join(f"{count} {verdict}" for verdict, count in some.items()) or "-"
            for some in verdicts
        ]
    return columns


def failure_words(failure: Fate) -> str:
    """Where, why, and whose fault it is."""
    fault = f" ({failure.at_fault})" if failure.at_fault else ""
    names = list(dict.fromkeys(row.kernel for row in failure.rows))
    more = len(names) - _SHOWN
    kernels = ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
    return f" on {failure.rows[0].target} [{kernels}]: {failure.reason}{fault}"
