"""Formats against ml_dtypes, torch and exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from gpu_emulator.numbers.formats import (
    FORMATS,
    canonical_nan,
    from_float64,
    odd_sum,
    round_float64,
    round_integral,
    to_float32,
    to_float64,
)

SMALL = {
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e2m1": ml_dtypes.float4_e2m1fn,
    "ue8m0": ml_dtypes.float8_e8m0fnu,
}
MODES = ("rn", "rna", "rz", "rm", "rp")


def any_floats(count: int = 20_000) -> np.ndarray[Any, Any]:
    """f32 numbers of every magnitude, and the special ones."""
    rng = np.random.default_rng(5)
    words = rng.integers(0, 2**32, count, dtype=np.uint32)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 65520.0, 448.0, 464.0])
    with np.errstate(invalid="ignore"):
        return np.concatenate([words.view(np.float32).astype(np.float64), special])


def same(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    equal = (a == b) & (np.signbit(a) == np.signbit(b))
    return np.asarray(equal | (np.isnan(a) & np.isnan(b)))


@pytest.mark.parametrize("name", SMALL)
def test_every_code_has_the_value_that_ml_dtypes_gives(name: str) -> None:
    codes = np.arange(1 << FORMATS[name].width, dtype=np.uint8)
    expected = codes.view(SMALL[name]).astype(np.float64)
    assert same(to_float64(codes, name), expected).all()
    assert same(to_float32(codes, name).astype(np.float64), expected).all()
    numbers = ~np.isnan(expected)
    assert np.array_equal(from_float64(expected[numbers], name), codes[numbers])


@pytest.mark.parametrize("name", ["e4m3", "e5m2", "e3m2", "e2m3", "e2m1"])
def test_rounding_to_small_formats_is_that_of_ml_dtypes(name: str) -> None:
    rng = np.random.default_rng(6)
    largest = float(to_float64(np.array(FORMATS[name].top), name))
    values = rng.uniform(-largest, largest, 20_000).astype(np.float32)
    values = np.concatenate([values, values * 2.0**-6]).astype(np.float32)
    expected = values.astype(SMALL[name]).view(np.uint8)
    assert np.array_equal(from_float64(values.astype(np.float64), name), expected)


@pytest.mark.parametrize(
    ("name", "kind"), [("f16", "float16"), ("bf16", "bfloat16"), ("f32", "float32")]
)
def test_rounding_to_wide_formats_is_that_of_torch(name: str, kind: str) -> None:
    import torch  # every worker of the suite collects this file, and one runs it

    values = any_floats()
    narrow = torch.from_numpy(values.astype(np.float32)).to(getattr(torch, kind))
    expected = narrow.to(torch.float64).numpy()
    rounded = to_float64(from_float64(values, name), name)
    nan = np.isnan(values)
    assert same(rounded[~nan], expected[~nan]).all()
    assert (from_float64(values, name)[nan] == canonical_nan(name)).all()


def neighbours(value: float, name: str) -> tuple[Fraction, Fraction]:
    """The numbers of a format at or below and at or above a value, by its definition."""
    form = FORMATS[name]
    exact = Fraction(value)
    exponent = max(math.frexp(value)[1] - 1, form.exponent_min)
    unit = Fraction(2) ** (exponent - form.mantissa)
    below = Fraction(math.floor(exact / unit)) * unit
    return below, below if below == exact else below + unit


@pytest.mark.parametrize("name", ["f16", "bf16", "tf32", "e5m2", "e4m3", "e3m2", "e2m1"])
@pytest.mark.parametrize("mode", MODES)
def test_each_rounding_takes_the_neighbour_that_its_name_says(name: str, mode: str) -> None:
    rng = np.random.default_rng(7)
    form = FORMATS[name]
    largest = float(to_float64(np.array(form.top), name))
    spread = np.ldexp(
        rng.uniform(-1, 1, 100), rng.integers(form.exponent_min - form.mantissa, 2, 100)
    )
    # Ties: the middle between a number and the next.
    codes = np.arange(min(form.top, 60))
    numbers = to_float64(codes, name)
    ties = (numbers[1:] + numbers[:-1]) / 2
    values = np.concatenate([spread, ties, -ties])
    values = values[np.abs(values) < largest]
    for value, rounded in zip(values, round_float64(values, name, mode), strict=True):
        below, above = neighbours(float(value), name)
        exact = Fraction(float(value))
        toward_zero = below if exact > 0 else above
        away = above if exact > 0 else below
        if mode in ("rn", "rna") and above != below and exact - below != above - exact:
            wanted = below if exact - below < above - exact else above
        elif mode == "rn":
            unit = above - below
            wanted = below if unit == 0 or (below / unit) % 2 == 0 else above
        else:
            wanted = {"rna": away, "rz": toward_zero, "rm": below, "rp": above}[mode]
        assert Fraction(float(rounded)) == wanted, (value, mode)


def test_what_is_too_large() -> None:
    values = np.array([1e6, -1e6, np.inf, -np.inf, np.nan])
    f16 = {mode: from_float64(values, "f16", mode).tolist() for mode in MODES}
    assert f16["rn"] == f16["rna"] == [0x7C00, 0xFC00, 0x7C00, 0xFC00, 0x7FFF]
    assert f16["rz"] == [0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7FFF]
    assert f16["rm"] == [0x7BFF, 0xFC00, 0x7C00, 0xFC00, 0x7FFF]
    assert f16["rp"] == [0x7C00, 0xFBFF, 0x7C00, 0xFC00, 0x7FFF]
    clamped = from_float64(values, "f16", satfinite=True)
    assert clamped.tolist() == [0x7BFF, 0xFBFF, 0x7BFF, 0xFBFF, 0x7FFF]
    assert from_float64(values, "e4m3", satfinite=True).tolist() == [0x7E, 0xFE, 0x7E, 0xFE, 0x7F]
    assert from_float64(values, "e5m2", satfinite=True).tolist() == [0x7B, 0xFB, 0x7B, 0xFB, 0x7F]
    assert from_float64(values, "e2m1", satfinite=True).tolist() == [0x7, 0xF, 0x7, 0xF, 0x7]
    assert from_float64(values, "ue8m0", "rp", satfinite=True).tolist()[:1] == [127 + 20]
    assert from_float64(values, "ue8m0", "rz", satfinite=True).tolist()[:1] == [127 + 19]


def test_clamping() -> None:
    values = np.array([-2.0, -0.0, 0.25, 7.0, np.nan])
    saturated = from_float64(values, "f32", sat=True).view(np.float32)
    assert saturated.tolist() == [0.0, 0.0, 0.25, 1.0, 0.0]
    assert not np.signbit(saturated).any()
    positive = from_float64(values, "bf16", relu=True)
    assert positive.tolist() == [0, 0, 0x3E80, 0x40E0, 0x7FFF]


def test_rounding_to_integral_values() -> None:
    values = np.array([0.5, 1.5, -0.5, -1.5, 0.49999999999999994, 2.0**53 + 2, -0.2])
    assert round_integral(values, "rni").tolist() == [0, 2, 0, -2, 0, 2.0**53 + 2, 0]
    assert round_integral(values, "rna").tolist() == [1, 2, -1, -2, 0, 2.0**53 + 2, 0]
    assert round_integral(values, "rzi").tolist() == [0, 1, 0, -1, 0, 2.0**53 + 2, 0]
    assert round_integral(values, "rmi").tolist() == [0, 1, -1, -2, 0, 2.0**53 + 2, -1]
    assert round_integral(values, "rpi").tolist() == [1, 2, 0, -1, 1, 2.0**53 + 2, 0]
    with pytest.raises(ValueError, match="no rounding"):
        round_integral(values, "up")


def test_a_sum_rounded_to_odd_rounds_on_as_the_exact_sum() -> None:
    rng = np.random.default_rng(8)
    a = np.ldexp(rng.uniform(-1, 1, 600), rng.integers(-60, 60, 600))
    b = np.ldexp(rng.uniform(-1, 1, 600), rng.integers(-60, 60, 600))
    # An exact tie of f32 with a little more or less: where rounding twice goes wrong.
    a[:500] = 1.0 + 2.0**-24
    b[:500] = np.ldexp(rng.choice([-1.0, 1.0], 500), -70)
    odd = odd_sum(a, b)
    for x, y, total in zip(a, b, odd, strict=True):
        exact = Fraction(float(x)) + Fraction(float(y))
        assert (Fraction(float(total)) == exact) or (int(total.view(np.int64)) & 1)
        assert abs(Fraction(float(total)) - exact) <= Fraction(math.ulp(float(total)))
    assert (
        odd.astype(np.float32)[:500]
        == np.where(b[:500] > 0, np.nextafter(np.float32(1), np.float32(2)), np.float32(1))
    ).all()
