"""`triage bisect` along what has no order: ptxas' flags, GPU targets, the autotuner's configs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import structs

from harness.bisect.axes import plan_cells
from harness.bisect.contrast import Contrast, Point, other_targets
from harness.cells.evaluate import Evaluate, Evaluated, evaluate, with_flags
from harness.cells.places import CompileOptions, record_of, work
from harness.cells.selection import SUFFIX_SINCE, for_target
from harness.frontends.bench import Workbench
from harness.frontends.plan import PlannedCell, PlannedLaunch, Selection
from harness.frontends.registry import back_end, front_end, unassembled
from harness.io.processes.tasks import in_parallel
from harness.judging.answers import VerdictAnswer
from harness.judging.conditions import Condition
from harness.judging.followed import FollowedFailure, follow, rank
from harness.judging.ptxas.ptxas_options import single_changes
from harness.store.store import Store
from harness.values.cell import same_place
from harness.values.errors import CaptureError, EmptySelectionError, UsageError
from harness.values.kernel import ConfigFilter
from harness.values.limits import KNOWN_CAPABILITIES
from harness.values.row import Row
from harness.values.target import Target
from harness.values.toolchain import EMULATOR, NO_ASSEMBLER, PTXAS, takes_cubins
from harness.values.verdict import VerdictKind

if TYPE_CHECKING:
    from harness.run.raw import RawInputs  # numpy: 0.1 s

_REFUSED = (VerdictKind.UNSUPPORTED, VerdictKind.NOT_RUN)
_NO_ISA = "99.9"  # no ptxas takes it
CONTRAST_AXES = ("target", "flag", "config")


_Neighbour = tuple[str, PlannedCell | str]
"""A label, and the cell that is to be tried; or the reason why there is none."""


async def contrast(
    selection: Selection,
    store: Store,
    how: CompileOptions,
    axis: str,
    signature: str | None,
    tell: Callable[[str, str], None],
    *,
    condition: Condition | None = None,
    run: bool = False,
    on: str | None = EMULATOR,
    inputs: RawInputs | None = None,
) -> Contrast:
    """Try every neighbour of the first cell that fails; `tell` hears each, and what it did.

    With a `condition`, what is followed is that in the place of a failure. With `run` each is
    executed (`on` what; a file of PTX on these `inputs`), and what comes out is followed; the
    launch is at the size for that. Cubins are executed for the first target of each generation.

    Raises:
        EmptySelectionError: no config matches.
        UsageError: nothing that was selected fails, or fails as `signature` says.
        TriageError: nothing could be tried at all.
    """
    if axis == "flag":
        _require_flags(selection)
    async with work(store, how) as (bench, run_id):
        judge: Evaluate = evaluate
        if run:
            from harness.run.executors import executor_of  # noqa: PLC0415 - numpy: 0.2 s

            judge = executor_of(
                bench, selection, lambda text: tell(text, ""), on, inputs=inputs
            ).evaluate
        cells = (await plan_cells(bench, selection, None)).cells
        if not cells:
            raise EmptySelectionError("--config matches none of the configs")
        question = FollowedFailure(signature=signature, condition=condition)
        origin, result = await _failing(bench, cells, question, judge)
        row = result.row
        store.put_result(run_id, record_of(result))
        neighbours = await _neighbours(bench, selection, axis, origin, row, on)

        newest = None
        if axis == "target" and selection.repro.ptx:
            newest = await _newest_isa(bench, selection, origin, judge)

        async def attempt(neighbour: _Neighbour) -> Point:
            point, result = await _point(bench, neighbour, judge)
            if newest and point.row and point.row.verdict in _REFUSED:
                # Newer targets want a newer `.version` than the file has.
                target = Target.parse(point.label)
                raised = await _on_target(bench, selection, origin, target, version=newest)
                point, result = await _point(bench, raised, judge)
            if result:
                # The configs of a tuner were selected themselves, as the case was.
                is_variant = axis != "config" and result.row.cell != str(origin.cell)
                probe_of = str(origin.cell) if is_variant else result.row.probe_of
                row = structs.replace(result.row, probe_of=probe_of)
                store.put_result(run_id, record_of(structs.replace(result, row=row)))
            said = f"{point.row.verdict}: {point.reason}" if point.row else point.reason
            tell(point.label, said)
            return point

        points = await in_parallel(attempt(neighbour) for neighbour in neighbours)
    others = [point.row for point in points if point.row]
    followed = follow(row, condition=condition, others=others)
    points = [
        replace(point, outcome=followed.of(point.row)) if point.row else point for point in points
    ]
    trouble = next((point.reason for point in points if point.outcome is VerdictAnswer.INFRA), None)
    return Contrast(axis=axis, origin=row, followed=followed, points=tuple(points), trouble=trouble)


def _require_flags(selection: Selection) -> None:
    back = back_end(selection.repro.front_end, selection.targets[0])
    if back.kind == PTXAS:
        return
    reason = f"flags of {back.title} are not known"
    if back.kind == NO_ASSEMBLER:
        reason = unassembled(front_end(selection.repro.front_end))
    raise UsageError(f"{selection.repro.name}: {reason}")


async def _failing(
    bench: Workbench, cells: Sequence[PlannedCell], question: FollowedFailure, judge: Evaluate
) -> tuple[PlannedCell, Evaluated]:
    """The first cell that shows what is asked about; without a question, the first that fails.

    One that is only sick where nothing fails outright, and an unsupported one where nothing is
    sick.
    """
    results = await in_parallel(judge(bench, cell) for cell in cells)
    ranks = [rank(result.row, question) for result in results]
    is_asked = question.signature is not None or question.condition is not None
    if min(ranks) <= (0 if is_asked else 2):
        first = ranks.index(min(ranks))
        return cells[first], results[first]
    if question.condition is not None:
        raise UsageError(f"--while holds for none of the {len(cells)} selected cells")
    how = f" with signature {question.signature}" if question.signature else ""
    raise UsageError(f"none of the {len(cells)} selected cells fails{how}")


async def _neighbours(
    bench: Workbench, selection: Selection, axis: str, origin: PlannedCell, row: Row, on: str | None
) -> list[_Neighbour]:
    if axis == "flag":
        changes = single_changes(row.ptxas_flags)
        return [(change.label, with_flags(origin, change)) for change in changes]
    if axis == "config":
        if selection.repro.ptx:
            raise UsageError(f"{selection.repro.name}: PTX has no configs; use --axis flag")
        every = structs.replace(selection, config=ConfigFilter())
        cells = (await plan_cells(bench, every, None)).cells
        own = origin.cell.kernel, origin.cell.launch, origin.cell.ptxas
        return [
            (cell.cell.config.label, cell)
            for cell in cells
            if (cell.cell.kernel, cell.cell.launch, cell.cell.ptxas) == own
        ]
    own_target = selection.targets[0]
    few = takes_cubins(on)
    targets = [own_target, *other_targets(own_target)] if few else known_targets(own_target)
    return [await _on_target(bench, selection, origin, target) for target in sorted(targets)]


def known_targets(target: Target) -> list[Target]:
    """Every GPU that is known, with the suffix of this target where it exists."""
    since = SUFFIX_SINCE.get(target.suffix, 0)
    return [
        Target(capability=number, suffix=target.suffix if number >= since else "")
        for number in sorted(KNOWN_CAPABILITIES)
    ]


async def _newest_isa(
    bench: Workbench, selection: Selection, origin: PlannedCell, judge: Evaluate
) -> str | None:
    """The newest `.version` that the case's ptxas takes, as it says itself of a newer one."""
    probe = await _on_target(bench, selection, origin, origin.cell.target, version=_NO_ISA)
    point, _ = await _point(bench, probe, judge)
    found = re.search(r"current version is '(\d+\.\d+)'", point.reason)
    return found[1] if found else None


async def _on_target(
    bench: Workbench,
    selection: Selection,
    origin: PlannedCell,
    target: Target,
    version: str | None = None,
) -> _Neighbour:
    """The case for another target; of a file of PTX with this `.version`, if one is given."""
    launch = selection.launches[0]
    if selection.repro.ptx:
        header = {**launch.overrides, "target": str(target)}
        header |= {"version": version} if version else {}
        launch = PlannedLaunch(spec=launch.spec, overrides=header)
    try:
        selection = await asyncio.to_thread(for_target, selection, target)
        plan = await plan_cells(bench, selection, None, launch=launch)
    except CaptureError as error:
        return str(target), str(error)
    own = structs.replace(origin.cell, launch=launch.label) if selection.repro.ptx else origin.cell
    same = [cell for cell in plan.cells if same_place(cell.cell, own, across_targets=True)]
    # The bundled ptxas may be another one for another GPU: the failure is followed on its own.
    cell = next((cell for cell in same if cell.cell.ptxas == origin.cell.ptxas), None)
    cell = cell or next(iter(same), None)
    return str(target), cell or "the launch does not make this config for this GPU"


async def _point(
    bench: Workbench, neighbour: _Neighbour, judge: Evaluate
) -> tuple[Point, Evaluated | None]:
    label, cell = neighbour
    unknown = VerdictAnswer.UNTESTABLE
    if isinstance(cell, str):
        return Point(label=label, outcome=unknown, reason=cell), None
    result = await judge(bench, cell)
    row, config = result.row, cell.cell.config
    return Point(label=label, outcome=unknown, reason=row.reason, row=row, config=config), result
