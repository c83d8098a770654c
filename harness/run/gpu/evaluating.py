"""Cells one by one, launched on a GPU many at a time."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic, TypeAlias, TypeVar

import msgspec

from gpu_emulator.values import Budget, Checks
from harness.cells.evaluate import Evaluated
from harness.cells.places import CompileOptions, at_bench, places_of
from harness.frontends.base import PlannedCell, Selection
from harness.frontends.bench.bench import Workbench
from harness.frontends.registry import front_end, plan_launch
from harness.run.emulating import emulate
from harness.run.executing import Executed, Executor, keep_execution
from harness.run.gpu.device.execute import GLIMPSE, glimpse_places
from harness.run.gpu.judging import (
    Glimpsed,
    Referee,
    Variant,
    filled_variants,
    held_together,
    judge_digests,
    judge_measured,
    moved_variants,
    numbers_of,
    read_freedom,
)
from harness.run.gpu.measured import GpuFacts, Measured
from harness.run.gpu.packing import (
    Answers,
    Destination,
    head_of_file,
    manifest_bytes,
    read_results,
    travel,
    write_pack,
)
from harness.run.gpu.trip import Gathering, ShapedLaunches, Trip, TripCase
from harness.run.jobs import RunTrial
from harness.run.judging import Judgement, judge, run_row
from harness.run.launch import Launch, evidence_of
from harness.run.launching import LaunchSource
from harness.run.raw_ptx import RawInputs, raw_launch
from harness.run.recorded_launch import RecordedLaunch, require_values, small_selection
from harness.store.store import Store
from harness.values.errors import EmptySelectionError, TriageError, UsageError
from harness.values.execution import RunRow, RunVerdict, SanitizerFacts
from harness.values.kernel import Repro
from harness.values.timing import time_of
from harness.values.toolchain import GPU
from harness.values.verdict import Stage, VerdictKind

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
    """What is to be launched: cells, at which -O levels, on which inputs; and `how`.

    `inputs` gives those of a repro of raw PTX. `trials` and `budget` are of the emulator, which is
    the referee. `measure`: how long it takes; kernels are then launched at their own shapes, where
    nothing is emulated.
    """

    selections: Sequence[Selection]
    inputs: Callable[[Repro], RawInputs]
    levels: tuple[int, ...]
    trials: tuple[RunTrial, ...]
    budget: Budget
    how: Trip
    measure: bool = False


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
        trip = await _gather(question, bench, tell)
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
        trip = await _gather(question, bench, tell)
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


async def _gather(question: GpuQuestion, bench: Workbench, tell: Callable[[str], None]) -> Trip:
    gathering = Gathering(how=question.how)
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


# From answers to rows: each launch is emulated, and its cubins are judged.

_KIND = "trip"

_Judged: TypeAlias = tuple[TripCase, Measured, Judgement]


def keep_trip(store: Store, trip: Trip) -> str:
    """Keep a trip, so that its results can be judged later; the sha256 of its manifest."""
    pack = hashlib.sha256(manifest_bytes(trip)).hexdigest()
    names = set(trip.blobs).union(*(launch.artifacts for launch in trip.launches))
    store.put_evidence(_KIND, pack, msgspec.json.encode(trip), {name: name for name in names})
    return pack


def find_trip(store: Store, pack: str) -> Trip:
    """The trip whose manifest has this sha256.

    Raises:
        UsageError: no pack of this store has it.
    """
    found = store.get_evidence(_KIND, pack)
    if found is None:
        raise UsageError(
            f"the results are of the pack {pack[:12]}, which was not written from these results "
            "(TRIAGE_HOME); import them where `--pack` was given"
        )
    try:
        return msgspec.json.decode(found.body, type=Trip)
    except msgspec.MsgspecError as error:
        raise UsageError(
            f"the pack {pack[:12]} was written by another version of this program: {error}"
        ) from error


async def judge_trip(
    bench: Workbench, trip: Trip, answers: Answers, tell: Callable[[str], None]
) -> list[Executed]:
    """Judge every case that was asked for, in their order."""
    numbers = {id(case): number for number, case in enumerate(trip.carried)}

    async def judged(index: int, launch: Launch) -> list[_Judged]:
        cases = [case for case in trip.carried if case.launch == index]
        measured = [
            Measured(
                words=case.words,
                runs=tuple(answers.runs.get(number, ())),
                times=answers.times.get(number),
                checks=tuple(answers.checks.get(number, ())),
            )
            for case, number in ((case, numbers[id(case)]) for case in cases)
        ]
        if launch.digest:
            ptx = bench.store.artifacts.get(launch.emulation.ptx).decode(errors="replace")
            buffers = launch.emulation.buffers
            judgements = [judge_digests(each, buffers, ptx, answers.gpu) for each in measured]
        elif cases:
            referee = await _referee(bench, launch, answers, measured, tell)
            judgements = judge_measured(measured, referee, answers.gpu)
        else:
            judgements = []
        return list(zip(cases, measured, judgements, strict=True))

    parts = await asyncio.gather(*(judged(*pair) for pair in enumerate(trip.launches)))
    found = {
        id(case): _executed(case, judgement, answers.gpu, measured)
        for case, measured, judgement in _together(bench.store, trip, list(itertools.chain(*parts)))
    }
    for case in trip.cases:
        if case.problem:
            judgement = Judgement(verdict=RunVerdict.NOT_RUN, reason=case.problem)
            found[id(case)] = _executed(case, judgement, answers.gpu, None)
    return [found[id(case)] for case in trip.cases if not case.is_witness]


def _together(store: Store, trip: Trip, judged: Sequence[_Judged]) -> list[_Judged]:
    """With what cubins say of one another whose values did not come back."""
    seen: dict[int, Glimpsed] = {}
    for number, (case, measured, judgement) in enumerate(judged):
        launch = trip.launches[case.launch or 0]
        if not launch.digest or judgement.verdict is not RunVerdict.RAN:
            continue
        options = front_end(case.compiled.compiler).options
        config = {name: value for name, value in case.cell.config.items if name not in options}
        buffers = launch.emulation.buffers
        left = numbers_of(measured.ended[0].glimpses, launch.tensors, buffers)
        if not left or not case.cubin:
            continue
        places = tuple((each.name, each.file, each.size) for each in buffers)
        changed = {
            each.name
            for each, digits in zip(buffers, measured.ended[0].glimpses, strict=False)
            if not each.file or glimpse_before(store.artifacts.get(each.file), each.size) != digits
        }
        seen[number] = Glimpsed(
            place=(case.cell.kernel, case.cell.launch, str(config), places, tuple(left)),
            cubin=case.cubin,
            words=f"{case.cell.config.label} by {case.words}",
            judgement=judgement,
            types=frozenset(launch.types),
            numbers=left,
            changed=frozenset(changed & left.keys()),
        )
    held = dict(zip(seen, held_together(list(seen.values())), strict=True))
    return [(*each[:2], held.get(number, each[2])) for number, each in enumerate(judged)]


def glimpse_before(data: bytes, size: int) -> str:
    """What is seen of a buffer of so many bytes that is filled with these, again and again."""
    places = glimpse_places(size) if data else []
    return bytes(data[(at + n) % len(data)] for at in places for n in range(GLIMPSE)).hex()


async def _referee(
    bench: Workbench,
    launch: Launch,
    answers: Answers,
    measured: Sequence[Measured],
    tell: Callable[[str], None],
) -> Referee:
    """What the emulator says of a launch; of variants of its PTX too, where that matters."""
    tell(f"{launch.emulation.entry}: the emulator executes the PTX")
    emulated = (await emulate(bench, launch.emulation)).value
    text = bench.store.artifacts.get(launch.emulation.ptx).decode(errors="replace")
    evidence = evidence_of(launch, emulated, bench.store.artifacts.get)
    referee = Referee(
        evidence=evidence,
        judgement=judge(evidence),
        freedom=read_freedom(text),
        contents={**evidence.contents, **answers.blobs},
    )
    if not referee.needs_variants(measured):
        return referee
    moved = await _variants(bench, launch, moved_variants(text))
    filled = await _variants(bench, launch, filled_variants(text))
    more = {name for buffers in (*moved, *filled) for name in buffers or ()}
    read = {name: bench.store.artifacts.get(name) for name in more}
    return replace(referee, moved=moved, filled=filled, contents={**referee.contents, **read})


async def _variants(bench: Workbench, launch: Launch, texts: Sequence[str]) -> tuple[Variant, ...]:
    """The buffers after each of these programs was emulated in place of the launch's."""
    found: list[Variant] = []
    for text in texts:
        trial = replace(launch.emulation.trials[0], checks=Checks())
        wanted = replace(
            launch.emulation, ptx=bench.store.artifacts.put(text.encode()), trials=(trial,)
        )
        emulated = (await emulate(bench, wanted)).value
        ended = emulated.runs and emulated.runs[0].ended
        found.append(emulated.runs[0].buffers if ended else None)
    return tuple(found)


def _executed(
    case: TripCase, judgement: Judgement, gpu: GpuFacts, measured: Measured | None
) -> Executed:
    seconds = [run.seconds for run in measured.runs if run.seconds] if measured else []
    times = measured.times if measured and measured.times else None
    compiled = case.compiled
    row = run_row(
        case.cell,
        replace(judgement, races=()),
        triton=compiled.triton,
        on=GPU,
        device=gpu.name,
        seconds=round(sum(seconds), 6) if seconds else None,
        time_ms=time_of(times.ms, times.sm_mhz) if times else None,
        time_samples=times.ms if times else (),
        sm_mhz=times.sm_mhz if times else (),
        sanitizers=tuple(
            SanitizerFacts(tool=each.tool, errors=each.errors, words=each.words)
            for each in (measured.checks if measured else ())
        ),
        compiled=compiled,
    )
    # A result like any other: what was compiled, with the verdict of the run.
    kind = VerdictKind(row.run.value)
    result = replace(
        compiled,
        cell=row.cell,
        short=row.short,
        launch=row.launch,
        verdict=kind,
        reason=row.run_reason,
        stage=None if kind.compiles else Stage.RUN.value,
        signature=row.run_signature,
        code=None,
        seconds=row.seconds,
        time_ms=row.time_ms,
    )
    done = Evaluated(row=result, evidence={}, signature=judgement.signature)
    return Executed(row=row, done=done)
