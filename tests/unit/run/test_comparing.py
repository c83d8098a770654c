"""Results element by element: views of buffers, measures, and how far they may be apart."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from harness.run.comparing import (
    ELEMENTS,
    LARGEST_TOLERANCE,
    NOISE_FACTOR,
    as_tensor,
    compare,
    near,
    tolerance_of,
    types_in,
)
from harness.values.execution import Argument, ArgumentKind

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
    assert compare(found, found, 0.0).stable_max_rel == 0.0
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
    shares = compare(of(1, 100, 2, 5), of(1, 100.5, 2.0005, 0), 0.5)
    assert shares.unequal == 3 / 4
    assert (shares.within_1e_3, shares.within_1_percent) == (2 / 4, 3 / 4)
    whole = compare(of(1, 200, 3, 7, kind="int32"), of(1, 201, 3, 9, kind="int32"), 0.0)
    assert (whole.unequal, whole.within_1e_3, whole.within_1_percent) == (2 / 4, 2 / 4, 3 / 4)
    alike = compare(of(3, 4, kind="int32"), of(3, 4, kind="int32"), 0.0)
    assert (alike.unequal, alike.within_1e_3, alike.within_1_percent) == (0.0, 1.0, 1.0)
    assert compare(of(3, 4), of(3, 4), 0.0).stable_max_rel == 0.0


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_what_is_not_finite_agrees_with_itself_alone(value: float) -> None:
    assert compare(of(1, value), of(1, value), 0.1).differing == 0
    found = compare(of(1, 1), of(1, value), 0.1)
    assert (found.differing, found.max_abs) == (1, INF)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["bfloat16", "float16", "float32"])
def test_a_value_that_is_not_a_number_is_no_warning(name: str) -> None:
    values = np.array([1.0, np.nan], ELEMENTS[name])
    other = np.array([1.0, 2.0], ELEMENTS[name])
    assert list(near(values, values, 0.1)) == [True, True]
    assert list(near(values, other, 0.1)) == [True, False]


def test_integers_have_to_be_equal() -> None:
    found = compare(of(1, 2, 2**31 - 1, kind="int32"), of(1, 3, -1, kind="int32"), 0.25)
    assert (found.differing, found.max_abs, found.first) == (2, 2.0**31, (1,))
    assert compare(of(7, kind="uint8"), of(7, kind="uint8"), 0.0).stable_max_rel == 0.0
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
    assert tolerance_of(["f32", "bf16"]) == tolerance_of(["bfloat16"]) < 0.014
    assert tolerance_of(["tf32", "float32"]) == NOISE_FACTOR * 2**-11
    assert tolerance_of(["float16"]) < 0.002
    assert tolerance_of(["float8_e5m2"]) == LARGEST_TOLERANCE


@pytest.mark.parametrize(
    ("line", "kinds"),
    [
        ("cvt.rn.bf16x2.f32 %r1, %f1, %f2;", {"bfloat16", "float32"}),
        ("fma.rn.f16x2 %r1, %r2, %r3, %r4;", {"float16"}),
        ("cvt.rn.satfinite.e4m3x2.f16x2 %h1, %r1;", {"float8_e4m3fn"}),
        # What is only read is the same for both.
        ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%r1}, {%r2};", {"float32"}),
        ("cvt.f32.bf16 %f1, %h1;", {"float32"}),
        ("cvt.rn.f16x2.e4m3x2 %r1, %h1;", set()),
    ],
)
def test_narrow_types_count_where_a_program_rounds_to_them(line: str, kinds: set[str]) -> None:
    assert types_in(line + "\n") == kinds


BF16 = ELEMENTS["bfloat16"]


@pytest.mark.parametrize("name", ["bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "float32"])
def test_neighbours_in_the_type_agree_where_anything_is_allowed(name: str) -> None:
    kind = ELEMENTS[name]
    bits = np.dtype(f"u{kind.itemsize}")
    right = np.random.default_rng(5).uniform(1, 1.2, 256).astype(kind)
    one, two = ((right.view(bits) + bits.type(steps)).view(kind) for steps in (1, 2))
    assert compare(one, right, 1e-12).differing == 0
    assert near(one, right, 1e-12).all()
    assert compare(two, right, 1e-12).differing == 256
    assert not near(two, right, 1e-12).any()
    # To the bit.
    assert compare(one, right, 0.0).differing == 256
    assert not near(one, right, 0.0).any()


@pytest.mark.parametrize("few", [1024, 3])
@pytest.mark.parametrize("off", [0.03, 0.06, 0.1])
def test_a_few_percent_are_not_rounding(off: float, few: int) -> None:
    """Sums of 4,096 products of bf16 in f32, in two orders; then some of them off."""
    draw = np.random.default_rng(3)
    left, right = (
        draw.standard_normal(shape).astype(BF16).astype(np.float32)
        for shape in ((32, 4096), (4096, 32))
    )
    one, other = (
        np.sum([left[:, k::step] @ right[k::step] for k in range(step)], 0, np.float32)
        for step in (4, 256)
    )
    assert (one != other).any()
    allowed = tolerance_of(["bfloat16", "float32"])
    assert compare(one.astype(BF16), other.astype(BF16), allowed).differing == 0
    wrong = one.reshape(-1).copy()
    wrong[np.argsort(-np.abs(wrong))[:few]] *= 1 + off
    found = compare(wrong.reshape(32, 32).astype(BF16), other.astype(BF16), allowed)
    # Small elements are judged by the scale of the tensor.
    assert found.differing > few * (0.9 if few == 3 else off)
