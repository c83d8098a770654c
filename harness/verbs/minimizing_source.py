"""Standalone files of a cell: written, judged as the cell is, and reduced as Python."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from harness.effects.assembling import Inspection
from harness.effects.oracle import assemble_text
from harness.effects.standalone_files import Lowered, export_launch, lower_text
from harness.effects.workbench import Workbench
from harness.logic import source_reduction
from harness.logic.judge import CellEvidence, judge
from harness.logic.ptx import retarget
from harness.logic.reduction import Progress, Reduction
from harness.logic.source_tree import Source
from harness.values.errors import UsageError
from harness.values.standalone import Standalone
from harness.values.verdict import Stage, Verdict, VerdictKind
from harness.verbs.cells import PlannedCell, cell_evidence, ptxas_flags

__all__ = [
    "Judged",
    "ReducedSource",
    "evaluate_source",
    "evaluate_text",
    "export_source",
    "reduce_source",
]

_BEFORE_LLVM = frozenset({Stage.TTIR, Stage.TTGIR})
_BEFORE_PTXAS = frozenset({*_BEFORE_LLVM, Stage.CAPTURE, Stage.LLIR, Stage.PTX})


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What became of a text: the verdict, and the evidence that it follows from."""

    verdict: Verdict
    evidence: CellEvidence


async def export_source(bench: Workbench, cell: PlannedCell) -> Standalone:
    """The cell's launch and config as a file that needs nothing but Triton.

    Raises:
        UsageError: the cell has no source, or something of it cannot be written down.
        InfrastructureError: the child could not be kept alive.
    """
    if cell.launch is None or cell.record is None:
        raise UsageError(f"{cell.cell.kernel}: raw PTX has no source to write as one file")
    return await export_launch(bench, cell.launch, cell.record)


async def evaluate_source(
    bench: Workbench, cell: PlannedCell, text: str, *, until: Stage | None = None
) -> Judged:
    """Compile a standalone file as the cell is compiled, and judge it; nothing is stored.

    With `until`, only a failure in this stage or before it matters: what gets past it is not
    compiled to the end, and its verdict is `infra`.

    Raises:
        InfrastructureError: this machine failed.
    """
    return await evaluate_text(bench, cell, text, until=until)


async def evaluate_text(
    bench: Workbench,
    cell: PlannedCell,
    text: str,
    *,
    until: Stage | None,
    suffix: str = ".py",
    options: Mapping[str, object] | None = None,
) -> Judged:
    """As `evaluate_source`; with another `suffix` for Triton's IR and the options it needs."""
    assert cell.launch is not None
    lowered = await lower_text(
        bench,
        cell.launch,
        text,
        ptxas=cell.bundled if cell.freeze_ptx and cell.bundled else cell.ptxas,
        # A stub is made by Triton, but PTX shows it, and only ptxas' consent makes it one.
        until=until if until in _BEFORE_LLVM else None,
        suffix=suffix,
        options=options,
    )
    facts = lowered.reading.facts if lowered and lowered.reading else None
    is_past = facts is not None and until in _BEFORE_PTXAS and not facts.does_nothing
    if lowered is None or is_past:
        reason = f"it gets past stage {until.value if until else ''}"
        verdict = Verdict(kind=VerdictKind.INFRA, reason=reason, stage=until)
        return Judged(verdict=verdict, evidence=CellEvidence(target=cell.cell.target))
    return await _assemble(bench, cell, lowered)


async def _assemble(bench: Workbench, cell: PlannedCell, lowered: Lowered) -> Judged:
    assembly = inspection = None
    facts = lowered.reading.facts if lowered.reading else None
    if lowered.ptx is not None and facts is not None:
        target = cell.cell.target
        ptx = lowered.ptx
        if target.suffix and facts.target != str(target):
            ptx = retarget(ptx, target=str(target))
        flags = ptxas_flags(target, lowered.lowering.flags)
        if cell.change:
            flags = cell.change.apply(flags)
        async with bench.slot():
            done = await assemble_text(
                bench.hub, ptx, ptxas=cell.ptxas, flags=flags, limits=bench.limits
            )
        assembly = done.assembly
        inspection = Inspection(cubin=done.cubin) if done.cubin else None
    evidence = cell_evidence(
        target=cell.cell.target,
        limits=cell.limits,
        lowering=lowered.lowering,
        reading=lowered.reading,
        assembly=assembly,
        inspection=inspection,
    )
    return Judged(verdict=judge(evidence), evidence=evidence)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReducedSource:
    """The standalone file as it began and as it ended, and what is left of the cell's failure.

    `text` without a header; lines are those of functions, without comments and blank ones.
    """

    original: Standalone
    reduced: Standalone
    original_lines: int
    lines: int
    reduction: Reduction[Source]
    final: Judged


async def reduce_source(
    bench: Workbench,
    cell: PlannedCell,
    original: Standalone,
    interesting: Callable[[Judged], bool],
    *,
    until: Stage | None = None,
    jobs: int = 1,
    seed: int = 0,
    max_tests: int | None = None,
    is_time_up: Callable[[], bool] = lambda: False,
    watch: Callable[[Progress[Source]], None] = lambda _: None,
) -> ReducedSource:
    """Reduce a standalone file of this cell while what becomes of it stays interesting.

    `until` is the stage of the failure, where a failure is what is interesting: see
    `evaluate_source`.

    Raises:
        UsageError: the file itself is not interesting.
        InfrastructureError: this machine failed.
    """

    async def holds(source: Source) -> bool:
        return interesting(await evaluate_source(bench, cell, source.text, until=until))

    begun = Source.of(original)
    first = await evaluate_source(bench, cell, begun.text)
    if not interesting(first):
        raise UsageError(f"the standalone file does something else: {first.verdict.reason}")
    reduction = await source_reduction.reduce_source(
        begun,
        lambda source: asyncio.ensure_future(holds(source)),
        jobs=jobs,
        seed=seed,
        max_tests=max_tests,
        is_time_up=is_time_up,
        watch=watch,
    )
    best = reduction.document
    return ReducedSource(
        original=original,
        reduced=best.standalone,
        original_lines=begun.kernel_lines,
        lines=best.kernel_lines,
        reduction=reduction,
        final=await evaluate_source(bench, cell, best.text),
    )
