"""What ptxas makes of a text, judged as any cell is; and whether that is interesting."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from harness.effects.assembling import Inspection, PtxReading
from harness.effects.oracle import assemble_text, run_predicate
from harness.effects.process import Hub, ResourceLimits
from harness.logic.fingerprint import Cost, Fingerprint, Reaction, in_order
from harness.logic.judge import CellEvidence, judge
from harness.logic.ptx import PtxError, PtxFacts, read_ptx
from harness.values.errors import InfrastructureError
from harness.values.kernel import Scalar
from harness.values.limits import limits_of
from harness.values.outcome import ProcessEnd
from harness.values.target import Target
from harness.values.toolchain import Ptxas
from harness.values.verdict import Verdict, VerdictKind
from harness.verbs.cells import cell_evidence

__all__ = ["Interest", "PtxOracle", "Question", "reaction_of"]


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

    async def react(
        self, text: str, ptxas: Ptxas, limits: ResourceLimits | None = None
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
                    ptxas=ptxas,
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
        raise InfrastructureError(f"ptxas {ptxas.version}: {verdict.reason}")

    async def reactions(
        self, text: str, tools: Iterable[Ptxas], limits: ResourceLimits | None = None
    ) -> dict[str, Reaction]:
        """What each does with the text, by version."""
        wanted = {ptxas.version: ptxas for ptxas in tools}
        found = await asyncio.gather(
            *(self.react(text, ptxas, limits) for ptxas in wanted.values())
        )
        return dict(zip(wanted, found, strict=True))


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
        stage=verdict.stage,
        code=verdict.code,
        signature=verdict.signature,
        fields=fields,
    )


@dataclass(slots=True, kw_only=True)
class Interest:
    """Whether a text shows the whole fingerprint.

    `tools` has each version that the fingerprint names. A failure that comes only now and then is
    looked for `tries` times. `script` are the words of the user's predicate, which is shown a file
    called `name`.
    """

    oracle: PtxOracle
    fingerprint: Fingerprint
    tools: Mapping[str, Ptxas]
    tries: int = 1
    script: tuple[str, ...] = ()
    name: str = "min.ptx"
    calls: int = 0
    costs: dict[str, Cost] = field(default_factory=dict)

    def begin(self, text: str) -> asyncio.Future[bool]:
        """A started test, as `harness.logic.reduction` likes them."""
        return asyncio.ensure_future(self.holds(text))

    async def holds(self, text: str) -> bool:
        """Ask until one version refuses, the cheapest refusal first.

        Raises:
            InfrastructureError: this machine failed, twice.
        """
        if self.oracle.facts(text) is None:
            return False
        if self.script:
            return await self._predicate(text)
        for check in self.fingerprint.checks:
            self.costs.setdefault(check, Cost())
        for version in in_order(self.fingerprint.checks, self.costs):
            if not await self._passes(version, text):
                return False
        return True

    async def _passes(self, version: str, text: str) -> bool:
        must_accept = version in self.fingerprint.accepting
        for _ in range(1 if must_accept else self.tries):
            self.calls += 1
            reaction = await self.oracle.react(text, self.tools[version])
            passes = self.fingerprint.passes(version, reaction)
            self.costs[version].add(refused=not passes, seconds=reaction.end.wall)
            if passes:
                return True
        return False

    async def _predicate(self, text: str) -> bool:
        self.calls += 1
        async with self.oracle.slots:
            end = await run_predicate(
                self.oracle.hub,
                text,
                name=self.name,
                words=self.script,
                limits=self.oracle.limits,
            )
        return end.ok
