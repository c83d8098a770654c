"""What torch's pointwise functions give for tensors without values, remembered by kind of call.

Torch computes it in Python each time, a tenth of a millisecond long, and launch code that loops
(a solver, a benchmark) calls them a million times. Type, shape and strides of a result follow from
those of the tensors, and from the types of numbers. What goes beyond that is left to torch:
gradients, transformations, other classes of tensors.
"""

# ruff: noqa: ANN401 - torch's functions take and give any value

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch.autograd import forward_ad

POINTWISE = frozenset(
    """
    __and__ __eq__ __floordiv__ __ge__ __gt__ __invert__ __le__ __lshift__ __lt__ __mod__ __ne__
    __or__ __rshift__ __rsub__ __rtruediv__ __xor__ abs add add_ bitwise_and bitwise_or clamp div
    div_ eq exp exp2 floor ge gt le log log2 logical_and logical_not logical_or lt maximum minimum
    mul mul_ ne neg relu round rsqrt sigmoid sqrt square sub sub_ tanh where
    """.split()  # noqa: SIM905 - a list would be a page
)
"""Names of functions that are remembered; a power, say, may refuse a number for its value."""

_GIVES: dict[Hashable, tuple[Any, ...]] = {}
_ITSELF: tuple[Any, ...] = ()


def pointwise(func: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """The result of a pointwise function."""
    facts = tuple(map(_fact, args))
    if None in facts or _is_transformed():
        return func(*args)
    kind = func, facts
    gives = _GIVES.get(kind)
    if gives is None:
        result = func(*args)
        if result is args[0]:
            _GIVES[kind] = _ITSELF
        elif type(result) is torch.Tensor and result.is_meta:
            _GIVES[kind] = result.shape, result.stride(), result.dtype
        return result
    if gives is _ITSELF:
        return args[0]
    shape, strides, dtype = gives
    return torch.empty_strided(shape, strides, dtype=dtype, device="meta")


def _fact(value: Any) -> Hashable | None:
    """What a result follows from; None where it may follow from more."""
    kind = type(value)
    if kind is not torch.Tensor:
        return kind.__name__ if kind in {bool, int, float} else None
    if not value.is_meta or value.layout is not torch.strided or value.dtype.is_complex:
        return None
    if value.requires_grad and torch.is_grad_enabled():
        return None
    return value.dtype, value.shape, value.stride()


def _is_transformed() -> bool:
    """Whether more than torch's functions and modes of functions see the call."""
    return (
        torch._C._functorch.peek_interpreter_stack() is not None  # noqa: SLF001
        or torch._C._len_torch_dispatch_stack() > 0  # noqa: SLF001
        or forward_ad._current_level >= 0  # noqa: SLF001
        or torch.is_inference_mode_enabled()
    )
