"""Which failure is to be reduced: the first config that shows it, its PTX, its flags."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from msgspec import structs

from gpu_emulator.ptx.text.facts import PtxError, read_ptx, retarget
from harness.cells.evaluate import Evaluate, Evaluated
from harness.cells.places import record_of
from harness.frontends.bench import Workbench
from harness.frontends.plan import PlannedCell, Selection
from harness.frontends.registry import plan_launch
from harness.judging.conditions import Condition, holds, row_fields
from harness.judging.followed import follow, is_followable
from harness.minimize.reduction.minimization import NothingToReduce
from harness.tables.summary import plural
from harness.values.cell import LaunchLabel
from harness.values.errors import EmptySelectionError
from harness.values.row import Row
from harness.values.verdict import Stage, VerdictKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A cell that shows what is looked for, and its row, whose flags are those to ask ptxas with.

    `condition` is what it has to meet, where no failure is looked for. `text` is its PTX with the
    target that was asked for; None where the pipeline did not come so far. `names` are all that its
    config and those beside it set. `notes` are for the report.
    """

    cell: PlannedCell
    row: Row
    text: str | None
    condition: Condition | None = None
    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectSearch:
    """What a subject has to show: the `condition`, else a failure; `any_will_do` takes the first.

    With `at_ptxas`, what went wrong before ptxas saw anything does not count.
    """

    condition: Condition | None = None
    any_will_do: bool = False
    at_ptxas: bool = False

    def shows(self, row: Row) -> bool:
        """Whether it fails, or meets the condition, at whatever stage."""
        if self.condition is not None:
            return holds(self.condition, row_fields(row))
        return is_followable(row) and not row.verdict.compiles

    def is_sick(self, row: Row) -> bool:
        """Whether it is what is left to look at where nothing fails."""
        is_sick = row.verdict is VerdictKind.SICK
        return self.condition is None and is_sick and self.counts(row)

    def counts(self, row: Row) -> bool:
        """Whether it went wrong where that matters."""
        return not self.at_ptxas or (row.ptx_sha256 is not None and not is_before_ptxas(row))


async def find_subject(
    bench: Workbench,
    selection: Selection,
    run: int,
    search: SubjectSearch,
    tell: Callable[[str], None],
    how_it_is: Evaluate,
) -> Subject | NothingToReduce:
    """The first config that fails, or meets the condition; else the first that is sick.

    `how_it_is` compiles a cell, or executes it.

    Raises:
        CaptureError: the launch cannot be captured.
        EmptySelectionError: no config matches.
        TriageError: a toolchain is not available, or results cannot be stored.
    """
    cells = (await plan_launch(bench, selection.place())).cells
    if not cells:
        raise EmptySelectionError("--config matches none of the configs")
    rows: list[Row] = []
    async with aclosing(_in_order(bench, cells, how_it_is)) as evaluated:
        async for result in evaluated:
            bench.store.put_result(run, record_of(result))
            row = result.row
            cell = cells[len(rows)].cell
            rows.append(row)
            if len(cells) > 1:
                tell(f"{cell.launch}, {cell.config.label}: {row.verdict}: {row.reason[:100]}")
            if search.counts(row) and (search.any_will_do or search.shows(row)):
                return _chosen(bench, selection, cells, rows, len(rows) - 1, search.condition)
    sick = next((index for index, row in enumerate(rows) if search.is_sick(row)), None)
    if sick is None:
        return NothingToReduce(reason=_why_not(rows, search))
    followed = follow(rows[sick])
    subject = _chosen(bench, selection, cells, rows, sick, followed.condition)
    note = f"nothing fails; what has to stay is that it is sick: {followed.words}"
    tell(note)
    return replace(subject, notes=(note, *subject.notes))


async def _in_order(
    bench: Workbench, cells: Sequence[PlannedCell], how_it_is: Evaluate
) -> AsyncGenerator[Evaluated, None]:
    """Each cell evaluated, in their order; as many are on their way as there are jobs."""
    waiting: deque[asyncio.Task[Evaluated]] = deque()
    remaining = iter(cells)
    try:
        while True:
            for cell in itertools.islice(remaining, bench.jobs - len(waiting)):
                waiting.append(asyncio.ensure_future(how_it_is(bench, cell)))
            if not waiting:
                return
            yield await waiting[0]
            waiting.popleft()
    finally:
        for task in waiting:
            task.cancel()
        if waiting:
            await asyncio.wait(waiting)


def _chosen(
    bench: Workbench,
    selection: Selection,
    cells: Sequence[PlannedCell],
    rows: Sequence[Row],
    index: int,
    condition: Condition | None,
) -> Subject:
    cell, row = cells[index], rows[index]
    target, text = cell.cell.target, None
    if row.ptx_sha256:
        text = bench.store.artifacts.get(row.ptx_sha256).decode(errors="replace")
        if cell.launch and target.suffix:
            # What `bench.assemble` hands to ptxas: Triton may have written another target.
            with contextlib.suppress(PtxError):
                is_same = read_ptx(text).target == str(target)
                text = text if is_same else retarget(text, target=str(target))
    flags = row.ptxas_flags or ("-v", f"--gpu-name={target}")
    names = [name for cell in cells for name in cell.cell.config.as_dict()]
    names += [name for name, _ in selection.config.wanted]
    others = len(cells) - len(rows)
    words = plural(others, "more config was", "more configs were")
    notes = [f"{words} not looked at (--config names one)"] if others else []
    launches = {one.cell.launch for one in cells if one.cell.kernel == cell.cell.kernel}
    if len(launches) > 1:
        label = LaunchLabel.parse(cell.cell.launch)
        name = f"{label.call}#{label.number}"
        notes.insert(0, f"of {len(launches)} launches, {name} is reduced (--launch names another)")
    return Subject(
        cell=cell,
        row=structs.replace(row, ptxas_flags=flags),
        text=text,
        condition=condition,
        names=tuple(dict.fromkeys(names)),
        notes=tuple(notes),
    )


def _why_not(rows: Sequence[Row], search: SubjectSearch) -> str:
    early = [row for row in rows if search.shows(row) and is_before_ptxas(row)]
    if search.at_ptxas and early:
        return (
            f"it goes wrong before ptxas, in stage {early[0].stage}: {early[0].reason}; "
            "PTX cannot show that"
        )
    row = rows[0]
    verdict = "nothing fails" if search.condition is None else "--while does not hold"
    many = f" (the first of {len(rows)} configs, and so for each)" if len(rows) > 1 else ""
    return f"{verdict}: {row.verdict}: {row.reason}{many}"


def is_before_ptxas(row: Row) -> bool:
    """Whether it went wrong before ptxas saw anything; of raw PTX, nothing does."""
    return (
        row.compiler is not None
        and row.stage is not None
        and Stage(row.stage) not in (Stage.CUBIN, Stage.LAUNCH)
    )
