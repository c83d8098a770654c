"""`triage blame`: several Tritons, each PTX on every ptxas, and which component is to blame."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from packaging.version import Version

from harness.bisect.collapse.lifting import lift_collapse
from harness.blame.columns import Columns, choose_columns
from harness.blame.grid import Grid
from harness.blame.lines import (
    Made,
    Study,
    assemble_all,
    distinct,
    followed,
    lines_of,
    look_along,
    make_all,
)
from harness.blame.pairs import as_users_pair, remedy_of
from harness.blame.trials import Pair, run_trials
from harness.blame.words import BlameReport, blame
from harness.cells.places import CompileOptions, open_bench
from harness.frontends.base import PlannedCell, Selection
from harness.io.processes.hub import Hub
from harness.judging.answers import VerdictAnswer
from harness.judging.conditions import Condition
from harness.judging.followed import Followed, follow, rank, severity
from harness.store.store import Store
from harness.values.cell import CellId
from harness.values.errors import (
    CaptureError,
    EmptySelectionError,
    InfrastructureError,
    TriageError,
)
from harness.values.row import Row
from harness.values.toolchain import Compiler, compiler_name
from harness.values.verdict import VerdictKind

# The rank from which on a row does not show what is asked about.
_NOT_MEANT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class BlameOptions:
    """Which failure is meant, and how many pairs of PTX and ptxas may be tried for it.

    With a `condition`, what is followed is that in the place of a failure.

    `looks_further`: where the one config that is meant works, or is only sick, its PTX is tried on
    other ptxas for one that fails.
    """

    signature: str | None = None
    condition: Condition | None = None
    budget: int = 60
    looks_further: bool = True


async def find_blame(
    selection: Selection,
    store: Store,
    how: CompileOptions,
    options: BlameOptions,
    tell: Callable[[str, str], None],
) -> BlameReport:
    """Follow the first cell that fails through the grid; `tell` hears of each pair.

    Raises:
        EmptySelectionError: no config matches.
        TriageError: where the question begins, nothing could be tried.
    """
    run_id = store.begin_run(how.command)
    async with Hub() as hub:
        study = Study(
            bench=open_bench(hub, store, how),
            run=run_id,
            selection=selection,
            budget=options.budget,
            tell=tell,
        )
        asked = Followed(signature=options.signature, condition=options.condition)
        case, row, others = await find_case(study, asked)
        if options.looks_further and not others and rank(row, asked) in (1, 3):
            found = await look_along(study, case, row, lambda each: rank(each, asked) == 0)
            case, row = found or (case, row)
        grid = Grid(lines=(), ptxas=(), focus=_follow(case, row, asked))
        if rank(row, asked) < _NOT_MEANT:
            grid = await _grid(study, case, row, asked)
        lifting = await lift_collapse(study.bench, case, row)
    store.finish_run(run_id)
    said = blame(grid)
    return BlameReport(
        case=row,
        cell=case.cell,
        grid=grid,
        blame=replace(said, reasons=(*said.reasons, *lifting)),
        others=others,
        remedy=remedy_of(grid, row.compiler, row.compiler_version)
        if grid.focus.kind is VerdictKind.UNSUPPORTED
        else (),
        troubles=tuple(dict.fromkeys(study.troubles)),
        notes=tuple(dict.fromkeys(study.notes)),
    )


def _follow(case: PlannedCell, row: Row, asked: Followed, others: Iterable[Row] = ()) -> Followed:
    """What is followed of the case; `others` are what other toolchains make of it."""
    has = case.limits.tensor_memory_columns if case.limits else None
    is_over_limit = has is not None and row.tmem_size is not None and row.tmem_size > has
    return follow(row, condition=asked.condition, others=others, is_over_limit=is_over_limit)


async def find_case(study: Study, asked: Followed) -> tuple[PlannedCell, Row, tuple[CellId, ...]]:
    """The first cell that fails, of all that were selected, and one of each config beside it.

    Where nothing fails outright, the sickest; and an unsupported one where nothing is sick.
    """
    tried: list[tuple[PlannedCell, Row]] = []
    seen: dict[object, CellId] = {}
    refusals: list[TriageError] = []
    for triton in _in_order(study.selection):
        try:
            cells = (await study.plan(triton)).cells
        except CaptureError as error:
            refusals.append(error)
            continue
        seen |= {followed(cell): cell.cell for cell in cells}
        tried += await _until_one_fails(study, cells, asked)
        if any(rank(row, asked) == 0 for _, row in tried):
            break
    if not tried:
        raise (refusals or [EmptySelectionError("--config matches none of the configs")])[0]
    cell, row = min(tried, key=lambda pair: (rank(pair[1], asked), -severity(pair[1])))
    if row.verdict == VerdictKind.INFRA.value:
        raise InfrastructureError(row.reason)
    del seen[followed(cell)]
    return cell, row, tuple(seen.values())


def _in_order(selection: Selection) -> Sequence[Compiler]:
    """The Tritons as they were named; the repro's own, which is where it was seen, first."""
    own = selection.repro.version
    return sorted(selection.compilers, key=lambda triton: triton.version != own)


async def _until_one_fails(
    study: Study, cells: Sequence[PlannedCell], asked: Followed
) -> list[tuple[PlannedCell, Row]]:
    tried: list[tuple[PlannedCell, Row]] = []
    for first in range(0, len(cells), study.bench.jobs):
        batch = cells[first : first + study.bench.jobs]
        rows = await asyncio.gather(*(study.row(cell) for cell in batch))
        tried += zip(batch, rows, strict=True)
        if any(rank(row, asked) == 0 for row in rows):
            break
    return tried


async def _grid(study: Study, case: PlannedCell, row: Row, asked: Followed) -> Grid:
    """The grid around a failing cell, within the budget."""

    def follow_now() -> Followed:
        known = (other for each in made for other in each.all_rows())
        return _follow(case, row, asked, [other for other in known if other is not row])

    made = await make_all(study, case, row, _follow(case, row, asked))
    if row.verdict == VerdictKind.UNSUPPORTED.value and asked.condition is None:
        made += await as_users_pair(study, case, made)
    focus = follow_now()
    bundled = [each.cell.ptxas for each in made if each.cell]
    columns = choose_columns(study.selection, case.ptxas, bundled, study.troubles)
    if made[0].program:
        await assemble_all(study, made, columns, focus)
        focus = follow_now()
    lines = lines_of(made, focus)
    used = {version for line in lines for version in line.cells}
    grid = Grid(lines=lines, ptxas=tuple(sorted(used, key=Version)), focus=focus)
    failing, working = await _pairs(distinct(made), columns, focus)
    trials = await run_trials(study.bench, failing, working, focus)
    return replace(grid, trials=trials)


async def _pairs(
    programs: Sequence[Made], columns: Columns, focus: Followed
) -> tuple[Pair | None, Pair | None]:
    """A failing pair, if it can be the one that the question begins with, and a working neighbour.

    The neighbour is the same PTX on the nearest ptxas that takes it, else other PTX on this one.
    """
    if not programs:
        return None, None
    ordered = columns.ordered
    found = _first(programs, VerdictAnswer.SAME, focus, [columns.wanted[0], *ordered[::-1]])
    if found is None:
        return None, None
    made, version = found
    place = ordered.index(version)
    near = sorted(ordered, key=lambda other: abs(ordered.index(other) - place))
    beside = _first([made], VerdictAnswer.OK, focus, near)
    beside = beside or _first(programs, VerdictAnswer.OK, focus, [version])
    others = {
        each.row.ptxas_flags: f"with the flags of {compiler_name(each.row.compiler, each.triton)}"
        for each in reversed(programs)
        if each.row and made.row and each.row.ptxas_flags != made.row.ptxas_flags
    }
    failing = await _pair(found, columns, VerdictAnswer.SAME)
    working = await _pair(beside, columns, VerdictAnswer.OK) if beside else None
    return failing and replace(failing, flags=tuple(others.items())), working


def _first(
    programs: Sequence[Made], outcome: VerdictAnswer, focus: Followed, versions: Sequence[str]
) -> tuple[Made, str] | None:
    for made in programs:
        for version in versions:
            row = made.rows.get(version)
            if row and focus.of(row) is outcome:
                return made, version
    return None


async def _pair(found: tuple[Made, str], columns: Columns, outcome: VerdictAnswer) -> Pair | None:
    made, version = found
    ptxas = await columns.get(version)
    if ptxas is None or made.cell is None:
        return None
    return Pair(cell=made.cell, row=made.rows[version], ptxas=ptxas, outcome=outcome)
