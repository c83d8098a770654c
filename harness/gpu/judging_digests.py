"""What can be said of cubins whose buffers did not come back: how they ended, and who agrees. Pure.

Nothing is emulated at such sizes: values are judged at small ones. A cubin is accused of nothing
here but what its machine saw: a fault, a refusal, a hang.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from harness.gpu.judging import judge_end
from harness.gpu.measured import GpuFacts, GpuRun, Measured
from harness.runs.jobs import JobBuffer
from harness.runs.judging import Judgement
from harness.values.run import RunVerdict

__all__ = ["digest_of", "judge_digests"]

_ATOMICS = re.compile(r"\b(?:atom|red|multimem)\.")


def digest_of(run: GpuRun, buffers: Sequence[JobBuffer]) -> tuple[str, ...]:
    """Of the buffers that hold something at the start: scratch memory differs by design."""
    return tuple(
        sha256 for sha256, each in zip(run.buffers, buffers, strict=True) if each.file is not None
    )


def judge_digests(
    case: Measured, buffers: Sequence[JobBuffer], ptx: str, gpu: GpuFacts
) -> Judgement:
    """Say what a cubin of this PTX did, launched with these buffers."""
    ended = judge_end(case, tuple(each.name for each in buffers), gpu)
    if ended:
        return ended
    digests = {digest_of(run, buffers) for run in case.ended}
    if len(digests) == 1:
        said = "it came to its end, alike in all runs"
    elif _ATOMICS.search(ptx):
        said = "it came to its end; runs differ, and it has atomic operations, whose order is open"
    else:
        said = "it came to its end; runs differ"
    return Judgement(
        verdict=RunVerdict.RAN,
        reason=f"measured: {said}; at this size nothing is compared with a reference",
    )
