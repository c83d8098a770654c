"""How a failure becomes a verdict, and what the end of a compiler's process means. Pure."""

from __future__ import annotations

import signal as signals

from harness.judging.signature import make_signature
from harness.values.outcome import ProcessEnd, signal_name
from harness.values.verdict import Stage, Verdict, VerdictKind

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


def stopped(end: ProcessEnd, stage: Stage, who: str) -> Verdict | None:
    """The verdict where the compiler did not end by itself."""
    if end.timed_out:
        return failed(
            VerdictKind.TIMEOUT, stage, f"{who} was {end.words}", message=f"{who} timed out"
        )
    if end.over_memory:
        return failed(
            VerdictKind.OUT_OF_MEMORY,
            stage,
            f"{who} was {end.words}",
            message=f"{who} out of memory",
        )
    if end.flooded:
        return failed(
            VerdictKind.PTXAS_ERROR if stage is Stage.CUBIN else VerdictKind.PASS_FAILURE,
            stage,
            f"{who} was {end.words}",
            message=f"{who} flooded its output",
        )
    number = death_signal(end)
    if number is not None and number not in _OWN_SIGNALS:
        name = signal_name(number)
        hint = "; this machine may be short of memory" if name == "SIGKILL" else ""
        reason = f"{who} was killed from outside by {name}{hint}"
        return Verdict(kind=VerdictKind.INFRA, reason=reason, stage=stage)
    return None


def death_signal(end: ProcessEnd) -> int | None:
    """The signal that ended a process, also where a shell in between reports it as 128 + n."""
    if end.signal is not None:
        return end.signal
    number = (end.exit_code or 0) - _SHELL_SIGNAL
    return number if number in _OWN_SIGNALS or number == signals.SIGKILL else None


def after(said: str) -> str:
    """What was said, as the end of a sentence."""
    return f": {said}" if said else ""


def died(end: ProcessEnd, stage: Stage, who: str, said: str, *, log: str = "") -> Verdict:
    """The verdict on a compiler that left no result and no error; `said` are its last words."""
    number = death_signal(end)
    if number is None:
        reason = f"{who} ended with {end.words} in stage {stage.value} and left no result"
        return Verdict(kind=VerdictKind.INFRA, reason=reason + after(said), stage=stage)
    reason = f"{who} {end.words} in stage {stage.value}" + (after(said) or ", saying nothing")
    message = f"{signal_name(number)}: {said}"
    return failed(VerdictKind.COMPILER_CRASH, stage, reason, message=message, log=log)
