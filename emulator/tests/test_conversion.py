"""`cvt` against Python's integers and fractions."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from exact_rounding import TOWARDS, rounded

from gpu_emulator.numbers.conversion import convert, convert_randomly, integer_type, pack_integers
from gpu_emulator.numbers.formats import from_float64, to_float64

INTEGERS = ("s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64")
ROUND = {f"{mode}i": towards for mode, towards in TOWARDS.items()}


def limits(name: str) -> tuple[int, int]:
    width = int(name[1:])
    return (
        (-(1 << (width - 1)), (1 << (width - 1)) - 1) if name[0] == "s" else (0, (1 << width) - 1)
    )


def as_python(bits: np.ndarray[Any, Any], name: str) -> list[int]:
    low, _ = limits(name)
    width = int(name[1:])
    return [int(x) - (1 << width) * (low < 0 and bool(int(x) >> (width - 1))) for x in bits]


@pytest.mark.parametrize("to", INTEGERS)
@pytest.mark.parametrize("source", INTEGERS)
def test_between_integers(to: str, source: str) -> None:
    rng = np.random.default_rng(1)
    bits = rng.integers(0, 2**63, 60, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    bits = np.concatenate([bits, np.array([0, 127, 128, 255, 2**31 - 1, 2**31, 2**63], np.uint64)])
    own = bits.astype(f"u{int(source[1:]) // 8}")
    values = as_python(own, source)
    low, high = limits(to)
    kept = as_python(convert(bits, to, source), to)
    clamped = as_python(convert(bits, to, source, sat=True), to)
    for value, wrapped, bounded in zip(values, kept, clamped, strict=True):
        assert (value - wrapped) % (1 << int(to[1:])) == 0
        assert low <= wrapped <= high
        assert bounded == min(max(value, low), high)


@pytest.mark.parametrize("to", INTEGERS)
@pytest.mark.parametrize("source", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("mode", ROUND)
def test_from_floating_point_to_integers(to: str, source: str, mode: str) -> None:
    rng = np.random.default_rng(2)
    width = 16 if source.endswith("16") else int(source[1:])
    bits = rng.integers(0, 2**width - 1, 60, dtype=np.uint64, endpoint=True).astype(
        f"u{width // 8}"
    )
    near = np.array(
        [0.5, 1.5, -0.5, -1.5, 2.5, 127.5, 2.0**31, -(2.0**31), 2.0**63, 2.0**64, np.inf, -np.inf]
    )
    bits = np.concatenate([bits, from_float64(near, source)])
    values = to_float64(bits, source)
    low, high = limits(to)
    for value, result in zip(
        values, as_python(convert(bits, to, source, rounding=mode), to), strict=True
    ):
        if math.isnan(value):
            wide = source == "f64" or to.endswith("64")
            pattern = (1 << (int(to[1:]) - 1)) if wide else 0
            assert result % (1 << int(to[1:])) == pattern
        elif math.isinf(value):
            assert result == (high if value > 0 else low)
        else:
            assert result == min(max(ROUND[mode](value), low), high)


@pytest.mark.parametrize("source", ["s64", "u64", "s32", "u32", "s8"])
@pytest.mark.parametrize("to", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_from_integers_to_floating_point(source: str, to: str, mode: str) -> None:
    rng = np.random.default_rng(3)
    bits = rng.integers(0, 2**64 - 1, 80, dtype=np.uint64, endpoint=True) >> rng.integers(
        0, 60, 80, dtype=np.uint64
    )
    own = bits.astype(f"u{int(source[1:]) // 8}")
    results = to_float64(convert(bits, to, source, rounding=mode), to)
    for value, result in zip(as_python(own, source), results, strict=True):
        assert result == rounded(Fraction(value), to, mode)


def test_integral_values_stay_floating_point() -> None:
    bits = np.array([2.5, -2.5, 1e30], np.float32).view(np.uint32)
    assert convert(bits, "f32", "f32", rounding="rni").view(np.float32).tolist() == [
        2.0,
        -2.0,
        np.float32(1e30),
    ]
    small = np.array([1], np.uint32)
    assert convert(small, "s32", "f32", rounding="rpi")[0] == 1
    assert convert(small, "s32", "f32", rounding="rpi", ftz=True)[0] == 0


def test_tf32_has_ten_bits() -> None:
    bits = np.array([0x3F801000, 0x3F800FFF, 0xBF801000], np.uint32)
    assert convert(bits, "tf32", "f32", rounding="rna").tolist() == [
        0x3F802000,
        0x3F800000,
        0xBF802000,
    ]
    assert convert(bits, "tf32", "f32", rounding="rn").tolist() == [
        0x3F800000,
        0x3F800000,
        0xBF800000,
    ]
    assert convert(bits, "tf32", "f32", rounding="rz").tolist() == [
        0x3F800000,
        0x3F800000,
        0xBF800000,
    ]


def test_what_becomes_of_a_nan() -> None:
    # As an H200 does it.
    single = np.array([0x7F800001, 0xFFC01234], np.uint32)
    wide = convert(single, "f64", "f32")
    assert wide.tolist() == [0x7FF8000020000000, 0xFFF8024680000000]
    double = np.array([0x7FF0000000000001, 0xFFF7FFFFFFFFFFFF], np.uint64)
    assert convert(double, "f32", "f64", rounding="rn").tolist() == [0x7FC00000, 0xFFFFFFFF]
    assert convert(double, "f16", "f64", rounding="rn").tolist() == [0x7E00, 0xFFFF]
    assert convert(np.array([0x7F81], np.uint16), "f32", "bf16").tolist() == [0x7F810000]
    assert convert(np.array([0x7C01], np.uint16), "f32", "f16").tolist() == [0x7FFFFFFF]
    assert convert(single, "tf32", "f32", rounding="rn").tolist() == [0x7FFFE000, 0x7FFFE000]
    assert convert(single, "tf32", "f32", rounding="rna").tolist() == [0x7F800000, 0xFFC00000]
    assert convert(single, "bf16", "f32", rounding="rn").tolist() == [0x7FFF, 0x7FFF]


def test_random_rounding_goes_up_as_often_as_its_fraction() -> None:
    value = np.float32(1.0) + np.float32(2.0**-10) * np.float32(0.25)
    bits = np.full(1 << 13, value, np.float32).view(np.uint32)
    result = convert_randomly(bits, "f16", np.arange(1 << 13, dtype=np.uint32))
    assert set(result.tolist()) == {0x3C00, 0x3C01}
    assert (result == 0x3C01).mean() == 0.25


def test_packing_integers() -> None:
    a, b = (np.array([x], np.int32).view(np.uint32) for x in (300, -5))
    c = np.array([0xAABB], np.uint32)
    assert pack_integers(a, b, c, to="u8")[0] == 0xAABBFF00
    assert pack_integers(a, b, c, to="s8")[0] == 0xAABB7FFB
    assert pack_integers(a, b, None, to="s16")[0] == 0x012CFFFB


def test_two_constants_are_packed_above_the_register_of_each_lane() -> None:
    first, second = (np.array([[x]], np.uint32) for x in (0x33800000, 3))
    lanes = np.array([[0xAABB, 0x11]], np.uint32)
    assert pack_integers(first, second, lanes, to="s4").tolist() == [[0xAABB73, 0x1173]]


def test_names_that_are_no_integers() -> None:
    assert integer_type("f32") is None
    assert integer_type("bf16") is None
    assert integer_type("b16") == np.dtype(np.uint16)
