"""The same results as GitHub Markdown: for an issue, a pull request, or documentation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from harness.tables.rows import columns_of, fate_words, heading_of
from harness.tables.samples import Sample, untried
from harness.tables.summary import Summary, failure_words, summary_columns
from harness.tables.survivors import group_rows, survivors
from harness.values.row import Row

# They differ from run to run, or mean something on one machine only.
_LEFT_OUT = ("cell", "s")


def rows_as_markdown(
    rows: Sequence[Row], samples: Sequence[Sample] = (), launches: Mapping[str, str] = {}
) -> str:
    """A table and its survivorship for each launch, target and toolchain, in order.

    By cell, `launches` say what tells its launch from the others of the kernel.
    """
    parts = []
    for group in group_rows(rows):
        columns = columns_of(group)
        shown = {title: cells for title, cells in columns.items() if title not in _LEFT_OUT}
        grouped = survivors(group, untried(group, samples))
        fates = [
            f"- {len(fate.rows)} `{fate.verdict.value}`{fate_words(fate)}"
            for fate in grouped.fates
            if not fate.verdict.is_healthy
        ]
        suspects = Counter(row.suspect for row in group if row.suspect)
        fates += [f"- {count} statically suspect: {words}" for words, count in suspects.items()]
        parts += [f"**{_escape(heading_of(group, launches))}**", "", _table(shown), ""]
        parts += ["\n".join([grouped.headline, "", *map(_escape, fates)]).rstrip(), ""]
    parts += [_escape(sample.words) for sample in samples]
    return "\n".join(parts).rstrip() + "\n"


def summary_as_markdown(summary: Summary) -> str:
    """The table of kernels and targets, the headline, and each failure once."""
    failures = [
        _escape(f"- {len(failure.rows)} `{failure.verdict.value}`{failure_words(failure)}")
        for failure in summary.failures
    ]
    left_out = [_escape(f"- {sample.words}") for sample in summary.samples]
    lines = [_table(summary_columns(summary)), "", summary.headline, "", *left_out, *failures]
    return "\n".join(lines).rstrip() + "\n"


def _table(columns: Mapping[str, Sequence[str]]) -> str:
    lines = [_line(columns), _line("---" for _ in columns)]
    lines += [_line(cells) for cells in zip(*columns.values(), strict=True)]
    return "\n".join(lines)


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(_escape(cell).replace("|", "\\|") for cell in cells) + " |"


def _escape(text: str) -> str:
    return text.replace("*", "\\*").replace("<", "&lt;")
