"""Whether an order can be relied on, from the error of what it was made with. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from harness.ranking.quality import ranks

__all__ = ["ERROR", "SURE", "hoped_spearman"]

ERROR = 0.18
"""Standard deviation of the logarithm of a cost about that of the time, for kernels that the
weights were not fitted to: `python benchmarks/ranking.py --held-out` prints it."""

SURE = 0.89
"""An order is claimed from this expected correlation on: 0.8, and a margin.

The margin is for errors that all configs of a launch have in common, which the sum takes as
independent. Held out, all launches with 0.88 or more have 0.8, and the next one has not.
"""


def hoped_spearman(costs: Sequence[float], error: float = ERROR) -> float:
    """Spearman's correlation that is expected where each cost is off by a log-normal error.

    The rank of a config is how many others take less time. So its mean is a sum of the
    probabilities that one is faster, each a normal distribution of the two logarithms' difference;
    and the correlation is linear in the ranks. 0 where all costs are equal.

    Raises:
        ValueError: a cost is not positive.
    """
    logs = [math.log(each) for each in costs]
    count = len(logs)
    middle = (count - 1) / 2
    # What is equal in all digits that mean something is equal.
    expected = [rank - middle for rank in ranks([round(each, 9) for each in logs])]
    spread = sum(each * each for each in expected)
    if not spread:
        return 0.0
    mean = [
        math.fsum(math.erf((each - other) / (2 * error)) / 2 for other in logs) for each in logs
    ]
    whole = count * (count * count - 1) / 12
    shared = math.fsum(one * other for one, other in zip(expected, mean, strict=True))
    return shared / math.sqrt(spread * whole)
