"""Sums of the tensor cores of sm_90 against what an H200 returned for random numbers.

`h200_sums.npz` holds operands, accumulators and results of `mma.sync` and `wgmma`, as codes, from
`tests/gpu`: for each instruction a (..., m, k), b (..., k, n), c and d (..., m, n).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from accumulation import Accumulation, hopper

from gpu_emulator.engines.products import product
from gpu_emulator.numbers.formats import from_float64, to_float64

MEASURED = np.load(Path(__file__).parent / "data" / "h200_sums.npz")
NAMES = sorted({key.split("/")[0] for key in MEASURED.files})


@pytest.mark.parametrize("name", NAMES)
def test_sums_are_those_of_an_h200(name: str) -> None:
    instruction, a_type, b_type, d_type, *_ = name.split()
    a, b = (to_float64(MEASURED[f"{name}/{x}"], t) for x, t in (("a", a_type), ("b", b_type)))
    c, d = MEASURED[f"{name}/c"], MEASURED[f"{name}/d"]
    order = hopper(instruction, a_type, d_type)
    assert order is not None
    assert np.array_equal(order.add(a, b, c, d_type), d)
    # Not so when rounded once: the numbers are such that it matters.
    once = product(a, b, c, c_type=d_type, d_type=d_type)
    assert d_type == "f16" or order.in_halves or not np.array_equal(once, d)


def test_every_type_of_a_fragment_was_measured() -> None:
    kinds = {tuple(name.split()[:2]) for name in NAMES}
    assert {k for i, k in kinds if i == "wgmma"} == {"bf16", "f16", "tf32", "e4m3", "e5m2"}
    assert {k for i, k in kinds if i == "mma.sync"} == {"bf16", "f16", "tf32", "e4m3", "e5m2"}


def test_what_is_not_a_number_stays_so() -> None:
    order = Accumulation(fraction=25, rounding="rz")
    a = np.array([[1.0, np.inf], [np.nan, 0.0], [0.0, 0.0]])
    b = np.array([[1.0], [2.0]])
    found = to_float64(order.add(a, b, None, "f32"), "f32")[:, 0]
    assert found[0] == np.inf
    assert np.isnan(found[1])
    assert found[2] == 0.0


def test_there_is_nothing_to_choose_for_exact_sums() -> None:
    assert hopper("mma.sync", "s8", "s32") is None
    assert hopper("mma.sync", "f64", "f64") is None
    zero = from_float64(np.zeros((2, 2)), "f32")
    order = hopper("mma.sync", "e4m3", "f32")
    assert order is not None
    assert order.in_halves
    assert np.array_equal(order.add(np.zeros((2, 4)), np.zeros((4, 2)), zero, "f32"), zero)
