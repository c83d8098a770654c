"""What is not voted on (kernels whose values overflow), and what is latent."""

from __future__ import annotations

import numpy as np
import pytest

from harness.hunt.triton_oracles import as_answer, overflows
from harness.run.comparing import ELEMENTS
from harness.values.execution import Argument, ArgumentKind, Buffer, LaunchVariant
from harness.values.verdict import VerdictKind


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


@pytest.mark.parametrize(
    ("verdict", "schedule", "is_latent"),
    [
        (VerdictKind.HANG, "first/early", False),
        (VerdictKind.HANG, "first/late", True),
        (VerdictKind.MEMORY_FAULT, "last/late", True),
        (VerdictKind.WRONG_RESULT, "first/early, first/late, last/early, last/late", False),
        (VerdictKind.WRONG_RESULT, "first/late, last/late", True),
        (VerdictKind.RACE, None, True),
    ],
)
def test_what_comes_about_in_some_orders_alone_is_latent(
    verdict: VerdictKind, schedule: str | None, *, is_latent: bool
) -> None:
    answer = as_answer(verdict, "words", schedule, orders=4)
    assert answer.is_hit
    assert answer.is_latent is is_latent
