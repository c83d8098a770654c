"""Many kernels for people: a line a kernel, a column a target, and what fails across them."""

from __future__ import annotations

from collections import Counter

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from harness.tables.rows import counted, verdict_text
from harness.tables.summary import SharedFailure, Summary

__all__ = ["failure_words", "line_titles", "render_summary", "summary_columns"]

_SHOWN = 4


def render_summary(summary: Summary) -> RenderableType:
    """The table, the headline, and each failure once."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    columns = summary_columns(summary)
    for title in columns:
        table.add_column(title)
    for line in zip(*columns.values(), strict=True):
        table.add_row(*line)
    parts: list[RenderableType] = [table, Text(summary.headline, style="bold")]
    parts += [
        counted(failure.count, verdict_text(failure.verdict.value), failure_words(failure))
        for failure in summary.failures
    ]
    return Group(*parts)


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
