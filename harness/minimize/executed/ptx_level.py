"""`triage minimize --run --level ptx`: the least PTX that goes wrong when the emulator executes it.

What a candidate computes has no meaning of its own: nothing says what it ought to be. So a wrong
value is held to its bits. Of one element, every schedule must leave the very bytes that the
original leaves, the wrong ones and the right ones. What is left then computes this one value, as
wrong as before. For a fault, a race, a hang and a read of what nothing wrote the emulator itself
is the judge: the same verdict and signature, the same address of a fault; and no race that the
original has not, so that no barrier goes that still orders something.
"""

from __future__ import annotations

import contextlib
import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np
from msgspec import structs

from gpu_emulator.values import Budget
from harness.cells.evaluate import Evaluated
from harness.frontends.bench import Workbench
from harness.frontends.plan import PlannedCell, Selection
from harness.minimize.ptx.level import reduce_by
from harness.minimize.ptx.reduce import count_unwritten
from harness.minimize.reduction.fingerprint import Answer, Reaction
from harness.minimize.reduction.interest import PredicateAnswer
from harness.minimize.reduction.minimization import Minimization, MinimizedLaunch, NothingToReduce
from harness.minimize.reduction.work import MinimizeTask, minimization
from harness.run.comparing import ELEMENTS, as_tensor, near
from harness.run.emulating import emulate, emulate_once
from harness.run.emulator_jobs import Emulation, Ran, RunTrial
from harness.run.executing import executed_of
from harness.run.inputs import Entry, EntryError, read_entry
from harness.run.judging import Judgement, judge, race_words, schedule_words
from harness.run.launch import Launch, RunEvidence, Trusted, evidence_of
from harness.run.launch_sources import RecordedLaunch, lower_cell
from harness.run.raw import PtxLaunch, RawInputs, RawLaunch, raw_launch
from harness.run.schedules import DEFAULT, default_trials, read_schedules
from harness.values.errors import UsageError
from harness.values.execution import Argument
from harness.values.kernel import LAUNCH_INPUTS
from harness.values.outcome import ProcessEnd
from harness.values.toolchain import EMULATOR
from harness.values.verdict import Stage, VerdictKind

_MOST = 8
RUN_PTX = f"triage run min.ptx --inputs {LAUNCH_INPUTS}"
"""What executes the PTX that is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutedCase:
    """PTX that goes wrong: what it was executed with, and what came of it."""

    text: str
    evidence: RunEvidence
    judgement: Judgement

    @property
    def launch(self) -> Launch:
        """What it was launched with, and what is right, where something says so."""
        return self.evidence.launch


def reaction_of_run(judgement: Judgement) -> Reaction:
    """A verdict of a run, as fingerprints want it."""
    return Reaction(
        verdict=judgement.verdict,
        reason=judgement.reason,
        is_accepted=judgement.verdict.is_fine_run,
        end=ProcessEnd(),
        stage=Stage.RUN,
        signature=judgement.signature,
        fields={"verdict": judgement.verdict.value, "stage": str(Stage.RUN)},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongElement:
    """An element that differs: a tensor of one element, where it is in its own tensor, both values.

    `expected` are its bytes as they must be.
    """

    tensor: Argument
    where: tuple[int, ...]
    expected: bytes
    actual: float
    right: float

    @property
    def words(self) -> str:
        """Where it is, and both values."""
        place = ", ".join(map(str, self.where))
        return f"[{place}] of {self.tensor.name}: {self.actual:.6g} in place of {self.right:.6g}"


def find_elements(
    evidence: RunEvidence, trusted: Trusted, *, is_followed: bool = True
) -> list[WrongElement]:
    """Elements that differ from what they must be, of each tensor and schedule, the worst first.

    To be followed, none may hold zero or what it held before: such a value needs no instruction to
    come about.
    """
    elements = [
        element
        for ran in evidence.runs
        for tensor in evidence.tensors
        if trusted.buffers[tensor.buffer] is not None and tensor.dtype in ELEMENTS
        for element in _differing(
            evidence, ran.buffers[tensor.buffer], tensor, trusted, is_followed=is_followed
        )
    ]
    return elements[:_MOST]


def _differing(
    evidence: RunEvidence, after_name: str, tensor: Argument, trusted: Trusted, *, is_followed: bool
) -> Iterator[WrongElement]:
    kind = ELEMENTS[tensor.dtype]
    before = as_tensor(tensor, evidence.contents[evidence.launch.before[tensor.buffer]])
    after = as_tensor(tensor, evidence.contents[after_name])
    expected = as_tensor(tensor, evidence.contents[trusted.buffers[tensor.buffer] or ""])
    if kind.kind in "iub":
        bad = after != expected
        apart = np.where(bad, 1.0, 0.0)
    elif kind.kind == "c":
        return
    else:
        bad = ~near(after, expected, evidence.allowed(tensor))
        with np.errstate(invalid="ignore"):
            right = expected.astype(np.float64)
            apart = np.abs(after.astype(np.float64) - right)
            apart = apart / np.maximum(np.abs(right), np.finfo(np.float64).tiny)
        apart = np.where(bad & np.isfinite(apart), apart, np.where(bad, 0.0, -1.0))
    for place in np.argsort(-apart, axis=None, kind="stable")[: _MOST * _MOST]:
        where = tuple(int(index) for index in np.unravel_index(int(place), after.shape))
        bits = after[where].tobytes()
        comes_unasked = not any(bits) or bits == before[where].tobytes()
        if not bad[where] or (is_followed and comes_unasked):
            continue
        step = sum(n * stride for n, stride in zip(where, tensor.strides, strict=False))
        offset = tensor.offset + kind.itemsize * (step if tensor.strides else where[0])
        yield WrongElement(
            tensor=structs.replace(tensor, offset=offset, shape=(1,), strides=(1,)),
            where=where,
            expected=expected[where].tobytes(),
            actual=float(after[where]),
            right=float(expected[where]),
        )


_FAULTS = frozenset({VerdictKind.MEMORY_FAULT, VerdictKind.HANG, VerdictKind.LAUNCH_FAILED})
_BY_VALUE = frozenset({VerdictKind.WRONG_RESULT, VerdictKind.NONDETERMINISTIC})


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedRuns:
    """What one text does under the default schedules.

    `values` are the bytes of the element that is held, by schedule; `faults` what runs that differ
    in garbage alone say; `races` are pairs of lines by their kinds.
    """

    judgement: Judgement
    values: Mapping[str, bytes] = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    races: Counter[tuple[str, bool]] = field(default_factory=Counter)


@dataclass(slots=True, kw_only=True)
class EmulatedPtx:
    """A `PtxPredicate`: executes a text on the inputs of a launch.

    `files` are the sha256 of the buffers' bytes, which `contents` has. `entry` is the one that is
    meant, where a text has it. `original` is what the original does, once it was observed;
    `unwritten` how many registers it reads that nothing may have written, None where any number
    will do. `formal` is as in `RunEvidence`.
    """

    bench: Workbench
    launch: PtxLaunch
    files: Sequence[str | None]
    contents: Mapping[str, bytes]
    budget: Budget
    entry: str | None = None
    original: ObservedRuns | None = None
    unwritten: int | None = None
    formal: bool = False

    def is_possible(self, text: str) -> bool:
        entry = find_entry(text, self.entry)
        if entry is None or not self.launch.fits(entry):
            return False
        return self.unwritten is None or count_unwritten(text) <= self.unwritten

    async def ask(self, text: str) -> PredicateAnswer:
        assert self.original is not None, "the original was observed"
        if not self.is_possible(text):
            return PredicateAnswer(Answer.UNTOLD, "its entry does not take what the launch gives")
        early = await self._glance(text, self.original)
        if early:
            return early
        observed = await self.observe(text)
        return compared(observed, self.original)

    async def observe(self, text: str) -> ObservedRuns:
        """All that a text does."""
        trials = default_trials()
        evidence = await self._run(text, trials)
        judgement = judge(evidence)
        faults: tuple[str, ...] = ()
        if judgement.verdict in _FAULTS:
            first = next(ran for ran in evidence.ran if ran.faults)
            faults, failed = _fault_words((first,)), first.trial
            garbage = replace(failed, schedule=replace(failed.schedule, garbage=1))
            faults += _fault_words((await self._run(text, (garbage,))).ran)
        return ObservedRuns(
            judgement=judgement,
            values={} if faults else self._values(evidence),
            faults=faults,
            races=_pairs(evidence.ran),
        )

    async def _glance(self, text: str, expected: ObservedRuns) -> PredicateAnswer | None:
        """A refusal that one run is enough for; None where there is none."""
        if expected.judgement.verdict not in _BY_VALUE:
            return None
        [schedule] = read_schedules((expected.judgement.schedule or DEFAULT).partition(",")[0])
        evidence = await self._run(text, (RunTrial(schedule=schedule),))
        values = self._values(evidence)
        name = schedule_words(schedule)
        if values.get(name) == expected.values.get(name):
            return None
        judgement, reason = judge(evidence), "another value comes out"
        if judgement.verdict in (*_FAULTS, VerdictKind.NOT_RUN):
            reason = f"{judgement.verdict.value}: {judgement.reason}"
        return PredicateAnswer(Answer.OTHER, reason)

    async def _run(self, text: str, trials: Sequence[RunTrial]) -> RunEvidence:
        entry = find_entry(text, self.entry)
        assert entry is not None, "the text was looked at before"
        launch = self.launch.launched(entry.name, self.files)
        launch = launch.run_as(trials, self.budget, formal=self.formal)
        contents = {**self.contents, **self.launch.expected_bytes}
        return await emulate_once(self.bench, launch, text, contents)

    def _values(self, evidence: RunEvidence) -> dict[str, bytes]:
        if len(self.launch.tensors) != 1:
            return {}
        [tensor] = self.launch.tensors
        size = ELEMENTS[tensor.dtype].itemsize
        return {
            _named(ran): evidence.contents[ran.buffers[tensor.buffer]][
                tensor.offset : tensor.offset + size
            ]
            for ran in evidence.ran
            if len(ran.buffers) > tensor.buffer and not ran.faults
        }


def find_entry(text: str, preferred: str | None) -> Entry | None:
    """The entry that is meant, else the only one; None where there is none that can be launched."""
    for name in dict.fromkeys((preferred, None)):
        with contextlib.suppress(EntryError, ValueError):
            return read_entry(text, name)
    return None


def compared(observed: ObservedRuns, original: ObservedRuns) -> PredicateAnswer:
    """Whether two texts do the same, as far as a reduction is about it."""
    mine, expected = observed.judgement, original.judgement
    if mine.verdict is VerdictKind.NOT_RUN:
        return PredicateAnswer(Answer.UNTOLD, f"{mine.verdict.value}: {mine.reason}")
    if mine.verdict.is_fine_run:
        return PredicateAnswer(Answer.ACCEPTS, f"{mine.verdict.value}: {mine.reason}")
    keys = [
        judgement.signature.key if judgement.signature else None for judgement in (mine, expected)
    ]
    if mine.verdict is not expected.verdict or keys[0] != keys[1]:
        return PredicateAnswer(Answer.OTHER, f"{mine.verdict.value}: {mine.reason}")
    if expected.verdict in _BY_VALUE and observed.values != original.values:
        return PredicateAnswer(Answer.OTHER, "another value comes out under some schedule")
    if expected.verdict is VerdictKind.MEMORY_FAULT and not set(observed.faults) <= set(
        original.faults
    ):
        return PredicateAnswer(Answer.OTHER, f"another address: {observed.faults[0]}")
    if len(set(observed.faults)) > 1:
        return PredicateAnswer(Answer.OTHER, "how it fails depends on what nothing wrote")
    more = observed.races - original.races
    if more:
        [(words, _), *_] = more
        return PredicateAnswer(Answer.OTHER, f"it has a race that the original has not: {words}")
    return PredicateAnswer(Answer.SAME, mine.reason)


def _fault_words(runs: Sequence[Ran]) -> tuple[str, ...]:
    """What faults say, apart from how many threads they meet; that nothing failed is said too."""
    words = [fault.what.partition(" is out of bounds")[0] for ran in runs for fault in ran.faults]
    return tuple(words) or ("no fault",)


def _pairs(runs: Sequence[Ran]) -> Counter[tuple[str, bool]]:
    lines = {
        ((race_words(race), race.formal), race.first.ptx_line, race.second.ptx_line)
        for ran in runs
        for race in ran.races
    }
    return Counter(kind for kind, *_ in lines)


def _named(ran: Ran) -> str:
    garbage = " with other garbage" if ran.trial.schedule.garbage else ""
    return schedule_words(ran.trial.schedule) + garbage


# What a candidate may execute beside what the original did; one that loops without end ends there.
_MORE = 8
_LEAST_INSTRUCTIONS = 1_000_000
# What hangs is cut off early: it would take its whole budget each time.
_HANGING = 2_000_000


@dataclass(slots=True, kw_only=True)
class RawCase:
    """A file of PTX as a cell that is executed on inputs that the user names."""

    selection: Selection
    raw: RawLaunch
    case: ExecutedCase | None = None

    @classmethod
    def of(cls, bench: Workbench, selection: Selection, inputs: RawInputs | None) -> RawCase:
        repro = selection.repro
        assert repro.ptx is not None, "it is a file of PTX"
        given, formal = inputs or RawInputs(), selection.formal
        raw = raw_launch(repro.ptx, repro.kernel, given, bench.store, formal=formal)
        return cls(selection=selection, raw=raw)

    async def evaluate(self, bench: Workbench, cell: PlannedCell) -> Evaluated:
        launch, get = self.raw.launch, bench.store.artifacts.get
        emulated = await emulate(bench, launch.emulation)
        evidence = evidence_of(launch, emulated.value, get)
        judgement, ptx = judge(evidence), launch.emulation.ptx
        self.case = ExecutedCase(text=get(ptx).decode(), evidence=evidence, judgement=judgement)
        named = self.raw.named(cell.cell)
        return executed_of(named, judgement, emulated, ptx=ptx).evaluated

    async def minimize(self, task: MinimizeTask) -> Minimization | NothingToReduce:
        assert self.case is not None, "it was executed to be the subject"
        return await minimize_executed_ptx(task, self.case, self.raw.notes)


async def executed_case(
    bench: Workbench, cell: PlannedCell, source: RecordedLaunch
) -> ExecutedCase:
    """A cell of a kernel with the inputs that were recorded for it.

    Raises:
        UsageError: only some of its programs are executed.
        TriageError: it cannot be executed.
    """
    get = bench.store.artifacts.get
    launch = await source.launch_of(cell, await lower_cell(bench, cell))
    emulated = (await emulate(bench, launch.emulation)).value
    if any(ran.is_sample for ran in emulated.runs):
        raise UsageError("only some programs of its grid are executed: --set a smaller launch")
    evidence = evidence_of(await source.held(cell, launch), emulated, get)
    text = get(launch.emulation.ptx).decode(errors="replace")
    return ExecutedCase(text=text, evidence=evidence, judgement=judge(evidence))


async def minimize_executed_ptx(
    task: MinimizeTask, case: ExecutedCase, notes: Sequence[str] = ()
) -> Minimization | NothingToReduce:
    """Reduce PTX that goes wrong when it is executed; the launch goes with what is left.

    The `notes` are for the report.

    Raises:
        UsageError: the folder is taken.
        TriageError: the machine failed before the reduction began.
    """
    task.watch.stage("executing the original on its own")
    held_ptx = await hold(task.bench, case)
    if isinstance(held_ptx, str):
        return NothingToReduce(reason=f"{task.subject.row.reason}; {held_ptx}")
    predicate, words = held_ptx
    assert predicate.original is not None
    judgement = predicate.original.judgement
    assert judgement.signature is not None, "it goes wrong"
    is_defined = task.options.is_defined or judgement.verdict is VerdictKind.UNINITIALISED
    if judgement.verdict is VerdictKind.UNINITIALISED:
        predicate.unwritten = count_unwritten(case.text)
    files = launch_files(predicate.launch, predicate.files, predicate.contents)
    work = await reduce_by(
        task,
        predicate,
        case.text,
        signature=judgement.signature.key,
        by=EMULATOR,
        is_defined=is_defined,
        terms={"launch": msgspec.to_builtins(predicate.launch)},
    )
    if isinstance(work, NothingToReduce):
        return work
    work.folder.write_all(files)
    return minimization(
        task,
        work,
        task.toolchain(),
        flags=(),
        limit=task.bench.limits.timeout,
        reason=judgement.reason,
        reaction=reaction_of_run(judgement),
        launch=MinimizedLaunch(command=RUN_PTX, files=files),
        first_notes=(words,),
        last_notes=notes,
    )


async def hold(
    bench: Workbench, case: ExecutedCase, *, is_followed: bool = True
) -> tuple[EmulatedPtx, str] | str:
    """A predicate that says whether a text goes wrong as the case does, and what it holds.

    A sentence, where there is nothing to hold candidates to. `is_followed` is as in
    `find_elements`.
    """
    verdict = case.judgement.verdict
    if verdict not in _BY_VALUE:
        predicate = _predicate(bench, case, None)
        predicate.original = await predicate.observe(case.text)
        if predicate.original.judgement.verdict is not verdict:
            judgement = predicate.original.judgement
            return f"alone it gives {judgement.verdict.value}: {judgement.reason}"
        return (
            predicate,
            f"what is held: {verdict.value}, as the emulator says it of every candidate",
        )
    for element in find_elements(case.evidence, _right(case), is_followed=is_followed):
        predicate = _predicate(bench, case, element)
        predicate.original = await predicate.observe(case.text)
        if predicate.original.judgement.verdict is verdict:
            words = f"what is held: element {element.words}, to the bit, under every schedule"
            return predicate, words
    return (
        "no element that differs was written with a value that can be followed: all hold zero, or "
        "what was there before"
    )


def _right(case: ExecutedCase) -> Trusted:
    """What the wrong values are compared with; another schedule, where schedules disagree."""
    if case.judgement.verdict is VerdictKind.WRONG_RESULT:
        return next(
            trusted for trusted in case.launch.trusted if trusted.words == case.judgement.reference
        )
    first = case.evidence.runs[0]
    words = f"the schedule {schedule_words(first.trial.schedule)}"
    return Trusted(words=words, buffers=first.buffers)


def _predicate(bench: Workbench, case: ExecutedCase, element: WrongElement | None) -> EmulatedPtx:
    emulation, evidence = case.launch.emulation, case.evidence
    is_wrong = element is not None and case.judgement.verdict is VerdictKind.WRONG_RESULT
    launch = replace(
        written_launch(case.text, emulation),
        tensors=(element.tensor,) if element else tuple(evidence.tensors),
        types=() if element else case.launch.types,
        expected=element.expected.hex() if element and is_wrong else None,
        expected_by=_right(case).words if is_wrong else "",
    )
    files = [buffer.file for buffer in emulation.buffers]
    contents = {name: bench.store.artifacts.get(name) for name in files if name}
    return EmulatedPtx(
        bench=bench,
        launch=launch,
        files=files,
        contents=contents,
        budget=_budget(case),
        entry=emulation.entry,
        formal=case.launch.formal,
    )


def written_launch(text: str, emulation: Emulation) -> PtxLaunch:
    """What a PTX is launched with, as it is written down: with names for the buffers' files."""
    entry = read_entry(text, emulation.entry)
    return PtxLaunch(
        parameters=tuple(part.type for part in entry.parameters),
        grid=emulation.grid,
        block=emulation.block,
        cluster=emulation.cluster,
        shared=emulation.dynamic_shared,
        buffers=tuple(
            replace(part, file=f"buffer-{number}.npy" if part.file else None)
            for number, part in enumerate(emulation.buffers)
        ),
        arguments=emulation.arguments,
        tensors=(),
    )


def _budget(case: ExecutedCase) -> Budget:
    executed = max((ran.executed for ran in case.evidence.ran), default=0)
    most = max(_LEAST_INSTRUCTIONS, _MORE * executed)
    if case.judgement.verdict is VerdictKind.HANG:
        most = min(most, _HANGING)
    budget = case.launch.emulation.budget
    return replace(budget, max_instructions=min(most, budget.max_instructions))


def launch_files(
    launch: PtxLaunch, files: Sequence[str | None], contents: Mapping[str, bytes]
) -> Mapping[str, bytes]:
    """The launch, and the bytes of its buffers, as they go beside the result."""
    document = msgspec.json.format(msgspec.json.encode(launch), indent=2)
    pairs = zip(launch.buffers, files, strict=True)
    buffers = {
        buffer.file: as_npy(contents[name]) for buffer, name in pairs if buffer.file and name
    }
    return {LAUNCH_INPUTS: document + b"\n", **buffers}


def as_npy(data: bytes) -> bytes:
    """Bytes as a file of numpy's."""
    stream = io.BytesIO()
    np.save(stream, np.frombuffer(data, np.uint8), allow_pickle=False)
    return stream.getvalue()
