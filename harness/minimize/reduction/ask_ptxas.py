"""What any ptxas does with a text, judged as any cell is."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from gpu_emulator.ptx.text.facts import PtxError, PtxFacts, read_ptx, retarget
from harness.cells.evaluate import cell_evidence
from harness.frontends.bench.assemble import Inspection
from harness.frontends.bench.once import assemble_text, run_predicate
from harness.frontends.readings import PtxReading
from harness.io.processes.hub import Hub, ResourceLimits
from harness.judging.judge import CellEvidence, judge
from harness.judging.signature import template
from harness.minimize.reduction.fingerprint import Reaction
from harness.values.errors import InfrastructureError
from harness.values.kernel import Scalar
from harness.values.limits import limits_of
from harness.values.outcome import ProcessEnd
from harness.values.target import Target
from harness.values.toolchain import Assembler
from harness.values.verdict import Verdict, VerdictKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """How ptxas is asked: `flags` name the target; `entry` is the one that is meant, if several."""

    target: Target
    flags: tuple[str, ...]
    entry: str | None = None


class PtxOracle:
    """Asks any ptxas about any text, `jobs` at a time; nothing is kept."""

    def __init__(self, hub: Hub, question: Question, *, jobs: int, limits: ResourceLimits) -> None:
        self.hub = hub
        self.question = question
        self.limits = limits
        self.slots = asyncio.Semaphore(jobs)

    def facts(self, text: str) -> PtxFacts | None:
        """The header and the entry; None where this can never be launched."""
        for entry in dict.fromkeys((self.question.entry, None)):
            try:
                return read_ptx(text, entry)
            except PtxError:
                continue
        return None

    def is_possible(self, text: str) -> bool:
        """Whether it is PTX with an entry."""
        return self.facts(text) is not None

    async def look(self, text: str, tool: Assembler) -> Reaction:
        """As `react`: ptxas cannot be stopped half-way."""
        return await self.react(text, tool)

    async def react(
        self, text: str, tool: Assembler, limits: ResourceLimits | None = None
    ) -> Reaction:
        """What that ptxas does with the text.

        Raises:
            InfrastructureError: this machine failed, twice.
        """
        for _ in range(2):
            async with self.slots:
                done = await assemble_text(
                    self.hub,
                    text,
                    ptxas=tool,
                    flags=self.question.flags,
                    limits=limits or self.limits,
                )
            target = self.question.target
            facts = self.facts(text)
            evidence = cell_evidence(
                target=target,
                limits=limits_of(target.capability),
                reading=PtxReading(facts=facts, body_sha256="") if facts else None,
                assembly=done.assembly,
                inspection=Inspection(cubin=done.cubin) if done.cubin else None,
            )
            verdict = judge(evidence)
            if verdict.kind is not VerdictKind.INFRA:
                return reaction_of(verdict, evidence)
        raise InfrastructureError(f"ptxas {tool.version}: {verdict.reason}")

    async def accepts_for(self, text: str, tool: Assembler, target: Target) -> bool:
        """Whether that ptxas accepts the same PTX for another target.

        Raises:
            InfrastructureError: this machine failed, twice.
        """
        asked = self.question
        flags = tuple(
            f"--gpu-name={target}" if flag.startswith("--gpu-name") else flag
            for flag in asked.flags
        )
        there = PtxOracle(
            self.hub, replace(asked, target=target, flags=flags), jobs=1, limits=self.limits
        )
        there.slots = self.slots
        return (await there.react(retarget(text, target=str(target)), tool)).is_accepted

    async def satisfies(self, text: str, words: tuple[str, ...], *, name: str) -> bool:
        """Whether the user's predicate, which is shown a file of this name, ends with 0."""
        async with self.slots:
            end = await run_predicate(self.hub, text, name=name, words=words, limits=self.limits)
        return end.ok


def reaction_of(verdict: Verdict, evidence: CellEvidence) -> Reaction:
    """A verdict with the numbers of its evidence, as fingerprints want them."""
    assembly, needs = evidence.assembly, evidence.resources
    last = assembly or evidence.lowering
    end, occupancy = last.end if last else ProcessEnd(), evidence.occupancy
    fields: dict[str, Scalar | None] = {
        "verdict": verdict.kind.value,
        "stage": verdict.stage.value if verdict.stage else None,
        "signature": verdict.signature.key if verdict.signature else None,
        "code": verdict.code,
        "occupancy_limiter": occupancy.limiter if occupancy else None,
        "n_regs": needs.n_regs,
        "spill_stores": needs.spill_stores,
        "spill_loads": needs.spill_loads,
        "stack": needs.stack,
        "shared": needs.shared,
        "static_shared": needs.static_shared,
        "constant": needs.constant,
        "barriers": needs.barriers,
        "tmem_size": needs.tmem_columns,
        "threads": needs.threads,
        "occupancy": occupancy.fraction if occupancy else None,
        "exit_code": end.exit_code,
        "signal": end.signal,
        "seconds": end.wall,
    }
    return Reaction(
        verdict=verdict.kind,
        reason=verdict.reason,
        is_accepted=assembly is not None and end.ok and assembly.has_cubin,
        end=end,
        printed=_printed(evidence),
        stage=verdict.stage,
        code=verdict.code,
        signature=verdict.signature,
        fields=fields,
        errors=frozenset(template(each.text) for each in evidence.log.errors)
        if evidence.log
        else frozenset(),
    )


def _printed(evidence: CellEvidence) -> str:
    """What a user sees of a compilation, by Triton and by ptxas."""
    lowering, assembly = evidence.lowering, evidence.assembly
    parts = [lowering.log] if lowering else []
    if lowering and lowering.error:
        parts += [lowering.error.traceback, lowering.error.message]
    parts += [assembly.stdout, assembly.stderr] if assembly else []
    return "\n".join(parts)
