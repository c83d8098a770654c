"""Whether an order can be relied on, from the errors of what it was made with. Pure."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from harness.workaround.rank.quality import ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Of launches in which a config spills, and of those in which none does.

    Each is the standard deviation of the logarithms of the costs of one launch about those of its
    times, with weights that were fitted to other kernels.
    """

    spilling: Sequence[float]
    dry: Sequence[float]

    def of(self, *, spills: bool) -> Sequence[float]:
        """Those that a launch may have."""
        return self.spilling if spills else self.dry


ERRORS = Errors(
    spilling=(
        0.035, 0.037, 0.047, 0.049, 0.069, 0.088, 0.097, 0.105,
        0.116, 0.122, 0.133, 0.143, 0.172, 0.173, 0.177, 0.180,
        0.180, 0.186, 0.192, 0.211, 0.227, 0.248, 0.268, 0.317,
    ),
    dry=(
        0.060, 0.089, 0.090, 0.095, 0.117, 0.125, 0.144, 0.160,
        0.163, 0.187, 0.242, 0.247, 0.249, 0.255, 0.261, 0.390,
    ),
)  # fmt: skip
"""Of the launches that were measured: `python benchmarks/ranking.py --held-out` prints them."""

GOOD = 0.8
"""What an order that is relied on has at least: Spearman's correlation with the measured times."""

SURE = 0.96
"""An order is claimed where its correlation is GOOD or more with this probability.

Of the launches that were held out, all with 0.9 or more had 0.8. But two with 0.94 and 0.95 (0.80
and 0.86) had 0.77 and 0.72 when they were measured once more: it has to be more than that.
"""

_DRAWS = 2000


def chance_of_order(
    costs: Sequence[float], codes: Sequence[object], errors: Sequence[float]
) -> float:
    """The probability that the order of these costs has a correlation of GOOD or more.

    The time of each code is its cost times a log-normal error; all errors of one draw have one of
    the standard deviations `errors`. Configs with equal `codes` are the same cubin: they have one
    error. 0 where all costs are equal. The draws are the same each time.

    Raises:
        ValueError: a cost is not positive.
    """
    # Digits behind the ninth mean nothing.
    logs = [round(math.log(each), 9) for each in costs]
    middle = (len(logs) - 1) / 2
    expected = [each - middle for each in ranks(logs)]
    alike: dict[tuple[object, float], list[float]] = {}
    for code, log, rank in zip(codes, logs, expected, strict=True):
        alike.setdefault((code, log), []).append(rank)
    sizes = [len(each) for each in alike.values()]
    cubes = len(logs) ** 3 - len(logs) - sum(size**3 - size for size in sizes)
    spread = math.sqrt(sum(each * each for each in expected) * cubes / 12)
    if not spread:
        return 0.0
    groups = [(log, len(found), sum(found)) for (_, log), found in alike.items()]
    source = random.Random(0)  # noqa: S311 - no secret
    good = 0
    for draw in range(_DRAWS):
        error = errors[draw % len(errors)]
        shared, before = 0.0, 0
        for _, size, total in sorted((log + source.gauss(0, error), n, e) for log, n, e in groups):
            shared += total * (before + (size - 1) / 2)
            before += size
        good += shared / spread >= GOOD - 1e-9
    return good / _DRAWS


def chance_of_faster(cost: float, other: float, errors: Sequence[float]) -> float:
    """The probability that the first takes less time than the other.

    Raises:
        ValueError: a cost is not positive.
    """
    apart = math.log(other / cost)
    return math.fsum((1 + math.erf(apart / (2 * each))) / 2 for each in errors) / len(errors)
