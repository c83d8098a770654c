"""The order of the configs of one launch, and whether it can be relied on. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from harness.frontends.triton.config_source import OPTIONS
from harness.ranking.model import SPREAD, costs, spread_of
from harness.ranking.result import RankedConfig

__all__ = ["order_of"]

_LEAST = 3


def order_of(configs: Sequence[RankedConfig]) -> tuple[list[RankedConfig], str]:
    """The configs, the one expected to be fastest first; and why that is in doubt, or nothing.

    What does not compile comes last, and what the model cannot take before it.
    """
    known = [each for each in configs if each.features]
    features = [each.features for each in known if each.features]
    expected = costs(features, [_tile(each) for each in known]) if features else []
    pairs = [replace(each, cost=cost) for each, cost in zip(known, expected, strict=True)]
    pairs.sort(key=lambda each: (each.cost or 0.0, each.row.cell))
    return [*pairs, *(each for each in configs if not each.features)], _doubt(expected)


def _tile(each: RankedConfig) -> tuple[tuple[str, str], ...]:
    """What of a config says how much is worked on at once."""
    items = each.row.config.items()
    return tuple(sorted((name, str(value)) for name, value in items if name not in OPTIONS))


def _doubt(expected: Sequence[float]) -> str:
    if len(expected) < _LEAST:
        return f"cannot tell: fewer than {_LEAST} configs of which enough is known"
    spread = spread_of(expected)
    if spread < SPREAD:
        return (
            f"cannot tell the order: what is expected differs by {spread:.2f} (standard deviation "
            f"of logarithms), and an order can be relied on from {SPREAD} on"
        )
    return ""
