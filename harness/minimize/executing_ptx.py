"""`triage minimize --run --level ptx`: the least PTX that goes wrong when it is executed."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np

from gpu_emulator.values import Budget
from harness.cells.evaluate import Evaluated
from harness.frontends.base import PlannedCell, Selection
from harness.frontends.bench.bench import Workbench
from harness.frontends.registry import front_end
from harness.minimize.executed.case import ExecutedCase
from harness.minimize.executed.element import WrongElement, find_elements
from harness.minimize.executed.emulated import EmulatedPtx
from harness.minimize.executed.oracle import reaction_of_run
from harness.minimize.ptx.defined import count_unwritten
from harness.minimize.ptx.predicate import minimize_by
from harness.minimize.reduction.folder import MinimizedFolder
from harness.minimize.reduction.progress import Reducing
from harness.minimize.reduction.result import Minimization, Uninteresting
from harness.run.emulating import Emulation, emulate
from harness.run.entry import read_entry
from harness.run.evidence import Trusted
from harness.run.executing import run_evidence
from harness.run.judging import judge, schedule_words
from harness.run.launching import NotRunError, emulation_of
from harness.run.ptx_launch import LAUNCH_INPUTS, LaunchBuffer, PtxLaunch
from harness.run.raw_ptx import RawInputs, RawLaunch, raw_launch
from harness.run.rows import result_of, row_of
from harness.run.same_inputs import SameInputs
from harness.run.schedules import DEFAULT, INSTRUCTIONS, read_schedules, trials_of
from harness.values.errors import UsageError
from harness.values.execution import RunVerdict
from harness.values.toolchain import EMULATOR

_BY_VALUE = (RunVerdict.WRONG_RESULT, RunVerdict.NONDETERMINISTIC)
# What a candidate may execute beside what the original did; one that loops without end ends there.
_MORE = 8
_LEAST_INSTRUCTIONS = 1_000_000
# What hangs is cut off early: it would take its whole budget each time.
_HANGING = 2_000_000


@dataclass(slots=True, kw_only=True)
class RawCase:
    """A file of PTX as a cell that is executed on inputs that the user names."""

    bench: Workbench
    raw: RawLaunch
    formal: bool = False
    case: ExecutedCase | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, bench: Workbench, selection: Selection, inputs: RawInputs) -> RawCase:
        """The file of a selection.

        Raises:
            UsageError: it is not PTX, or the inputs do not fit its parameters.
        """
        repro = selection.repro
        assert repro.ptx is not None, "it is a file of PTX"
        raw = raw_launch(repro.ptx, repro.kernel, inputs, bench.store)
        return cls(bench=bench, raw=raw, formal=selection.formal)

    async def evaluate(self, bench: Workbench, cell: PlannedCell) -> Evaluated:
        """Execute it and judge it.

        Raises:
            UsageError: the inputs do not fit its parameters.
            InfrastructureError: the emulator cannot be started.
        """
        budget = Budget(max_instructions=INSTRUCTIONS)
        trials = trials_of(read_schedules(DEFAULT), races=True)
        emulation, notes = self.raw.prepare(trials, budget)
        self.notes = tuple(notes)
        kept = await emulate(bench, emulation)
        found, _ = self.raw.evidence(kept.value.runs, kept.value.problem)
        evidence = replace(found, formal=self.formal)
        judgement = judge(evidence)
        self.case = ExecutedCase(
            text=bench.store.artifacts.get(emulation.ptx).decode(),
            emulation=emulation,
            evidence=evidence,
            judgement=judgement,
        )
        row = row_of(cell.cell, judgement, kept.value.runs, ptx_sha256=emulation.ptx)
        named = self.raw.inputs_named(cell.cell, emulation)
        result = result_of(row, named, compiler=None, ptx_body_sha256=None, cached=kept.cached)
        return Evaluated(row=result, evidence={"run": kept.key}, signature=judgement.signature)


async def executed_case(bench: Workbench, cell: PlannedCell, same: SameInputs) -> ExecutedCase:
    """A cell of a kernel with the inputs that were recorded for it.

    Raises:
        UsageError: only some of its programs are executed.
        TriageError: it cannot be executed.
    """
    assert cell.launch is not None
    assert cell.record is not None
    lowering = await front_end(cell.compiler.kind).lower(
        bench, cell.launch, cell.record, ptxas=cell.ptxas
    )
    variant = await same.variant(cell.record)
    try:
        emulation = emulation_of(bench, lowering, variant, same.trials, same.budget)
    except NotRunError as error:
        raise UsageError(str(error)) from error
    kept = await emulate(bench, emulation)
    text = bench.store.artifacts.get(emulation.ptx).decode(errors="replace")
    found = await same.trusted(cell, variant, text)
    runs = kept.value.runs
    if any(ran.is_sample for ran in runs):
        raise UsageError("only some programs of its grid are executed: --set a smaller launch")
    evidence = run_evidence(
        bench.store.artifacts.get,
        variant,
        runs,
        found,
        text,
        kept.value.problem,
        formal=same.selection.formal,
    )
    return ExecutedCase(
        text=text, emulation=emulation, evidence=evidence, judgement=judge(evidence)
    )


async def minimize_executed_ptx(
    reducing: Reducing, case: ExecutedCase
) -> Minimization | Uninteresting:
    """Reduce PTX that goes wrong when it is executed; the launch goes with what is left.

    Raises:
        UsageError: the folder is taken.
        TriageError: the machine failed before the reduction began.
    """
    reducing.watch.stage("executing the original on its own")
    held = await hold(reducing.bench, case)
    if isinstance(held, str):
        return Uninteresting(reason=f"{reducing.subject.row.reason}; {held}")
    predicate, words = held
    assert predicate.wanted is not None
    judgement = predicate.wanted.judgement
    assert judgement.signature is not None, "it goes wrong"
    is_defined = reducing.options.is_defined or judgement.verdict is RunVerdict.UNINITIALISED
    if judgement.verdict is RunVerdict.UNINITIALISED:
        predicate.unwritten = count_unwritten(case.text)
    files = launch_files(predicate.launch, predicate.files, predicate.contents)
    found = await minimize_by(
        reducing,
        predicate,
        case.text,
        signature=judgement.signature.key,
        by=EMULATOR,
        is_defined=is_defined,
        terms={"launch": msgspec.to_builtins(predicate.launch)},
    )
    if isinstance(found, Uninteresting):
        return found
    folder = MinimizedFolder(path=Path(found.path))
    for name, data in files.items():
        folder.write_bytes(name, data)
    return replace(
        found,
        reason=judgement.reason,
        reaction=reaction_of_run(judgement),
        notes=(words, *found.notes),
        run_command=f"triage run min.ptx --inputs {LAUNCH_INPUTS}",
        run_files=files,
    )


async def hold(bench: Workbench, case: ExecutedCase) -> tuple[EmulatedPtx, str] | str:
    """A predicate that says whether a text goes wrong as the case does, and what it holds.

    A sentence, where there is nothing to hold candidates to.
    """
    verdict = case.judgement.verdict
    if verdict not in _BY_VALUE:
        predicate = _predicate(bench, case, None)
        predicate.wanted = await predicate.observe(case.text)
        if predicate.wanted.judgement.verdict is not verdict:
            found = predicate.wanted.judgement
            return f"alone it gives {found.verdict.value}: {found.reason}"
        return (
            predicate,
            f"what is held: {verdict.value}, as the emulator says it of every candidate",
        )
    for element in find_elements(case.evidence, _right(case)):
        predicate = _predicate(bench, case, element)
        predicate.wanted = await predicate.observe(case.text)
        if predicate.wanted.judgement.verdict is verdict:
            words = f"what is held: element {element.words}, to the bit, under every schedule"
            return predicate, words
    return (
        "no element that differs was written with a value that can be followed: all hold zero, or "
        "what was there before"
    )


def _right(case: ExecutedCase) -> Trusted:
    """What the wrong values are compared with; another schedule, where schedules disagree."""
    if case.judgement.verdict is RunVerdict.WRONG_RESULT:
        return next(each for each in case.trusted if each.words == case.judgement.reference)
    first = case.evidence.runs[0]
    buffers = tuple(case.evidence.contents[sha256] for sha256 in first.buffers)
    words = f"the schedule {schedule_words(first.trial.schedule)}"
    return Trusted(words=words, buffers=buffers)


def _predicate(bench: Workbench, case: ExecutedCase, element: WrongElement | None) -> EmulatedPtx:
    emulation, evidence = case.emulation, case.evidence
    is_wrong = element is not None and case.judgement.verdict is RunVerdict.WRONG_RESULT
    launch = replace(
        written_launch(case.text, emulation),
        tensors=(element.tensor,) if element else tuple(evidence.tensors),
        types=() if element else tuple(sorted(evidence.types)),
        expected=element.expected.hex() if element and is_wrong else None,
        expected_by=_right(case).words if is_wrong else "",
    )
    files = [each.file for each in emulation.buffers]
    contents = {name: bench.store.artifacts.get(name) for name in files if name}
    return EmulatedPtx(
        bench=bench,
        launch=launch,
        files=files,
        contents=contents,
        budget=_budget(case),
        entry=emulation.entry,
        formal=case.evidence.formal,
    )


def written_launch(text: str, emulation: Emulation) -> PtxLaunch:
    """What a PTX is launched with, as it is written down: with names for the buffers' files."""
    entry = read_entry(text, emulation.entry)
    return PtxLaunch(
        parameters=tuple(each.type for each in entry.parameters),
        grid=emulation.grid,
        block=emulation.block,
        cluster=emulation.cluster,
        shared=emulation.dynamic_shared,
        buffers=tuple(
            LaunchBuffer(
                name=each.name,
                size=each.size,
                file=f"buffer-{number}.npy" if each.file else None,
                unwritten=each.unwritten,
            )
            for number, each in enumerate(emulation.buffers)
        ),
        arguments=emulation.arguments,
        tensors=(),
    )


def _budget(case: ExecutedCase) -> Budget:
    runs = (*case.evidence.runs, *case.evidence.garbage)
    executed = max((ran.executed for ran in runs), default=0)
    most = max(_LEAST_INSTRUCTIONS, _MORE * executed)
    if case.judgement.verdict is RunVerdict.HANG:
        most = min(most, _HANGING)
    budget = case.emulation.budget
    return replace(budget, max_instructions=min(most, budget.max_instructions))


def launch_files(
    launch: PtxLaunch, files: Sequence[str | None], contents: Mapping[str, bytes]
) -> Mapping[str, bytes]:
    """The launch, and the bytes of its buffers, as they go beside the result."""
    document = msgspec.json.format(msgspec.json.encode(launch), indent=2)
    pairs = zip(launch.buffers, files, strict=True)
    buffers = {each.file: as_npy(contents[name]) for each, name in pairs if each.file and name}
    return {LAUNCH_INPUTS: document + b"\n", **buffers}


def as_npy(data: bytes) -> bytes:
    """Bytes as a file of numpy's."""
    stream = io.BytesIO()
    np.save(stream, np.frombuffer(data, np.uint8), allow_pickle=False)
    return stream.getvalue()
