"""What the end of a run of ptxas without a cubin means. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.judging.failures import after, death_signal, failed, stopped
from harness.judging.messages import (
    PTXAS_FILE_TROUBLE,
    PTXAS_NO_MEMORY,
    PTXAS_UNSUPPORTED,
    is_internal,
    last_words,
    without_name,
    worst,
)
from harness.judging.ptxas.log import overflow_of
from harness.values.outcome import Assembly, signal_name
from harness.values.target import Target
from harness.values.verdict import Stage, Verdict, VerdictKind

if TYPE_CHECKING:
    from harness.judging.ptxas.log import Message, PtxasLog


def judge_assembly(
    assembly: Assembly, *, log: PtxasLog | None, entry: str | None, target: Target
) -> Verdict:
    """The verdict on a run of ptxas that left no cubin; `entry` is the kernel's name in the PTX."""
    end, stage = assembly.end, Stage.CUBIN
    verdict = stopped(end, stage, "ptxas")
    if verdict:
        return verdict
    message = worst(log.messages if log else ())
    said = message.text if message else last_words(f"{assembly.stdout}\n{assembly.stderr}")
    code = message.code if message else None
    # A reproducer may rename the kernel: its name is not part of the failure.
    nameless = without_name(said, entry)
    number = death_signal(end)
    if number is not None:
        refused = _cannot_do((said, *_errors(log)))
        if refused:
            # It had said what is wrong before it died of it.
            return failed(
                VerdictKind.UNSUPPORTED, stage, f"{refused} (then it {end.words})", message=refused
            )
        return failed(
            VerdictKind.COMPILER_CRASH,
            stage,
            f"ptxas {end.words}" + (after(said) or ", saying nothing"),
            message=f"{signal_name(number)}: {nameless}",
            code=code,
        )
    if end.ok:
        reason = "ptxas ended with exit code 0 and left no complete cubin"
        return failed(VerdictKind.PTXAS_ERROR, stage, reason)
    return _judge_complaint(message, said, log, target) or failed(
        VerdictKind.PTXAS_ICE if is_internal(said, code) else VerdictKind.PTXAS_ERROR,
        stage,
        f"ptxas ended with {end.words}: {f'({code}) ' if code else ''}{said or 'it said nothing'}",
        message=nameless,
        code=code,
    )


def _errors(log: PtxasLog | None) -> tuple[str, ...]:
    return tuple(error.text for error in log.errors) if log else ()


def _cannot_do(texts: tuple[str, ...]) -> str | None:
    """What ptxas cannot do whatever the kernel, in a sentence; None where it does not say so."""
    found = next((text for text in texts if PTXAS_UNSUPPORTED.search(text)), None)
    return found and f"this ptxas cannot do it: {found}"


def _judge_complaint(
    message: Message | None, said: str, log: PtxasLog | None, target: Target
) -> Verdict | None:
    """The verdict where ptxas refused for a reason that is not an error in the code."""
    stage = Stage.CUBIN
    if is_internal(said, message.code if message else None):
        return None
    overflow = overflow_of(message) if message else None
    if overflow:
        reason = (
            f"{overflow.resource}: needs {overflow.used:,} B, "
            f"{target} allows {overflow.limit:,} B (says ptxas)"
        )
        resource = f"{overflow.resource} over the limit"
        return failed(VerdictKind.OUT_OF_RESOURCES, stage, reason, message=resource)
    refused = _cannot_do((said, *_errors(log)))
    if refused:
        return failed(VerdictKind.UNSUPPORTED, stage, refused)
    if PTXAS_NO_MEMORY.search(said):
        return failed(VerdictKind.OUT_OF_MEMORY, stage, f"ptxas ran out of memory: {said}")
    if PTXAS_FILE_TROUBLE.search(said):
        reason = f"ptxas could not read or write a file: {said}"
        return Verdict(kind=VerdictKind.INFRA, reason=reason, stage=stage)
    return None
