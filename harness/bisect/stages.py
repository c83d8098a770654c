"""What two Tritons made of one kernel, and what they are made of."""

from __future__ import annotations

import mmap
import re
from functools import lru_cache

from harness.bench.bench import Workbench
from harness.bisect.ir_difference import STAGES, StageStory, compare_stages, first_trap
from harness.cells.evaluate import Evaluated, PlannedCell
from harness.frontends.triton.pass_dump import follow_passes
from harness.frontends.triton.sessions import sessions_of
from harness.processes.hub import scratch_disk
from harness.store.artifacts import UnusableArtifactError
from harness.toolchains.bundled import package_of
from harness.values.outcome import Lowering
from harness.values.toolchain import Triton
from harness.values.verdict import Stage, VerdictKind

__all__ = ["llvm_of", "tell_stages"]

# The debug paths in Triton's library name the LLVM that it was built with, by commit.
_LLVM = re.compile(rb"llvm-project[ /]([0-9a-f]{8})[0-9a-f]{0,32}|llvm-([0-9a-f]{8})-[a-z]")


async def tell_stages(
    bench: Workbench, before: tuple[PlannedCell, Evaluated], after: tuple[PlannedCell, Evaluated]
) -> StageStory:
    """Compare the two sides of a boundary, stage by stage; what cannot be read is left out.

    Where Triton itself does not name the pass that fails, the failing side is lowered once more,
    with a dump of every pass.

    Raises:
        InfrastructureError: that could not be done.
    """
    texts = [_texts(bench, done) for _, done in (before, after)]
    # Where the failure came, it is the later side's; where it went, the earlier one's.
    failing = 0 if before[1].row.signature else 1
    plan, done = (before, after)[failing]
    trap_stage = first_trap(texts[failing], texts[1 - failing])
    return StageStory(
        stages=tuple(compare_stages(texts[0], texts[1])),
        failing_pass=await _failing_pass(bench, plan, done, traps=trap_stage is not None),
        trap_stage=trap_stage,
        llvm=(_llvm(before[0]), _llvm(after[0])),
        ptxas=(_bundled(before[0]), _bundled(after[0])),
    )


async def _failing_pass(
    bench: Workbench, plan: PlannedCell, done: Evaluated, *, traps: bool
) -> str | None:
    """The pass that fails, dies or makes the trap; None where that is told by no dump."""
    if done.signature and done.signature.failing_pass:
        return done.signature.failing_pass
    died = done.row.verdict == VerdictKind.COMPILER_CRASH.value and done.row.stage != "cubin"
    if not (traps or died) or plan.launch is None or plan.record is None:
        return None
    # The dump is MLIR's. Where LLVM died later, its last pass ended well.
    if not traps and (done.row.stage == Stage.PTX.value or "LLVM ERROR" in done.row.reason):
        return None
    async with bench.slot():
        again = await sessions_of(bench).lower(
            plan.launch.capture.key,
            plan.launch.triton,
            plan.launch.request,
            record=plan.record.key,
            ptxas=(plan.bundled or plan.ptxas).path,
            limits=bench.limits,
            dump=True,
        )
    bench.cpu_seconds += again.end.cpu
    with scratch_disk(), (again.folder / "stderr").open(errors="replace") as lines:
        trail = follow_passes(lines)
    bench.hub.drop_folder(again.folder)
    return trail.trapping if traps else trail.last


def _texts(bench: Workbench, done: Evaluated) -> dict[str, str]:
    key = done.evidence.get("lower")
    kept = bench.read("lower", key, Lowering) if key else None
    texts = {}
    for stage in STAGES:
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


def _llvm(cell: PlannedCell) -> str | None:
    return llvm_of(cell.launch.triton) if cell.launch else None


@lru_cache(maxsize=16)
def llvm_of(triton: Triton) -> str | None:
    """The commit of the LLVM that a Triton was built with, where its library names it."""
    package = package_of(triton)
    for library in sorted(package.glob("_C/libtriton*.so")) if package else []:
        with (
            library.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            found = _LLVM.search(data)
            if found:
                return (found[1] or found[2]).decode()
    return None
