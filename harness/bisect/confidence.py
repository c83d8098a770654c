"""How often a thing must be run before one believes what was seen. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

DOUBT = 0.01
"""How likely a version that fails now and then may be to pass for one that works."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Of `runs`, how many showed the failure that is looked for."""

    failures: int = 0
    runs: int = 0

    @property
    def rate(self) -> float:
        """The share that failed; 1 where nothing was run: a failure is taken to be steady."""
        return self.failures / self.runs if self.runs else 1.0

    @property
    def is_flaky(self) -> bool:
        """Whether it failed sometimes."""
        return 0 < self.failures < self.runs

    def __add__(self, other: Tally) -> Tally:
        return Tally(failures=self.failures + other.failures, runs=self.runs + other.runs)


def runs_to_trust(bad: Tally, *, doubt: float = DOUBT) -> int:
    """How many runs without a failure show that a version works.

    One that fails as often as `bad` does would pass n runs with the probability (1 - rate)**n;
    n is the least for which that is below `doubt`. 1 for a failure that always comes.
    """
    if bad.rate >= 1:
        return 1
    if bad.rate <= 0:
        raise ValueError("a failure that was never seen has no rate")
    return math.ceil(math.log(doubt) / math.log1p(-bad.rate))


def confidence(bad: Tally, good: Tally) -> float:
    """How sure it is that the good side works, and did not only get away: 1 - (1 - rate)**runs.

    `rate` is how often the bad side fails. 0 where the good side failed too, or a side was not run.
    """
    if not bad.failures or not good.runs or good.failures:
        return 0.0
    return float(1 - (1 - bad.rate) ** good.runs)
