"""`triage hunt triton --corpus`: changes of Triton's IR, what fails by itself, and what goes wrong.

Triton's own reader decides which changes are valid. The rest is lowered as far as LLVM's IR. What
counts is a crash, a hang, the memory, and a pass that leaves IR which the reader refuses. A pass
that says no, in words, to what it is given does not: a changed module need not mean anything.

TTIR that leaves nothing open is compiled to PTX, too, with stages for its target and without any.
Both are executed by the emulator on the same inputs. A module is undefined that has a fault or a
race without stages; and for that no pass of Triton is to blame.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from msgspec import structs

from gpu_emulator.ptx.text.facts import instructions_sha256
from gpu_emulator.values import Budget
from harness.frontends.base import Lowered
from harness.frontends.bench import Kept
from harness.frontends.launch_code import capture_request
from harness.frontends.registry import form_of
from harness.frontends.sessions import CapturedLaunch, LaunchCode
from harness.hunt.ir_corpus import options_of, suffix_of
from harness.hunt.ir_defined import left_open
from harness.hunt.oracles import HuntCase
from harness.hunt.triton_oracles import (
    FAILURES,
    Care,
    TritonOracles,
    as_answer,
    grown_time,
    is_finite,
)
from harness.hunt.voting import HuntAnswer, Vote
from harness.judging.messages import crash_words, first_error
from harness.judging.signature import template
from harness.minimize.ttgir import IrModule
from harness.run.emulating import emulate_once
from harness.run.inputs import PLAIN_TARGET, guessed_launch, launch_of_text
from harness.run.judging import judge
from harness.run.launch import Launch, NotRunError, RunEvidence, Trusted, why_refused
from harness.run.schedules import INSTRUCTIONS, PROGRAMS, default_trials, read_schedules, trials_of
from harness.values.errors import InfrastructureError
from harness.values.execution import LaunchVariant
from harness.values.kernel import Scalar
from harness.values.limits import limits_of
from harness.values.outcome import Capture, Lowering
from harness.values.target import Target
from harness.values.toolchain import without_evidence
from harness.values.verdict import Stage, Verdict, VerdictKind

# Seconds for one module: what takes longer hangs.
_LONGEST = 60.0
# Orders that show the most, and how the plain variant is executed.
_QUICK = read_schedules("first/early,last/late")
_PLAIN = read_schedules("lockstep/early")
_BUDGET = Budget(max_instructions=INSTRUCTIONS, max_ctas=PROGRAMS)
# A generated kernel executes less than a million; a loop that lost its end is not waited for.
_SMALL = Budget(max_instructions=20_000_000)
_NOT_FUSED = {"enable_fp_fusion": False}
# What MLIR prints of a module after a pass that failed, up to the next of its kind.
_AFTER_FAILURE = re.compile(
    r"^// -----// IR Dump After \S+ Failed[^\n]*\n(.*?)(?=^// -----//|\Z)", re.DOTALL | re.MULTILINE
)


@dataclass(slots=True, kw_only=True)
class IrOracles(TritonOracles):
    """One Triton; a module is lowered for one of the targets, by its seed. Nothing is kept.

    Of TTIR, what can be lowered is executed, if it `executes`. `broken` says of failures, by their
    signature, whether the pass left IR that is not valid.
    """

    executes: bool = True
    broken: dict[str, bool] = field(init=False, default_factory=dict)

    async def answer_of(self, asked: HuntCase, care: Care) -> HuntAnswer:
        """An answer for a module; what can be lowered is executed, where it means something."""
        target = self.targets[asked.seed % len(self.targets)]
        verdict, lowering = await self._judged(asked, target)
        if verdict is None:

            async def again() -> Lowering:
                return (await self._judged(asked, target, timing=True))[1]

            count = IrModule.read(asked.text).count()
            if grown := await grown_time(lowering, count, again, str(target)):
                return grown
            is_executed = self.executes and suffix_of(asked.text) == ".ttir"
            vote = await self._voted(asked, target, care) if is_executed else None
            return vote or HuntAnswer(vote=Vote.ASSEMBLED)
        key = verdict.signature.key if verdict.signature else ""
        is_hit = verdict.kind in FAILURES
        if verdict.stage is Stage.CAPTURE:
            is_hit = False  # the reader decides what is valid, and may die of what is not
        elif verdict.kind is VerdictKind.PASS_FAILURE and not crash_words(lowering.log):
            if key not in self.broken:
                self.broken[key] = await self._is_invalid(asked, target, first_error(lowering.log))
            is_hit = self.broken[key]
        return HuntAnswer(
            vote=Vote.FAILS if is_hit else Vote.REFUSED,
            words=f"{target}: {verdict.reason}",
            signature=key or None,
        )

    async def _is_invalid(self, asked: HuntCase, target: Target, complaint: str) -> bool:
        """Whether the reader has the same complaint about the module that a pass left."""
        _, failed = await self._judged(asked, target, dump=True)
        modules = _AFTER_FAILURE.findall(failed.log)
        if not modules:
            return False
        # Of pipelines within one another the innermost is printed first.
        verdict, said = await self._judged(HuntCase(modules[0], asked.seed), target)
        is_refused = verdict is not None and verdict.stage is Stage.CAPTURE
        # A conversion that gives up half-way leaves what is not valid either, and says why it did.
        return is_refused and template(first_error(said.log)) == template(complaint)

    async def _judged(
        self, asked: HuntCase, target: Target, **prints: bool
    ) -> tuple[Verdict | None, Lowering]:
        """The verdict, None where the module is lowered, and its evidence.

        It `prints` a `dump` of modules, or the `timing` of passes.

        Raises:
            InfrastructureError: Triton cannot be started, or the disk is full.
        """
        lowered, evidence = await self._compiled(
            asked.text, target, options_of(asked.seed, asked.text), until=Stage.LLIR.value, **prints
        )
        if lowered is None:
            return None, evidence
        verdict = self.front.judge(evidence)
        if verdict.kind is VerdictKind.INFRA:
            raise InfrastructureError(verdict.reason)
        return verdict, evidence

    async def _compiled(
        self,
        text: str,
        target: Target,
        options: Mapping[str, Scalar],
        *,
        is_plain: bool = False,
        **more: object,
    ) -> tuple[Lowered | None, Lowering]:
        """What comes of a module, None where it got past the stage of `until`; and its evidence.

        Raises:
            InfrastructureError: Triton cannot be started, or the disk is full.
        """
        bench = self.bench
        code = LaunchCode(file=Path(f"kernel{suffix_of(text)}"), function=None, overrides=options)
        request = capture_request(code.with_configs("*", [options]) if is_plain else code, target)
        limits = structs.replace(bench.limits, timeout=min(bench.limits.timeout, _LONGEST))
        more = {"limits": limits.message(), "ptxas": None, "until": None, **more}
        job = await self.front.compile_text(bench, self.compiler, text, request, more)
        try:
            nothing = Kept(value=Capture(records=[], pruned={}, ptxas="", triton=""))
            launch = CapturedLaunch(capture=nothing, compiler=self.compiler, request=request)
            evidence = self.front.evidence(launch, job)
            return await form_of(self.compiler.kind).lowered(bench, launch, job, None), evidence
        finally:
            bench.hub.drop_folder(job.folder)

    async def _voted(self, asked: HuntCase, target: Target, care: Care) -> HuntAnswer:
        """The vote of a module's variants: with the stages of this seed, and with none.

        Who is accused by a quick look is looked at with all care; and once more without contraction
        of products and sums, which rounds otherwise on one side alone.
        """
        if why := left_open(IrModule.read(asked.text)):
            return HuntAnswer(vote=Vote.LEFT_OUT, words=why)
        options = options_of(asked.seed, asked.text)
        looks = [(Care.THOROUGH, {**options, **_NOT_FUSED}), (Care.THOROUGH, options)]
        if care is not Care.THOROUGH:
            looks = [(care, options), *(looks if care is Care.FAIR else ())]
        answer = HuntAnswer(vote=Vote.RIGHT)
        for how, more in looks:
            try:
                answer = await self._compared(asked.text, target, more, how)
            except NotRunError as error:
                return HuntAnswer(vote=Vote.LEFT_OUT, words=str(error))
            if not answer.is_hit:
                break
        return answer

    async def _compared(
        self, text: str, target: Target, options: Mapping[str, Scalar], care: Care
    ) -> HuntAnswer:
        """What a module computes with these options, held to its plain variants.

        With all `care` in all orders, else in two; `FAIR` does not look for races without stages.

        Raises:
            NotRunError: the module leaves open what it computes, or cannot be executed.
        """
        contents: dict[str, bytes] = {}

        def keep(data: bytes) -> str:
            sha256 = hashlib.sha256(data).hexdigest()
            contents[sha256] = data
            return sha256

        async def run(launch: Launch, ptx: str, trusted: Sequence[Trusted]) -> RunEvidence:
            held = replace(launch, trusted=tuple(trusted))
            evidence = await emulate_once(self.bench, held, ptx, contents)
            contents.update(evidence.contents)
            return evidence

        variant, is_quick = guessed_launch(text, keep), care is not Care.THOROUGH
        ptx, mine = await self._launch(text, target, options, variant)
        warps = [options["num_warps"]]
        # Sums in another order: what that changes says nothing.
        warps += [] if is_quick else [4 if warps == [8] else 8]
        trusted: list[Trusted] = []
        for number in warps:
            plain, launch = await self._plain(
                text, target, {**options, "num_warps": number}, variant
            )
            if is_quick and instructions_sha256(plain) == instructions_sha256(ptx):
                return HuntAnswer(vote=Vote.RIGHT)
            launch = launch.run_as(trials_of(_PLAIN, races=care is not Care.FAIR), _SMALL)
            evidence = await run(launch, plain, trusted)
            judgement = judge(evidence)
            if not judgement.verdict.is_fine_run:
                raise NotRunError(f"without stages it is {judgement.verdict}: {judgement.reason}")
            buffers = evidence.ran[0].buffers
            if not all(is_finite(evidence.values(one, buffers)) for one in evidence.tensors):
                raise NotRunError("values overflow: the order of sums decides")
            trusted.append(Trusted(words="what it computes without stages", buffers=buffers))
        trials = default_trials()
        if is_quick:  # garbage is tried where somebody is accused
            trials = trials_of(_QUICK, races=False)[: len(_QUICK)]
        orders = sum(not trial.schedule.garbage for trial in trials)
        judgement = judge(await run(mine.run_as(trials, _BUDGET), ptx, trusted))
        races = [race for race in judgement.races if not race.formal]
        # Which of two writes is the last is left open: targets write in other ways.
        if twice := [r for r in races if (r.space, r.kind) == ("global", "write-write")]:
            raise NotRunError(f"a race in memory: {twice[0].words}")
        named = ", ".join(f"{name}={value}" for name, value in options.items())
        words = f"{target}, {named}: {without_evidence(judgement.reason)}"
        return as_answer(judgement.verdict, words, judgement.schedule, orders=orders, races=races)

    async def _plain(
        self, text: str, target: Target, options: Mapping[str, Scalar], variant: LaunchVariant
    ) -> tuple[str, Launch]:
        """The plain variant; for the target itself, where none comes about for another."""
        options = {**options, "num_stages": 1}
        try:
            return await self._launch(text, PLAIN_TARGET, options, variant, is_plain=True)
        except NotRunError:
            return await self._launch(text, target, options, variant, is_plain=True)

    async def _launch(
        self,
        text: str,
        target: Target,
        options: Mapping[str, Scalar],
        variant: LaunchVariant,
        *,
        is_plain: bool = False,
    ) -> tuple[str, Launch]:
        """The PTX of a module with these options, and its launch.

        Raises:
            NotRunError: it cannot be compiled, or not launched.
        """
        lowered, _ = await self._compiled(text, target, options, is_plain=is_plain)
        assert lowered is not None, "it is compiled to the end"
        if lowered.ptx is None:
            raise NotRunError(f"for {target}: {self.front.judge(lowered.lowering).reason}")
        if lowered.reading and lowered.reading.facts and lowered.reading.facts.is_trap_stub:
            raise NotRunError(f"for {target} it is a trap")
        limits = limits_of(target.capability)
        if refused := why_refused(lowered.ptx, lowered.lowering, target, limits):
            raise NotRunError(f"for {target}: {refused}")
        return lowered.ptx, launch_of_text(lowered.ptx, lowered.lowering.metadata, variant)
