"""The tensors among the arguments of a launch. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.values.run import Argument, ArgumentKind

__all__ = ["named_buffers", "tensors_of"]


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
