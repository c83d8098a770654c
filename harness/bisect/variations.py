"""What may not change what a kernel computes, and is worth varying. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.values.kernel import Scalar
from harness.values.limits import KNOWN_CAPABILITIES
from harness.values.target import Target

# The fewest first: a kernel with one stage has no pipeline, one with one warp no barriers.
_VALUES: Mapping[str, tuple[Scalar, ...]] = {"num_stages": (1, 2, 3), "num_warps": (1, 2, 4, 8)}
# The first GPU with asynchronous copies, which the emulator knows; from 90 on a target is one chip.
_OLDEST, _EXACT_SINCE = 80, 90


def other_options(
    config: Mapping[str, Scalar], options: Sequence[str]
) -> list[tuple[str, dict[str, Scalar]]]:
    """The config with one option of the compiler changed, each with words for the change."""
    return [
        (f"{name}={value}", {**config, name: value})
        for name, values in _VALUES.items()
        if name in options and name in config
        for value in values
        if value != config[name]
    ]


def other_targets(target: Target) -> list[Target]:
    """The first GPU of each other generation."""
    firsts: dict[int, int] = {}
    for capability in sorted(KNOWN_CAPABILITIES):
        if capability >= _OLDEST:
            firsts.setdefault(capability // 10, capability)
    return [
        Target(capability=each, suffix="a" if each >= _EXACT_SINCE else "")
        for generation, each in firsts.items()
        if generation != target.capability // 10
    ]
