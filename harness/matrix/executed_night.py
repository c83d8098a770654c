"""A night that executes, too: the cells of a matrix on small inputs, kept beside their compiles."""

from __future__ import annotations

from msgspec import structs

from harness.frontends.bench import TimeIsUpError
from harness.frontends.plan import CapturePlace, PlannedCell
from harness.frontends.registry import front_end, plan_launch
from harness.io.processes.tasks import in_parallel
from harness.matrix.run_policy import MatrixRun, coordinates_of
from harness.run.executing import keep_execution
from harness.run.executors import executor_of
from harness.run.gpu.packing import place_of
from harness.run.launch_sources import small_selection
from harness.values.errors import TriageError
from harness.values.toolchain import EMULATOR, GPU, takes_cubins


async def execute_places(
    night: MatrixRun, on: str | None = EMULATOR, runner: str | None = None
) -> None:
    """Execute what the matrix wants of its places, as `triage run` does, as far as there is time.

    Variants with configs of their own, and kernels that cannot be run with values, are left to the
    compilers; so are PTX files, but for those whose repro names inputs where `on` takes cubins.

    Raises:
        InfrastructureError: there is no GPU.
    """
    if on == GPU:
        place_of(runner)
    places = [place for place in night.plan.places if _is_executable(place, on)]
    for number, place in enumerate(places):
        if night.is_time_up():
            for _ in places[number:]:
                night.left(None)
            return
        try:
            await _execute(night, place, on, runner)
        except TimeIsUpError:
            night.left(None)
        except TriageError as error:
            night.failures.append(error)


def _is_executable(place: CapturePlace, on: str | None) -> bool:
    repro = place.selection.repro
    if repro.ptx:
        return takes_cubins(on) and bool(repro.inputs)
    return place.variant is None and front_end(repro.front_end).interprets


async def _execute(
    night: MatrixRun, place: CapturePlace, on: str | None, runner: str | None
) -> None:
    bench, rules, cells = night.bench, night.rules, []
    selection = structs.replace(
        place.selection,
        launches=(place.launch,),
        targets=(place.target,),
        compilers=(place.compiler,),
        ptxas=place.selection.ptxas if takes_cubins(on) else (None,),
    )
    selection = small_selection(selection, on)
    plan = await plan_launch(bench, selection.place())
    for cell in plan.cells:
        at = structs.replace(coordinates_of(cell), launch=place.launch.label)
        if rules.is_wanted(at) and rules.excluded(at) is None:
            cells.append(cell)
    executor = executor_of(bench, selection, night.progress.capturing, on, runner=runner)
    night.progress.planned(len(cells))

    async def one(cell: PlannedCell) -> None:
        executed = await executor.execute(bench, cell)
        keep_execution(bench.store, night.run, executed)
        night.progress.done(executed.evaluated.row)

    try:
        await in_parallel(one(cell) for cell in cells)
    finally:
        for session in filter(None, {plan.session, *executor.source.sessions()}):
            await bench.sessions.close(session)
