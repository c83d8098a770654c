"""How work grows with its input: true on a busy machine too, where a number of seconds is not."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

__all__ = ["assert_linear"]

ROUNDS = 4
SLACK = 3
"""Work of quadratic time on 8 times the input is 64 times as slow: 24 tells it from linear time."""


def _seconds(work: Callable[[int], object], size: int) -> float:
    start = time.process_time()
    work(size)
    return time.process_time() - start


def assert_linear(work: Callable[[int], object], size: int, *, times: int = 8) -> None:
    """`work` of `times` the `size` takes at most `SLACK * times` as many CPU seconds.

    Both are timed in turn and the least of each counts, since what else runs only ever adds.
    """
    work(size)
    small = large = math.inf
    for _ in range(ROUNDS):
        small = min(small, _seconds(work, size), _seconds(work, size))
        large = min(large, _seconds(work, size * times))
        if large <= SLACK * times * small:
            return
    raise AssertionError(f"{size}: {small:.4f} s, {times} times as much: {large:.4f} s")
