"""What an outcome means. Pure: evidence in, verdict out, so that history can be re-judged.

Order of questions: did the machine fail us; did the compiler finish; did ptxas; is what came out
the kernel; does it fit the target; is it healthy. How a process *ended* decides; words on stderr
only tell failures of one kind apart, since compilers print the same words when they recover.
"""

from __future__ import annotations

import signal as signals
from collections.abc import Callable

import msgspec

from gpu_emulator.ptx.text.facts import PtxFacts
from harness.judging import messages
from harness.judging.ptxas.occupancy import Occupancy
from harness.judging.ptxas.ptxas_log import Message, PtxasLog, overflow_of
from harness.judging.signature import failing_pass, make_signature
from harness.values.limits import Limits
from harness.values.outcome import (
    Assembly,
    Lowering,
    ProcessEnd,
    RaisedError,
    Resources,
    signal_name,
)
from harness.values.target import Target
from harness.values.toolchain import TRITON, compiler_name
from harness.values.verdict import DEFAULT_THRESHOLDS, Stage, Thresholds, Verdict, VerdictKind

# Signals by which a program dies of its own doing. The others come from somebody else: SIGKILL
# most often from the system, for lack of memory; SIGXCPU for a limit of the user's shell.
_OWN_SIGNALS = frozenset(
    signals.Signals[f"SIG{name}"] for name in ("ILL", "TRAP", "ABRT", "BUS", "FPE", "SEGV", "SYS")
)
_SHELL_SIGNAL = 128


def failed(
    kind: VerdictKind,
    stage: Stage,
    reason: str,
    *,
    message: str | None = None,
    code: str | None = None,
    log: str = "",
) -> Verdict:
    """A verdict on a failure, with its signature.

    `message` is what says the failure apart from others, where that is not the whole `reason`.
    """
    signature = None
    if not kind.tells_nothing or kind is VerdictKind.UNSUPPORTED:
        signature = make_signature(
            stage=stage, kind=kind, message=message or reason, code=code, log=log
        )
    return Verdict(kind=kind, reason=reason, stage=stage, code=code, signature=signature)


def stopped(process_end: ProcessEnd, stage: Stage, who: str) -> Verdict | None:
    """The verdict where the compiler did not end by itself."""
    for is_so, kind, words, more in (
        (process_end.timed_out, VerdictKind.TIMEOUT, "timed out", "--timeout allows more"),
        (
            process_end.over_memory,
            VerdictKind.OUT_OF_MEMORY,
            "out of memory",
            "--memory allows more",
        ),
        (process_end.flooded, VerdictKind.INFRA, "", "no option allows more"),
    ):
        if is_so:
            reason = f"{who} was not finished: {process_end.words}; {more}"
            return failed(kind, stage, reason, message=f"{who} {words}")
    number = death_signal(process_end)
    if number is not None and number not in _OWN_SIGNALS:
        name = signal_name(number)
        hint = "; this machine may be short of memory" if name == "SIGKILL" else ""
        reason = f"{who} was killed from outside by {name}{hint}"
        return Verdict(kind=VerdictKind.INFRA, reason=reason, stage=stage)
    return None


def death_signal(process_end: ProcessEnd) -> int | None:
    """The signal that ended a process, also where a shell in between reports it as 128 + n."""
    if process_end.signal is not None:
        return process_end.signal
    number = (process_end.exit_code or 0) - _SHELL_SIGNAL
    return number if number in _OWN_SIGNALS or number == signals.SIGKILL else None


def after(words: str) -> str:
    """What was said, as the end of a sentence."""
    return f": {words}" if words else ""


def died(process_end: ProcessEnd, stage: Stage, who: str, words: str, *, log: str = "") -> Verdict:
    """The verdict on a compiler that left no result and no error; `words` are its last."""
    number = death_signal(process_end)
    if number is None:
        reason = f"{who} ended with {process_end.words} in stage {stage.value} and left no result"
        return Verdict(kind=VerdictKind.INFRA, reason=reason + after(words), stage=stage)
    reason = f"{who} {process_end.words} in stage {stage.value}" + (
        after(words) or ", saying nothing"
    )
    message = f"{signal_name(number)}: {words}"
    return failed(VerdictKind.COMPILER_CRASH, stage, reason, message=message, log=log)


def judge_assembly(
    assembly: Assembly, *, log: PtxasLog | None, entry: str | None, target: Target
) -> Verdict:
    """The verdict on a run of ptxas that left no cubin; `entry` is the kernel's name in the PTX."""
    process_end, stage = assembly.end, Stage.CUBIN
    verdict = stopped(process_end, stage, "ptxas")
    if verdict:
        return verdict
    message = messages.worst(log.messages if log else ())
    words = (
        message.text if message else messages.last_words(f"{assembly.stdout}\n{assembly.stderr}")
    )
    code = message.code if message else None
    # A reproducer may rename the kernel: its name is not part of the failure.
    nameless = messages.without_name(words, entry)
    if messages.NO_MEMORY.search(words):
        return failed(VerdictKind.OUT_OF_MEMORY, stage, f"ptxas ran out of memory: {words}")
    number = death_signal(process_end)
    if number is not None:
        refused = _cannot_do((words, *_errors(log)))
        if refused:
            # It had said what is wrong before it died of it.
            return failed(
                VerdictKind.UNSUPPORTED,
                stage,
                f"{refused} (then it {process_end.words})",
                message=refused,
            )
        return failed(
            VerdictKind.COMPILER_CRASH,
            stage,
            f"ptxas {process_end.words}" + (after(words) or ", saying nothing"),
            message=f"{signal_name(number)}: {nameless}",
            code=code,
        )
    if process_end.ok:
        reason = "ptxas ended with exit code 0 and left no complete cubin"
        return failed(VerdictKind.PTXAS_ERROR, stage, reason)
    return _judge_complaint(message, words, log, target) or failed(
        VerdictKind.PTXAS_ICE if messages.is_internal(words, code) else VerdictKind.PTXAS_ERROR,
        stage,
        f"ptxas ended with {process_end.words}: {f'({code}) ' if code else ''}"
        f"{words or 'it said nothing'}",
        message=nameless,
        code=code,
    )


def _errors(log: PtxasLog | None) -> tuple[str, ...]:
    return tuple(error.text for error in log.errors) if log else ()


def _cannot_do(texts: tuple[str, ...]) -> str | None:
    """What ptxas cannot do whatever the kernel, in a sentence; None where it does not say so."""
    refusal = next((text for text in texts if messages.PTXAS_UNSUPPORTED.search(text)), None)
    return refusal and f"this ptxas cannot do it: {refusal}"


def _judge_complaint(
    message: Message | None, words: str, log: PtxasLog | None, target: Target
) -> Verdict | None:
    stage = Stage.CUBIN
    if messages.is_internal(words, message.code if message else None):
        return None
    overflow = overflow_of(message) if message else None
    if overflow:
        reason = (
            f"{overflow.resource}: needs {overflow.used:,} B, "
            f"{target} allows {overflow.limit:,} B (says ptxas)"
        )
        resource = f"{overflow.resource} over the limit"
        return failed(VerdictKind.OUT_OF_RESOURCES, stage, reason, message=resource)
    refused = _cannot_do((words, *_errors(log)))
    if refused:
        return failed(VerdictKind.UNSUPPORTED, stage, refused)
    if messages.PTXAS_FILE_TROUBLE.search(words):
        reason = f"ptxas could not read or write a file: {words}"
        return Verdict(kind=VerdictKind.INFRA, reason=reason, stage=stage)
    return None


# What the end of a lowering means: Triton, its MLIR passes and its LLVM.


def judge_lowering(lowering: Lowering) -> Verdict:
    """The verdict on a lowering that raised or did not end well."""
    stage = Stage(lowering.stage)
    verdict = stopped(lowering.end, stage, f"Triton ({stage.value})")
    if verdict:
        return verdict
    processor = messages.LLVM_UNKNOWN_PROCESSOR.search(lowering.log)
    if processor and stage in (Stage.LLIR, Stage.PTX):
        return _unsupported(stage, f"its LLVM does not know {processor[1]}")
    if lowering.error is not None:
        return _judge_raised(lowering.error, stage, lowering.log)
    words, ended = messages.last_words(lowering.log), lowering.end.words
    if messages.NO_MEMORY.search(words):
        return failed(VerdictKind.OUT_OF_MEMORY, stage, f"Triton ran out of memory: {words}")
    if messages.TRITON_UNKNOWN_CAPABILITY.search(words) or messages.LLVM_UNSUPPORTED.search(words):
        return _unsupported(stage, words)
    number = death_signal(lowering.end)
    if number is None and (messages.LLVM_FATAL.match(words) or messages.llvm_error(lowering.log)):
        return failed(
            VerdictKind.COMPILER_CRASH,
            stage,
            f"LLVM ended Triton's process ({ended}) in stage {stage.value}" + after(words),
            message=words,
            log=lowering.log,
        )
    return died(lowering.end, stage, "Triton", words, log=lowering.log)


def _unsupported(stage: Stage, words: str) -> Verdict:
    return failed(VerdictKind.UNSUPPORTED, stage, f"this Triton cannot do it: {words}")


def _judge_raised(error: RaisedError, stage: Stage, log: str) -> Verdict:
    line = messages.essence(error)
    if "MemoryError" in error.kinds:
        return failed(VerdictKind.OUT_OF_MEMORY, stage, f"Triton ran out of memory: {line}")
    if "OSError" in error.kinds:
        reason = f"Triton could not read or write a file: {line}"
        return Verdict(kind=VerdictKind.INFRA, reason=reason, stage=stage)
    overflow = messages.TRITON_OVERFLOW.search(error.message)
    if overflow:
        resource, used, limit = overflow[1], int(overflow[2]), int(overflow[3])
        reason = f"needs {used:,} of {resource}, the target allows {limit:,} (says Triton)"
        message = f"{resource} over the limit"
        return failed(VerdictKind.OUT_OF_RESOURCES, stage, reason, message=message)
    phrases = (messages.TRITON_UNSUPPORTED, messages.TRITON_OTHER_RELEASE)
    unsupported = next(filter(None, (phrase.search(error.message) for phrase in phrases)), None)
    if unsupported:
        return _unsupported(stage, messages.line_of(error.message, unsupported.start()))
    keyword = messages.TRITON_UNKNOWN_KEYWORD.search(error.message)
    if keyword and messages.is_option(keyword[1]):
        return _unsupported(stage, f"it does not know the option {keyword[1]}")
    if keyword:
        reason = f"the launch passes {keyword[1]}=, which neither the kernel nor Triton knows"
        return failed(VerdictKind.REJECTED, stage, reason)
    if stage is Stage.CAPTURE and messages.is_parser_error(error, log):
        error_words = messages.first_error(log) or line
        return failed(
            VerdictKind.UNSUPPORTED, stage, f"this Triton cannot read the IR: {error_words}"
        )
    if stage is Stage.TTIR and messages.is_refusal(error):
        reason = f"Triton rejects the kernel: {line}"
        return failed(VerdictKind.REJECTED, stage, reason, message=line)
    culprit = failing_pass(log)
    crash = messages.crash_words(log) if messages.PASS_FAILED.search(error.message) else ""
    if messages.TRITON_UNKNOWN_CAPABILITY.search(crash):
        return _unsupported(stage, crash)
    # MLIR recovers from a crash of a pass and reports that it failed: what crashed tells why, and
    # so does the diagnostic before it: one assertion checks all that makes an attribute valid.
    diagnostic = messages.first_error(log)
    why = crash or diagnostic or messages.essence(error)
    is_vague = messages.is_generic(diagnostic) or messages.is_crash(diagnostic)
    if crash and diagnostic and not is_vague:
        why = f"{crash} after: {diagnostic}"
    where = f"pass {culprit}" if culprit else f"stage {stage.value}"
    words = f"{where} {'crashed' if crash else 'failed'}: {why}"
    if messages.is_generic(why):
        words = f"{where} {'crashed' if messages.is_crash(why) else 'failed'}, and nothing says why"
    return failed(VerdictKind.PASS_FAILURE, stage, words, message=why, log=log)


def judge_ptxas(evidence: CellEvidence) -> Verdict:
    """The verdict on a run of ptxas that left no cubin."""
    assert evidence.assembly is not None
    return judge_assembly(
        evidence.assembly, log=evidence.log, entry=evidence.entry, target=evidence.target
    )


class CellEvidence(msgspec.Struct, frozen=True, kw_only=True):
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
    resources: Resources = msgspec.field(default_factory=Resources)
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
    if lowering and evidence.lost_assembly and (error := messages.llvm_error(lowering.log)):
        # LLVM reports and goes on, without the code that it could not generate.
        lost = ", ".join(evidence.lost_assembly)
        went_on = f"{evidence.compiler} went on without {lost} of the source"
        reason = f"LLVM reported an error, and {went_on}: {error}"
        return failed(VerdictKind.PASS_FAILURE, Stage.PTX, reason, message=error)
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
    effects = f"{expected or 0:,} store{'' if expected == 1 else 's'} or other effects"
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
        + (own if evidence.has_trap else "")
        + (_AT_LOAD if why and evidence.compiler == compiler_name(TRITON) else ""),
        message=message,
    )


# `CompiledKernel._init_handles` of `triton/compiler/compiler.py`, 3.3 to 3.9; `Autotuner._bench`.
_AT_LOAD = "; when it is loaded, Triton raises OutOfResources, and its autotuner skips the config"


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
        "; ".join(words for _, words in over) + ": the launch would be refused",
        message=", ".join(resource for resource, _ in over) + " over the limit",
    )


def _no_room(needs: Resources, limiter: str, limits: Limits, target: Target) -> str:
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
        words = f"occupancy {occupancy.fraction:.1%}, limited by {occupancy.limiter}"
        complaints.append(("occupancy", words))
    if not complaints:
        return None
    message = ", ".join(name for name, _ in complaints)
    return failed(
        VerdictKind.SICK,
        Stage.CUBIN if evidence.is_assembled else evidence.takes,
        "; ".join(words for _, words in complaints) + _caveats(evidence),
        # That a kernel spills is no sign of a bug that another one has: its name belongs to it.
        message=f"{evidence.entry}: {message}" if evidence.entry else message,
    )


def _caveats(evidence: CellEvidence) -> str:
    notes = list(evidence.resources.disagreements)
    lowering = evidence.lowering
    if lowering and (error := messages.llvm_error(lowering.log)):
        notes.append(f"LLVM reported an error and went on, so code may be missing: {error}")
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
