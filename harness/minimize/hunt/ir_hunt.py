"""`triage hunt triton --corpus`: changes of Triton's IR, and what Triton fails on by itself.

Triton's own reader decides which changes are valid. The rest is lowered as far as LLVM's IR. What
counts is a crash, a hang, the memory, and a pass that leaves IR which the reader refuses. A pass
that says no, in words, to what it is given does not: a changed module need not mean anything.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import structs

from harness.cells.places import in_parallel
from harness.frontends.bench.bench import Kept, Workbench
from harness.frontends.captured_front_end import CapturedFrontEnd
from harness.frontends.launch_code import capture_request
from harness.frontends.registry import front_end
from harness.frontends.sessions import CapturedLaunch, LaunchCode
from harness.frontends.texts.ir_inputs import read_triton_ir
from harness.io.files.writing import scratch_disk
from harness.judging.messages import crash_words, first_error
from harness.judging.signature import template
from harness.minimize.hunt.causes import Cause, LeastProgram, is_same_kind, join, said_of
from harness.minimize.hunt.hunting import HuntPlan
from harness.minimize.hunt.ir_corpus import IrSource, changed_ir, operation_names, sources_of
from harness.minimize.hunt.oracles import Asked
from harness.minimize.hunt.triton_oracles import FAILURES, Care
from harness.minimize.hunt.voting import Answer, Vote
from harness.minimize.reduction.driver import Effort
from harness.minimize.ttgir import IR_FORMAT, IrModule
from harness.values.errors import InfrastructureError, UsageError
from harness.values.outcome import Capture
from harness.values.target import Target
from harness.values.toolchain import Compiler
from harness.values.verdict import Stage, Verdict, VerdictKind

_MOST_TESTS = 250
# Seconds for one module: what takes longer hangs.
_LONGEST = 60.0
# What MLIR prints of a module after a pass that failed, up to the next of its kind.
_AFTER_FAILURE = re.compile(
    r"^// -----// IR Dump After \S+ Failed[^\n]*\n(.*?)(?=^// -----//|\Z)", re.DOTALL | re.MULTILINE
)


@dataclass(slots=True, kw_only=True)
class IrOracles:
    """One Triton; a module is lowered for one of the targets, by its seed. Nothing is kept.

    `broken` says of failures, by their signature, whether the pass left IR that is not valid.
    """

    bench: Workbench
    compiler: Compiler
    targets: Sequence[Target]
    broken: dict[str, bool] = field(init=False, default_factory=dict)

    @property
    def jobs(self) -> int:
        """How many compilers may run at once."""
        return self.bench.jobs

    async def ask(self, programs: Sequence[Asked], *, care: Care = Care.FAIR) -> list[Answer]:
        """An answer for each module.

        Raises:
            InfrastructureError: Triton cannot be started, or the disk is full.
        """
        return await in_parallel(map(self._answer, programs))

    async def _answer(self, asked: Asked) -> Answer:
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
        folder = bench.hub.new_folder("hunt")
        try:
            file = folder / f"kernel{suffix_of(text)}"
            with scratch_disk():
                file.write_text(text)
            request = capture_request(LaunchCode(file=file, function=None, overrides={}), target)
            limits = structs.replace(bench.limits, timeout=min(bench.limits.timeout, _LONGEST))
            message = {
                "op": "compile",
                "capture": request.message(),
                "limits": limits.message(),
                "ptxas": None,
                "until": Stage.LLIR.value,
                "dump": dumps,
            }
            async with bench.slot():
                job = await front.sessions_of(bench).run_job(self.compiler, message)
        finally:
            bench.hub.drop_folder(folder)
        bench.cpu_seconds += job.end.cpu
        try:
            nothing = Kept(
                value=Capture(records=[], pruned={}, ptxas="", triton=""),
                key="",
                artifacts={},
                cached=False,
            )
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
class IrCauses:
    """All causes that a hunt has found in a Triton by changes of its IR."""

    plan: HuntPlan
    oracles: IrOracles
    causes: list[Cause]
    sources: Mapping[Target, list[IrSource]]

    def mark(self, asked: Asked, answer: Answer) -> str:
        """What a hit is most likely about: the pass, and how it fails."""
        return str(answer.signature)

    async def walk_around(self, asked: Asked, answer: Answer) -> tuple[Asked, Answer] | None:
        """The hit, or None where a cause fails alike, with which it is counted."""
        for cause in self.causes:
            if is_same_kind(cause.least.answer, answer):
                cause.hits += 1
                return None
        return asked, answer

    async def reduce(
        self, asked: Asked, answer: Answer, *, is_time_up: Callable[[], bool]
    ) -> LeastProgram | str:
        """The least module that fails in such a way: without the steps that it does not need first.

        Else why there is none: it does not a second time; no words where the time is up before it
        is small.

        Raises:
            InfrastructureError: Triton cannot be started.
        """

        async def is_interesting(text: str) -> bool:
            [now] = await self.oracles.ask([Asked(text, asked.seed)])
            return is_same_kind(now, answer)

        target = self.plan.target_of(asked.seed)
        made = changed_ir(asked.seed, self.sources[target])
        text, steps = asked.text, made.steps
        if not await is_interesting(text):
            return "a hit that did not come back"
        for step in made.steps if text == made.text else ():
            fewer = tuple(one for one in steps if one != step)
            less = made.source.changed(fewer)
            if await is_interesting(less):
                text, steps = less, fewer
        result = await IR_FORMAT.reduce_text(
            text,
            lambda candidate: asyncio.ensure_future(is_interesting(candidate)),
            effort=Effort(jobs=self.oracles.jobs, max_tests=_MOST_TESTS, is_time_up=is_time_up),
            watch=lambda progress: None,  # noqa: ARG005
        )
        if is_time_up():
            return ""  # what is half reduced has no name yet
        least = Asked(result.document, asked.seed)
        [last] = await self.oracles.ask([least])
        if not last.is_hit:
            return f"a hit that is {said_of(last)}"
        module = IrModule.read(least.text)
        program = LeastProgram(
            text=least.text,
            seed=least.seed,
            answer=last,
            name=template(last.words.partition(": ")[2])[:160],
            opcodes=tuple(sorted(operation_names(module))),
            instructions=module.count(),
        )
        for number, other in enumerate(self.oracles.targets):
            if other != target and read_triton_ir(least.text).capability is None:
                [there] = await self.oracles.ask([Asked(least.text, number)])
                otherwise = there.is_hit and not is_same_kind(there, last)
                program.targets[str(other)] = said_of(there) + " in another way" * otherwise
        return program

    def join(self, program: LeastProgram, *, seconds: float, tried: int) -> tuple[Cause, bool]:
        """The cause of a reduced program, and whether it is new."""
        return join(self.causes, program, seconds=seconds, tried=tried)


def repro_files(plan: HuntPlan, name: str, cause: Cause) -> dict[str, bytes]:
    """The files of a repro of a cause: its least module, which `triage compile` takes."""
    least = cause.least
    file = f"{name}{suffix_of(least.text)}"
    lines = [
        f"kernel: {read_triton_ir(least.text).kernel}",
        f"files: [{file}]",
        f"summary: {json.dumps(f'{cause.name}; {least.answer.words}'[:400])}",
        f"triton: {plan.tool.version}",
        f"targets: [{plan.target_of(least.seed)}]",
    ]
    return {file: least.text.encode(), "repro.yaml": ("\n".join(lines) + "\n").encode()}
