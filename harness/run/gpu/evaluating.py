"""Cells one by one, launched on a GPU many at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic, TypeVar

from gpu_emulator.values import Budget
from harness.cells.places import CompileOptions, at_bench, places_of
from harness.frontends.base import PlannedCell, Selection
from harness.frontends.bench.bench import Workbench
from harness.frontends.registry import plan_launch
from harness.run.executing import Executed, Executor, keep_execution
from harness.run.gpu.gathering import Gathering, ShapedLaunches
from harness.run.gpu.measured import GpuFacts
from harness.run.gpu.packing import (
    Answers,
    Destination,
    head_of_file,
    read_results,
    travel,
    write_pack,
)
from harness.run.gpu.rows import find_trip, judge_trip, keep_trip
from harness.run.gpu.trip import Trip
from harness.run.jobs import RunTrial
from harness.run.launching import LaunchSource
from harness.run.raw_ptx import RawInputs, raw_launch
from harness.run.recorded_launch import RecordedLaunch, require_values, small_selection
from harness.store.store import Store
from harness.values.errors import EmptySelectionError, TriageError
from harness.values.execution import RunRow
from harness.values.kernel import Repro

# Questions one by one, trips to a GPU many at a time: what is asked together travels together.

Q = TypeVar("Q")
A = TypeVar("A")

_PAUSE = 0.3
"""Seconds without another question until a trip begins; one takes seconds by itself."""


@dataclass(slots=True, kw_only=True)
class Together(Generic[Q, A]):
    """Answers questions by `trip`, one trip at a time, each with all that has been asked by then.

    `trips` counts them.
    """

    trip: Callable[[Sequence[Q]], Awaitable[Sequence[A]]]
    trips: int = 0
    _asked: list[tuple[Q, asyncio.Future[A]]] = field(default_factory=list)
    _next: asyncio.Task[None] | None = None
    _travelling: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def ask(self, question: Q) -> A:
        """The answer, when a trip has brought it.

        Raises:
            TriageError: the trip failed.
        """
        answer: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._asked.append((question, answer))
        if self._next is not None:
            self._next.cancel()
        self._next = asyncio.create_task(self._wait())
        return await answer

    async def _wait(self) -> None:
        await asyncio.sleep(_PAUSE)
        async with self._travelling:
            # From here on another question does not put it off, and begins the next trip.
            self._next = None
            asked, self._asked = [each for each in self._asked if not each[1].done()], []
            if asked:
                await self._travel(asked)

    async def _travel(self, asked: Sequence[tuple[Q, asyncio.Future[A]]]) -> None:
        self.trips += 1
        try:
            found = await self.trip([question for question, _ in asked])
            for (_, answer), each in zip(asked, found, strict=True):
                if not answer.done():
                    answer.set_result(each)
        except TriageError as error:
            for _, answer in asked:
                if not answer.done():
                    answer.set_exception(error)
        finally:
            # None keeps waiting where the trip ended in another way.
            for _, answer in asked:
                answer.cancel()


_Asked = tuple[Workbench, PlannedCell]


@dataclass(slots=True, kw_only=True)
class OnGpu(Executor):
    """Launches the cubins of cells, as the source says.

    Each cell has a witness beside it, which is launched once however many cells share it. `device`
    is the GPU's name, once one was reached.
    """

    bench: Workbench
    source: LaunchSource
    destination: Destination
    tell: Callable[[str], None]
    command: str
    device: str = ""
    _together: Together[_Asked, Executed] = field(init=False)

    def __post_init__(self) -> None:
        """What is asked for together travels together."""
        self._together = Together(trip=self._trip)

    async def execute(self, bench: Workbench, cell: PlannedCell) -> Executed:
        """As in `Executor`; `TriageError` where no results came back."""
        return await self._together.ask((bench, cell))

    async def _trip(self, asked: Sequence[_Asked]) -> list[Executed]:
        gathering = Gathering(how=Trip(command=self.command))
        await gathering.add(self.source, asked)
        trip = gathering.trip()
        keep_trip(self.bench.store, trip)
        self.tell(f"{len(trip.carried)} cubins on {self.destination.name}")
        answers = await travel(self.bench, trip, self.destination)
        self.device = answers.gpu.name
        return await judge_trip(self.bench, trip, answers, lambda _: None)


# `triage run --on gpu`: what is selected goes to a GPU, or into a pack; results come back.


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
        how=Trip(
            command=command,
            limit=question.limit,
            repeats=question.repeats,
            sanitize=question.sanitize,
        )
    )
    for selection in question.selections:
        try:
            await _gather_one(question, bench, selection, gathering, tell)
        except TriageError as error:
            # At their own shapes, what cannot be captured leaves the others.
            if selection.repro.ptx or not question.measure or len(question.selections) == 1:
                raise
            tell(f"{selection.repro.name}: left out: {error}")
    trip = gathering.trip()
    if not trip.carried:
        why = next((case.problem for case in trip.cases if case.problem), "nothing is selected")
        raise EmptySelectionError(f"--on gpu: no cubin to launch: {why}")
    return trip


async def _gather_one(
    question: GpuQuestion,
    bench: Workbench,
    selection: Selection,
    gathering: Gathering,
    tell: Callable[[str], None],
) -> None:
    """Add the cells of one selection."""
    trials, budget = question.trials, question.budget
    is_shaped = question.measure and selection.repro.ptx is None
    source: LaunchSource = ShapedLaunches()
    if path := selection.repro.ptx:
        inputs = question.inputs(selection.repro)
        raw = raw_launch(Path(path), selection.repro.kernel, inputs, bench.store, trials, budget)
        for note in raw.notes:
            tell(note)
        source = raw
    elif is_shaped:
        require_values(selection)
    else:
        selection = small_selection(selection)
    for place in places_of(selection):
        one = replace(
            selection,
            launches=(place.launch,),
            targets=(place.target,),
            compilers=(place.compiler,),
        )
        if not selection.repro.ptx and not is_shaped:
            source = RecordedLaunch(
                bench=bench, selection=one, tell=tell, trials=trials, budget=budget
            )
        if is_shaped:
            tell(f"{selection.repro.name}: {place.launch.label} on {place.target}")
        plan = await plan_launch(bench, one.place())
        try:
            cells = [(bench, cell) for cell in plan.cells]
            await gathering.add(source, cells, question.levels, is_witnessed=not is_shaped)
        finally:
            for session in filter(None, {plan.session, *source.sessions()}):
                await bench.sessions.close(session)
        if question.measure:
            gathering.time_new()


def _report(store: Store, trip: Trip, answers: Answers, executed: Sequence[Executed]) -> GpuReport:
    number = store.begin_run(trip.command)
    for each in executed:
        keep_execution(store, number, each)
    store.finish_run(number)
    notes: tuple[str, ...] = ()
    if not answers.is_whole:
        done = len(answers.runs)
        notes = (f"the results were cut off: {done} of {len(trip.carried)} cubins were launched",)
    return GpuReport(rows=tuple(each.row for each in executed), device=answers.gpu, notes=notes)
