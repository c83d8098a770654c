"""Results element by element: views of buffers, measures, and how far they may be apart."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.runs.numbers.comparing import as_tensor, compare
from harness.runs.numbers.noise import LARGEST_TOLERANCE, NOISE_FACTOR, tolerance_of
from harness.runs.numbers.scalars import ELEMENTS
from harness.values.run import Argument, ArgumentKind

NAN, INF = float("nan"), float("inf")


def of(*values: float, kind: str = "float32") -> Any:
    return np.array(values, kind)


@pytest.mark.parametrize("name", ELEMENTS)
def test_a_view_of_each_type_has_its_elements(name: str) -> None:
    kind = ELEMENTS[name]
    data = np.arange(1, 13).astype(np.uint8).astype(kind).tobytes()
    made = Argument(
        name="x",
        kind=ArgumentKind.TENSOR,
        offset=kind.itemsize,
        dtype=name,
        shape=(2, 3),
        strides=(4, 1),
    )
    plain = np.frombuffer(data, kind)[[1, 2, 3, 5, 6, 7]]
    found = as_tensor(made, data)
    assert (found.shape, found.dtype, found.tobytes()) == ((2, 3), kind, plain.tobytes())
    assert compare(found, found, 0.0).is_equal
    other = np.frombuffer(data, kind)[::-1][:6].reshape(2, 3)
    assert kind.kind == "b" or compare(found, other, 0.0).differing
    assert as_tensor(replace(made, shape=(0, 3), offset=0), b"").shape == (0, 3)


def test_the_measures_by_their_formulas() -> None:
    found = compare(of(3, 4, 1), of(3, 4, 0), 0.1)
    assert (found.elements, found.differing, found.max_abs) == (3, 1, 1.0)
    assert found.rel_err == pytest.approx(1 / 5)
    # An element near zero is judged against the whole tensor's scale.
    assert found.stable_max_rel == pytest.approx(1 / math.sqrt(25 / 3))
    assert (found.first, found.actual, found.expected) == ((2,), 1.0, 0.0)
    assert compare(of(3, 4, 1), of(3, 4, 0), 0.5).differing == 0
    assert compare(of(3, 4), of(3, 4), 0.0).is_equal


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_what_is_not_finite_agrees_with_itself_alone(value: float) -> None:
    assert compare(of(1, value), of(1, value), 0.1).differing == 0
    found = compare(of(1, 1), of(1, value), 0.1)
    assert (found.differing, found.max_abs) == (1, INF)


def test_integers_have_to_be_equal() -> None:
    found = compare(of(1, 2, 2**31 - 1, kind="int32"), of(1, 3, -1, kind="int32"), 0.25)
    assert (found.differing, found.max_abs, found.first) == (2, 2.0**31, (1,))
    assert compare(of(7, kind="uint8"), of(7, kind="uint8"), 0.0).is_equal
    # Apart by less than double precision can tell.
    large = compare(np.array([2**62 + 1]), np.array([2**62]), 0.25)
    assert (large.differing, large.max_abs) == (1, 1.0)


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20), st.integers(0, 19), st.floats(0, 0.2)
)
def test_differing_counts_what_is_beyond_the_tolerance(
    values: list[float], place: int, allowed: float
) -> None:
    expected = np.array(values, np.float64)
    actual = expected.copy()
    place %= len(values)
    rms = math.sqrt(float(np.mean(expected**2)))
    actual[place] += 2 * (abs(expected[place]) + rms) + 1
    found = compare(actual, expected, allowed)
    assert (found.differing, found.first) == (1, (place,))


def test_views_are_taken_by_offset_and_strides() -> None:
    data = np.arange(24, dtype=np.float32).tobytes()
    argument = Argument(
        name="x", kind=ArgumentKind.TENSOR, offset=8, dtype="float32", shape=(3, 2), strides=(6, 2)
    )
    assert as_tensor(argument, data).tolist() == [[2, 4], [8, 10], [14, 16]]


def test_a_view_that_leaves_its_buffer_is_taken_flat() -> None:
    data = np.arange(8, dtype=np.int16).tobytes()
    argument = Argument(
        name="x", kind=ArgumentKind.TENSOR, offset=4, dtype="int16", shape=(9,), strides=(1,)
    )
    assert as_tensor(argument, data).tolist() == [2, 3, 4, 5, 6, 7]


def test_the_coarsest_type_says_how_far_values_may_be_apart() -> None:
    assert tolerance_of(["int32", "bool"]) == 0.0
    assert tolerance_of(["float32", "int64"]) < 1e-3
    assert tolerance_of(["f32", "bf16"]) == tolerance_of(["bfloat16"]) == NOISE_FACTOR * 2**-8
    assert tolerance_of(["tf32", "float32"]) == tolerance_of(["float16"])
    assert tolerance_of(["float8_e5m2"]) == LARGEST_TOLERANCE
