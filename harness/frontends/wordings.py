"""What the end of a lowering means where a compiler raises errors of Python.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable

from harness.judging.judge import died, failed, stopped
from harness.values.outcome import Lowering, RaisedError
from harness.values.verdict import Stage, Verdict, VerdictKind


def judge_raising(
    lowering: Lowering,
    title: str,
    *,
    line: Callable[[RaisedError], str],
    cannot: Callable[[RaisedError], bool],
    otherwise: Callable[[RaisedError, Stage, str], Verdict],
    last: Callable[[str], str] | None = None,
) -> Verdict:
    """The verdict on a lowering that raised or did not end well.

    `line` says what failed in one line, `cannot` whether another version or target could do it, and
    `otherwise` judges what is left. `last` is the last line of a log that says something.
    """
    stage, error = Stage(lowering.stage), lowering.error
    if verdict := stopped(lowering.end, stage, f"{title} ({stage.value})"):
        return verdict
    if error is None:
        return died(lowering.end, stage, title, (last or last_line)(lowering.log))
    said = line(error)
    if "MemoryError" in error.kinds:
        return failed(VerdictKind.OUT_OF_MEMORY, stage, f"{title} ran out of memory: {said}")
    if "OSError" in error.kinds:
        reason = f"{title} could not read or write a file: {said}"
        return Verdict(kind=VerdictKind.INFRA, reason=reason, stage=stage)
    if cannot(error):
        reason = f"this {title} cannot do it: {said}"
        return failed(VerdictKind.UNSUPPORTED, stage, reason, message=said)
    return otherwise(error, stage, said)


def last_line(log: str) -> str:
    """The last line that is not empty."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return lines[-1][:500] if lines else ""
