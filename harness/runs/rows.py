"""From a judgement to a row. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from harness.runs.jobs import Ran
from harness.runs.judging import Judgement
from harness.values.cell import CellId
from harness.values.row import Row
from harness.values.run import RunRow

__all__ = ["EMULATOR", "as_document", "row_of"]

EMULATOR = "emulator"


def row_of(
    cell: CellId,
    judgement: Judgement,
    runs: Sequence[Ran],
    compiled: Row | None = None,
    *,
    triton: str | None = None,
) -> RunRow:
    """The row of a cell that was executed on the emulator, or could not be (no runs).

    `triton` is the version that compiled it, None for raw PTX.
    """
    executed = [ran for ran in runs if not ran.not_run]
    return RunRow(
        cell=str(cell),
        short=cell.short,
        kernel=cell.kernel,
        launch=cell.launch,
        config=cell.config.as_dict(),
        target=str(cell.target),
        triton=triton,
        on=EMULATOR,
        run=judgement.verdict,
        run_reason=judgement.reason,
        run_signature=judgement.signature.key if judgement.signature else None,
        reference=judgement.reference,
        schedule=judgement.schedule,
        outputs=judgement.outputs,
        races=judgement.races,
        instructions_run=sum(ran.executed for ran in executed) or None,
        ctas_run=max((ran.ctas for ran in executed), default=None),
        ctas=max((ran.ctas_of for ran in executed), default=None),
        seconds=round(sum(ran.seconds for ran in runs), 3) if runs else None,
        compiled=compiled,
    )


def as_document(row: RunRow) -> dict[str, Any]:
    """A row for JSON: the keys of a compiled cell (null where it was not), and the run's."""
    compiled = {each.name: getattr(row.compiled, each.name, None) for each in fields(Row)}
    run = {each.name: getattr(row, each.name) for each in fields(row) if each.name != "compiled"}
    return {**compiled, **run}
