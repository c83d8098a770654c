"""Triton's interpreter in the forms in which it computes what a GPU does."""

# ruff: noqa: ANN401 - values of Triton have types that we cannot name

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
import triton.language as tl
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle


class _Rounding:
    """How this process rounds to bfloat16."""

    generator: torch.Generator | None = None


def mend_bfloat16(seed: int | None = None) -> None:
    """Mend the interpreter of this process, for good.

    With a seed, every rounding goes up or down at random, as often to the nearer as that is nearer
    (stochastic rounding). How far such runs are apart is what rounding does to a result.
    """
    if seed is not None:
        _Rounding.generator = torch.Generator().manual_seed(seed)
    builder = InterpreterBuilder
    builder.create_dot = _widening_operands(builder.create_dot)
    for name in ("unary_op", "binary_op", "ternary_op"):
        setattr(builder, name, _in_float32(getattr(builder, name)))
    builder.cast_impl = _by_way_of_float32(builder.cast_impl)
    builder.get_bf16 = _constant


def _constant(self: Any, value: float) -> Any:  # noqa: ARG001 - a method of the builder
    return _rounded(torch.tensor([value]))


def _is_bfloat16(value: Any) -> bool:
    return isinstance(value, TensorHandle) and value.dtype.scalar == tl.bfloat16


def _widened(value: Any) -> Any:
    """The same numbers in float32; whatever is not bfloat16 as it is."""
    if not _is_bfloat16(value):
        return value
    # A copy: what was broadcast cannot be written to, and torch does not like that.
    bits = torch.from_numpy(value.data.copy().view("int16"))
    return TensorHandle(bits.view(torch.bfloat16).float().numpy(), tl.float32)


def _rounded(numbers: torch.Tensor) -> Any:
    """To bfloat16, as the bits that the interpreter keeps."""
    if _Rounding.generator is not None:
        numbers = _nudged(numbers.to(torch.float32), _Rounding.generator)
    bits = numbers.to(torch.bfloat16).view(torch.int16).numpy()
    return TensorHandle(bits.view("uint16"), tl.bfloat16)


def _nudged(numbers: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Moved by less than half a unit in bfloat16's last place: the nearest may be another one."""
    bits = numbers.contiguous().view(torch.int32)
    half = 1 << 15
    noise = torch.randint(-half + 1, half, bits.shape, generator=generator, dtype=torch.int32)
    moved = (bits + noise).view(torch.float32)
    return torch.where(numbers.isfinite() & moved.isfinite() & (numbers != 0), moved, numbers)


def _widening_operands(operation: Callable[..., Any]) -> Callable[..., Any]:
    """A product, whose sum is in the accumulator's type."""

    @wraps(operation)
    def dot(self: Any, a: Any, b: Any, *args: Any, **kwargs: Any) -> Any:
        return operation(self, _widened(a), _widened(b), *args, **kwargs)

    return dot


def _in_float32(operation: Callable[..., Any]) -> Callable[..., Any]:
    """An operation element by element, whose result has the type of its operands."""

    @wraps(operation)
    def apply(self: Any, first: Any, *args: Any) -> Any:
        if not _is_bfloat16(first):
            return operation(self, first, *args)
        result = operation(self, _widened(first), *map(_widened, args))
        # A comparison gives truth values.
        return result if result.data.dtype == bool else _rounded(torch.from_numpy(result.data))

    return apply


def _by_way_of_float32(operation: Callable[..., Any]) -> Callable[..., Any]:
    """A conversion, where bfloat16 is at one end."""

    @wraps(operation)
    def cast(self: Any, source: Any, wanted: Any) -> Any:
        result = operation(self, _widened(source), tl.float32 if _goes_to(wanted) else wanted)
        return _rounded(torch.from_numpy(result.data)) if _goes_to(wanted) else result

    return cast


def _goes_to(wanted: Any) -> bool:
    return bool(wanted.scalar == tl.bfloat16)


_ONE = re.compile(r"\s*(\w+)\.approx(?:\.ftz)?\.f32\s+\$0\s*,\s*\$1\s*;?\s*")
_FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "cos": torch.cos,
    "ex2": torch.exp2,
    "lg2": torch.log2,
    "rcp": torch.reciprocal,
    "rsqrt": torch.rsqrt,
    "sin": torch.sin,
    "sqrt": torch.sqrt,
    "tanh": torch.tanh,
}


class _Call:
    """What Triton's builder gives for a piece of assembly: its results, by number."""

    def __init__(self, result: Any) -> None:
        self._result = result

    def get_result(self, index: int) -> Any:
        assert index == 0
        return self._result


def mend_inline_assembly() -> None:
    """Mend the interpreter of this process, for good."""
    refuse = InterpreterBuilder.create_inline_asm

    def create(self: Any, asm: str, constraints: str, values: Any, *rest: Any) -> Any:
        match = _ONE.fullmatch(asm)
        function = _FUNCTIONS.get(match[1]) if match else None
        if function is None or len(values) != 1 or values[0].dtype.scalar != tl.float32:
            return refuse(self, asm, constraints, values, *rest)
        # A copy: what was broadcast cannot be written to, and torch does not like that.
        numbers = function(torch.from_numpy(values[0].data.copy()))
        return _Call(TensorHandle(numbers.numpy(), tl.float32))

    InterpreterBuilder.create_inline_asm = create
