"""What the end of a lowering means: Triton, its MLIR passes and its LLVM. Pure."""

from __future__ import annotations

from harness.judging.failures import after, death_signal, died, failed, stopped
from harness.judging.messages import (
    LLVM_FATAL,
    LLVM_UNKNOWN_PROCESSOR,
    LLVM_UNSUPPORTED,
    PASS_FAILED,
    TRITON_OTHER_RELEASE,
    TRITON_OVERFLOW,
    TRITON_UNKNOWN_CAPABILITY,
    TRITON_UNKNOWN_KEYWORD,
    TRITON_UNSUPPORTED,
    crash_words,
    essence,
    first_error,
    is_crash,
    is_generic,
    is_option,
    is_parser_error,
    is_refusal,
    last_words,
    line_of,
    llvm_error,
)
from harness.judging.signature import failing_pass
from harness.values.outcome import Lowering, RaisedError
from harness.values.verdict import Stage, Verdict, VerdictKind


def judge_lowering(lowering: Lowering) -> Verdict:
    """The verdict on a lowering that raised or did not end well."""
    stage = Stage(lowering.stage)
    verdict = stopped(lowering.end, stage, f"Triton ({stage.value})")
    if verdict:
        return verdict
    processor = LLVM_UNKNOWN_PROCESSOR.search(lowering.log)
    if processor and stage in (Stage.LLIR, Stage.PTX):
        return _unsupported(stage, f"its LLVM does not know {processor[1]}")
    if lowering.error is not None:
        return _judge_raised(lowering.error, stage, lowering.log)
    said, ended = last_words(lowering.log), lowering.end.words
    if TRITON_UNKNOWN_CAPABILITY.search(said) or LLVM_UNSUPPORTED.search(said):
        return _unsupported(stage, said)
    number = death_signal(lowering.end)
    if number is None and (LLVM_FATAL.match(said) or llvm_error(lowering.log)):
        return failed(
            VerdictKind.COMPILER_CRASH,
            stage,
            f"LLVM ended Triton's process ({ended}) in stage {stage.value}" + after(said),
            message=said,
            log=lowering.log,
        )
    return died(lowering.end, stage, "Triton", said, log=lowering.log)


def _unsupported(stage: Stage, said: str) -> Verdict:
    return failed(VerdictKind.UNSUPPORTED, stage, f"this Triton cannot do it: {said}")


def _judge_raised(error: RaisedError, stage: Stage, log: str) -> Verdict:
    line = essence(error)
    if "MemoryError" in error.kinds:
        return failed(VerdictKind.OUT_OF_MEMORY, stage, f"Triton ran out of memory: {line}")
    if "OSError" in error.kinds:
        reason = f"Triton could not read or write a file: {line}"
        return Verdict(kind=VerdictKind.INFRA, reason=reason, stage=stage)
    overflow = TRITON_OVERFLOW.search(error.message)
    if overflow:
        resource, used, limit = overflow[1], int(overflow[2]), int(overflow[3])
        reason = f"needs {used:,} of {resource}, the target allows {limit:,} (says Triton)"
        message = f"{resource} over the limit"
        return failed(VerdictKind.OUT_OF_RESOURCES, stage, reason, message=message)
    unsupported = TRITON_UNSUPPORTED.search(error.message) or TRITON_OTHER_RELEASE.search(
        error.message
    )
    if unsupported:
        return _unsupported(stage, line_of(error.message, unsupported.start()))
    keyword = TRITON_UNKNOWN_KEYWORD.search(error.message)
    if keyword and is_option(keyword[1]):
        return _unsupported(stage, f"it does not know the option {keyword[1]}")
    if keyword:
        reason = f"the launch passes {keyword[1]}=, which neither the kernel nor Triton knows"
        return failed(VerdictKind.REJECTED, stage, reason)
    if stage is Stage.CAPTURE and is_parser_error(error, log):
        said = first_error(log) or line
        return failed(VerdictKind.UNSUPPORTED, stage, f"this Triton cannot read the IR: {said}")
    if stage is Stage.TTIR and is_refusal(error):
        reason = f"Triton rejects the kernel: {line}"
        return failed(VerdictKind.REJECTED, stage, reason, message=line)
    return _judge_pass(error, stage, log)


def _judge_pass(error: RaisedError, stage: Stage, log: str) -> Verdict:
    """The verdict where Triton, or a pass of its compiler, failed at its own work."""
    culprit = failing_pass(log)
    crash = crash_words(log) if PASS_FAILED.search(error.message) else ""
    if TRITON_UNKNOWN_CAPABILITY.search(crash):
        return _unsupported(stage, crash)
    # MLIR recovers from a crash of a pass and reports that it failed: what crashed tells why, and
    # so does the diagnostic before it: one assertion checks all that makes an attribute valid.
    diagnostic = first_error(log)
    said = crash or diagnostic or essence(error)
    if crash and diagnostic and not is_generic(diagnostic) and not is_crash(diagnostic):
        said = f"{crash} after: {diagnostic}"
    where = f"pass {culprit}" if culprit else f"stage {stage.value}"
    reason = f"{where} {'crashed' if crash else 'failed'}: {said}"
    if is_generic(said):
        reason = f"{where} {'crashed' if is_crash(said) else 'failed'}, and nothing says why"
    return failed(VerdictKind.PASS_FAILURE, stage, reason, message=said, log=log)
