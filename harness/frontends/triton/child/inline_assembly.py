"""Teaches Triton's interpreter the few one-instruction pieces of PTX that kernels are written with.

`cos.approx.f32 $0, $1;` and its like: one result, one argument, all in float32. They are computed
exactly, where the hardware approximates (PTX ISA, "Floating Point Instructions": relative errors
from 2**-22 to 2**-11). That is right for comparing two variants of one kernel, which use them
alike. Whatever else is written in assembly is refused as before.
"""

# ruff: noqa: ANN401 - values of Triton have types that we cannot name

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
import triton.language as tl
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

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
