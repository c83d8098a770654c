"""Floating-point instructions in programs: results by numpy, or by exact fractions."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from programs import apply

RANDOM = np.random.default_rng(7)
SPECIAL = np.array(
    [0.0, -0.0, 1.0, -1.0, 1.5, np.inf, -np.inf, np.nan, 1e-45, -1e-40, 3.4e38, -3.4e38, 2.0**-126],
    dtype="f4",
)


def pairs() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    left = np.concatenate([np.repeat(SPECIAL, len(SPECIAL)), RANDOM.standard_normal(87)])
    right = np.concatenate([np.tile(SPECIAL, len(SPECIAL)), RANDOM.standard_normal(87)])
    return left.astype("f4"), right.astype("f4")


A, B = pairs()


def f32(values: NDArray[np.generic]) -> tuple[str, NDArray[np.generic]]:
    return "b32", values.astype("f4").view("u4")


def same(found: NDArray[np.generic], wanted: NDArray[np.generic]) -> None:
    """Equal bit by bit, but for NaN, which is any."""
    got = found.view(wanted.dtype)
    number = ~np.isnan(wanted.astype("f8"))
    assert np.array_equal(np.isnan(got.astype("f8")), ~number)
    assert np.array_equal(
        got[number].view(f"u{got.itemsize}"), wanted[number].view(f"u{got.itemsize}")
    )


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    ("opcode", "function"),
    [
        ("add.f32", np.add), ("add.rn.f32", np.add), ("sub.f32", np.subtract),
        ("mul.rn.f32", np.multiply), ("div.rn.f32", np.divide),
    ],
)  # fmt: skip
def test_arithmetic_of_two(opcode: str, function: np.ufunc) -> None:
    same(apply(f"{opcode} $0, $1, $2;", "b32", f32(A), f32(B)), function(A, B))


def test_every_nan_is_the_canonical_one() -> None:
    found = apply("add.f32 $0, $1, $2;", "b32", f32(np.array([np.inf])), f32(np.array([-np.inf])))
    assert found.tolist() == [0x7FFFFFFF]


def test_fma_rounds_once() -> None:
    a, b, c = (RANDOM.standard_normal(256).astype("f4") for _ in range(3))
    # These are rounded twice if computed in float64: the sum lies next to a middle.
    a[0], b[0], c[0] = 1 + 2.0**-12, 1 + 2.0**-12, 2.0**-60
    a[1], b[1], c[1] = 1 + 2.0**-12, 1 + 2.0**-12, -(2.0**-60)
    found = apply("fma.rn.f32 $0, $1, $2, $3;", "b32", f32(a), f32(b), f32(c)).view("f4")
    for x, y, z, got in zip(a.tolist(), b.tolist(), c.tolist(), found, strict=True):
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        error = abs(Fraction(float(got)) - exact)
        neighbours = (np.nextafter(got, np.float32(s * np.inf)) for s in (1, -1))
        assert all(error <= abs(Fraction(float(each)) - exact) for each in neighbours)
    naive = (a.astype("f8") * b + c).astype("f4")
    assert found[0] != naive[0] or found[1] != naive[1]


def test_extrema_prefer_numbers_and_order_zeros() -> None:
    found = apply("max.f32 $0, $1, $2;", "b32", f32(A), f32(B)).view("f4")
    for x, y, got in zip(A, B, found, strict=True):
        if np.isnan(x) and np.isnan(y):
            assert np.isnan(got)
        elif np.isnan(x) or np.isnan(y):
            assert got == (y if np.isnan(x) else x)
        else:
            assert got == max(x, y)
            assert x != 0 or y != 0 or np.signbit(got) == (np.signbit(x) and np.signbit(y))
    assert np.isnan(
        apply("min.NaN.f32 $0, $1, $2;", "b32", f32(np.array([np.nan])), f32(np.array([1.0])))
        .view("f4")
    ).all()  # fmt: skip


def test_flushing() -> None:
    tiny = np.array([1e-40, -1e-40, 1e-38], "f4")
    found = apply("add.ftz.f32 $0, $1, $2;", "b32", f32(tiny), f32(np.zeros(3)))
    assert found.view("f4").tolist() == [0.0, 0.0, 0.0]
    assert apply("add.f32 $0, $1, $2;", "b32", f32(tiny), f32(np.zeros(3))).view("f4")[0] != 0


def test_a_wide_subnormal_is_flushed_where_a_bf16_becomes_an_f32() -> None:
    tiny = "b16", np.array([0x0001, 0x8001, 0x0080, 0x7F80], "u2")
    assert apply("cvt.f32.bf16 $0, $1;", "b32", tiny).tolist() == [
        0x10000, 0x80010000, 0x800000, 0x7F800000,
    ]  # fmt: skip
    assert apply("cvt.ftz.f32.bf16 $0, $1;", "b32", tiny).tolist() == [
        0, 0x80000000, 0x800000, 0x7F800000,
    ]  # fmt: skip


def test_zero_is_a_normal_number() -> None:
    values = f32(np.array([0.0, -0.0, 1.0, 1e-45, np.inf, np.nan]))
    assert apply("testp.normal.f32 $0, $1;", "pred", values).tolist() == [1, 1, 1, 0, 0, 0]
    assert apply("testp.subnormal.f32 $0, $1;", "pred", values).tolist() == [0, 0, 0, 1, 0, 0]


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize("operation", ["add", "sub", "mul"])
def test_two_halves_at_once(name: str, operation: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name, np.float16))
    kind = {"float16": "f16x2", "bfloat16": "bf16x2"}[name]
    a, b = (RANDOM.standard_normal(64).astype(dtype) for _ in range(2))
    found = apply(
        f"{operation}.{kind} $0, $1, $2;", "b32", ("b32", a.view("u4")), ("b32", b.view("u4"))
    )
    function = {"add": np.add, "sub": np.subtract, "mul": np.multiply}[operation]
    wanted = function(a.astype("f8"), b.astype("f8")).astype(dtype)
    assert np.array_equal(found.view(dtype), wanted)


@pytest.mark.parametrize(
    ("function", "opcode", "ulps"),
    [
        (np.exp2, "ex2.approx.f32", 2), (np.log2, "lg2.approx.f32", 4),
        (np.sqrt, "sqrt.approx.f32", 2), (np.reciprocal, "rcp.approx.ftz.f32", 2),
        (np.sin, "sin.approx.f32", 8), (np.cos, "cos.approx.f32", 8),
        (np.tanh, "tanh.approx.f32", 1 << 13),
    ],
)  # fmt: skip
def test_approximations(function: np.ufunc, opcode: str, ulps: int) -> None:
    values = RANDOM.uniform(0.5, 2.0, 96).astype("f4")
    found = apply(f"{opcode} $0, $1;", "b32", f32(values)).view("f4")
    wanted = function(values.astype("f8"))
    assert np.abs(found - wanted).max() <= ulps * 2.0**-23


@pytest.mark.parametrize(
    ("opcode", "source", "result", "values", "wanted"),
    [
        ("cvt.rni.s32.f32", "f4", "b32", [2.5, 3.5, -2.5, 1e20, -1e20, np.nan],
         [2, 4, -2, 2**31 - 1, -(2**31), 0]),
        ("cvt.rzi.u32.f32", "f4", "b32", [2.9, -1.0, 5e9], [2, 0, 2**32 - 1]),
        ("cvt.rn.f32.s32", "i4", "b32", [1, -7, 16777217], [1.0, -7.0, 16777216.0]),
        ("cvt.f32.bf16", "u2", "b32", [0x3F80, 0xC000, 0x7F80], [1.0, -2.0, np.inf]),
        ("cvt.u32.u8", "u2", "b32", [0x1FF, 0x80], [0xFF, 0x80]),
        ("cvt.s32.s8", "u2", "b32", [0x1FF, 0x80], [-1, -128]),
        ("cvt.s64.s32", "i4", "b64", [-5, 7], [-5, 7]),
        ("cvt.u64.u32", "u4", "b64", [2**32 - 5], [2**32 - 5]),
        ("cvt.sat.u8.s32", "i4", "b16", [-5, 300, 17], [0, 255, 17]),
        ("cvt.rn.bf16.f32", "f4", "b16", [1.00390625, 1.01171875], [0x3F80, 0x3F82]),
        ("cvt.rn.f16.f32", "f4", "b16", [65520.0, 1.0, -2.0], [0x7C00, 0x3C00, 0xC000]),
        ("cvt.rna.tf32.f32", "f4", "b32", [1 + 2.0**-11], [1 + 2.0**-10]),
    ],
)  # fmt: skip
def test_conversions(
    opcode: str, source: str, result: str, values: list[float], wanted: list[float]
) -> None:
    given = np.array(values, source)
    bits = f"b{given.itemsize * 8}"
    found = apply(f"{opcode} $0, $1;", result, (bits, given.view(f"u{given.itemsize}")))
    to = opcode.split(".")[-2]
    if to.startswith(("s", "u")) and result != "b16":
        view = {"s": "i", "u": "u"}[to[0]] + str(found.itemsize)
    else:
        view = "f4" if to in ("f32", "tf32") else "u2"
    assert found.view(view).tolist() == wanted


def test_pairs_have_the_first_operand_above() -> None:
    found = apply(
        "cvt.rn.bf16x2.f32 $0, $1, $2;", "b32", f32(np.array([1.0])), f32(np.array([-2.0]))
    )
    assert found.tolist() == [0x3F80C000]


@pytest.mark.parametrize(
    ("order", "wanted"),
    [("lt", 0), ("ltu", 1), ("ne", 0), ("neu", 1), ("num", 0), ("nan", 1), ("eq", 0), ("equ", 1)],
)
def test_comparisons_with_a_nan(order: str, wanted: int) -> None:
    one, lost = f32(np.array([1.0])), f32(np.array([np.nan]))
    assert apply(f"setp.{order}.f32 $0, $1, $2;", "pred", one, lost).tolist() == [wanted]
