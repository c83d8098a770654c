"""How good an order is, against measured times. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """Of the order of one kernel's configs.

    `spearman` is the correlation of ranks, None where it is not defined. `first` and `top_three`
    are regrets: by how much the first choice, and the best of the first three, is slower than the
    best (0.1 is 10 %).
    """

    configs: int
    spearman: float | None
    first: float
    top_three: float


def quality_of(expected: Sequence[float], measured: Sequence[float]) -> Quality:
    """Compare what each config is expected to cost with its measured time.

    Where several are expected to cost the same, a user may get any of them: the slowest counts.

    Raises:
        ValueError: there is nothing to compare.
    """
    if len(expected) != len(measured) or not measured:
        raise ValueError("as many measured times as configs, and one at least")
    best = min(measured)
    order = sorted(zip(expected, measured, strict=True), key=lambda pair: (pair[0], -pair[1]))
    times = [time for _, time in order]
    return Quality(
        configs=len(measured),
        spearman=spearman(expected, measured),
        first=times[0] / best - 1,
        top_three=min(times[:3]) / best - 1,
    )


def spearman(one: Sequence[float], other: Sequence[float]) -> float | None:
    """The correlation of ranks, where equal numbers share a rank; None where one is constant."""
    left, right = ranks(one), ranks(other)
    middle = (len(one) - 1) / 2
    apart = [(a - middle, b - middle) for a, b in zip(left, right, strict=True)]
    spread = sum(a * a for a, _ in apart) * sum(b * b for _, b in apart)
    return sum(a * b for a, b in apart) / spread**0.5 if spread else None


def ranks(numbers: Sequence[float]) -> list[float]:
    """The rank of each, from 0; equal numbers share the mean of theirs."""
    order = sorted(range(len(numbers)), key=lambda place: numbers[place])
    ranks = [0.0] * len(numbers)
    start = 0
    while start < len(order):
        end = start
        while end + 1 < len(order) and numbers[order[end + 1]] == numbers[order[start]]:
            end += 1
        for place in order[start : end + 1]:
            ranks[place] = (start + end) / 2
        start = end + 1
    return ranks
