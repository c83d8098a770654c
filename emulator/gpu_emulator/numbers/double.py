"""f64 arithmetic rounded once, in each direction (PTX ISA 9.7.3).

numpy's own operations round to nearest even. What numpy lacks: the other directions, which are
rare and go through Python's fractions one by one; and `fma`, which adds the error terms of the
product and of two sums (Dekker; Knuth; Boldo and Melquiond 2008), or goes through fractions where
a term could leave the normal range.

A NaN keeps its sign and payload and becomes quiet; which of several survives is not specified:
here as an H200 does it, the second factor, then the addend, then the first operand (of a
division the dividend first). A NaN that numbers give is 0xfff8000000000000.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from gpu_emulator.numbers.formats import Bits, Float64, canonical_nan, odd_sum, to_float64

_LOW, _HIGH = 2.0**-400, 2.0**400
"""Operands between these leave every error term of an fma normal."""
_TO_WHOLE: dict[str, Callable[[Fraction], int]] = {
    "rn": round, "rz": math.trunc, "rm": math.floor, "rp": math.ceil,
}  # fmt: skip


def quiet(bits: Bits) -> Bits:
    """A NaN as a quiet NaN with the same sign and payload."""
    return bits | np.uint64(0x0008_0000_0000_0000)


def _bits(values: Float64, *operands: Bits) -> Bits:
    """Results as bits; a NaN is that of the first operand that is one."""
    nan = np.isnan(values)
    bits: Bits = np.ascontiguousarray(values).view(np.uint64).reshape(values.shape)
    if not nan.any():
        return bits
    result = np.where(nan, np.uint64(canonical_nan("f64")), bits)
    for operand in reversed(operands):
        result = np.where(nan & np.isnan(to_float64(operand, "f64")), quiet(operand), result)
    return result


def _round(value: Fraction, rounding: str) -> float:
    """A fraction that is not zero as a float64, rounded once, subnormal numbers and all."""
    exponent = abs(value.numerator).bit_length() - value.denominator.bit_length()
    if abs(value) < Fraction(2) ** exponent:
        exponent -= 1
    unit = max(exponent, -1022) - 52
    whole = _TO_WHOLE[rounding](value / Fraction(2) ** unit)
    sign = 1.0 if value > 0 else -1.0
    try:
        return math.copysign(math.ldexp(whole, unit), sign)
    except OverflowError:
        outward = rounding in ("rn", "rp" if value > 0 else "rm")
        return math.copysign(math.inf if outward else float(np.finfo(np.float64).max), sign)


def _through_fractions(
    nearest: Float64,
    exact: Callable[..., Fraction],
    rounding: str,
    *operands: Float64,
    sums: bool = False,
) -> Float64:
    """Round exact results one by one; where an operand is not finite, `nearest` is right.

    `sums`: an exact zero comes from numbers that cancel each other.
    """
    columns = [np.broadcast_to(x, nearest.shape).ravel() for x in operands]
    result: Float64 = nearest.ravel().copy()
    for place, row in enumerate(zip(*columns, strict=True)):
        if not all(math.isfinite(x) for x in row):
            continue
        try:
            value = exact(*(Fraction(float(x)) for x in row))
        except ZeroDivisionError:
            continue
        if value:
            result[place] = _round(value, rounding)
        elif sums and rounding == "rm":
            # -0 from terms of opposite sign; all but the last operand are factors.
            first, last = (math.copysign(1.0, math.prod(p)) for p in (row[:-1], row[-1:]))
            result[place] = 0.0 if first == last == 1.0 else -0.0
    return result.reshape(nearest.shape)


_EXACT: dict[np.ufunc, Callable[[Fraction, Fraction], Fraction]] = {
    np.add: operator.add, np.multiply: operator.mul, np.divide: operator.truediv,
}  # fmt: skip


def binary(operation: np.ufunc, a: Bits, b: Bits, rounding: str) -> Bits:
    """np.add, np.multiply or np.divide, rounded once."""
    x, y = to_float64(a, "f64"), to_float64(b, "f64")
    result = operation(x, y)
    if rounding != "rn":
        sums, exact = operation is np.add, _EXACT[operation]
        result = _through_fractions(result, exact, rounding, x, y, sums=sums)
    return _bits(result, *((a, b) if operation is np.divide else (b, a)))


def square_root(a: Bits, rounding: str) -> Bits:
    x = to_float64(a, "f64")
    root = np.sqrt(x)
    if rounding != "rn":
        # Scaled, so that squaring the root's fraction is cheap and its error has a sign.
        flat, result = x.ravel(), root.ravel().copy()
        for place in np.flatnonzero(np.isfinite(result) & (result != 0)):
            error = Fraction(float(flat[place])) - Fraction(float(result[place])) ** 2
            if error < 0 and rounding in ("rz", "rm"):
                result[place] = np.nextafter(result[place], 0.0)
            elif error > 0 and rounding == "rp":
                result[place] = np.nextafter(result[place], np.inf)
        root = result.reshape(root.shape)
    return _bits(root, a)


def _two_sum(a: Float64, b: Float64) -> tuple[Float64, Float64]:
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _halves(a: Float64) -> tuple[Float64, Float64]:
    big = a * 134217729.0  # 2^27 + 1: 26 bits each (Veltkamp)
    high = big - (big - a)
    return high, a - high


def _fma_nearest(a: Float64, b: Float64, c: Float64) -> Float64:
    product = a * b
    a1, a2 = _halves(a)
    b1, b2 = _halves(b)
    low = ((a1 * b1 - product) + a1 * b2 + a2 * b1) + a2 * b2
    first, first_error = _two_sum(c, low)
    high, high_error = _two_sum(product, first)
    return high + odd_sum(first_error, high_error)


def fma(a: Bits, b: Bits, c: Bits, rounding: str) -> Bits:
    """`fma.rnd.f64`: a * b + c, rounded once."""
    x, y, z = np.broadcast_arrays(*(to_float64(operand, "f64") for operand in (a, b, c)))
    product = x * y
    # A finite product that overflows is not an infinity: it loses against an infinite addend.
    finite = np.isfinite(x) & np.isfinite(y)
    plain = np.where(finite & ~np.isfinite(z), z, product + z)

    def exact(p: Fraction, q: Fraction, r: Fraction) -> Fraction:
        return p * q + r

    if rounding != "rn":
        result = _through_fractions(plain, exact, rounding, x, y, z, sums=True)
        return _bits(result, b, c, a)
    safe = np.ones(plain.shape, dtype=bool)
    for operand in (x, y, z):
        magnitude = np.abs(operand)
        safe &= (magnitude >= _LOW) & (magnitude <= _HIGH)
    result = np.where(safe, _fma_nearest(x, y, z), plain)
    # Nothing to round where a factor is zero; an addend of zero leaves one rounding, numpy's.
    trivial = (
        (x == 0) | (y == 0) | ((z == 0) & (np.abs(product) > 2.0**-900) & np.isfinite(product))
    )
    rest = ~safe & ~trivial
    if rest.any():
        result[rest] = _through_fractions(plain[rest], exact, rounding, x[rest], y[rest], z[rest])
    return _bits(result, b, c, a)
