"""What an outcome means. Pure: evidence in, verdict out, so that history can be re-judged.

Order of questions: did the machine fail us; did the compiler finish; did ptxas; is what came out
the kernel; does it fit the target; is it healthy. How a process *ended* decides; words on stderr
only tell failures of one kind apart, since compilers print the same words when they recover.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpu_emulator.ptx.text.facts import PtxFacts
from harness.judging.failures import failed
from harness.judging.judge_ptxas import judge_assembly
from harness.judging.judge_triton import judge_lowering
from harness.judging.messages import llvm_error
from harness.values.limits import Limits
from harness.values.outcome import Assembly, Lowering
from harness.values.resources import Resources
from harness.values.target import Target
from harness.values.thresholds import DEFAULT_THRESHOLDS, Thresholds
from harness.values.toolchain import TRITON, compiler_name
from harness.values.verdict import Stage, Verdict, VerdictKind

if TYPE_CHECKING:
    from harness.judging.ptxas.log import PtxasLog
    from harness.judging.ptxas.occupancy import Occupancy


def judge_ptxas(evidence: CellEvidence) -> Verdict:
    """The verdict on a run of ptxas that left no cubin."""
    assert evidence.assembly is not None
    return judge_assembly(
        evidence.assembly, log=evidence.log, entry=evidence.entry, target=evidence.target
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CellEvidence:
    """All that is known of one cell; None where the pipeline did not come so far.

    `ttir_effects` counts operations of the IR before optimisation that write memory or call out;
    None where there is no IR (raw PTX). `has_trap` says that it holds a trap of its own,
    `unknown_effects` which of its operations may write, for all that is known. `lost_assembly` are
    instructions of its inline assembly that the PTX has not. `trouble` says why our own side
    failed. `compiler` is what people call the compiler; `judge_lowering` is its front end's verdict
    on a lowering that raised or did not end well. `code` is what people call the program that the
    assembler `takes` (the last stage, where it is not `is_assembled`), and `judge_code` its back
    end's verdict on a run that left no machine code. `kernel` is the kernel's name in a program
    that is not PTX.
    """

    target: Target
    lowering: Lowering | None = None
    assembly: Assembly | None = None
    ptx: PtxFacts | None = None
    ttir_effects: int | None = None
    has_trap: bool = False
    unknown_effects: tuple[str, ...] = ()
    lost_assembly: tuple[str, ...] = ()
    log: PtxasLog | None = None
    resources: Resources = field(default_factory=Resources)
    occupancy: Occupancy | None = None
    limits: Limits | None = None
    trouble: str | None = None
    compiler: str = compiler_name(TRITON)
    judge_lowering: Callable[[Lowering], Verdict] = judge_lowering
    code: str = "PTX"
    takes: Stage = Stage.PTX
    is_assembled: bool = True
    judge_code: Callable[[CellEvidence], Verdict] = judge_ptxas
    kernel: str | None = None

    @property
    def entry(self) -> str | None:
        """The kernel's name in the program."""
        return self.ptx.entry if self.ptx else self.kernel


def judge(evidence: CellEvidence, thresholds: Thresholds = DEFAULT_THRESHOLDS) -> Verdict:
    """The verdict on one cell, its reason in words, and the signature where something failed."""
    if evidence.trouble:
        return Verdict(kind=VerdictKind.INFRA, reason=evidence.trouble)
    lowering, assembly = evidence.lowering, evidence.assembly
    if lowering and (lowering.error or not lowering.end.ok):
        return evidence.judge_lowering(lowering)
    if lowering and evidence.lost_assembly and (said := llvm_error(lowering.log)):
        # LLVM reports and goes on, without the code that it could not generate.
        lost = ", ".join(evidence.lost_assembly)
        went_on = f"{evidence.compiler} went on without {lost} of the source"
        reason = f"LLVM reported an error, and {went_on}: {said}"
        return failed(VerdictKind.PASS_FAILURE, Stage.PTX, reason, message=said)
    if assembly is None:
        reason = (
            f"{evidence.compiler} succeeded and left no {evidence.code}"
            if lowering
            else f"there is no {evidence.code}"
        )
        if evidence.is_assembled:
            reason = f"nothing was assembled: {reason}"
        return Verdict(kind=VerdictKind.INFRA, reason=reason, stage=evidence.takes)
    if not (assembly.end.ok and assembly.has_cubin):
        return evidence.judge_code(evidence)
    return (
        _judge_stub(evidence)
        or judge_fit(evidence)
        or _judge_health(evidence, thresholds)
        or Verdict(kind=VerdictKind.OK, reason="compiled" + _caveats(evidence))
    )


def _judge_stub(evidence: CellEvidence) -> Verdict | None:
    ptx, expected = evidence.ptx, evidence.ttir_effects
    if ptx is None or not ptx.does_nothing:
        return None
    effects = f"{_plural(expected or 0, 'store')} or other effects"
    if evidence.lowering is None:
        if not ptx.always_traps:
            return None
        reason = "the kernel only traps; there is no source to compare the PTX with"
        return failed(VerdictKind.TRAP_STUB, Stage.PTX, reason, message="the kernel only traps")
    if expected is None:
        return None
    if not ptx.is_trap_stub:
        if not expected:
            return None
        return failed(
            VerdictKind.SICK,
            Stage.LLIR,
            f"the compiled kernel writes nothing, though its source has {effects}",
            message="the compiled kernel writes nothing",
        )
    if evidence.has_trap and not expected:
        return None
    own = f" (a trap of the source's own is no reason: it has {effects})"
    why = _tmem_overflow(evidence)
    reason = f"{why}, and {evidence.compiler}" if why else evidence.compiler
    message = "tensor memory over the limit, lowered to a trap" if why else "lowered to a trap"
    return failed(
        VerdictKind.TRAP_STUB,
        Stage.LLIR,
        f"{reason} lowered the kernel to a trap; ptxas never saw the real kernel"
        + (own if evidence.has_trap else ""),
        message=message,
    )


def _tmem_overflow(evidence: CellEvidence) -> str | None:
    columns, limits = evidence.resources.tmem_columns, evidence.limits
    if columns is None or limits is None or columns <= limits.tensor_memory_columns:
        return None
    return (
        f"asks for {columns} columns of tensor memory, "
        f"{evidence.target} has {limits.tensor_memory_columns}"
    )


def judge_fit(evidence: CellEvidence) -> Verdict | None:
    """The verdict on a kernel that needs more than a launch on its target may have."""
    needs, limits, target = evidence.resources, evidence.limits, evidence.target
    if limits is None:
        return None
    over: list[tuple[str, str]] = []
    if needs.shared is not None and needs.shared > limits.max_shared_per_block:
        allowed = f"{target} allows {limits.max_shared_per_block:,} B"
        over.append(("shared memory", f"needs {needs.shared:,} B of shared memory, {allowed}"))
    tmem = _tmem_overflow(evidence)
    if tmem:
        over.append(("tensor memory", tmem))
    if needs.threads is not None and needs.threads > limits.max_threads_per_block:
        allowed = f"{target} allows {limits.max_threads_per_block:,}"
        over.append(("threads", f"has {needs.threads:,} threads a block, {allowed}"))
    occupancy = evidence.occupancy
    if not over and occupancy and occupancy.blocks_per_sm == 0:
        over.append((occupancy.limiter, _no_room(needs, occupancy.limiter, limits, target)))
    if not over:
        return None
    return failed(
        VerdictKind.OUT_OF_RESOURCES,
        Stage.LAUNCH,
        "; ".join(said for _, said in over) + ": the launch would be refused",
        message=", ".join(what for what, _ in over) + " over the limit",
    )


def _no_room(needs: Resources, limiter: str, limits: Limits, target: Target) -> str:
    """Why not one block fits on a multiprocessor."""
    if limiter == "registers" and needs.n_regs is not None and needs.threads is not None:
        return (
            f"needs {needs.n_regs} registers for each of {needs.threads:,} threads, "
            f"{target} has {limits.registers_per_block:,} a block"
        )
    if limiter == "barriers" and needs.barriers is not None:
        return f"needs {needs.barriers} barriers, {target} has {limits.max_barriers} a block"
    return f"not one block fits on {target}: there is too little of {limiter}"


def _judge_health(evidence: CellEvidence, thresholds: Thresholds) -> Verdict | None:
    needs = evidence.resources
    complaints: list[tuple[str, str]] = []
    if needs.spills is not None and needs.spills >= thresholds.spill_bytes:
        traffic = f"{needs.spill_stores:,} B stores and {needs.spill_loads:,} B loads per thread"
        at = "" if needs.n_regs is None else f" at {needs.n_regs} registers"
        callees = ", ".join(needs.spilling_callees)
        where = f", in functions that it calls among others ({callees})" if callees else ""
        complaints.append(("spills", f"spills {traffic}{at}{where}"))
    elif needs.stack is not None and needs.stack >= thresholds.stack_bytes:
        complaints.append(("local memory", f"keeps {needs.stack:,} B per thread in local memory"))
    occupancy = evidence.occupancy
    if occupancy and occupancy.warps_per_sm < thresholds.warps:
        said = f"occupancy {occupancy.fraction:.1%}, limited by {occupancy.limiter}"
        complaints.append(("occupancy", said))
    if not complaints:
        return None
    return failed(
        VerdictKind.SICK,
        Stage.CUBIN if evidence.is_assembled else evidence.takes,
        "; ".join(said for _, said in complaints) + _caveats(evidence),
        message=_of_this_kernel(evidence, ", ".join(what for what, _ in complaints)),
    )


def _of_this_kernel(evidence: CellEvidence, message: str) -> str:
    """That a kernel spills is not a sign of a bug that another one has: its name belongs to it."""
    return f"{evidence.entry}: {message}" if evidence.entry else message


def _caveats(evidence: CellEvidence) -> str:
    notes = list(evidence.resources.disagreements)
    lowering = evidence.lowering
    if lowering and (said := llvm_error(lowering.log)):
        notes.append(f"LLVM reported an error and went on, so code may be missing: {said}")
    if lowering and evidence.ptx and evidence.ptx.does_nothing:
        notes += _doubts(evidence)
    if evidence.limits is None:
        notes.append(f"limits of {evidence.target} are not known, so fit was not checked")
    return "".join(f"; {note}" for note in notes)


def _doubts(evidence: CellEvidence) -> list[str]:
    """Why it is not known whether a kernel that writes nothing is all that its source asks for."""
    if evidence.ttir_effects is None:
        does = "only traps" if evidence.ptx and evidence.ptx.always_traps else "writes nothing"
        return [f"the kernel {does}, and there is no IR that says whether it should"]
    if evidence.unknown_effects and not evidence.ttir_effects:
        names = ", ".join(evidence.unknown_effects)
        return [f"the kernel writes nothing, and whether {names} of its source should is not known"]
    return []


def _plural(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
