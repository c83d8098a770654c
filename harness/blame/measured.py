"""`triage blame --run --on gpu`: who made cubins that compute the wrong thing on a GPU.

Each PTX is given to several ptxas, byte for byte, and launched on the same inputs; one that goes
wrong at every optimisation level, too. What one PTX does on one and not on the other is ptxas';
what only one Triton's PTX does is Triton's, or LLVM's; what all do alike is the kernel's, or that
of what it is compared with.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from packaging.version import Version

from harness.blame.blaming import BlameOptions, find_case
from harness.blame.columns import choose_columns
from harness.blame.grid import Grid, PairTrial, Varied
from harness.blame.lines import Study, assemble_all, lines_of, look_along, make_all
from harness.blame.words import BlameReport, blame
from harness.cells.evaluate import with_flags
from harness.cells.places import CompileOptions, open_bench
from harness.frontends.base import PlannedCell, Selection
from harness.io.processes.hub import Hub
from harness.judging.answers import VerdictAnswer
from harness.judging.followed import Followed, follow, rank
from harness.judging.ptxas.flags import level_change
from harness.run.gpu.evaluating import OnGpu
from harness.run.gpu.places import place_of
from harness.run.raw_ptx import inputs_of
from harness.run.same_inputs import SameInputs
from harness.store.store import Store
from harness.values.row import Row

# The rank from which on a row does not show what is asked about.
_NOT_MEANT = 3
_LEVELS = (0, 1, 2, 3)


async def find_measured_blame(
    selection: Selection,
    store: Store,
    how: CompileOptions,
    options: BlameOptions,
    tell: Callable[[str, str], None],
    runner: str | None,
) -> BlameReport:
    """Follow the first cell whose cubin computes the wrong thing; `tell` hears of each result.

    Raises:
        UsageError: the kernel has no inputs.
        EmptySelectionError: no config matches.
        InfrastructureError: there is no GPU.
        TriageError: where the question begins, nothing could be tried.
    """
    if selection.repro.ptx is None:
        selection = SameInputs.small(selection)
    run_id = store.begin_run(how.command)
    async with Hub() as hub:
        bench = open_bench(hub, store, how)
        launched = OnGpu(
            bench=bench,
            selection=selection,
            inputs=inputs_of(selection.repro),
            destination=place_of(runner),
            tell=lambda text: tell("the GPU", text),
            command=how.command,
        )
        study = Study(
            bench=bench,
            run=run_id,
            selection=selection,
            budget=options.budget,
            tell=tell,
            evaluate=launched.evaluate,
        )
        study.notes += launched.notes
        asked = Followed(signature=options.signature)
        case, row, others = await find_case(study, asked)
        if options.looks_further and not others and rank(row, asked) in (1, _NOT_MEANT):
            found = await look_along(study, case, row, lambda each: rank(each, asked) == 0)
            case, row = found or (case, row)
        grid = Grid(lines=(), ptxas=(), focus=follow(row))
        if rank(row, asked) < _NOT_MEANT:
            grid = await _grid(study, case, row)
            grid = replace(grid, device=launched.device)
    store.finish_run(run_id)
    return BlameReport(
        case=row,
        cell=case.cell,
        grid=grid,
        blame=blame(grid),
        others=others,
        remedy=(),
        troubles=tuple(dict.fromkeys(study.troubles)),
        notes=tuple(dict.fromkeys(study.notes)),
    )


async def _grid(study: Study, case: PlannedCell, row: Row) -> Grid:
    """What each Triton's PTX computes on each ptxas, and the failing one at each level."""
    focus = follow(row)
    made = await make_all(study, case, row, focus)
    bundled = [each.cell.ptxas for each in made if each.cell]
    columns = choose_columns(study.selection, case.ptxas, bundled, study.troubles)
    await assemble_all(study, made, columns, focus)
    lines = lines_of(made, focus)
    used = {version for line in lines for version in line.cells}
    return Grid(
        lines=lines,
        ptxas=tuple(sorted(used, key=Version)),
        focus=focus,
        trials=await _at_levels(study, case, row, focus),
    )


async def _at_levels(
    study: Study, case: PlannedCell, row: Row, focus: Followed
) -> tuple[PairTrial, ...]:
    """The PTX of the case on its ptxas at each level, in one trip."""
    changes = [level_change(level) for level in _LEVELS]
    rows = await asyncio.gather(
        *(study.row(with_flags(case, change), kept=False) for change in changes)
    )
    return tuple(
        PairTrial(
            what=change.label,
            varied=Varied.LEVEL,
            triton=row.compiler_version,
            ptxas=case.ptxas.version,
            before=VerdictAnswer.SAME,
            after=focus.of(found),
            verdict=found.verdict,
            reason=found.reason,
        )
        for change, found in zip(changes, rows, strict=True)
    )
