"""Launches by their arguments: which belongs to a captured one, and what memory it has. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from harness.values.execution import Argument, ArgumentKind, Inputs, LaunchVariant
from harness.values.kernel import Scalar
from harness.values.outcome import LaunchFacts

# What of an argument cannot change the code.
_HIDDEN = frozenset({"shape", "value"})
# Triton's default, and what is left of most races with it.
_WARPS, _FEW_WARPS = 4, 2


def find_variant(inputs: Inputs, record: LaunchFacts) -> LaunchVariant | None:
    """What the launch of this record is given, if the launch code came to it with values.

    The first launch with the same shapes; else the first that compiles to the same code.
    """
    found = [
        variant
        for launch in inputs.launches
        if launch.kernel == record.kernel
        for variant in launch.variants
        if variant.config == record.config and same_arguments(variant.described, record.arguments)
    ]
    alike = [variant for variant in found if variant.described == record.arguments]
    return next(iter([*alike, *found]), None)


def same_arguments(
    first: Sequence[Mapping[str, object]], second: Sequence[Mapping[str, object]]
) -> bool:
    """Whether Triton would compile the same code for both."""
    return [_visible(each) for each in first] == [_visible(each) for each in second]


def _visible(described: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in described.items() if name not in _HIDDEN}


def simpler_configs(config: Mapping[str, Scalar]) -> list[dict[str, Scalar]]:
    """The same tiles without pipelining; and so with another number of warps."""
    plain: dict[str, Scalar] = {**seen_by_triton(config), "num_stages": 1}
    fewer = _FEW_WARPS if config.get("num_warps", _WARPS) != _FEW_WARPS else _WARPS
    return [plain, {**plain, "num_warps": fewer}]


def seen_by_triton(config: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """A config without what only ptxas sees: the same instructions."""
    return {name: value for name, value in config.items() if name != "maxnreg"}


def records_like(
    records: Sequence[LaunchFacts], record: LaunchFacts, config: Mapping[str, Scalar]
) -> LaunchFacts | None:
    """The record of the same launch with another config."""
    for each in records:
        same = each.kernel == record.kernel and each.config == config
        if same and same_arguments(each.arguments, record.arguments):
            return each
    return None


def tensors_of(arguments: Sequence[Argument]) -> Iterator[Argument]:
    """All tensors and descriptors among arguments, those in tuples too."""
    for argument in arguments:
        if argument.kind is ArgumentKind.TUPLE:
            yield from tensors_of(argument.items)
        elif argument.kind in (ArgumentKind.TENSOR, ArgumentKind.DESCRIPTOR):
            yield argument


def named_buffers(arguments: Sequence[Argument], count: int) -> list[str]:
    """A name for each buffer: that of the first argument that lies in it."""
    names: dict[int, str] = {}
    for argument in tensors_of(arguments):
        names.setdefault(argument.buffer, argument.name)
    return [names.get(number, f"buffer {number}") for number in range(count)]
