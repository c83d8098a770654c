"""What any Triton's PTX of a standalone file computes, on inputs that were recorded once.

Where a result is held to another one, that is what the same file computes when it is compiled for
another target, or by another Triton: so a candidate may compute anything, as long as the two should
agree.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from harness.bench.bench import Workbench
from harness.cells.evaluate import cell_evidence
from harness.emulator.values import Budget, Schedule
from harness.frontends.base import CapturedLaunch, PlannedCell
from harness.frontends.triton.compile_file import Lowered, lower_text
from harness.frontends.triton.one_file import StandaloneError, read_standalone
from harness.judging.judge import judge as judge_compilation
from harness.minimize.reduction.fingerprint import Reaction
from harness.processes.hub import ResourceLimits
from harness.runs.emulating import Once, emulate_once
from harness.runs.executing import run_evidence
from harness.runs.jobs import Ran, RunTrial
from harness.runs.judging import Judgement, Trusted, judge
from harness.runs.launching import NotRunError, emulation_of_text
from harness.runs.references import Found
from harness.values.outcome import ProcessEnd
from harness.values.run import LaunchVariant, RunVerdict
from harness.values.standalone import FileLaunch
from harness.values.toolchain import Compiler
from harness.values.verdict import Stage, Verdict, VerdictKind

__all__ = ["TWICE", "ExecutedOracle", "reaction_of_run"]

_PLAIN = Schedule(warps="lockstep", completion="early")
TWICE = (RunTrial(schedule=_PLAIN), RunTrial(schedule=replace(_PLAIN, garbage=1)))
"""What is compared with: one run, and one with other garbage, which must leave the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutedOracle:
    """Compiles a standalone file as the cell is compiled, and executes it as `variant` says.

    `beside` is the launch captured for the target that the result is compared with; None where
    what is found needs no comparison. It is compiled by the same compiler, or always by that of
    `beside_compiler`. `launch` is that of the original: what a candidate says of
    its arguments has to be true of what they are.
    """

    bench: Workbench
    cell: PlannedCell
    variant: LaunchVariant
    trials: tuple[RunTrial, ...]
    budget: Budget
    launch: FileLaunch
    beside: CapturedLaunch | None = None
    beside_compiler: Compiler | None = None
    words: str = "the same file"

    def is_possible(self, text: str) -> bool:
        """Whether it says of its arguments what the launch will say."""
        try:
            launch = read_standalone(text).launch
        except StandaloneError:
            return False
        wanted = {p: w for p, w in self.launch.attributes.items() if p[0] in launch.signature}
        return launch.attributes == wanted and launch.options.keys() >= self.launch.options.keys()

    async def look(self, text: str, tool: Compiler) -> Reaction:
        """As `react`: what a kernel computes is known at its end."""
        return await self.react(text, tool)

    async def react(
        self, text: str, tool: Compiler, limits: ResourceLimits | None = None
    ) -> Reaction:
        """What the PTX of this Triton computes.

        Raises:
            InfrastructureError: this machine failed.
        """
        assert self.cell.launch is not None
        limits = limits or self.bench.limits
        launch = replace(self.cell.launch, compiler=tool)
        lowering = await self._lower(launch, text, limits)
        if isinstance(lowering, Reaction):
            return lowering
        try:
            once = await self._execute(lowering, self.trials)
            trusted = await self._trusted(text, tool, limits)
        except NotRunError as error:
            return reaction_of_run(Judgement(verdict=RunVerdict.NOT_RUN, reason=str(error)))
        emulated = once.emulated
        evidence = run_evidence(
            once.contents.__getitem__,
            self.variant,
            emulated.runs,
            Found(trusted=trusted),
            lowering.ptx or "",
            emulated.problem,
        )
        judgement = judge(evidence)
        if judgement.verdict is RunVerdict.WRONG_RESULT and _has_garbage(emulated.runs):
            reason = "it depends on what nothing wrote"
            return reaction_of_run(Judgement(verdict=RunVerdict.UNINITIALISED, reason=reason))
        return reaction_of_run(judgement)

    async def allocates(self, text: str) -> bool:
        """Whether what comes of a text asks its launch for memory.

        Raises:
            InfrastructureError: this machine failed.
        """
        assert self.cell.launch is not None
        lowering = await self._lower(self.cell.launch, text, self.bench.limits)
        if isinstance(lowering, Reaction):
            return False
        return bool(lowering.lowering.metadata.get("global_scratch_size"))

    async def _lower(
        self, launch: CapturedLaunch, text: str, limits: ResourceLimits
    ) -> Lowered | Reaction:
        lowered = await lower_text(self.bench, launch, text, ptxas=None, limits=limits)
        assert lowered is not None, "it is compiled to the end"
        if lowered.ptx is None:
            evidence = cell_evidence(
                kind=self.cell.compiler.kind,
                target=self.cell.cell.target,
                limits=self.cell.limits,
                lowering=lowered.lowering,
            )
            found = judge_compilation(evidence)
            reason = f"it does not compile: {found.kind.value}, {found.reason}"
            return reaction_of_run(Judgement(verdict=RunVerdict.NOT_RUN, reason=reason))
        return lowered

    async def _execute(self, lowered: Lowered, trials: tuple[RunTrial, ...]) -> Once:
        """Execute it on the inputs of the variant; nothing is kept.

        Raises:
            NotRunError: arguments and PTX do not fit.
        """
        ptx, metadata = lowered.ptx or "", lowered.lowering.metadata
        wanted = emulation_of_text(ptx, metadata, self.variant, trials, self.budget)
        get = self.bench.store.artifacts.get
        contents = {each.sha256: get(each.sha256) for each in self.variant.buffers}
        return await emulate_once(self.bench, wanted, ptx, contents)

    async def _trusted(
        self, text: str, tool: Compiler, limits: ResourceLimits
    ) -> tuple[Trusted, ...]:
        """What the file computes for the other target, or by the other compiler.

        Raises:
            NotRunError: it cannot be determined there, or depends on garbage.
        """
        if self.beside is None:
            return ()
        launch = replace(self.beside, compiler=self.beside_compiler or tool)
        lowering = await self._lower(launch, text, limits)
        if isinstance(lowering, Reaction):
            raise NotRunError(f"{self.words} does not compile: {lowering.reason}")
        once = await self._execute(lowering, TWICE)
        runs = once.emulated.runs
        is_fine = len(runs) == len(TWICE) and not any(each.not_run or each.faults for each in runs)
        if not is_fine or runs[0].buffers != runs[1].buffers:
            raise NotRunError(f"{self.words} depends on what nothing wrote, or cannot be run")
        buffers = tuple(once.contents[name] for name in runs[0].buffers)
        return (Trusted(words=self.words, buffers=buffers, is_final=True),)


def _has_garbage(runs: tuple[Ran, ...]) -> bool:
    """Whether a run with other garbage left something else."""
    plain = {each.trial.schedule: each.buffers for each in runs if not each.trial.schedule.garbage}
    return any(
        plain.get(replace(each.trial.schedule, garbage=0)) != each.buffers
        for each in runs
        if each.trial.schedule.garbage
    )


def reaction_of_run(judgement: Judgement) -> Reaction:
    """A verdict of a run, as fingerprints want it."""
    kind = VerdictKind(judgement.verdict.value)
    verdict = Verdict(kind=kind, reason=judgement.reason, stage=Stage.RUN)
    return Reaction(
        verdict=verdict.kind,
        reason=verdict.reason,
        is_accepted=kind.is_fine_run,
        end=ProcessEnd(),
        stage=verdict.stage,
        signature=judgement.signature,
        fields={"verdict": kind.value, "stage": str(Stage.RUN)},
    )
