"""`triage blame`: what several Tritons make, on every ptxas, and whose failure that makes it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from packaging.version import Version

from harness.effects.process import Hub
from harness.effects.store import Store
from harness.logic.answers import Outcome
from harness.logic.blame_grid import Focus, Grid
from harness.logic.blame_words import Blame, blame
from harness.values.cell import CellId
from harness.values.errors import (
    CaptureError,
    EmptySelectionError,
    InfrastructureError,
    TriageError,
)
from harness.values.row import Row
from harness.values.toolchain import Triton
from harness.values.verdict import VerdictKind
from harness.verbs.bisecting import open_bench
from harness.verbs.blame_columns import Columns, choose_columns
from harness.verbs.blame_lines import (
    Made,
    Study,
    assemble_all,
    distinct,
    followed,
    lines_of,
    look_along,
    make_all,
)
from harness.verbs.blame_trials import Pair, run_trials
from harness.verbs.cells import PlannedCell
from harness.verbs.selection import Selection
from harness.verbs.work import CompileOptions

__all__ = ["BlameOptions", "BlameReport", "find_blame"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlameOptions:
    """Which failure is meant, and how many pairs of PTX and ptxas may be tried for it.

    `looks_further`: where the one config that is meant works, or is only sick, its PTX is tried on
    other ptxas for one that fails.
    """

    signature: str | None = None
    budget: int = 60
    looks_further: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class BlameReport:
    """The grid and what it says; `case` is the cell that the question begins with.

    `others` stand for the configs that were not followed. `troubles` could not be had, `notes` say
    what was left out.
    """

    case: Row
    cell: CellId
    grid: Grid
    blame: Blame
    others: tuple[CellId, ...]
    troubles: tuple[str, ...]
    notes: tuple[str, ...]


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
        case, row, others = await _find_case(study, options.signature)
        if options.looks_further and not others and _rank(row, options.signature) in (1, 3):
            found = await look_along(study, case, row, lambda r: _rank(r, options.signature) == 0)
            case, row = found or (case, row)
        focus = _focus(case, row)
        grid = Grid(lines=(), ptxas=(), focus=focus)
        if _is_failure(row, options.signature):
            grid = await _grid(study, case, row, focus)
    store.finish_run(run_id)
    return BlameReport(
        case=row,
        cell=case.cell,
        grid=grid,
        blame=blame(grid),
        others=others,
        troubles=tuple(dict.fromkeys(study.troubles)),
        notes=tuple(dict.fromkeys(study.notes)),
    )


def _focus(case: PlannedCell, row: Row) -> Focus:
    has = case.limits.tensor_memory_columns if case.limits else None
    asks = row.tmem_size
    return Focus(
        kind=VerdictKind(row.verdict),
        stage=row.stage,
        signature=row.signature,
        is_over_limit=has is not None and asks is not None and asks > has,
    )


def _is_failure(row: Row, signature: str | None) -> bool:
    return row.signature is not None and signature in (None, row.signature)


async def _find_case(
    study: Study, signature: str | None
) -> tuple[PlannedCell, Row, tuple[CellId, ...]]:
    """The first cell that fails, of all that were selected, and one of each config beside it.

    One that is only sick where nothing fails outright, and an unsupported one where nothing is
    sick.
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
        tried += await _until_one_fails(study, cells, signature)
        if any(_rank(row, signature) == 0 for _, row in tried):
            break
    if not tried:
        raise (refusals or [EmptySelectionError("--config matches none of the configs")])[0]
    cell, row = min(tried, key=lambda pair: _rank(pair[1], signature))
    if row.verdict == VerdictKind.INFRA.value:
        raise InfrastructureError(row.reason)
    del seen[followed(cell)]
    return cell, row, tuple(seen.values())


def _in_order(selection: Selection) -> Sequence[Triton | None]:
    """The Tritons as they were named; the repro's own, which is where it was seen, first."""
    if not selection.tritons:
        return [None]
    own = selection.repro.triton
    return sorted(selection.tritons, key=lambda triton: triton.version != own)


async def _until_one_fails(
    study: Study, cells: Sequence[PlannedCell], signature: str | None
) -> list[tuple[PlannedCell, Row]]:
    tried: list[tuple[PlannedCell, Row]] = []
    for first in range(0, len(cells), study.bench.jobs):
        batch = cells[first : first + study.bench.jobs]
        rows = await asyncio.gather(*(study.row(cell) for cell in batch))
        tried += zip(batch, rows, strict=True)
        if any(_rank(row, signature) == 0 for row in rows):
            break
    return tried


def _rank(row: Row, signature: str | None) -> int:
    """Zero for the failure that is meant, more for what is less likely to be."""
    kind = VerdictKind(row.verdict)
    if not _is_failure(row, signature):
        return 4 if kind is VerdictKind.INFRA else 3
    if signature is not None:
        return 0
    return 2 if kind.tells_nothing else int(kind.compiles)


async def _grid(study: Study, case: PlannedCell, row: Row, focus: Focus) -> Grid:
    """The grid around a failing cell, within the budget."""
    made = await make_all(study, case, row)
    bundled = [each.cell.ptxas for each in made if each.cell]
    columns = choose_columns(study.selection, case.ptxas, bundled, study.troubles)
    if made[0].program:
        await assemble_all(study, made, columns, focus)
    lines = lines_of(made, focus)
    used = {version for line in lines for version in line.cells}
    grid = Grid(lines=lines, ptxas=tuple(sorted(used, key=Version)), focus=focus)
    failing, working = await _pairs(distinct(made), columns, focus)
    trials = await run_trials(study.bench, failing, working, focus)
    return replace(grid, trials=trials)


async def _pairs(
    programs: Sequence[Made], columns: Columns, focus: Focus
) -> tuple[Pair | None, Pair | None]:
    """A failing pair, if it can be the one that the question begins with, and a working neighbour.

    The neighbour is the same PTX on the nearest ptxas that takes it, else other PTX on this one.
    """
    ordered = columns.ordered
    found = _first(programs, Outcome.SAME, focus, [columns.wanted[0], *ordered[::-1]])
    if found is None:
        return None, None
    made, version = found
    place = ordered.index(version)
    near = sorted(ordered, key=lambda other: abs(ordered.index(other) - place))
    beside = _first([made], Outcome.OK, focus, near)
    beside = beside or _first(programs, Outcome.OK, focus, [version])
    others = {
        each.row.ptxas_flags: f"with the flags of Triton {each.triton}"
        for each in reversed(programs)
        if each.row and made.row and each.row.ptxas_flags != made.row.ptxas_flags
    }
    failing = await _pair(found, columns, Outcome.SAME)
    working = await _pair(beside, columns, Outcome.OK) if beside else None
    return failing and replace(failing, flags=tuple(others.items())), working


def _first(
    programs: Sequence[Made], outcome: Outcome, focus: Focus, versions: Sequence[str]
) -> tuple[Made, str] | None:
    for made in programs:
        for version in versions:
            row = made.rows.get(version)
            if row and focus.of(row) is outcome:
                return made, version
    return None


async def _pair(found: tuple[Made, str], columns: Columns, outcome: Outcome) -> Pair | None:
    made, version = found
    ptxas = await columns.get(version)
    if ptxas is None or made.cell is None:
        return None
    return Pair(cell=made.cell, row=made.rows[version], ptxas=ptxas, outcome=outcome)
