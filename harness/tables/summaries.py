"""Many kernels for people: a line a kernel, a column a target, and what fails across them."""

from __future__ import annotations

from collections import Counter

from harness.tables.said import Block, Counted, GridColumn, SaidGrid, Tone, say, verdict_said
from harness.tables.summary import SharedFailure, Summary

_SHOWN = 4


def summary_said(summary: Summary) -> list[Block]:
    """The table, the headline, and each failure once."""
    columns = summary_columns(summary)
    table = SaidGrid(
        columns=tuple(GridColumn(title=title, wraps=True) for title in columns),
        rows=tuple(tuple(map(say, cells)) for cells in zip(*columns.values(), strict=True)),
    )
    failures = (
        Counted(each.count, verdict_said(each.verdict.value, [say(failure_words(each))]))
        for each in summary.failures
    )
    return [table, say(summary.headline, Tone.HEAD), *failures]


def summary_columns(summary: Summary) -> dict[str, list[str]]:
    """Title to cells; the toolchain is a column only where there are several."""
    columns = {"kernel": line_titles(summary)}
    toolchains = [line.toolchain for line in summary.lines]
    if len(set(toolchains)) > 1:
        columns["toolchain"] = toolchains
    for target in summary.targets:
        columns[target] = [_counts(line.by_target.get(target)) for line in summary.lines]
    return columns


def line_titles(summary: Summary) -> list[str]:
    """A kernel's name, and its launch where one was asked for that is not everybody's first."""
    launches: dict[str, set[str]] = {}
    for line in summary.lines:
        launches.setdefault(line.kernel, set()).add(line.launch)
    return [
        f"{line.kernel} · {line.launch}" if len(launches[line.kernel]) > 1 else line.kernel
        for line in summary.lines
    ]


def failure_words(failure: SharedFailure) -> str:
    """Where, why, and whose fault it is."""
    fault = f" ({failure.at_fault})" if failure.at_fault else ""
    more = len(failure.kernels) - _SHOWN
    kernels = ", ".join(failure.kernels[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
    return f" on {failure.target} [{kernels}]: {failure.reason}{fault}"


def _counts(found: Counter[str] | None) -> str:
    if not found:
        return "-"
    return ", ".join(f"{count} {verdict}" for verdict, count in found.items())
