"""Cells one by one, launched on a GPU many at a time."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

from msgspec import structs

from gpu_emulator.values import Budget, Checks
from harness.cells.places import CompileOptions, at_bench, places_of
from harness.frontends.bench import Workbench
from harness.frontends.plan import PlannedCell, Selection
from harness.frontends.registry import front_end, plan_launch
from harness.io.processes.tasks import Batcher, in_parallel
from harness.run.emulating import emulate
from harness.run.emulator_jobs import RunTrial
from harness.run.executing import Executed, Executor, RunReport, keep_execution
from harness.run.gpu.cubin_judging import (
    CubinDigest,
    PtxReference,
    Variant,
    filled_variants,
    judge_digests,
    judge_together,
    moved_variants,
    numbers_of,
    read_freedom,
)
from harness.run.gpu.device.execute import GLIMPSE, glimpse_places
from harness.run.gpu.gpu_batch import BatchCase, GpuBatch, ShapedLaunches
from harness.run.gpu.measured import GpuFacts, Measured
from harness.run.gpu.packing import (
    Answers,
    CubinRunner,
    GpuWay,
    head_of_file,
    manifest_bytes,
    read_kept,
    read_results,
    write_pack,
)
from harness.run.inputs import LaunchSource
from harness.run.judging import Judgement, judge, run_row
from harness.run.launch import Launch, evidence_of
from harness.run.launch_sources import RecordedLaunch, require_values, small_selection
from harness.run.raw import RawInputs, raw_launch
from harness.store.store import Store
from harness.values.errors import EmptySelectionError, TriageError
from harness.values.kernel import Repro
from harness.values.timing import time_of
from harness.values.toolchain import GPU, SASS
from harness.values.verdict import VerdictKind

BATCH_PAUSE = 0.3
"""Seconds without another question until a batch begins; one takes seconds by itself."""


@dataclass(slots=True, kw_only=True)
class OnCubins(Executor):
    """Has the cubins of cells executed, as the source says: on a GPU, or their SASS emulated.

    Each cell has a witness beside it, which is launched once however many cells share it. `device`
    is the name of what executed them, once it was reached.
    """

    bench: Workbench
    source: LaunchSource
    destination: CubinRunner
    tell: Callable[[str], None]
    command: str
    device: str = ""
    _together: Batcher[tuple[Workbench, PlannedCell], Executed] = field(init=False)

    def __post_init__(self) -> None:
        """What is asked for together travels together."""
        self._together = Batcher(answer=self._answered, pause=BATCH_PAUSE)

    async def execute(self, bench: Workbench, cell: PlannedCell) -> Executed:
        """As in `Executor`; `TriageError` where no results came back."""
        return await self._together.ask((bench, cell))

    async def _answered(self, cells: Sequence[tuple[Workbench, PlannedCell]]) -> list[Executed]:
        gpu_batch = await GpuBatch(command=self.command, on=self.destination.on).with_cells(
            self.source, cells
        )
        keep_batch(self.bench.store, gpu_batch)
        self.tell(f"{len(gpu_batch.carried)} cubins on {self.destination.name}")
        answers = await self.destination.answers(self.bench, gpu_batch)
        self.device = answers.gpu.name or self.destination.name
        return await judge_batch(self.bench, gpu_batch, answers, lambda _: None)


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
    how: GpuBatch
    measure: bool = False


async def ask_gpu(
    question: GpuQuestion,
    way: GpuWay,
    store: Store,
    options: CompileOptions,
    tell: Callable[[str], None],
) -> RunReport | GpuBatch:
    """Launch what is asked for on a GPU, and judge it; or write the pack that goes there.

    Raises:
        EmptySelectionError: nothing has a cubin.
        InfrastructureError: there is no GPU, or no results came back.
        TriageError: nothing could be compiled, or the pack cannot be written.
    """
    async with at_bench(store, options) as bench:
        gpu_batch = await _gather(question, bench, tell)
        keep_batch(store, gpu_batch)
        if way.pack:
            write_pack(gpu_batch, store.artifacts.get, way.pack)
            return gpu_batch
        assert way.place is not None
        runs = f", {gpu_batch.repeats} runs each" if gpu_batch.on == GPU else ""
        tell(f"{len(gpu_batch.carried)} cubins{runs}, on {way.place.name}")
        return await _report(bench, gpu_batch, await way.place.answers(bench, gpu_batch), tell)


async def import_results(
    path: Path, store: Store, options: CompileOptions, tell: Callable[[str], None]
) -> RunReport:
    """Judge results that another machine gave for a pack of this store, as if it had run here.

    Raises:
        UsageError: they are not results, or of no pack of this store.
    """
    gpu_batch = find_gpu_batch(store, head_of_file(path))
    answers = read_results(path, gpu_batch, store.artifacts.get)
    async with at_bench(store, options) as bench:
        return await _report(bench, gpu_batch, answers, tell)


async def _gather(question: GpuQuestion, bench: Workbench, tell: Callable[[str], None]) -> GpuBatch:
    gpu_batch = question.how
    for selection in question.selections:
        try:
            async for larger in _with_selection(gpu_batch, question, bench, selection, tell):
                gpu_batch = larger
        except TriageError as error:
            # At their own shapes, what cannot be captured leaves the others.
            if selection.repro.ptx or not question.measure or len(question.selections) == 1:
                raise
            tell(f"{selection.repro.name}: left out: {error}")
    if not (gpu_batch.carried if gpu_batch.on == GPU else gpu_batch.cases):
        why = next(
            (case.problem for case in gpu_batch.cases if case.problem), "nothing is selected"
        )
        raise EmptySelectionError(f"--on {gpu_batch.on}: no cubin to launch: {why}")
    return gpu_batch


async def _with_selection(
    gpu_batch: GpuBatch,
    question: GpuQuestion,
    bench: Workbench,
    selection: Selection,
    tell: Callable[[str], None],
) -> AsyncIterator[GpuBatch]:
    """The batch with the cells of one place more each time."""
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
        single = structs.replace(
            selection,
            launches=(place.launch,),
            targets=(place.target,),
            compilers=(place.compiler,),
        )
        if is_shaped:
            tell(f"{selection.repro.name}: {place.launch.label} on {place.target}")
        elif not selection.repro.ptx:
            source = RecordedLaunch(
                bench=bench,
                selection=single,
                tell=tell,
                is_held=gpu_batch.on == SASS,
                trials=trials,
                budget=budget,
            )
        plan = await plan_launch(bench, single.place())
        try:
            cells = [(bench, cell) for cell in plan.cells]
            gpu_batch = await gpu_batch.with_cells(
                source, cells, question.levels, is_witnessed=not is_shaped
            )
        finally:
            for session in filter(None, {plan.session, *source.sessions()}):
                await bench.sessions.close(session)
        if question.measure:
            gpu_batch = gpu_batch.timed()
        yield gpu_batch


async def _report(
    bench: Workbench, gpu_batch: GpuBatch, answers: Answers, tell: Callable[[str], None]
) -> RunReport:
    """Judge what came back, and keep it."""
    results = await judge_batch(bench, gpu_batch, answers, tell)
    store = bench.store
    number = store.begin_run(gpu_batch.command)
    for executed in results:
        keep_execution(store, number, executed)
    store.finish_run(number)
    notes: tuple[str, ...] = ()
    if not answers.is_whole:
        count = sum(bool(measured.runs) for measured in answers.measured)
        notes = (
            f"the results were cut off: {count} of {len(gpu_batch.carried)} cubins were launched",
        )
    rows = tuple(executed.row for executed in results)
    return RunReport(rows=rows, device=answers.gpu.name, notes=notes)


# From answers to rows: each launch is emulated, and its cubins are judged.

_KIND = "batch"

_Judged: TypeAlias = tuple[BatchCase, Measured, Judgement]


def keep_batch(store: Store, gpu_batch: GpuBatch) -> str:
    """Keep a batch, so that its results can be judged later; the sha256 of its manifest."""
    pack = hashlib.sha256(manifest_bytes(gpu_batch)).hexdigest()
    names = set(gpu_batch.blobs).union(*(launch.artifacts for launch in gpu_batch.launches))
    store.keep_record(_KIND, pack, gpu_batch, artifacts=names)
    return pack


def find_gpu_batch(store: Store, pack: str) -> GpuBatch:
    """The batch whose manifest has this sha256.

    Raises:
        UsageError: no pack of this store has it.
    """
    otherwise = (
        "which was not written from these results (TRIAGE_HOME); import them where `--pack` was "
        "given"
    )
    return read_kept(store, _KIND, pack, GpuBatch, otherwise)


async def judge_batch(
    bench: Workbench, gpu_batch: GpuBatch, answers: Answers, tell: Callable[[str], None]
) -> list[Executed]:
    """Judge every case that was asked for, in their order."""

    async def judged(index: int, launch: Launch) -> list[_Judged]:
        pairs = zip(gpu_batch.carried, answers.measured, strict=True)
        own = [(case, measured) for case, measured in pairs if case.launch == index]
        measured = [one for _, one in own]
        if launch.digest:
            ptx = bench.store.artifacts.get(launch.emulation.ptx).decode(errors="replace")
            buffers = launch.emulation.buffers
            judgements = [judge_digests(case, buffers, ptx, answers.gpu) for case in measured]
        else:
            referee = await _referee(bench, launch, answers, measured, tell)
            judgements = list(map(referee.judge, measured))
        return [(*pair, judgement) for pair, judgement in zip(own, judgements, strict=True)]

    parts = await in_parallel(judged(*pair) for pair in enumerate(gpu_batch.launches))
    results = {
        id(case): _executed(case, judgement, answers.gpu, measured)
        for case, measured, judgement in _with_peers(
            bench.store, gpu_batch, [*itertools.chain(*parts)]
        )
    }
    for case in gpu_batch.cases:
        if case.problem:
            judgement = Judgement(verdict=VerdictKind.NOT_RUN, reason=case.problem)
            results[id(case)] = _executed(case, judgement, answers.gpu, Measured(words=""))
    return [results[id(case)] for case in gpu_batch.cases if not case.is_witness]


def _with_peers(store: Store, gpu_batch: GpuBatch, judged: Sequence[_Judged]) -> list[_Judged]:
    """With what cubins say of one another whose values did not come back."""
    digests: dict[int, CubinDigest] = {}
    for number, (case, measured, judgement) in enumerate(judged):
        launch = gpu_batch.launches[case.launch or 0]
        if not launch.digest or judgement.verdict is not VerdictKind.RAN:
            continue
        options = front_end(case.compiled.compiler).options
        config = {name: value for name, value in case.cell.config.items if name not in options}
        buffers, glimpses = launch.emulation.buffers, measured.ended[0].glimpses
        numbers = numbers_of(glimpses, launch.tensors, buffers)
        if not numbers or not case.cubin:
            continue
        places = tuple((buffer.name, buffer.file, buffer.size) for buffer in buffers)
        changed = {
            buffer.name
            for buffer, digits in zip(buffers, glimpses, strict=False)
            if not buffer.file
            or glimpse_before(store.artifacts.get(buffer.file), buffer.size) != digits
        }
        digests[number] = CubinDigest(
            place=(case.cell.kernel, case.cell.launch, str(config), places, tuple(numbers)),
            cubin=case.cubin,
            words=f"{case.cell.config.label} by {case.words}",
            judgement=judgement,
            types=frozenset(launch.types),
            numbers=numbers,
            changed=frozenset(changed & numbers.keys()),
        )
    judgements = dict(zip(digests, judge_together(list(digests.values())), strict=True))
    return [
        (case, measured, judgements.get(number, judgement))
        for number, (case, measured, judgement) in enumerate(judged)
    ]


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
) -> PtxReference:
    """What the emulator says of a launch; of variants of its PTX too, where that matters."""
    tell(f"{launch.emulation.entry}: the emulator executes the PTX")
    get = bench.store.artifacts.get
    text = get(launch.emulation.ptx).decode(errors="replace")
    evidence = evidence_of(launch, (await emulate(bench, launch.emulation)).value, get)
    referee = PtxReference(
        cases=measured,
        gpu=answers.gpu,
        evidence=replace(evidence, contents={**evidence.contents, **answers.blobs}),
        judgement=judge(evidence),
        freedom=read_freedom(text),
    )
    if not referee.needs_variants:
        return referee
    moved = await _variants(bench, launch, moved_variants(text))
    filled = await _variants(bench, launch, filled_variants(text))
    contents = {name: get(name) for buffers in (*moved, *filled) for name in buffers or ()}
    evidence = replace(evidence, contents={**referee.evidence.contents, **contents})
    return replace(referee, evidence=evidence, moved=moved, filled=filled)


async def _variants(bench: Workbench, launch: Launch, texts: Sequence[str]) -> tuple[Variant, ...]:
    """The buffers after each of these programs was emulated in place of the launch's."""
    variants: list[Variant] = []
    for text in texts:
        trial = replace(launch.emulation.trials[0], checks=Checks())
        sha256 = bench.store.artifacts.put(text.encode())
        emulation = replace(launch.emulation, ptx=sha256, trials=(trial,))
        runs = (await emulate(bench, emulation)).value.runs
        variants.append(runs[0].buffers if runs and runs[0].ended else None)
    return tuple(variants)


def _executed(case: BatchCase, judgement: Judgement, gpu: GpuFacts, measured: Measured) -> Executed:
    seconds = [run.seconds for run in measured.runs if run.seconds]
    times = measured.times
    row = run_row(
        case.cell,
        replace(judgement, races=()),
        triton=case.compiled.triton,
        on=case.cell.on,
        device=gpu.name or None,
        instructions_run=measured.instructions,
        seconds=round(sum(seconds), 6) if seconds else None,
        time_ms=time_of(times.ms, times.sm_mhz) if times else None,
        time_samples=times.ms if times else (),
        sm_mhz=times.sm_mhz if times else (),
        sanitizers=tuple(measured.checks),
        compiled=case.compiled,
    )
    return Executed.of(row, case.compiled, judgement.signature, case.evidence)
