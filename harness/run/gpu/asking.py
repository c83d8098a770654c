"""`triage run --on gpu`: what is selected goes to a GPU, or into a pack; results come back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpu_emulator.values import Budget
from harness.cells.places import CompileOptions, at_bench
from harness.frontends.base import Selection
from harness.frontends.bench.bench import Workbench
from harness.run.executing import Executed
from harness.run.gpu.answers import Answers
from harness.run.gpu.gathering import Gathering, gather_ptx
from harness.run.gpu.gathering_launches import gather_launches
from harness.run.gpu.gathering_shapes import gather_shapes
from harness.run.gpu.measured import GpuFacts
from harness.run.gpu.packing import write_pack
from harness.run.gpu.places import Destination, head_of_file, read_results, travel
from harness.run.gpu.rows import find_trip, judge_trip, keep_all, keep_trip
from harness.run.gpu.trip import Trip
from harness.run.jobs import RunTrial
from harness.run.raw_ptx import RawInputs
from harness.store.store import Store
from harness.values.errors import EmptySelectionError, TriageError
from harness.values.execution import RunRow
from harness.values.kernel import Repro


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuQuestion:
    """What is to be launched: cells, at which -O levels, on which inputs.

    `inputs` gives those of a repro of raw PTX. `trials` and `budget` are of the emulator, which is
    the referee. `measure`: how long it takes; kernels are then launched at their own shapes, where
    nothing is emulated. Each cubin runs `repeats` times. `sanitize`: what compute-sanitizer's tools
    say of each cubin.
    """

    selections: Sequence[Selection]
    inputs: Callable[[Repro], RawInputs]
    levels: tuple[int, ...]
    trials: tuple[RunTrial, ...]
    budget: Budget
    limit: float
    repeats: int
    measure: bool = False
    sanitize: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReport:
    """A row for each cell; `device` is the GPU, `notes` say what is missing."""

    rows: tuple[RunRow, ...]
    device: GpuFacts
    notes: tuple[str, ...] = ()


async def ask_gpu(
    question: GpuQuestion,
    place: Destination,
    store: Store,
    options: CompileOptions,
    tell: Callable[[str], None],
) -> GpuReport:
    """Launch what is asked for on a GPU, and judge it.

    Raises:
        EmptySelectionError: nothing has a cubin.
        InfrastructureError: there is no GPU, or no results came back.
        TriageError: nothing could be compiled.
    """
    async with at_bench(store, options) as bench:
        trip = await _gather(question, bench, options.command, tell)
        keep_trip(store, trip)
        tell(f"{len(trip.carried)} cubins, {trip.repeats} runs each, on {place.name}")
        answers = await travel(bench, trip, place)
        return _report(store, trip, answers, await judge_trip(bench, trip, answers, tell))


async def pack_for_gpu(
    question: GpuQuestion,
    path: Path,
    store: Store,
    options: CompileOptions,
    tell: Callable[[str], None],
) -> Trip:
    """Write what a machine with a GPU needs to launch it, and keep what its results will need.

    Raises:
        EmptySelectionError: nothing has a cubin.
        TriageError: nothing could be compiled, or the file cannot be written.
    """
    async with at_bench(store, options) as bench:
        trip = await _gather(question, bench, options.command, tell)
        keep_trip(store, trip)
        write_pack(trip, store, path)
        return trip


async def import_results(
    path: Path, store: Store, options: CompileOptions, tell: Callable[[str], None]
) -> GpuReport:
    """Judge results that another machine gave for a pack of this store, as if it had run here.

    Raises:
        UsageError: they are not results, or of no pack of this store.
    """
    trip = find_trip(store, head_of_file(path))
    answers = read_results(path, trip, store)
    async with at_bench(store, options) as bench:
        return _report(store, trip, answers, await judge_trip(bench, trip, answers, tell))


async def _gather(
    question: GpuQuestion, bench: Workbench, command: str, tell: Callable[[str], None]
) -> Trip:
    gathering = Gathering(
        command=command, limit=question.limit, repeats=question.repeats, sanitize=question.sanitize
    )
    for selection in question.selections:
        if selection.repro.ptx is None and question.measure:
            try:
                await gather_shapes(bench, selection, question.levels, gathering, tell)
            except TriageError as error:
                if len(question.selections) == 1:
                    raise
                tell(f"{selection.repro.name}: left out: {error}")
            continue
        if selection.repro.ptx is None:
            await gather_launches(
                bench, selection, question.levels, question.trials, question.budget, gathering, tell
            )
            continue
        await gather_ptx(
            bench,
            selection,
            question.inputs(selection.repro),
            question.levels,
            question.trials,
            question.budget,
            gathering,
            tell,
        )
        if question.measure:
            gathering.time_new()
    trip = gathering.trip()
    if not trip.carried:
        why = next((case.problem for case in trip.cases if case.problem), "nothing is selected")
        raise EmptySelectionError(f"--on gpu: no cubin to launch: {why}")
    return trip


def _report(store: Store, trip: Trip, answers: Answers, executed: Sequence[Executed]) -> GpuReport:
    number = store.begin_run(trip.command)
    keep_all(store, number, executed)
    store.finish_run(number)
    notes: tuple[str, ...] = ()
    if not answers.is_whole:
        done = len(answers.runs)
        notes = (f"the results were cut off: {done} of {len(trip.carried)} cubins were launched",)
    return GpuReport(rows=tuple(each.row for each in executed), device=answers.gpu, notes=notes)
