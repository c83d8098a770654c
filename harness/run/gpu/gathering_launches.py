"""From a kernel's launch code to a trip: every config with the inputs that were recorded for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from gpu_emulator.values import Budget
from harness.frontends.base import PlannedCell, PlannedLaunch, Selection
from harness.frontends.bench.bench import Workbench
from harness.frontends.registry import front_end, plan_launch
from harness.run.executing import run_evidence
from harness.run.gpu.gathering import Gathering, add_cells, kept, leveled
from harness.run.gpu.trip import TripLaunch
from harness.run.jobs import RunTrial
from harness.run.launching import NotRunError, emulation_of
from harness.run.references import Found
from harness.run.same_inputs import SameInputs
from harness.values.errors import TriageError, UsageError
from harness.values.target import Target
from harness.values.toolchain import Compiler


async def gather_launches(
    bench: Workbench,
    selection: Selection,
    levels: Sequence[int],
    trials: tuple[RunTrial, ...],
    budget: Budget,
    gathering: Gathering,
    tell: Callable[[str], None],
) -> None:
    """Add the cells of a kernel to a trip, at the small shapes of its launches.

    Raises:
        UsageError: launches of its compiler cannot be run with values.
        TriageError: nothing could be captured.
    """
    end = front_end(selection.repro.front_end)
    if end.interpreter is None:
        raise UsageError(
            f"{selection.repro.name}: launches of {end.title} cannot be run with values"
        )
    for launch in SameInputs.small(selection).launches:
        for target in selection.targets:
            for compiler in selection.compilers:
                one = replace(selection, launches=(launch,), targets=(target,))
                one = replace(one, compilers=(compiler,))
                same = SameInputs(
                    bench=bench, selection=one, tell=tell, trials=trials, budget=budget
                )
                await _place(bench, one, same, levels, gathering, (launch, target, compiler))


async def _place(
    bench: Workbench,
    selection: Selection,
    same: SameInputs,
    levels: Sequence[int],
    gathering: Gathering,
    place: tuple[PlannedLaunch, Target, Compiler],
) -> None:
    """Add the cells of one launch on one target with one compiler."""
    launch, target, compiler = place
    plan = await plan_launch(
        bench, selection.place(target=target, compiler=compiler, launch=launch)
    )
    try:
        cells: list[tuple[PlannedCell, bool]] = []
        launches: list[int | str] = []
        for cell in plan.cells:
            found = await launch_of(bench, same, cell)
            both = leveled(cell, levels)
            cells += both
            number = found if isinstance(found, str) else gathering.launch(found)
            launches += [number] * len(both)
        await add_cells(bench, gathering, cells, launches)
    finally:
        for session in {plan.session, *same.sessions()} - {None}:
            assert session is not None
            await bench.sessions.close(session)


async def launch_of(bench: Workbench, same: SameInputs, cell: PlannedCell) -> TripLaunch | str:
    """What the cubins of a cell get; or why there is nothing."""
    assert cell.launch is not None
    assert cell.record is not None
    end = front_end(cell.compiler.kind)
    try:
        variant = await same.variant(cell.record)
        lowering = await end.lower(bench, cell.launch, cell.record, ptxas=cell.seen_ptxas)
        emulation = emulation_of(bench, lowering, variant, same.trials, same.budget)
        author = await same.author(variant)
    except (NotRunError, TriageError) as error:
        return str(error)
    text = bench.store.artifacts.get(emulation.ptx).decode(errors="replace")
    known = run_evidence(bench.store.artifacts.get, variant, (), Found(), text, None)
    return TripLaunch(
        emulation=emulation,
        tensors=variant.arguments,
        trusted=tuple(kept(each, bench.store) for each in author),
        types=tuple(sorted(known.types)),
        unwritten=tuple(sorted(known.unwritten)),
    )
