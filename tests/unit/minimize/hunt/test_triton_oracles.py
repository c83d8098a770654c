"""What is not voted on: kernels whose values overflow, in whose sums the order decides."""

from __future__ import annotations

import numpy as np
import pytest

from harness.minimize.hunt.triton_oracles import overflows
from harness.run.comparing import ELEMENTS
from harness.values.execution import Argument, ArgumentKind, Buffer, LaunchVariant


def left_by_the_interpreter(values: np.ndarray, dtype: str) -> tuple[LaunchVariant, bytes]:
    data = values.astype(ELEMENTS[dtype]).tobytes()
    buffer = Buffer(sha256="after", size=len(data))
    out = Argument(
        name="out",
        kind=ArgumentKind.TENSOR,
        dtype=dtype,
        shape=values.shape,
        strides=(1,) * values.ndim,
    )
    variant = LaunchVariant(
        config={},
        grid=(1,),
        arguments=(out,),
        buffers=(buffer,),
        described=[],
        interpreted=(buffer,),
    )
    return variant, data


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(
    ("value", "is_left_out"),
    [(1.5, False), (60_000.0, False), (np.inf, True), (-np.inf, True), (np.nan, True)],
)
def test_what_is_infinite_or_no_number_in_the_interpreter_overflows(
    dtype: str, value: float, *, is_left_out: bool
) -> None:
    variant, data = left_by_the_interpreter(np.array([0.0, value, 1.0]), dtype)
    assert overflows(variant, {"after": data}.__getitem__) is is_left_out


def test_whole_numbers_do_not_overflow() -> None:
    variant, data = left_by_the_interpreter(np.array([-1, 2**31 - 1]), "int32")
    assert not overflows(variant, {"after": data}.__getitem__)
