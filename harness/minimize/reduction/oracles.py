"""What any version of a tool does with a text, judged as any cell is."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpu_emulator.ptx.text.facts import PtxError, PtxFacts, read_ptx, retarget
from harness.cells.evaluate import cell_evidence, ptxas_flags
from harness.frontends.base import PlannedCell
from harness.frontends.bench.assemble import Inspection, assemble_text, run_predicate
from harness.frontends.bench.bench import Workbench
from harness.frontends.readings import PtxReading
from harness.frontends.registry import back_end, front_end
from harness.frontends.source_form import Lowered
from harness.io.processes.hub import Hub, ResourceLimits
from harness.judging.judge import CellEvidence, judge
from harness.judging.signature import template
from harness.minimize.reduction.fingerprint import Reaction
from harness.minimize.reduction.interest import Oracle
from harness.values.errors import InfrastructureError
from harness.values.kernel import Scalar
from harness.values.limits import limits_of
from harness.values.outcome import ProcessEnd
from harness.values.target import Target
from harness.values.toolchain import BUNDLED, Assembler, Compiler
from harness.values.verdict import Stage, Verdict, VerdictKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """How ptxas is asked: `flags` name the target; `entry` is the one that is meant, if several."""

    target: Target
    flags: tuple[str, ...]
    entry: str | None = None


class PtxOracle(Oracle[Assembler]):
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
        return self.facts(text) is not None

    async def react(
        self, text: str, tool: Assembler, limits: ResourceLimits | None = None
    ) -> Reaction:
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


_AFTER_PTX = frozenset({Stage.CUBIN, Stage.LAUNCH, Stage.RUN})


@dataclass(frozen=True, slots=True, kw_only=True)
class CompilerOracle(Oracle[Compiler]):
    """Compiles a text as the cell is compiled, by any version; nothing is stored.

    The text is a file of source with this `suffix`, or the compiler's IR (`is_ir`); it is compiled
    with `options`. `until` is the stage of the failure, where one is looked for: what gets past it
    need not be compiled to the end.
    """

    bench: Workbench
    cell: PlannedCell
    until: Stage | None = None
    suffix: str = ".py"
    is_ir: bool = False
    options: Mapping[str, object] = field(default_factory=dict)

    async def react(
        self, text: str, tool: Compiler, limits: ResourceLimits | None = None
    ) -> Reaction:
        return await self._react(text, tool, limits=limits)

    async def look(self, text: str, tool: Compiler) -> Reaction:
        return await self._react(text, tool, until=self.until)

    async def _react(
        self,
        text: str,
        compiler: Compiler,
        *,
        until: Stage | None = None,
        limits: ResourceLimits | None = None,
    ) -> Reaction:
        assert self.cell.launch is not None
        limits = limits or self.bench.limits
        form = front_end(compiler.kind).source_form
        assert form is not None, "its text was written by it"
        lowered = await form.compile(
            self.bench,
            replace(self.cell.launch, compiler=compiler),
            text,
            ptxas=self._seen_by(compiler),
            until=until,
            suffix=self.suffix,
            options=self.options,
            limits=limits,
        )
        facts = lowered.reading.facts if lowered and lowered.reading else None
        is_before = until is not None and until not in _AFTER_PTX
        is_past = facts is not None and is_before and not facts.does_nothing
        if lowered is None or is_past:
            reason = f"it gets past stage {until.value if until else ''}"
            verdict = Verdict(kind=VerdictKind.INFRA, reason=reason, stage=until)
            return reaction_of(verdict, CellEvidence(target=self.cell.cell.target))
        return await self._assembled(lowered, limits)

    def _seen_by(self, compiler: Compiler) -> Assembler | None:
        """The ptxas that the compiler is pointed at; None is its own choice."""
        cell = self.cell
        assert cell.launch is not None
        if compiler == cell.launch.compiler:
            return cell.seen_ptxas
        return None if cell.freeze_ptx or cell.ptxas.origin == BUNDLED else cell.ptxas

    async def _assembled(self, lowered: Lowered, limits: ResourceLimits) -> Reaction:
        cell, target = self.cell, self.cell.cell.target
        assembly = inspection = None
        facts = lowered.reading.facts if lowered.reading else None
        is_read = lowered.reading is not None and lowered.reading.problem is None
        if lowered.program is not None and is_read:
            flags = ptxas_flags(target, lowered.lowering.flags)
            if cell.change:
                flags = cell.change.apply(flags)
            back, ptxas = back_end(cell.compiler.kind, target), cell.ptxas
            if ptxas.origin == BUNDLED and lowered.picked_ptxas:
                ptxas = back.brought_along(Path(lowered.picked_ptxas))
            is_other = facts is not None and target.suffix and facts.target != str(target)
            async with self.bench.slot(is_tool=True):
                done = await back.assemble_once(
                    self.bench.hub,
                    lowered.program,
                    ptxas,
                    flags=flags,
                    target=str(target) if is_other else None,
                    limits=limits,
                )
            assembly = done.assembly
            inspection = Inspection(cubin=done.cubin) if done.cubin else None
        evidence = cell_evidence(
            kind=cell.compiler.kind,
            target=target,
            limits=cell.limits,
            lowering=lowered.lowering,
            reading=lowered.reading,
            assembly=assembly,
            inspection=inspection,
        )
        verdict = judge(evidence)
        return replace(
            reaction_of(verdict, evidence),
            # A stub, or a kernel that fits no GPU, has a cubin too.
            is_accepted=verdict.kind.compiles,
            # A module of another version cannot be read, which says nothing of the failure.
            is_refusal=not self.is_ir and verdict.kind is VerdictKind.UNSUPPORTED,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AssemblerOracle(Oracle[Assembler]):
    """The same with the cell's compiler, by any version of its assembler."""

    inner: CompilerOracle

    async def react(
        self, text: str, tool: Assembler, limits: ResourceLimits | None = None
    ) -> Reaction:
        return await self._by(tool).react(text, self._compiler, limits)

    async def look(self, text: str, tool: Assembler) -> Reaction:
        return await self._by(tool).look(text, self._compiler)

    @property
    def _compiler(self) -> Compiler:
        assert self.inner.cell.launch is not None
        return self.inner.cell.launch.compiler

    def _by(self, tool: Assembler) -> CompilerOracle:
        return replace(self.inner, cell=replace(self.inner.cell, ptxas=tool, freeze_ptx=False))
