"""Arithmetic on bits against exact fractions, rounded once."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from bands import BANDS
from exact_rounding import rounded

from gpu_emulator.numbers import arithmetic
from gpu_emulator.numbers.arithmetic import (
    approximate,
    approximate_divide,
    dp2a,
    dp4a,
    extremum,
    flush,
    fma,
    packed,
)
from gpu_emulator.numbers.formats import FORMATS, from_float64, to_float64

KIND = {"f16": np.uint16, "bf16": np.uint16, "f32": np.uint32, "f64": np.uint64}
MODES = ("rn", "rz", "rm", "rp")


def operands(name: str, count: int) -> list[np.ndarray[Any, Any]]:
    """Triples whose sums cancel, tie, underflow and overflow, and plain random ones."""
    rng = np.random.default_rng(11)
    width = FORMATS[name].width
    words = [
        rng.integers(0, 2**width - 1, count, dtype=np.uint64, endpoint=True).astype(KIND[name])
        for _ in range(3)
    ]
    a, b, c = words
    third = count // 3
    # The addend close to minus the product, and far below half a unit of it.
    with np.errstate(all="ignore"):
        product = to_float64(a, name) * to_float64(b, name)
        c[:third] = from_float64(-product[:third], name)
        shift = float(FORMATS[name].mantissa + 1)
        c[third : 2 * third] = from_float64(product[third : 2 * third] * 2.0**-shift, name)
    return words


def finite(name: str, *arrays: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.asarray(np.all([np.isfinite(to_float64(x, name)) for x in arrays], axis=0))


@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("mode", MODES)
def test_fma_is_rounded_once(name: str, mode: str) -> None:
    a, b, c = operands(name, 300)
    result = to_float64(fma(name, a, b, c, rounding=mode), name)
    where = np.flatnonzero(finite(name, a, b, c))
    assert where.size > 100
    for i in where:
        x, y, z = (Fraction(float(to_float64(v[i : i + 1], name)[0])) for v in (a, b, c))
        assert result[i] == rounded(x * y + z, name, mode), (hex(a[i]), hex(b[i]), hex(c[i]))


@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("mode", MODES)
def test_sums_and_products_are_rounded_once(name: str, mode: str) -> None:
    a, _, c = operands(name, 300)
    sums = to_float64(arithmetic.add(name, a, c, rounding=mode), name)
    differences = to_float64(arithmetic.subtract(name, a, c, rounding=mode), name)
    products = to_float64(arithmetic.multiply(name, a, c, rounding=mode), name)
    for i in np.flatnonzero(finite(name, a, c)):
        x, z = (Fraction(float(to_float64(v[i : i + 1], name)[0])) for v in (a, c))
        assert sums[i] == rounded(x + z, name, mode)
        assert differences[i] == rounded(x - z, name, mode)
        assert products[i] == rounded(x * z, name, mode)


def root(value: Fraction, name: str, mode: str) -> float:
    """A square root rounded once, by integer square roots."""
    exponent = (value.numerator.bit_length() - value.denominator.bit_length()) // 2 + 1
    unit = Fraction(2) ** (exponent - FORMATS[name].mantissa)
    while value / unit**2 < 4 ** FORMATS[name].mantissa:
        unit /= 2
    scaled = value / unit**2
    below = math.isqrt(math.floor(scaled))
    up = {
        "rn": Fraction(2 * below + 1, 2) ** 2 < scaled,  # a root is never a tie
        "rp": below**2 != scaled,
    }.get(mode, False)
    return float((below + up) * unit)


@pytest.mark.parametrize("name", ["f32", "f64"])
@pytest.mark.parametrize("mode", MODES)
def test_quotients_and_roots_are_rounded_once(name: str, mode: str) -> None:
    a, b, _ = operands(name, 200)
    quotients = to_float64(arithmetic.divide(name, a, b, rounding=mode), name)
    roots = to_float64(arithmetic.square_root(name, a, rounding=mode), name)
    for i in np.flatnonzero(finite(name, a, b)):
        x, y = (Fraction(float(to_float64(v[i : i + 1], name)[0])) for v in (a, b))
        if y:
            assert quotients[i] == rounded(x / y, name, mode)
        if x > 0:
            assert roots[i] == root(x, name, mode)


def test_where_float64_rounds_twice() -> None:
    # 1 + 2^-24 is the middle of two f32; 2^-80 more must round up, and float64 loses it.
    a, b = np.float32(1 + 2**-12), np.float32(1 - 2**-12)
    product = float(a) * float(b)  # 1 - 2^-24, exactly
    c = np.float32(2.0**-60)
    bits = fma("f32", *(np.array([x], np.float32).view(np.uint32) for x in (a, b, c)))
    assert bits.view(np.float32)[0] == rounded(Fraction(product) + Fraction(float(c)), "f32", "rn")
    tie = [np.float32(2.0**-12), np.float32(2.0**-12), np.float32(1.0)]  # 1 + 2^-24: to even, 1
    assert fma("f32", *(np.array([x]).view(np.uint32) for x in tie)).view(np.float32)[0] == 1.0
    more = [
        np.float32(2.0**-12 * (1 + 2**-23)),
        np.float32(2.0**-12 * (1 + 2**-23)),
        np.float32(1.0),
    ]
    assert fma("f32", *(np.array([x]).view(np.uint32) for x in more)).view(np.float32)[0] > 1.0


def test_every_nan_is_the_canonical_one() -> None:
    nan, one, infinity = (np.array([x], np.uint32) for x in (0xFFC12345, 0x3F800000, 0x7F800000))
    for bits in (
        arithmetic.add("f32", nan, one),
        arithmetic.multiply("f32", one, nan),
        fma("f32", nan, one, one, rounding="rz"),
        arithmetic.subtract("f32", infinity, infinity),
        arithmetic.divide("f32", np.array([0], np.uint32), np.array([0], np.uint32)),
    ):
        assert bits[0] == 0x7FFFFFFF
    half = np.array([0x7E01], np.uint16)
    assert arithmetic.add("f16", half, half)[0] == 0x7FFF
    assert (
        arithmetic.multiply("bf16", np.array([0x7F80], np.uint16), np.array([0], np.uint16))[0]
        == 0x7FFF
    )


def test_a_nan_of_f64_keeps_its_payload() -> None:
    # As an H200 does it: the second operand's, of fma then the addend's, of div the first's.
    first, second, third, two, infinity, zero = (
        np.array([bits], np.uint64)
        for bits in (
            0x7FF8000000000011, 0x7FF0000000000022, 0xFFF8000000000033, 0x4000000000000000,
            0x7FF0000000000000, 0,
        )
    )  # fmt: skip
    assert arithmetic.add("f64", first, second)[0] == 0x7FF8000000000022
    assert arithmetic.subtract("f64", first, third)[0] == 0xFFF8000000000033
    assert arithmetic.multiply("f64", first, two)[0] == 0x7FF8000000000011
    assert arithmetic.divide("f64", first, third)[0] == 0x7FF8000000000011
    assert arithmetic.add("f64", infinity, infinity ^ np.uint64(1 << 63))[0] == 0xFFF8000000000000
    assert fma("f64", first, two, third)[0] == 0xFFF8000000000033
    assert fma("f64", zero, infinity, two)[0] == 0xFFF8000000000000
    assert extremum("f64", first, second, largest=True)[0] == 0x7FF8000000000022


def test_what_is_subnormal_after_rounding_is_flushed() -> None:
    # -(1 - 2^-24) times the least normal number: to nearest that is normal again. From an H200.
    a, b = np.array([0x00800000], np.uint32), np.array([0xBF7FFFFF], np.uint32)
    assert arithmetic.multiply("f32", a, b)[0] == 0x80800000
    assert arithmetic.multiply("f32", a, b, ftz=True)[0] == 0x80000000
    assert arithmetic.multiply("f32", a, b, rounding="rm", ftz=True)[0] == 0x80000000
    half = (np.array([x], np.uint16) for x in (0x8400, 0xBBFF, 0x03FE))
    assert fma("f16", *half, ftz=True)[0] == 0
    # But not where rounding with an endless exponent reaches the least normal number.
    more = [np.array([x], np.uint32) for x in (0x00800000, 0x80800001, 0x00800000)]
    assert fma("f32", *more, ftz=True)[0] == 0x00800000
    assert fma("f32", *more, rounding="rz", ftz=True)[0] == 0
    x, y = np.array([0x3FFFFFFF], np.uint32), np.array([0xFF000000], np.uint32)
    assert arithmetic.divide("f32", x, y, ftz=True)[0] == 0x80000000


def test_an_exact_zero_has_the_sign_of_its_rounding() -> None:
    one, minus = np.array([0x3F800000], np.uint32), np.array([0xBF800000], np.uint32)
    assert arithmetic.add("f32", one, minus)[0] == 0
    assert arithmetic.add("f32", one, minus, rounding="rm")[0] == 0x80000000
    assert fma("f32", one, minus, one, rounding="rm")[0] == 0x80000000
    assert fma("f32", one, minus, one, rounding="rp")[0] == 0
    plus, least = np.array([0], np.uint64), np.array([1], np.uint64)
    minus64 = np.array([1 << 63], np.uint64)
    assert arithmetic.add("f64", plus, minus64, rounding="rm")[0] == 1 << 63
    assert arithmetic.add("f64", plus, plus, rounding="rm")[0] == 0
    # Not zero, only too small.
    assert fma("f64", least, least, minus64, rounding="rm")[0] == 0
    assert fma("f64", least, least, minus64, rounding="rp")[0] == 1


def test_flushing_keeps_the_sign() -> None:
    bits = np.array([1, 0x80000001, 0x007FFFFF, 0x00800000, 0x7F800000, 0x7FC00000], np.uint32)
    assert flush(bits, "f32").tolist() == [0, 0x80000000, 0, 0x00800000, 0x7F800000, 0x7FC00000]
    small = np.array([0x00800000], np.uint32)
    half = np.array([0x3F000000], np.uint32)
    assert arithmetic.multiply("f32", small, half)[0] == 0x00400000
    assert arithmetic.multiply("f32", small, half, ftz=True)[0] == 0


def test_minimum_and_maximum() -> None:
    def f32(*values: float) -> list[np.ndarray[Any, Any]]:
        return [np.array([v], np.float32).view(np.uint32) for v in values]

    def value(bits: np.ndarray[Any, Any]) -> float:
        return float(bits.view(np.float32)[0])

    assert value(extremum("f32", *f32(-3.0, 2.0), largest=False)) == -3.0
    assert extremum("f32", *f32(0.0, -0.0), largest=False)[0] == 0x80000000
    assert extremum("f32", *f32(-0.0, 0.0), largest=True)[0] == 0
    assert value(extremum("f32", *f32(math.nan, 2.0), largest=True)) == 2.0
    assert extremum("f32", *f32(math.nan, 2.0), largest=True, nan=True)[0] == 0x7FFFFFFF
    assert extremum("f32", *f32(math.nan, math.nan), largest=True)[0] == 0x7FFFFFFF
    assert value(extremum("f32", *f32(-3.0, 2.0), largest=True, xorsign=True)) == -3.0
    assert value(extremum("f32", *f32(-3.0, -2.0), largest=False, xorsign=True)) == 2.0
    assert value(extremum("f32", *f32(1.0, math.nan, -5.0), largest=False)) == -5.0


def test_packed_parts_are_computed_apart() -> None:
    rng = np.random.default_rng(3)
    a, b, c = (rng.integers(0, 2**32, (4, 7), dtype=np.uint32) for _ in range(3))

    def each(
        x: np.ndarray[Any, Any], y: np.ndarray[Any, Any], z: np.ndarray[Any, Any]
    ) -> np.ndarray[Any, Any]:
        return fma("bf16", x, y, z)

    whole = packed(each, 16, a, b, c)
    for shift in (0, 16):
        low = [((x >> shift) & 0xFFFF).astype(np.uint16) for x in (a, b, c)]
        assert np.array_equal((whole >> shift) & 0xFFFF, fma("bf16", *low))


def test_approximate_results_are_in_their_bands_and_special_values_right() -> None:
    values = np.array([0.0, -0.0, np.inf, -np.inf, 1.0, -1.0, 4.0], np.float32)
    bits = values.view(np.uint32)
    results = {
        f: approximate(f, "f32", bits).view(np.float32).tolist()
        for f, n in BANDS
        if (f, "f32") in BANDS and n == "f32" and f != "div"
    }
    assert results["rcp"][:4] == [np.inf, -np.inf, 0.0, -0.0]
    assert results["ex2"] == [1.0, 1.0, np.inf, 0.0, 2.0, 0.5, 16.0]
    assert results["lg2"][:3] == [-np.inf, -np.inf, np.inf]
    assert math.isnan(results["lg2"][5])
    assert results["tanh"][2:4] == [1.0, -1.0]
    assert math.isnan(results["sin"][2])
    assert results["rsqrt"][:3] == [np.inf, -np.inf, 0.0]
    assert approximate("ex2", "f16", np.array([0x4000], np.uint16))[0] == 0x4400
    with pytest.raises(KeyError, match=r"sin\.approx\.f16"):
        approximate("sin", "f16", np.array([0], np.uint16))


def test_approximate_division_at_its_edges() -> None:
    one, huge, infinity = (
        np.array([x], np.float32).view(np.uint32) for x in (1.0, 2.0**127, np.inf)
    )
    assert approximate_divide(one, huge, full=False)[0] == 0
    assert approximate_divide(one, huge, full=True).view(np.float32)[0] == 2.0**-127
    assert np.isnan(approximate_divide(infinity, huge, full=False).view(np.float32)[0])


def test_dot_products() -> None:
    rng = np.random.default_rng(4)
    a, b, c = (rng.integers(0, 2**32, 50, dtype=np.uint32) for _ in range(3))
    for x, y, z, four, two in zip(
        a,
        b,
        c,
        dp4a(a, b, c, a_signed=True, b_signed=False),
        dp2a(a, b, c, a_signed=False, b_signed=True, high=True),
        strict=True,
    ):
        signed = int(x).to_bytes(4, "little"), int(y).to_bytes(4, "little")
        total = int(z) + sum((p - 256 if p > 127 else p) * q for p, q in zip(*signed, strict=True))
        assert int(four) == total % 2**32
        halves = [int(x) & 0xFFFF, int(x) >> 16]
        own = [p - 256 if p > 127 else p for p in signed[1][2:]]
        assert int(two) == (int(z) + sum(p * q for p, q in zip(halves, own, strict=True))) % 2**32


def test_large_arrays_are_computed_in_blocks_and_alike() -> None:
    rng = np.random.default_rng(12)
    a = rng.integers(0, 2**32, (5, 20_011), dtype=np.uint32)
    b = rng.integers(0, 2**32, (5, 1), dtype=np.uint32)
    assert a.size > 3 * arithmetic.BLOCK
    whole = fma("f32", a, b, a)
    assert whole.shape == a.shape
    for row in range(5):
        assert np.array_equal(whole[row], fma("f32", a[row], b[row], a[row]))
