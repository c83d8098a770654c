"""From when on a kernel that assembles is called sick. Data: change it, re-judge the history."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Spills are stores plus loads, stack is local memory; both in bytes per thread.

    1 KiB of spill traffic per thread is so much extra L1 traffic of each thread on every pass over
    the code; below it, what kernels spill is noise beside their loads (measured on an H200: the
    best config of the project's first kernel spills 1.6 KiB, the collapsed one 94 KiB and is 36x
    slower). Below `warps` resident on an SM, nothing hides a latency. `worse`: so many times the
    best toolchain's number is a regression that is worth following, the clearest first.
    """

    spill_bytes: int = 1024
    stack_bytes: int = 1024
    warps: int = 2
    worse: tuple[int, ...] = (5, 2)


DEFAULT_THRESHOLDS = Thresholds()
