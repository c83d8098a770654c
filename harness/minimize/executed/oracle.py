"""What any Triton's PTX of a kernel's file computes, on inputs that were recorded once.

The file is source, or Triton's IR.

Where a result is held to another one, that is what the same file computes when it is compiled for
another target, or by another Triton: so a candidate may compute anything, as long as the two should
agree.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from msgspec import structs

from gpu_emulator.values import Budget, Schedule
from harness.cells.evaluate import cell_evidence
from harness.frontends.bench import Workbench
from harness.frontends.one_file import StandaloneError
from harness.frontends.plan import PlannedCell
from harness.frontends.registry import form_of
from harness.frontends.sessions import CapturedLaunch
from harness.frontends.source_form import CompileRequest, Lowered
from harness.io.processes.hub import ResourceLimits
from harness.judging.judge import judge as judge_compilation
from harness.minimize.levels import IrText
from harness.minimize.reduction.fingerprint import Reaction
from harness.minimize.reduction.interest import Oracle
from harness.minimize.ttgir import IrModule, argument_names
from harness.run.emulating import emulate_once
from harness.run.emulator_jobs import Ran, RunTrial
from harness.run.executing import OnEmulator
from harness.run.inputs import launch_of_text
from harness.run.judging import Judgement, is_formal, judge, race_words
from harness.run.launch import Launch, NotRunError, RunEvidence, Trusted
from harness.run.launch_sources import RecordedLaunch
from harness.run.schedules import read_schedules, trials_of
from harness.values.execution import LaunchVariant, RunRow
from harness.values.outcome import ProcessEnd
from harness.values.standalone import FileLaunch, FileLayout
from harness.values.toolchain import Compiler
from harness.values.verdict import Stage, VerdictKind

_PLAIN = Schedule(warps="lockstep", completion="early")


_BARRIER = re.compile(r"\b(?:debug_barrier|thread_barrier)\(")


def count_barriers(text: str) -> int:
    """How many barriers of Triton's, or Gluon's, a file of Python asks for itself."""
    return len(_BARRIER.findall(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceForm:
    """Standalone files of Python.

    `launch` is that of the original: what a candidate says of its arguments has to be true of what
    they are. All of the `barriers` stay that the original asks for: without them a candidate may
    leave open itself what it computes, whether or not that shows elsewhere.
    """

    launch: FileLaunch
    layout: FileLayout
    barriers: int = 0
    suffix: str = ".py"
    options: Mapping[str, object] = field(default_factory=dict)

    def is_possible(self, text: str) -> bool:
        try:
            launch = self.layout.read(text).launch
        except StandaloneError:
            return False
        attributes = {p: w for p, w in self.launch.attributes.items() if p[0] in launch.signature}
        return (
            launch.attributes == attributes
            and launch.options.keys() >= self.launch.options.keys()
            and count_barriers(text) >= self.barriers
        )

    def described(self, metadata: Mapping[str, object]) -> Mapping[str, object]:
        return metadata


_SAID_OF_ARGUMENTS = ("signature", "constants")


@dataclass(frozen=True, slots=True, kw_only=True)
class IrForm:
    """Modules of Triton's IR, which are compiled with `options`.

    `arguments` are those of the original, `metadata` is what Triton said when it lowered the
    source: of a file of IR it does not know what its arguments are called.
    """

    suffix: str
    options: Mapping[str, object]
    arguments: tuple[str, ...]
    metadata: Mapping[str, object]

    @classmethod
    def of(cls, ir: IrText) -> IrForm:
        return cls(
            suffix=ir.suffix,
            options=ir.options,
            arguments=argument_names(IrModule.read(ir.text)),
            metadata={name: ir.metadata.get(name) for name in _SAID_OF_ARGUMENTS},
        )

    def is_possible(self, text: str) -> bool:
        return argument_names(IrModule.read(text)) == self.arguments

    def described(self, metadata: Mapping[str, object]) -> Mapping[str, object]:
        return {**metadata, **self.metadata}


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutedOracle(Oracle[Compiler]):
    """Compiles a text as the cell is compiled, and executes it as `variant` says.

    The `trials` are all orders; those of a `glance` show the failure of the original.
    `beside` is the launch captured for the target that the result is compared with; where there is
    none, with what is `trusted`, if anything is. It is compiled by the same compiler, or always by
    that of `beside_compiler`; with the options of the form, or `beside_options`. Where the original
    `is_free_of_races` there, so is each text: what races in itself is right nowhere. `formal` is as
    in `RunEvidence`.
    """

    bench: Workbench
    cell: PlannedCell
    variant: LaunchVariant
    trials: tuple[RunTrial, ...]
    glance: tuple[RunTrial, ...]
    budget: Budget
    form: SourceForm | IrForm
    trusted: tuple[Trusted, ...] = ()
    beside: CapturedLaunch | None = None
    beside_compiler: Compiler | None = None
    beside_options: Mapping[str, object] | None = None
    is_free_of_races: bool = False
    words: str = "the same file"
    formal: bool = False

    def is_possible(self, text: str) -> bool:
        return self.form.is_possible(text)

    async def react(
        self, text: str, tool: Compiler, limits: ResourceLimits | None = None
    ) -> Reaction:
        case = await self.execute(text, tool, limits)
        return case if isinstance(case, Reaction) else reaction_of_run(case.judgement)

    async def look(self, text: str, tool: Compiler) -> Reaction:
        return await replace(self, trials=self.glance).react(text, tool)

    async def execute(
        self, text: str, tool: Compiler, limits: ResourceLimits | None = None
    ) -> ExecutedCase | Reaction:
        """What comes of executing the PTX of this Triton; a reaction where it cannot be."""
        assert self.cell.launch is not None
        limits = limits or self.bench.limits
        launch = structs.replace(self.cell.launch, compiler=tool)
        lowering = await self._lower(launch, text, self.form.options, limits)
        if isinstance(lowering, Reaction):
            return lowering
        ptx = lowering.ptx or ""
        try:
            evidence = await self._once(self._launch(lowering, self.trials), ptx)
            trusted, contents = await self._trusted(text, tool, limits)
        except NotRunError as error:
            return reaction_of_run(Judgement(verdict=VerdictKind.NOT_RUN, reason=str(error)))
        evidence = evidence.held_to(*trusted)
        evidence = replace(evidence, contents={**contents, **evidence.contents})
        judgement = judge(evidence)
        is_wrong = judgement.verdict is VerdictKind.WRONG_RESULT
        # Beside it the same text is free of garbage: then garbage is the compiler's doing.
        if is_wrong and self.beside is None and _has_garbage(evidence.ran):
            reason = "it depends on what nothing wrote"
            judgement = Judgement(verdict=VerdictKind.UNINITIALISED, reason=reason)
        return ExecutedCase(text=ptx, evidence=evidence, judgement=judgement)

    async def allocates(self, text: str) -> bool:
        """Whether what comes of a text asks its launch for memory."""
        assert self.cell.launch is not None
        lowering = await self._lower(self.cell.launch, text, self.form.options, self.bench.limits)
        if isinstance(lowering, Reaction):
            return False
        return bool(lowering.lowering.metadata.get("global_scratch_size"))

    async def _lower(
        self,
        launch: CapturedLaunch,
        text: str,
        options: Mapping[str, object],
        limits: ResourceLimits,
    ) -> Lowered | Reaction:
        request = CompileRequest(
            text=text, ptxas=None, limits=limits, suffix=self.form.suffix, options=options
        )
        lowered = await form_of(launch.compiler.kind).compile(self.bench, launch, request)
        assert lowered is not None, "it is compiled to the end"
        if lowered.ptx is None:
            evidence = cell_evidence(
                kind=self.cell.compiler.kind,
                target=self.cell.cell.target,
                limits=self.cell.limits,
                lowering=lowered.lowering,
            )
            verdict = judge_compilation(evidence)
            reason = f"it does not compile: {verdict.kind.value}, {verdict.reason}"
            return reaction_of_run(Judgement(verdict=VerdictKind.NOT_RUN, reason=reason))
        return lowered

    def _launch(self, lowered: Lowered, trials: tuple[RunTrial, ...]) -> Launch:
        metadata = self.form.described(lowered.lowering.metadata)
        launch = launch_of_text(lowered.ptx or "", metadata, self.variant)
        return launch.run_as(trials, self.budget, formal=self.formal)

    async def _once(self, launch: Launch, ptx: str) -> RunEvidence:
        get = self.bench.store.artifacts.get
        contents = {name: get(name) for name in launch.artifacts}
        return await emulate_once(self.bench, launch, ptx, contents)

    async def _trusted(
        self, text: str, tool: Compiler, limits: ResourceLimits
    ) -> tuple[tuple[Trusted, ...], Mapping[str, bytes]]:
        """What the file computes for the other target or by the other compiler; bytes by sha256."""
        if self.beside is None:
            names = {name for trusted in self.trusted for name in trusted.buffers if name}
            return self.trusted, {name: self.bench.store.artifacts.get(name) for name in names}
        launch = structs.replace(self.beside, compiler=self.beside_compiler or tool)
        options = self.form.options if self.beside_options is None else self.beside_options
        lowering = await self._lower(launch, text, options, limits)
        if isinstance(lowering, Reaction):
            raise NotRunError(f"{self.words} does not compile: {lowering.reason}")
        # One run, and one with other garbage, which must leave the same.
        trials = trials_of((_PLAIN,), races=self.is_free_of_races)
        evidence = await self._once(self._launch(lowering, trials), lowering.ptx or "")
        runs = evidence.ran
        is_fine = len(runs) == len(trials) and all(ran.ended for ran in runs)
        if not is_fine or runs[0].buffers != runs[1].buffers:
            raise NotRunError(f"{self.words} depends on what nothing wrote, or cannot be run")
        races = [r for r in runs[0].races if not is_formal(r, is_alike=True, is_near=False)]
        if self.is_free_of_races and races:
            raise NotRunError(f"{self.words} has a race: {race_words(races[0])}")
        trusted = Trusted(words=self.words, buffers=runs[0].buffers, is_final=True)
        return (trusted,), evidence.contents


async def oracle_of(
    bench: Workbench,
    cell: PlannedCell,
    executor: OnEmulator[RecordedLaunch],
    form: SourceForm | IrForm,
) -> tuple[ExecutedOracle, RunRow]:
    """An oracle that compares with nothing, and what came out of the cell; on the same inputs.

    Raises:
        TriageError: the launch cannot be run with values.
    """
    assert cell.record is not None
    row = (await executor.execute(bench, cell)).row
    schedules = read_schedules((row.schedule or "").partition(",")[0])
    oracle = ExecutedOracle(
        bench=bench,
        cell=cell,
        variant=await executor.source.variant(cell.record),
        trials=executor.source.trials,
        glance=trials_of(schedules, races=row.run is VerdictKind.RACE),
        budget=executor.source.budget,
        form=form,
        formal=executor.source.selection.formal,
    )
    return oracle, row


def _has_garbage(runs: tuple[Ran, ...]) -> bool:
    """Whether a run with other garbage left something else."""
    plain = {run.trial.schedule: run.buffers for run in runs if not run.trial.schedule.garbage}
    return any(
        plain.get(replace(run.trial.schedule, garbage=0)) != run.buffers
        for run in runs
        if run.trial.schedule.garbage
    )


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
