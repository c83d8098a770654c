"""`triage minimize --run --on gpu`, or sass: the least PTX whose cubin goes wrong there.

A candidate may compute anything, as long as the emulator says what it computes: it is defined, in
bounds, free of races, and ends. Its cubins are then held to what those of the original do: the one
that is accused goes wrong with the same signature, and each of the others does what it did, so that
what is left shows the same bug of the same ptxas.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import msgspec
from msgspec import structs

from harness.cells.evaluate import Evaluated, with_flags
from harness.frontends.bench import Workbench
from harness.frontends.plan import PlannedCell, Selection
from harness.frontends.registry import plan_launch
from harness.io.processes.tasks import Batcher
from harness.judging.ptxas.ptxas_options import level_change
from harness.minimize.executed.ptx_level import (
    find_entry,
    launch_files,
    reaction_of_run,
    written_launch,
)
from harness.minimize.ptx.level import reduce_by
from harness.minimize.ptx.reduce import count_unwritten
from harness.minimize.reduction.fingerprint import Answer
from harness.minimize.reduction.interest import PredicateAnswer
from harness.minimize.reduction.minimization import Minimization, MinimizedLaunch, NothingToReduce
from harness.minimize.reduction.work import MinimizeOptions, MinimizeTask, minimization
from harness.run.emulating import emulate
from harness.run.executing import Executed
from harness.run.gpu.cubin_judging import read_freedom
from harness.run.gpu.evaluating import BATCH_PAUSE, judge_batch
from harness.run.gpu.gpu_batch import GpuBatch, leveled
from harness.run.gpu.launch_program import PROGRAM, standalone_program
from harness.run.gpu.packing import CubinRunner
from harness.run.gpu.sass_emulator import destination_of
from harness.run.inputs import LaunchSource
from harness.run.judging import Judgement, judge
from harness.run.launch import Launch, RunEvidence, evidence_of
from harness.run.raw import PtxLaunch, RawInputs, raw_launch
from harness.store.store import Store
from harness.values.errors import UsageError
from harness.values.execution import RunRow
from harness.values.kernel import EMULATED, LAUNCH_INPUTS
from harness.values.toolchain import BUNDLED, TRITON, Assembler
from harness.values.verdict import VerdictKind


@dataclass(slots=True, kw_only=True)
class MeasuredPtx(LaunchSource):
    """A `PtxPredicate`: launches the cubins of a text on a GPU, many texts in one batch.

    `bench` has a store for candidates alone. `cells` say how a text is assembled, the accused one
    first; `original` is what it is launched with, `launch` the same by the places of parameters.
    `expected` are verdicts and signatures of the original's cubins, once they are known;
    `unwritten` is how many registers it reads that nothing may have written. `same` are the texts
    that go wrong in the same way, with the row of the accused cubin.
    """

    bench: Workbench
    cells: tuple[PlannedCell, ...]
    original: Launch
    launch: PtxLaunch
    destination: CubinRunner
    unwritten: int = 0
    expected: tuple[tuple[VerdictKind, str | None], ...] = ()
    same: dict[str, RunRow] = field(default_factory=dict)
    _together: Batcher[str, tuple[Executed, ...]] = field(init=False)

    def __post_init__(self) -> None:
        """Each batch takes all texts that were asked about by then."""
        self._together = Batcher(
            answer=lambda texts: self._launched(self.bench, texts), pause=BATCH_PAUSE
        )

    @property
    def trips(self) -> int:
        """How often the GPU was asked."""
        return self._together.count

    def is_possible(self, text: str) -> bool:
        entry = find_entry(text, self.original.emulation.entry)
        return entry is not None and self.launch.fits(entry)

    async def ask(self, text: str) -> PredicateAnswer:
        if not self.is_possible(text):
            return PredicateAnswer(Answer.UNTOLD, "its entry does not take what the launch gives")
        if count_unwritten(text) > self.unwritten:
            return PredicateAnswer(Answer.OTHER, "a register is read that nothing may have written")
        judgement = judge(await self._emulated(text))
        if not judgement.verdict.is_fine_run:
            words = f"the PTX itself: {judgement.verdict.value}: {judgement.reason}"
            return PredicateAnswer(Answer.OTHER, words)
        results = await self._together.ask(text)
        answer = self._compared(results)
        if answer.is_same:
            self.same[text] = results[0].row
        return answer

    async def observe(self, bench: Workbench, text: str) -> tuple[Executed, ...]:
        """What the cubins of one text do; results are kept on `bench`."""
        [results] = await self._launched(bench, [text])
        return results

    async def program(self, text: str, headline: str) -> str | None:
        """A Python program that shows what a text does; None where none can."""
        evidence = await self._emulated(text)
        far = 0.0 if read_freedom(text).is_exact else max(map(evidence.allowed, evidence.tensors))
        accused = self.cells[0]
        tools = dict.fromkeys(cell.ptxas for cell in self.cells)
        return standalone_program(
            evidence.launch,
            text,
            str(accused.cell.target),
            evidence.contents,
            [evidence.contents[sha256] for sha256 in evidence.runs[0].buffers],
            allowed=far,
            headline=headline,
            get=[
                f"python3 -m pip install --no-deps --target {tool.version} {tool.origin}"
                f"=={tool.version}  # find {tool.version} -name ptxas"
                for tool in tools
                if tool.origin not in (BUNDLED, TRITON)
            ],
        )

    async def _emulated(self, text: str) -> RunEvidence:
        launch = self._launch(text)
        emulated = await emulate(self.bench, launch.emulation)
        return evidence_of(launch, emulated.value, self.bench.store.artifacts.get)

    async def _launched(self, bench: Workbench, texts: Sequence[str]) -> list[tuple[Executed, ...]]:
        cells = []
        for text in texts:
            emulation = self._launch(text, bench).emulation
            cells += [
                (bench, structs.replace(cell, raw_ptx=emulation.ptx, entry=emulation.entry))
                for cell in self.cells
            ]
        gpu_batch = await GpuBatch(command="", on=self.destination.on).with_cells(self, cells)
        answers = await self.destination.answers(bench, gpu_batch)
        results = await judge_batch(bench, gpu_batch, answers, lambda _: None)
        many = len(self.cells)
        return [tuple(results[place : place + many]) for place in range(0, len(results), many)]

    async def launch_for(self, bench: Workbench, cell: PlannedCell) -> Launch:
        """As in `LaunchSource`: the same, whatever the text is."""
        return self._of_entry(cell.raw_ptx or "", cell.entry or "")

    def _compared(self, results: Sequence[Executed]) -> PredicateAnswer:
        for result, expected in zip(results, self.expected, strict=True):
            row = result.row
            if (row.run, row.run_signature) == expected:
                continue
            accepts = result is results[0] and row.run.is_fine_run
            return PredicateAnswer(
                Answer.ACCEPTS if accepts else Answer.OTHER,
                f"{_tool(result)}: {row.run.value}: {row.run_reason}",
            )
        return PredicateAnswer(Answer.SAME, results[0].row.run_reason)

    def _launch(self, text: str, bench: Workbench | None = None) -> Launch:
        entry = find_entry(text, self.original.emulation.entry)
        assert entry is not None, "the text was looked at before"
        return self._of_entry((bench or self.bench).store.artifacts.put(text.encode()), entry.name)

    def _of_entry(self, ptx: str, entry: str) -> Launch:
        emulation = replace(self.original.emulation, ptx=ptx, entry=entry)
        return replace(self.original, emulation=emulation)


@dataclass(slots=True, kw_only=True)
class MeasuredCase:
    """A file of PTX whose cubin goes wrong on a GPU: the first ptxas at one level is accused.

    The same ptxas at another level, and the other ptxas at the same, hold what is reduced in place.
    """

    bench: Workbench
    selection: Selection
    options: MinimizeOptions
    guards: Sequence[Assembler]
    predicate: MeasuredPtx | None = None
    results: tuple[Executed, ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, bench: Workbench, selection: Selection, options: MinimizeOptions) -> MeasuredCase:
        if selection.repro.ptx is None:
            raise UsageError(
                f"{selection.repro.name}: --on {options.on} reduces a file of PTX; `triage show "
                "--stage ptx` prints that of a kernel"
            )
        accused, *guards = selection.ptxas
        return cls(
            bench=bench,
            selection=structs.replace(selection, ptxas=(accused,)),
            options=options,
            guards=[guard for guard in guards if guard is not None],
        )

    async def evaluate(self, bench: Workbench, cell: PlannedCell) -> Evaluated:
        options, repro = self.options, self.selection.repro
        assert repro.ptx is not None, "it is a file of PTX"
        inputs = options.inputs or RawInputs()
        launch = raw_launch(repro.ptx, repro.kernel, inputs, bench.store)
        self.notes = launch.notes
        named = structs.replace(cell, cell=launch.named(cell.cell), nvdisasms=())
        cells = [near for near, _ in leveled(named, (options.gpu_level,))]
        for guard in self.guards:
            selection = structs.replace(self.selection, ptxas=(guard,))
            plan = await plan_launch(bench, selection.place(target=cell.cell.target))
            [beside] = [near for near in plan.cells if near.entry == cell.entry]
            beside = structs.replace(beside, cell=launch.named(beside.cell), nvdisasms=())
            cells.append(with_flags(beside, level_change(options.gpu_level)))
        text = bench.store.artifacts.get(launch.launch.emulation.ptx).decode()
        self.predicate = MeasuredPtx(
            bench=bench,
            cells=tuple(cells),
            original=launch.launch,
            launch=written_launch(text, launch.launch.emulation),
            destination=destination_of(options.on, options.runner),
            unwritten=count_unwritten(text),
        )
        self.results = await self.predicate.observe(bench, text)
        self.predicate.expected = tuple(
            (result.row.run, result.row.run_signature) for result in self.results
        )
        return self.results[0].evaluated

    async def minimize(self, task: MinimizeTask) -> Minimization | NothingToReduce:
        predicate = self.predicate
        assert predicate is not None, "it was launched to be the subject"
        row = self.results[0].row
        assert row.run_signature is not None, "it goes wrong"
        emulation = predicate.original.emulation
        contents = {
            buffer.file: self.bench.store.artifacts.get(buffer.file)
            for buffer in emulation.buffers
            if buffer.file
        }
        text = self.bench.store.artifacts.get(emulation.ptx).decode()
        launch = self._written(predicate)
        files = launch_files(launch, [buffer.file for buffer in emulation.buffers], contents)
        with self.bench.hub.folder("candidates") as folder, Store.open(folder) as candidates:
            for data in contents.values():
                candidates.artifacts.put(data)
            for trusted in predicate.original.trusted:
                for sha256 in filter(None, trusted.buffers):
                    candidates.artifacts.put(self.bench.store.artifacts.get(sha256))
            predicate.bench = self.bench.apart(limits=None, uncached=False)
            predicate.bench.store, predicate.bench.use_cache = candidates, True
            work = await reduce_by(
                task,
                predicate,
                text,
                signature=row.run_signature,
                by=f"{self.options.on}:{_tool(self.results[0])}",
                is_defined=True,
                is_always=True,
                terms={"launch": msgspec.to_builtins(launch), "held": self._held()},
            )
            if isinstance(work, NothingToReduce):
                return work
            shown = predicate.same[work.best]
            who = _tool(self.results[0]).replace("-", " ", 1).replace(",", " ")
            headline = f"{who} on {task.subject.cell.cell.target}: {shown.run_reason}"
            program = await predicate.program(work.best, headline)
            files = {**files, **({PROGRAM: program.encode()} if program else {})}
        work.folder.write_all(files)
        where = " by ".join(filter(None, (row.device, predicate.destination.name)))
        return minimization(
            task,
            work,
            task.toolchain(accused=_tool(self.results[0]).replace(",", " ")),
            flags=(),
            limit=task.bench.limits.timeout,
            reason=shown.run_reason,
            reaction=reaction_of_run(Judgement(verdict=row.run, reason=shown.run_reason)),
            launch=MinimizedLaunch(command=self._command(), files=files, shown=shown),
            first_notes=(
                f"what is held: {', '.join(self._held())}; the emulator ends, and finds no race",
                f"{predicate.trips} trips to {where}",
            ),
            last_notes=self.notes,
        )

    def _written(self, predicate: MeasuredPtx) -> PtxLaunch:
        """The launch with what is judged: where somebody says what one buffer must hold, that."""
        tensors = predicate.original.tensors
        by = EMULATED if predicate.original.emulator_is_right else ""
        launch = replace(predicate.launch, tensors=tensors, expected_by=by)
        for trusted in predicate.original.trusted:
            judged = [tensor for tensor in tensors if trusted.buffers[tensor.buffer]]
            if trusted.is_final and len(judged) == 1:
                data = self.bench.store.artifacts.get(trusted.buffers[judged[0].buffer] or "")
                words = trusted.words
                launch = replace(
                    launch, tensors=tuple(judged), expected=data.hex(), expected_by=words
                )
        return launch

    def _held(self) -> list[str]:
        return [f"{_tool(executed)}: {executed.row.run.value}" for executed in self.results]

    def _command(self) -> str:
        accused = self.selection.ptxas[0]
        assert accused is not None
        tools = " ".join(f"--ptxas {part.version}" for part in (accused, *self.guards))
        levels = ",".join(sorted({_tool(part).rpartition("-O")[2] for part in self.results}))
        target = self.selection.targets[0]
        return (
            f"triage run min.ptx --inputs {LAUNCH_INPUTS} --sm {str(target).removeprefix('sm_')} "
            f"{tools} -O {levels} --on {self.options.on}"
        )


def _tool(executed: Executed) -> str:
    """`ptxas-13.0.88,-O3`, as the cell spells it."""
    return executed.row.cell.rpartition("/")[2].partition(":")[2]
