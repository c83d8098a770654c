"""From a judgement to a row. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from harness.run.jobs import Ran
from harness.run.judging import Judgement
from harness.values.cell import CellId
from harness.values.execution import RunRow
from harness.values.row import Row
from harness.values.toolchain import EMULATOR, TRITON, Compiler
from harness.values.verdict import Stage, VerdictKind


def row_of(
    cell: CellId,
    judgement: Judgement,
    runs: Sequence[Ran],
    compiled: Row | None = None,
    *,
    triton: str | None = None,
    ptx_sha256: str | None = None,
) -> RunRow:
    """The row of a cell that was executed on the emulator, or could not be (no runs).

    `triton` is the version that compiled it, None for raw PTX.
    """
    executed = [ran for ran in runs if not ran.not_run]
    named = _named(cell)
    return RunRow(
        cell=str(named),
        short=named.short,
        kernel=cell.kernel,
        launch=cell.launch,
        config=cell.config.as_dict(),
        target=str(cell.target),
        triton=triton,
        on=EMULATOR,
        run=judgement.verdict,
        run_reason=judgement.reason,
        run_signature=judgement.signature.key if judgement.signature else None,
        ptx_sha256=ptx_sha256,
        reference=judgement.reference,
        schedule=judgement.schedule,
        outputs=judgement.outputs,
        races=judgement.races,
        printed=next((ran.printed for ran in runs if ran.printed), ()),
        instructions_run=sum(ran.executed for ran in executed) or None,
        ctas_run=max((ran.ctas for ran in executed), default=None),
        ctas=max((ran.ctas_of for ran in executed), default=None),
        seconds=round(sum(ran.seconds for ran in runs), 3) if runs else None,
        compiled=compiled,
    )


def result_of(
    row: RunRow,
    cell: CellId,
    *,
    compiler: Compiler | None,
    ptx_body_sha256: str | None,
    cached: bool,
    is_infra: bool = False,
) -> Row:
    """A run as a result like any other: the emulator in the place of ptxas, `run` as the stage.

    `compiler` is None for raw PTX. `is_infra`: this machine failed, and the row says nothing of
    the kernel.
    """
    kind = VerdictKind.INFRA if is_infra else VerdictKind(row.run.value)
    named = _named(cell)
    return Row(
        cell=str(named),
        short=named.short,
        kernel=row.kernel,
        launch=cell.launch,
        config=row.config,
        target=row.target,
        triton=compiler.version if compiler and compiler.kind == TRITON else None,
        ptxas=EMULATOR,
        ptxas_origin=EMULATOR,
        verdict=kind.value,
        reason=row.run_reason,
        stage=None if kind.compiles else Stage.RUN.value,
        signature=row.run_signature,
        ptx_sha256=row.ptx_sha256,
        ptx_body_sha256=ptx_body_sha256,
        cached=cached,
        seconds=row.seconds,
        compiler=compiler.kind if compiler else None,
        compiler_version=compiler.version if compiler else None,
    )


def _named(cell: CellId) -> CellId:
    """The id of a run: it is kept by it, beside those of compiles."""
    return replace(cell, ptxas=EMULATOR)


def as_document(row: RunRow) -> dict[str, Any]:
    """A row for JSON: the keys of a compiled cell (null where it was not), and the run's."""
    compiled = {each.name: getattr(row.compiled, each.name, None) for each in fields(Row)}
    run = {each.name: getattr(row, each.name) for each in fields(row) if each.name != "compiled"}
    return {**compiled, **run}
