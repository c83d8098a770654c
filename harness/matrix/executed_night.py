"""A night that executes, too: the cells of a matrix on small inputs, kept beside their compiles."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from msgspec import structs

from harness.cells.places import Run
from harness.frontends.bench import TimeIsUpError
from harness.frontends.plan import CapturePlace, PlannedCell
from harness.frontends.registry import front_end, plan_launch
from harness.io.processes.tasks import in_parallel
from harness.matrix.steering import MatrixSteering, coordinates_of
from harness.run.executing import keep_execution
from harness.run.executors import executed_selection, executor_of
from harness.run.gpu.packing import place_of
from harness.values.errors import TriageError
from harness.values.toolchain import EMULATOR, GPU, takes_cubins


async def execute_places(
    run: Run, steering: MatrixSteering, places: Sequence[CapturePlace]
) -> None:
    """Execute what the matrix wants of these places, as `triage run` does, as far as there is time.

    PTX files, variants with configs of their own, and kernels that cannot be run with values are
    left to the compilers.
    """
    executable = [place for place in places if _is_executable(place)]
    await _each(run, steering, executable, partial(_execute, run, steering))


async def launch_places(
    run: Run,
    steering: MatrixSteering,
    places: Sequence[CapturePlace],
    on: str | None,
    runner: str | None,
) -> None:
    """Launch the cubins that the matrix wants of these places, as `triage run --on` does.

    As `execute_places`; files of PTX whose repro names inputs are launched, too.

    Raises:
        InfrastructureError: there is no GPU.
    """
    if on == GPU:
        place_of(runner)
    launch = partial(_execute, run, steering, on=on, runner=runner)
    launchable = [
        place
        for place in places
        if _is_executable(place) or (place.selection.repro.ptx and place.selection.repro.inputs)
    ]
    await _each(run, steering, launchable, launch)


async def _each(
    run: Run,
    steering: MatrixSteering,
    places: Sequence[CapturePlace],
    execute: Callable[[CapturePlace], Awaitable[None]],
) -> None:
    for number, place in enumerate(places):
        if steering.is_time_up():
            for _ in places[number:]:
                steering.left(None)
            return
        try:
            await execute(place)
        except TimeIsUpError:
            steering.left(None)
        except TriageError as error:
            run.failures.append(error)


def _is_executable(place: CapturePlace) -> bool:
    repro = place.selection.repro
    return (
        not repro.ptx
        and place.variant is None
        and front_end(repro.front_end).interpreter is not None
    )


async def _execute(
    run: Run,
    steering: MatrixSteering,
    place: CapturePlace,
    *,
    on: str | None = EMULATOR,
    runner: str | None = None,
) -> None:
    bench = run.bench
    selection = structs.replace(
        place.selection,
        launches=(place.launch,),
        targets=(place.target,),
        compilers=(place.compiler,),
        ptxas=place.selection.ptxas if takes_cubins(on) else (None,),
    )
    selection = executed_selection(selection, on)
    plan = await plan_launch(bench, selection.place())
    cells = [cell for cell in plan.cells if _is_wanted(steering, place, cell)]
    executor = executor_of(bench, selection, run.progress.capturing, on, runner=runner)
    run.progress.planned(len(cells))

    async def one(cell: PlannedCell) -> None:
        executed = await executor.execute(bench, cell)
        keep_execution(bench.store, run.run, executed)
        run.progress.done(executed.evaluated.row)

    try:
        await in_parallel(one(cell) for cell in cells)
    finally:
        for session in filter(None, {plan.session, *executor.source.sessions()}):
            await bench.sessions.close(session)


def _is_wanted(steering: MatrixSteering, place: CapturePlace, cell: PlannedCell) -> bool:
    at = structs.replace(coordinates_of(cell), launch=place.launch.label)
    return steering.rules.is_wanted(at) and steering.rules.excluded(at) is None
