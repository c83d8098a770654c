"""What two versions of a compiler generate from one kernel, and what they are built with."""

from __future__ import annotations

from collections.abc import Sequence

from harness.bisect.ir_difference import StageStory, compare_stages, first_trap
from harness.cells.evaluate import Evaluated
from harness.frontends.base import PlannedCell
from harness.frontends.bench.bench import Workbench
from harness.frontends.registry import front_end
from harness.store.artifacts import UnusableArtifactError
from harness.values.outcome import Lowering
from harness.values.verdict import Stage, VerdictKind


async def tell_stages(
    bench: Workbench, before: tuple[PlannedCell, Evaluated], after: tuple[PlannedCell, Evaluated]
) -> StageStory:
    """Compare the two sides of a boundary, stage by stage; what cannot be read is left out.

    Where Triton itself does not name the pass that fails, the failing side is lowered once more,
    with a dump of every pass.

    Raises:
        InfrastructureError: that could not be done.
    """
    end = front_end(after[0].compiler.kind)
    texts = [_texts(bench, done, end.stages) for _, done in (before, after)]
    # Where the failure came, it is the later side's; where it went, the earlier one's.
    failing = 0 if before[1].row.signature else 1
    plan, done = (before, after)[failing]
    trap_stage = first_trap(texts[failing], texts[1 - failing])
    return StageStory(
        stages=tuple(compare_stages(texts[0], texts[1], done.row.reason)),
        failing_pass=await _failing_pass(bench, plan, done, traps=trap_stage is not None),
        trap_stage=trap_stage,
        llvm=(end.built_with(before[0].compiler), end.built_with(after[0].compiler)),
        ptxas=(_bundled(before[0]), _bundled(after[0])),
    )


async def _failing_pass(
    bench: Workbench, plan: PlannedCell, done: Evaluated, *, traps: bool
) -> str | None:
    if done.signature and done.signature.failing_pass:
        return done.signature.failing_pass
    died = done.row.verdict == VerdictKind.COMPILER_CRASH.value and done.row.stage != "cubin"
    if not (traps or died) or plan.launch is None or plan.record is None:
        return None
    # The dump is MLIR's. Where LLVM died later, its last pass succeeded.
    if not traps and (done.row.stage == Stage.PTX.value or "LLVM ERROR" in done.row.reason):
        return None
    return await front_end(plan.compiler.kind).failing_pass(
        bench, plan.launch, plan.record, ptxas=plan.bundled or plan.ptxas, traps=traps
    )


def _texts(bench: Workbench, done: Evaluated, stages: Sequence[str]) -> dict[str, str]:
    key = done.evidence.get("lower")
    kept = bench.read("lower", key, Lowering) if key else None
    texts = {}
    for stage in stages:
        sha256 = kept.artifacts.get(stage) if kept else None
        if sha256 is None:
            continue
        try:
            texts[stage] = bench.store.artifacts.get(sha256).decode(errors="replace")
        except UnusableArtifactError:
            continue
    return texts


def _bundled(cell: PlannedCell) -> str | None:
    return cell.bundled.version if cell.bundled else None
