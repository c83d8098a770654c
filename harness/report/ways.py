"""Workarounds as a report has them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.report.dossier import KnownWorkaround
from harness.values.row import Row
from harness.values.verdict import VerdictKind
from harness.workaround.result import Candidate


def options_that_work(case: Row, rows: Sequence[Row]) -> Iterator[KnownWorkaround]:
    """Single options of the case's config with which another row came out right."""
    for row in rows:
        new = {n: value for n, value in row.config.items() if value != case.config.get(n)}
        is_elsewhere = (row.target, row.triton) != (case.target, case.triton)
        if is_elsewhere or len(new) != 1 or not VerdictKind(row.verdict).is_fine_run:
            continue
        [(name, value)] = new.items()
        yield KnownWorkaround(
            change=f"{name} {case.config.get(name, 'unset')} -> {value}",
            row=row,
            evidence=f"{row.reason.replace(':', ' on these inputs:', 1)}",
        )


def way_of(found: Candidate) -> KnownWorkaround:
    """A workaround that was found, as a report has it."""
    numerics = found.numerics
    return KnownWorkaround(
        change=found.change,
        row=found.row,
        evidence=f"{numerics.known.value}: {numerics.reason}",
        paste="\n".join(found.paste),
    )
