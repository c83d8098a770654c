"""`triage hunt triton --corpus`: changes of Triton's IR, and what Triton fails on by itself.

Triton's own reader decides which changes are valid. The rest is lowered as far as LLVM's IR. What
counts is a crash, a hang, the memory, and a pass that leaves IR which the reader refuses. A pass
that says no, in words, to what it is given does not: a changed module need not mean anything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import structs

from harness.frontends.bench.bench import Kept
from harness.frontends.captured_front_end import CapturedFrontEnd
from harness.frontends.launch_code import capture_request
from harness.frontends.registry import front_end
from harness.frontends.sessions import CapturedLaunch, LaunchCode
from harness.frontends.texts.ir_inputs import read_triton_ir
from harness.judging.messages import crash_words, first_error
from harness.judging.signature import template
from harness.minimize.hunt.causes import Cause, LeastProgram, is_same_kind
from harness.minimize.hunt.ir_corpus import IrSource, changed_ir, operation_names, sources_of
from harness.minimize.hunt.oracles import Asked
from harness.minimize.hunt.triton_causes import TritonCauses
from harness.minimize.hunt.triton_oracles import FAILURES, Care, TritonOracles
from harness.minimize.hunt.voting import Answer, Vote
from harness.minimize.ttgir import IR_FORMAT, IrModule
from harness.values.errors import InfrastructureError, UsageError
from harness.values.outcome import Capture
from harness.values.target import Target
from harness.values.verdict import Stage, Verdict, VerdictKind

# Seconds for one module: what takes longer hangs.
_LONGEST = 60.0
# What MLIR prints of a module after a pass that failed, up to the next of its kind.
_AFTER_FAILURE = re.compile(
    r"^// -----// IR Dump After \S+ Failed[^\n]*\n(.*?)(?=^// -----//|\Z)", re.DOTALL | re.MULTILINE
)


@dataclass(slots=True, kw_only=True)
class IrOracles(TritonOracles):
    """One Triton; a module is lowered for one of the targets, by its seed. Nothing is kept.

    `broken` says of failures, by their signature, whether the pass left IR that is not valid.
    """

    broken: dict[str, bool] = field(init=False, default_factory=dict)

    async def answer_of(self, asked: Asked, care: Care) -> Answer:
        """An answer for a module; nothing is executed, so each is as careful."""
        target = self.targets[asked.seed % len(self.targets)]
        verdict, log = await self._judged(asked.text, target)
        if verdict is None:
            return Answer(vote=Vote.ASSEMBLED)
        key = verdict.signature.key if verdict.signature else ""
        is_hit = verdict.kind in FAILURES
        if verdict.stage is Stage.CAPTURE:
            is_hit = False  # the reader decides what is valid, and may die of what is not
        elif verdict.kind is VerdictKind.PASS_FAILURE and not crash_words(log):
            if key not in self.broken:
                self.broken[key] = await self._is_invalid(asked.text, target, first_error(log))
            is_hit = self.broken[key]
        return Answer(
            vote=Vote.FAILS if is_hit else Vote.REFUSED,
            words=f"{target}: {verdict.reason}",
            signature=key or None,
        )

    async def _is_invalid(self, text: str, target: Target, complaint: str) -> bool:
        """Whether the reader has the same complaint about the module that a pass left."""
        _, log = await self._judged(text, target, dumps=True)
        modules = _AFTER_FAILURE.findall(log)
        if not modules:
            return False
        # Of pipelines within one another the innermost is printed first.
        verdict, said = await self._judged(modules[0], target)
        is_refused = verdict is not None and verdict.stage is Stage.CAPTURE
        # A conversion that gives up half-way leaves what is not valid either, and says why it did.
        return is_refused and template(first_error(said)) == template(complaint)

    async def _judged(
        self, text: str, target: Target, *, dumps: bool = False
    ) -> tuple[Verdict | None, str]:
        """The verdict, None where the module is lowered, and what Triton prints.

        Raises:
            InfrastructureError: Triton cannot be started, or the disk is full.
        """
        bench, front = self.bench, front_end(self.compiler.kind)
        assert isinstance(front, CapturedFrontEnd)
        file = Path(f"kernel{suffix_of(text)}")
        request = capture_request(LaunchCode(file=file, function=None, overrides={}), target)
        limits = structs.replace(bench.limits, timeout=min(bench.limits.timeout, _LONGEST))
        more = {"limits": limits.message(), "ptxas": None, "until": Stage.LLIR.value, "dump": dumps}
        job = await front.compile_text(bench, self.compiler, text, request, more)
        try:
            nothing = Kept(value=Capture(records=[], pruned={}, ptxas="", triton=""))
            launch = CapturedLaunch(capture=nothing, compiler=self.compiler, request=request)
            lowering = front.evidence(launch, job)
        finally:
            bench.hub.drop_folder(job.folder)
        if (job.result or {}).get("is_past"):
            return None, lowering.log
        verdict = front.judge(lowering)
        if verdict.kind is VerdictKind.INFRA:
            raise InfrastructureError(verdict.reason)
        return verdict, lowering.log


def suffix_of(text: str) -> str:
    """How a file of this module is named: TTGIR fixes its warps."""
    return ".ttgir" if '"ttg.num-warps" = ' in text else ".ttir"


def fitting_sources(
    texts: Sequence[str], targets: Sequence[Target]
) -> Mapping[Target, list[IrSource]]:
    """For each target what can be changed: TTIR, and TTGIR that was made for it.

    Raises:
        UsageError: a target has none.
    """
    sources = sources_of(texts)
    fitting: dict[Target, list[IrSource]] = {target: [] for target in targets}
    for text, source in zip(texts, sources, strict=True):
        capability = read_triton_ir(text).capability
        for target in targets:
            if capability in (None, target.capability):
                fitting[target].append(source)
    if missing := [str(target) for target, some in fitting.items() if not some]:
        raise UsageError(f"no file of the corpus is for {missing[0]}")
    return fitting


@dataclass(slots=True, kw_only=True)
class IrCauses(TritonCauses):
    """All causes that a hunt has found in a Triton by changes of its IR."""

    form = IR_FORMAT
    tests = 250
    sources: Mapping[Target, list[IrSource]]

    def mark(self, asked: Asked, answer: Answer) -> str:
        """What a hit is most likely about: the pass, and how it fails."""
        return str(answer.signature)

    def is_of(self, cause: Cause, asked: Asked, answer: Answer) -> bool:
        """Whether a hit fails as a cause does."""
        return is_same_kind(cause.least.answer, answer)

    async def start(self, asked: Asked, answer: Answer) -> tuple[str, Answer] | None:
        """The hit without the steps that it does not need."""
        made = changed_ir(asked.seed, self.sources[self.plan.target_of(asked.seed)])
        text, steps = asked.text, made.steps
        if not is_same_kind(await self.look(asked), answer):
            return None
        for step in made.steps if text == made.text else ():
            fewer = tuple(one for one in steps if one != step)
            less = made.source.changed(fewer)
            if is_same_kind(await self.look(Asked(less, asked.seed)), answer):
                text, steps = less, fewer
        return text, answer

    def is_allowed(self, candidate: str) -> bool:
        """Triton's reader says so."""
        return True

    def tidied(self, text: str) -> str:
        """All of it."""
        return text

    def least_of(self, asked: Asked, answer: Answer) -> LeastProgram:
        """A reduced module: it is named by the message of the pass."""
        module = IrModule.read(asked.text)
        return LeastProgram(
            text=asked.text,
            seed=asked.seed,
            answer=answer,
            name=template(answer.words.partition(": ")[2])[:160],
            opcodes=tuple(sorted(operation_names(module))),
            instructions=module.count(),
        )

    def others(self, least: Asked) -> Sequence[Target]:
        """The other targets of the hunt, where the module names none."""
        if read_triton_ir(least.text).capability is not None:
            return []
        own = self.plan.target_of(least.seed)
        return [target for target in self.oracles.targets if target != own]
