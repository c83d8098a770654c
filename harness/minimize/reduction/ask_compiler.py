"""What a version of a compiler does with a file of a kernel, or of its IR, judged as any cell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.cells.evaluate import cell_evidence, ptxas_flags
from harness.frontends.base import PlannedCell
from harness.frontends.bench.assemble import Inspection
from harness.frontends.bench.bench import Workbench
from harness.frontends.registry import back_end, front_end
from harness.frontends.source_form import Lowered
from harness.io.processes.hub import ResourceLimits
from harness.judging.judge import CellEvidence, judge
from harness.minimize.reduction.ask_ptxas import reaction_of
from harness.minimize.reduction.fingerprint import Reaction
from harness.values.toolchain import BUNDLED, Assembler, Compiler
from harness.values.verdict import Stage, Verdict, VerdictKind

_AFTER_PTX = frozenset({Stage.CUBIN, Stage.LAUNCH, Stage.RUN})


@dataclass(frozen=True, slots=True, kw_only=True)
class CompilerOracle:
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

    def is_possible(self, text: str) -> bool:  # noqa: ARG002 - the compiler says so
        """Any text may be tried."""
        return True

    async def react(
        self, text: str, tool: Compiler, limits: ResourceLimits | None = None
    ) -> Reaction:
        """All that this version does with the text, and the ptxas that it picks with its PTX.

        Raises:
            InfrastructureError: this machine failed.
        """
        return await self._react(text, tool, limits=limits)

    async def look(self, text: str, tool: Compiler) -> Reaction:
        """The same, except that what gets past the stage of the failure is `infra`.

        Raises:
            InfrastructureError: this machine failed.
        """
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
class AssemblerOracle:
    """The same with the cell's compiler, by any version of its assembler."""

    inner: CompilerOracle

    def is_possible(self, text: str) -> bool:
        """Any text may be tried."""
        return self.inner.is_possible(text)

    async def react(
        self, text: str, tool: Assembler, limits: ResourceLimits | None = None
    ) -> Reaction:
        """All that this version does with what the compiler makes of the text for it.

        Raises:
            InfrastructureError: this machine failed.
        """
        return await self._by(tool).react(text, self._compiler, limits)

    async def look(self, text: str, tool: Assembler) -> Reaction:
        """The same: an assembler is the last to see it.

        Raises:
            InfrastructureError: this machine failed.
        """
        return await self._by(tool).look(text, self._compiler)

    @property
    def _compiler(self) -> Compiler:
        assert self.inner.cell.launch is not None
        return self.inner.cell.launch.compiler

    def _by(self, tool: Assembler) -> CompilerOracle:
        return replace(self.inner, cell=replace(self.inner.cell, ptxas=tool, freeze_ptx=False))
