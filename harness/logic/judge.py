"""What an outcome means. Pure: evidence in, verdict out, so that history can be re-judged.

Order of questions: did the machine fail us; did Triton finish; did ptxas; is what came out the
kernel; does it fit the target; is it healthy. How a process *ended* decides; words on stderr only
tell failures of one kind apart, since compilers print the same words when they recover.
"""

from __future__ import annotations

import signal as signals
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.logic.ptxas_log import overflow_of
from harness.logic.signature import failing_pass, make_signature
from harness.logic.wordings import (
    LLVM_FATAL,
    LLVM_UNKNOWN_PROCESSOR,
    LLVM_UNSUPPORTED,
    PASS_FAILED,
    PTXAS_FILE_TROUBLE,
    PTXAS_NO_MEMORY,
    PTXAS_UNSUPPORTED,
    TRITON_OVERFLOW,
    TRITON_UNKNOWN_CAPABILITY,
    TRITON_UNSUPPORTED,
    essence,
    first_error,
    is_generic,
    is_internal,
    last_words,
    line_of,
    llvm_error,
    without_name,
    worst,
)
from harness.values.resources import Resources
from harness.values.thresholds import DEFAULT_THRESHOLDS, Thresholds
from harness.values.verdict import Stage, Verdict, VerdictKind

if TYPE_CHECKING:
    from harness.logic.occupancy import Occupancy
    from harness.logic.ptx import PtxFacts
    from harness.logic.ptxas_log import Message, PtxasLog
    from harness.values.limits import Limits
    from harness.values.outcome import Assembly, Lowering, ProcessEnd, RaisedError
    from harness.values.target import Target

__all__ = ["CellEvidence", "judge"]

# Signals by which a program dies of its own doing. The others come from somebody else: SIGKILL
# most often from the system, for lack of memory.
_OWN_SIGNALS = frozenset(
    {
        signals.SIGILL,
        signals.SIGTRAP,
        signals.SIGABRT,
        signals.SIGBUS,
        signals.SIGFPE,
        signals.SIGSEGV,
        signals.SIGSYS,
        signals.SIGXCPU,
    }
)
_SHELL_SIGNAL = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class CellEvidence:
    """All that is known of one cell; None where the pipeline did not come so far.

    `ttir_effects` counts operations of the IR before optimisation that write memory or call out;
    None where there is no IR (raw PTX). `trouble` says why our own side failed.
    """

    target: Target
    lowering: Lowering | None = None
    assembly: Assembly | None = None
    ptx: PtxFacts | None = None
    ttir_effects: int | None = None
    log: PtxasLog | None = None
    resources: Resources = field(default_factory=Resources)
    occupancy: Occupancy | None = None
    limits: Limits | None = None
    trouble: str | None = None


def judge(evidence: CellEvidence, thresholds: Thresholds = DEFAULT_THRESHOLDS) -> Verdict:
    """The verdict on one cell, its reason in words, and the signature where something failed."""
    if evidence.trouble:
        return Verdict(kind=VerdictKind.INFRA, reason=evidence.trouble)
    lowering, assembly = evidence.lowering, evidence.assembly
    if lowering and (lowering.error or not lowering.end.ok):
        return _judge_lowering(lowering)
    if lowering and (said := llvm_error(lowering.log)):
        # LLVM reports and goes on, without the code that it could not make.
        reason = f"LLVM reported an error, and Triton went on without the code: {said}"
        return _failed(VerdictKind.PASS_FAILURE, Stage.PTX, reason, message=said)
    if assembly is None:
        reason = "nothing was assembled: " + (
            "Triton ended well and left no PTX" if lowering else "there is no PTX"
        )
        return Verdict(kind=VerdictKind.INFRA, reason=reason, stage=Stage.PTX)
    if not (assembly.end.ok and assembly.has_cubin):
        return _judge_assembly(assembly, evidence)
    return (
        _judge_stub(evidence)
        or _judge_fit(evidence)
        or _judge_health(evidence, thresholds)
        or Verdict(kind=VerdictKind.OK, reason="compiled" + _caveats(evidence))
    )


def _failed(
    kind: VerdictKind,
    stage: Stage,
    reason: str,
    *,
    message: str | None = None,
    code: str | None = None,
    log: str = "",
) -> Verdict:
    signature = None
    if not kind.tells_nothing or kind is VerdictKind.UNSUPPORTED:
        signature = make_signature(
            stage=stage, kind=kind, message=message or reason, code=code, log=log
        )
    return Verdict(kind=kind, reason=reason, stage=stage, code=code, signature=signature)


def _stopped(end: ProcessEnd, stage: Stage, who: str) -> Verdict | None:
    """The verdict where the compiler did not end by itself."""
    if end.timed_out:
        return _failed(
            VerdictKind.TIMEOUT, stage, f"{who} was {end.words}", message=f"{who} timed out"
        )
    if end.over_memory:
        return _failed(
            VerdictKind.OUT_OF_MEMORY, stage, f"{who} was {end.words}", message=f"{who} ate memory"
        )
    if end.flooded:
        return _failed(
            VerdictKind.PTXAS_ERROR if stage is Stage.CUBIN else VerdictKind.PASS_FAILURE,
            stage,
            f"{who} was {end.words}",
            message=f"{who} flooded its output",
        )
    number = _death_signal(end)
    if number is not None and number not in _OWN_SIGNALS:
        name = _signal_name(number)
        hint = "; this machine may be short of memory" if name == "SIGKILL" else ""
        reason = f"{who} was killed from outside by {name}{hint}"
        return Verdict(kind=VerdictKind.INFRA, reason=reason, stage=stage)
    return None


def _judge_lowering(lowering: Lowering) -> Verdict:
    stage = Stage(lowering.stage)
    stopped = _stopped(lowering.end, stage, f"Triton ({stage.value})")
    if stopped:
        return stopped
    processor = LLVM_UNKNOWN_PROCESSOR.search(lowering.log)
    if processor and stage in (Stage.LLIR, Stage.PTX):
        said = f"its LLVM does not know {processor[1]}"
        return _failed(VerdictKind.UNSUPPORTED, stage, f"this Triton cannot do it: {said}")
    if lowering.error is not None:
        return _judge_raised(lowering.error, stage, lowering.log)
    said, ended = last_words(lowering.log), lowering.end.words
    if TRITON_UNKNOWN_CAPABILITY.search(said):
        return _failed(VerdictKind.UNSUPPORTED, stage, f"this Triton cannot do it: {said}")
    if LLVM_UNSUPPORTED.search(said):
        return _failed(VerdictKind.UNSUPPORTED, stage, f"this Triton cannot do it: {said}")
    number = _death_signal(lowering.end)
    if number is None and (LLVM_FATAL.match(said) or llvm_error(lowering.log)):
        return _failed(
            VerdictKind.COMPILER_CRASH,
            stage,
            f"LLVM ended Triton's process ({ended}) in stage {stage.value}" + _after(said),
            message=said,
            log=lowering.log,
        )
    if number is None:
        reason = f"Triton ended with {ended} in stage {stage.value} and left no result"
        return Verdict(kind=VerdictKind.INFRA, reason=reason + _after(said), stage=stage)
    return _failed(
        VerdictKind.COMPILER_CRASH,
        stage,
        f"Triton {ended} in stage {stage.value}" + _after(said),
        message=f"{_signal_name(number)}: {said}",
        log=lowering.log,
    )


def _judge_raised(error: RaisedError, stage: Stage, log: str) -> Verdict:
    line = essence(error)
    if "MemoryError" in error.kinds:
        return _failed(VerdictKind.OUT_OF_MEMORY, stage, f"Triton ran out of memory: {line}")
    if "OSError" in error.kinds:
        reason = f"Triton could not read or write a file: {line}"
        return Verdict(kind=VerdictKind.INFRA, reason=reason, stage=stage)
    overflow = TRITON_OVERFLOW.search(error.message)
    if overflow:
        resource, used, limit = overflow[1], int(overflow[2]), int(overflow[3])
        reason = f"needs {used:,} of {resource}, the target allows {limit:,} (says Triton)"
        message = f"{resource} over the limit"
        return _failed(VerdictKind.OUT_OF_RESOURCES, stage, reason, message=message)
    unsupported = TRITON_UNSUPPORTED.search(error.message)
    if unsupported:
        said = line_of(error.message, unsupported.start())
        return _failed(VerdictKind.UNSUPPORTED, stage, f"this Triton cannot do it: {said}")
    if stage is Stage.CAPTURE:
        said = first_error(log) or line
        return _failed(VerdictKind.UNSUPPORTED, stage, f"this Triton cannot read the IR: {said}")
    if stage is Stage.TTIR and not PASS_FAILED.search(error.message):
        reason = f"Triton rejects the kernel: {line}"
        return _failed(VerdictKind.REJECTED, stage, reason, message=line)
    culprit = failing_pass(log)
    said = first_error(log) or line
    if is_generic(said) and LLVM_FATAL.match(last_words(log)):
        # LLVM says why just before MLIR says that it is so.
        said = last_words(log)
    where = f"pass {culprit}" if culprit else f"stage {stage.value}"
    return _failed(
        VerdictKind.PASS_FAILURE, stage, f"{where} failed: {said}", message=said, log=log
    )


def _judge_assembly(assembly: Assembly, evidence: CellEvidence) -> Verdict:
    end, stage = assembly.end, Stage.CUBIN
    stopped = _stopped(end, stage, "ptxas")
    if stopped:
        return stopped
    messages = evidence.log.messages if evidence.log else ()
    message = worst(messages)
    said = message.text if message else last_words(f"{assembly.stdout}\n{assembly.stderr}")
    code = message.code if message else None
    # A reproducer may rename the kernel: its name is no part of the failure.
    nameless = without_name(said, evidence.ptx.entry if evidence.ptx else None)
    number = _death_signal(end)
    if number is not None:
        return _failed(
            VerdictKind.COMPILER_CRASH,
            stage,
            f"ptxas {end.words}" + (_after(said) or ", saying nothing"),
            message=f"{_signal_name(number)}: {nameless}",
            code=code,
        )
    if end.ok:
        reason = "ptxas ended with exit code 0 and left no complete cubin"
        return _failed(VerdictKind.PTXAS_ERROR, stage, reason)
    return _judge_complaint(evidence, message, said) or _failed(
        VerdictKind.PTXAS_ICE if is_internal(said, code) else VerdictKind.PTXAS_ERROR,
        stage,
        f"ptxas ended with {end.words}: {f'({code}) ' if code else ''}{said or 'it said nothing'}",
        message=nameless,
        code=code,
    )


def _judge_complaint(evidence: CellEvidence, message: Message | None, said: str) -> Verdict | None:
    """The verdict where ptxas refused for a reason that is not an error in the code."""
    stage = Stage.CUBIN
    if is_internal(said, message.code if message else None):
        return None
    overflow = overflow_of(message) if message else None
    if overflow:
        reason = (
            f"{overflow.resource}: needs {overflow.used:,} B, "
            f"{evidence.target} allows {overflow.limit:,} B (says ptxas)"
        )
        resource = f"{overflow.resource} over the limit"
        return _failed(VerdictKind.OUT_OF_RESOURCES, stage, reason, message=resource)
    errors = evidence.log.errors if evidence.log else ()
    for text in (said, *(error.text for error in errors)):
        if PTXAS_UNSUPPORTED.search(text):
            return _failed(VerdictKind.UNSUPPORTED, stage, f"this ptxas cannot do it: {text}")
    if PTXAS_NO_MEMORY.search(said):
        return _failed(VerdictKind.OUT_OF_MEMORY, stage, f"ptxas ran out of memory: {said}")
    if PTXAS_FILE_TROUBLE.search(said):
        reason = f"ptxas could not read or write a file: {said}"
        return Verdict(kind=VerdictKind.INFRA, reason=reason, stage=stage)
    return None


def _judge_stub(evidence: CellEvidence) -> Verdict | None:
    ptx, expected = evidence.ptx, evidence.ttir_effects
    if ptx is None or not ptx.does_nothing:
        return None
    if evidence.lowering is None:
        if not ptx.always_traps:
            return None
        reason = "the kernel only traps; there is no source to compare the PTX with"
        return _failed(VerdictKind.TRAP_STUB, Stage.PTX, reason, message="the kernel only traps")
    if not expected:
        return None
    if not ptx.is_trap_stub:
        return _failed(
            VerdictKind.SICK,
            Stage.LLIR,
            "the compiled kernel writes nothing, though its source has "
            f"{_plural(expected, 'store')} or other effects",
            message="the compiled kernel writes nothing",
        )
    why = _tmem_overflow(evidence)
    reason = f"{why}, and Triton" if why else "Triton"
    message = "tensor memory over the limit, lowered to a trap" if why else "lowered to a trap"
    return _failed(
        VerdictKind.TRAP_STUB,
        Stage.LLIR,
        f"{reason} lowered the kernel to a trap; ptxas never saw the real kernel",
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


def _judge_fit(evidence: CellEvidence) -> Verdict | None:
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
    return _failed(
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
    return f"not one block fits on {target}, for want of {limiter}"


def _judge_health(evidence: CellEvidence, thresholds: Thresholds) -> Verdict | None:
    needs = evidence.resources
    complaints: list[tuple[str, str]] = []
    if needs.spills is not None and needs.spills >= thresholds.spill_bytes:
        traffic = f"{needs.spill_stores:,} B stores and {needs.spill_loads:,} B loads a thread"
        at = "" if needs.n_regs is None else f" at {needs.n_regs} registers"
        complaints.append(("spills", f"spills {traffic}{at}"))
    elif needs.stack is not None and needs.stack >= thresholds.stack_bytes:
        complaints.append(("local memory", f"keeps {needs.stack:,} B a thread in local memory"))
    occupancy = evidence.occupancy
    if occupancy and occupancy.warps_per_sm < thresholds.warps:
        said = f"occupancy {occupancy.fraction:.1%}, limited by {occupancy.limiter}"
        complaints.append(("occupancy", said))
    if not complaints:
        return None
    return _failed(
        VerdictKind.SICK,
        Stage.CUBIN,
        "; ".join(said for _, said in complaints) + _caveats(evidence),
        message=", ".join(what for what, _ in complaints),
    )


def _caveats(evidence: CellEvidence) -> str:
    notes = list(evidence.resources.disagreements)
    if evidence.limits is None:
        notes.append(f"limits of {evidence.target} are not known, so fit was not checked")
    return "".join(f"; {note}" for note in notes)


def _death_signal(end: ProcessEnd) -> int | None:
    """The signal that ended a process, also where a shell in between reports it as 128 + n."""
    if end.signal is not None:
        return end.signal
    number = (end.exit_code or 0) - _SHELL_SIGNAL
    return number if number in _OWN_SIGNALS or number == signals.SIGKILL else None


def _signal_name(number: int) -> str:
    try:
        return signals.Signals(number).name
    except ValueError:
        # Spelt as one word, since plain numbers are folded in signatures.
        return f"SIG{number}"


def _after(said: str) -> str:
    return f": {said}" if said else ""


def _plural(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
