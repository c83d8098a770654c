"""Times of a kernel: a noisy number, which is compared otherwise than an exact counter. Pure.

The model is nvbench's "robust compare": an interval from the fastest run to the third quartile, and
the median. Two times are apart only if their intervals are, by more than a gap; and if the same
holds in cycles, where the clock was read: a GPU that clocks down makes every kernel slower.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

GAP = 0.02
"""Of the smaller number: intervals that are nearer than this are not apart."""


class Faster(StrEnum):
    """Which of two is faster, if that can be determined."""

    FIRST = "first"
    SECOND = "second"
    AMBIGUOUS = "ambiguous"


class TimeMs(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds of one launch, of so many `samples`; `sm_mhz` is the clock's median."""

    median: float
    min: float
    q3: float
    samples: int
    sm_mhz: int | None = None


def time_of(samples: Sequence[float], clocks: Sequence[int] = ()) -> TimeMs | None:
    """The time that samples in milliseconds tell of; None where there are none."""
    if not samples:
        return None
    import statistics  # noqa: PLC0415 - 2 ms of every command, and only a GPU measures

    q3 = statistics.quantiles(samples, n=4, method="inclusive")[2] if len(samples) > 1 else None
    return TimeMs(
        median=statistics.median(samples),
        min=min(samples),
        q3=samples[0] if q3 is None else q3,
        samples=len(samples),
        sm_mhz=round(statistics.median(clocks)) if clocks else None,
    )


def compare_times(first: TimeMs, second: TimeMs) -> Faster:
    """Which is faster: in milliseconds, and in cycles too where both clocks are known."""
    order = _apart((first.min, first.q3), (second.min, second.q3))
    if first.sm_mhz and second.sm_mhz:
        cycles = [(t.min * t.sm_mhz, t.q3 * t.sm_mhz) for t in (first, second) if t.sm_mhz]
        if _apart(*cycles) is not order:
            return Faster.AMBIGUOUS
    return order


def _apart(first: tuple[float, float], second: tuple[float, float]) -> Faster:
    if first[1] * (1 + GAP) < second[0]:
        return Faster.FIRST
    if second[1] * (1 + GAP) < first[0]:
        return Faster.SECOND
    return Faster.AMBIGUOUS
