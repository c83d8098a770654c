"""The order of the configs of one launch, and whether it can be relied on. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from harness.frontends.texts.config_source import OPTIONS
from harness.values.row import Row
from harness.workaround.rank.model import MODEL, Model, costs
from harness.workaround.rank.result import RankedConfig
from harness.workaround.rank.sureness import ERRORS, GOOD, SURE, Errors, chance_of_order

_LEAST = 3


def order_of(
    configs: Sequence[RankedConfig], model: Model = MODEL, errors: Errors = ERRORS
) -> tuple[list[RankedConfig], str]:
    """The configs, the one expected to be fastest first; and why that is in doubt, or nothing.

    What does not compile comes last, and what the model cannot take before it. `errors` are those
    of the model.
    """
    known = [each for each in configs if each.features]
    features = [each.features for each in known if each.features]
    expected = costs(features, [tile_of(each.row) for each in known], model) if features else []
    pairs = [replace(each, cost=cost) for each, cost in zip(known, expected, strict=True)]
    pairs.sort(key=lambda each: (each.cost or 0.0, each.row.cell))
    return [*pairs, *(each for each in configs if not each.features)], _doubt(pairs, errors)


def tile_of(row: Row) -> tuple[tuple[str, str], ...]:
    """What of a config says how much is worked on at once."""
    items = row.config.items()
    return tuple(sorted((name, str(value)) for name, value in items if name not in OPTIONS))


def _doubt(known: Sequence[RankedConfig], errors: Errors) -> str:
    if len(known) < _LEAST:
        return f"cannot tell: fewer than {_LEAST} configs of which enough is known"
    own = errors.of(spills=any(each.features and each.features.spills for each in known))
    codes = [each.row.cubin_sha256 or each.row.cell for each in known]
    chance = chance_of_order([each.cost or 0.0 for each in known], codes, own)
    if chance < SURE:
        return (
            "cannot tell the order: with the model's own errors, its correlation with measured "
            f"times is {GOOD} or more with a probability of {chance:.1%}, and {SURE:.0%} is asked "
            "for"
        )
    return ""
