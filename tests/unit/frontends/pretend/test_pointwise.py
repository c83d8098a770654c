"""Pointwise functions of tensors without values give what torch gives, the second time, too."""

from __future__ import annotations

import operator
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch

from harness.frontends.pretend.pointwise import POINTWISE, pointwise


def tensors(dtype: torch.dtype) -> list[torch.Tensor]:
    full = torch.empty(4, 6, dtype=dtype, device="meta")
    return [full.t(), full[:, ::2], full[0, 0], full[:1].expand(4, 6)]


def facts(value: Any) -> tuple[Any, ...]:
    return value.dtype, value.shape, value.stride(), value.device, value.requires_grad


def called(function: Callable[..., Any], *args: Any) -> Any:
    try:
        return facts(function(*args))
    except (RuntimeError, TypeError) as error:
        return type(error)


TYPES = [torch.float16, torch.float32, torch.int32, torch.bool]


@pytest.mark.parametrize("name", ["add", "div", "__lshift__", "maximum"])
def test_what_two_operands_give(name: str) -> None:
    assert name in POINTWISE
    function = getattr(torch.Tensor, name)
    for left, right in product(TYPES, TYPES):
        others = [*tensors(right), 3, 0.5, True]
        for pair in product(tensors(left), others):
            expected = called(function, *pair)
            assert [called(pointwise, function, pair) for _ in range(2)] == [expected] * 2, pair


def test_what_changes_a_tensor_gives_the_same_tensor() -> None:
    x, y = torch.empty(2, 3, 4, device="meta")
    for _ in range(2):
        assert pointwise(torch.Tensor.mul_, (x, y)) is x
        assert called(pointwise, torch.Tensor.mul_, (x[0], y)) is RuntimeError
    chosen = [pointwise(torch.where, (x > y, x, 1.0)) for _ in range(2)]
    assert facts(chosen[0]) == facts(chosen[1])
    assert chosen[0] is not chosen[1]


def test_gradients_and_transformations_are_left_to_torch() -> None:
    x = torch.empty(4, device="meta", requires_grad=True)
    y = torch.empty(4, device="meta")
    for _ in range(2):
        assert pointwise(operator.mul, (y, 2.0)).grad_fn is None
        assert pointwise(operator.mul, (x, 2.0)).grad_fn is not None
        with torch.no_grad():
            assert pointwise(operator.mul, (x, 2.0)).grad_fn is None
        summed = torch.func.vmap(lambda each: pointwise(operator.mul, (each, 2.0)))(y)
        assert summed.shape == (4,)
