"""Floating-point arithmetic on bits, with one rounding, as PTX instructions do it.

Registers come and go as unsigned arrays of any shape: uint16 for f16 and bf16, uint32 for f32,
uint64 for f64. Sources: PTX ISA 9.7.3 (f32, f64), 9.7.4 (half precision), 9.7.5 (mixed).

How each is exact: a product of two f32 fits in float64; a sum of two float64 is rounded to odd
(`odd_sum`), so that the rounding to the format that follows is the only one; a float64 quotient
or root carries more than twice the bits of an f32, so that rounding it again is innocent
(Figueroa, "When is double rounding innocuous?", 1995).

f64: numpy's own operations round to nearest even. The other directions are rare and go through
Python's fractions one by one; `fma` adds the error terms of the product and of two sums (Dekker;
Knuth; Boldo and Melquiond 2008), or goes through fractions where a term could leave the normal
range. A NaN keeps its sign and payload and becomes quiet; which of several survives is not
specified: here as an H200 does it, the second factor, then the addend, then the first operand (of a
division the dividend first). A NaN that numbers give is 0xfff8000000000000.

Approximate instructions (PTX ISA 9.7.3.9 ff. and 9.7.4) give the correctly rounded value. No bit
pattern is specified but those of special values: hardware may use a band around the value.

`dp4a` and `dp2a`: dot products with a 32-bit accumulator (PTX ISA 9.7.1.23, 9.7.1.24).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from typing import TypedDict, Unpack

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from gpu_emulator.numbers.formats import (
    FORMATS,
    Bits,
    Float64,
    canonical_nan,
    from_float64,
    odd_sum,
    round_integral,
    to_float32,
    to_float64,
)

BLOCK = 1 << 13
"""Elements at once in what takes many operations: the arrays between them stay in the cache."""


def in_blocks(operation: Callable[..., Bits], *operands: Bits) -> Bits:
    """Apply an operation on elements to large arrays, `BLOCK` elements at a time."""
    whole = np.broadcast_arrays(*operands)
    flat = [operand.reshape(-1) for operand in whole]
    parts = [
        operation(*(operand[start : start + BLOCK] for operand in flat))
        for start in range(0, flat[0].size, BLOCK)
    ]
    return np.concatenate(parts).reshape(whole[0].shape)


_LOW, _HIGH = 2.0**-400, 2.0**400
"""Operands between these leave every error term of an fma normal."""
_TO_WHOLE: dict[str, Callable[[Fraction], int]] = {
    "rn": round, "rz": math.trunc, "rm": math.floor, "rp": math.ceil,
}  # fmt: skip


def _quiet(bits: Bits) -> Bits:
    """A NaN as a quiet NaN with the same sign and payload."""
    return bits | np.uint64(0x0008_0000_0000_0000)


def _bits64(values: Float64, *operands: Bits) -> Bits:
    """Results as bits; a NaN is that of the first operand that is one."""
    nan = np.isnan(values)
    bits: Bits = np.ascontiguousarray(values).view(np.uint64).reshape(values.shape)
    if not nan.any():
        return bits
    result = np.where(nan, np.uint64(canonical_nan("f64")), bits)
    for operand in reversed(operands):
        result = np.where(nan & np.isnan(to_float64(operand, "f64")), _quiet(operand), result)
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


def _binary64(operation: np.ufunc, a: Bits, b: Bits, rounding: str) -> Bits:
    x, y = to_float64(a, "f64"), to_float64(b, "f64")
    result = operation(x, y)
    if rounding != "rn":
        sums, exact = operation is np.add, _EXACT[operation]
        result = _through_fractions(result, exact, rounding, x, y, sums=sums)
    return _bits64(result, *((a, b) if operation is np.divide else (b, a)))


def _root64(a: Bits, rounding: str) -> Bits:
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
    return _bits64(root, a)


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


def _fma64(a: Bits, b: Bits, c: Bits, rounding: str) -> Bits:
    x, y, z = np.broadcast_arrays(*(to_float64(operand, "f64") for operand in (a, b, c)))
    product = x * y
    # A finite product that overflows is not an infinity: it loses against an infinite addend.
    finite = np.isfinite(x) & np.isfinite(y)
    plain = np.where(finite & ~np.isfinite(z), z, product + z)

    def exact(p: Fraction, q: Fraction, r: Fraction) -> Fraction:
        return p * q + r

    if rounding != "rn":
        result = _through_fractions(plain, exact, rounding, x, y, z, sums=True)
        return _bits64(result, b, c, a)
    safe = np.ones(plain.shape, dtype=bool)
    for operand in (x, y, z):
        magnitude = np.abs(operand)
        safe &= (magnitude >= _LOW) & (magnitude <= _HIGH)
    result = np.where(safe, _fma_nearest(x, y, z), plain)
    # Nothing to round where a factor is zero; an addend of zero leaves one rounding, numpy's.
    trivial = (
        (x == 0) | (y == 0) | ((z == 0) & (np.abs(product) > 2.0**-900) & np.isfinite(product))
    )
    doubtful = ~safe & ~trivial
    if doubtful.any():
        result[doubtful] = _through_fractions(
            plain[doubtful], exact, rounding, x[doubtful], y[doubtful], z[doubtful]
        )
    return _bits64(result, b, c, a)


def flush(bits: Bits, name: str) -> Bits:
    """Subnormal numbers as zero of the same sign (`.ftz`)."""
    form = FORMATS[name]
    kind = bits.dtype.type
    sign = kind(1 << form.sign_shift)
    exponent = ~sign & ~kind((1 << form.mantissa) - 1)
    return np.where((bits & exponent) == 0, bits & sign, bits)


class Modifiers(TypedDict, total=False):
    """What an opcode says of its result; the rounding is rn where it is not given."""

    rounding: str
    ftz: bool
    sat: bool
    relu: bool


def _flushed(name: str, how: Modifiers, *operands: Bits) -> Sequence[Bits]:
    return [flush(operand, name) for operand in operands] if how.get("ftz") else operands


def _finish(bits: Bits, name: str, how: Modifiers) -> Bits:
    """The bits of a rounded result; f64 has no `.ftz`."""
    if how.get("ftz") and name != "f64":
        bits = flush(bits, name)
    sat, relu = how.get("sat", False), how.get("relu", False)
    return from_float64(to_float64(bits, name), name, sat=sat, relu=relu) if sat or relu else bits


def flush_tiny(values: Float64, name: str, rounding: str) -> Float64:
    """Zero for exact values whose result would be subnormal, for `.ftz`.

    What counts is the value rounded to the precision of the format as if exponents had no end
    (tininess after rounding of IEEE 754). PTX leaves that open; an H200 does so.
    """
    form = FORMATS[name]
    small = np.abs(values) < 2.0**form.exponent_min
    if not small.any():
        return values
    unit = form.exponent_min - 1 - form.mantissa
    rounded = round_integral(np.ldexp(np.where(small, values, 0.0), -unit), rounding)
    tiny = small & (np.abs(rounded) < 2.0 ** (form.mantissa + 1))
    return np.where(tiny, np.copysign(0.0, values), values)


def settle(values: Float64, name: str, how: Modifiers) -> Bits:
    """Round exact values, or values rounded to odd, once, and apply `.ftz`, `.sat`, `.relu`."""
    rounding = how.get("rounding", "rn")
    if how.get("ftz"):
        values = flush_tiny(values, name, rounding)
    sat, relu = how.get("sat", False), how.get("relu", False)
    return from_float64(values, name, rounding, sat=sat, relu=relu)


def _narrow(value: NDArray[np.float32], name: str) -> Bits:
    """A float32 result as bits, every NaN the canonical one."""
    bits: Bits = value.view(np.uint32)
    nan = np.isnan(value)
    return np.where(nan, np.uint32(canonical_nan(name)), bits) if nan.any() else bits


def _zero_of_sum(a: Float64, b: Float64, total: Float64, rounding: str) -> Float64:
    """An exact zero from two numbers of opposite sign is -0 in `.rm`, +0 elsewhere."""
    if rounding != "rm":
        return total
    return np.where((total == 0) & (np.signbit(a) != np.signbit(b)), -0.0, total)


def add(name: str, a: Bits, b: Bits, **how: Unpack[Modifiers]) -> Bits:
    """`add{.rnd}{.ftz}{.sat}` on f16, bf16, f32 or f64."""
    rounding = how.get("rounding", "rn")
    a, b = _flushed(name, how, a, b)
    with np.errstate(all="ignore"):
        if name == "f32" and rounding == "rn":
            return _finish(_narrow(to_float32(a, name) + to_float32(b, name), name), name, how)
        if name == "f64":
            return _finish(_binary64(np.add, a, b, rounding), name, how)
        x, y = to_float64(a, name), to_float64(b, name)
        total = _zero_of_sum(x, y, odd_sum(x, y), rounding)
    return settle(total, name, how)


def negate(name: str, a: Bits) -> Bits:
    """The sign bit turned over, of NaN too."""
    return a ^ a.dtype.type(1 << FORMATS[name].sign_shift)


def subtract(name: str, a: Bits, b: Bits, **how: Unpack[Modifiers]) -> Bits:
    """`sub{.rnd}{.ftz}{.sat}`: a - b."""
    negative = negate(name, b)
    if name == "f64":
        # A NaN keeps its sign.
        negative = np.where(np.isnan(to_float64(b, name)), b, negative)
    return add(name, a, negative, **how)


def multiply(name: str, a: Bits, b: Bits, **how: Unpack[Modifiers]) -> Bits:
    """`mul{.rnd}{.ftz}{.sat}` on f16, bf16, f32 or f64."""
    rounding = how.get("rounding", "rn")
    a, b = _flushed(name, how, a, b)
    with np.errstate(all="ignore"):
        if name == "f32" and rounding == "rn" and not how.get("ftz"):
            return _finish(_narrow(to_float32(a, name) * to_float32(b, name), name), name, how)
        if name == "f64":
            return _finish(_binary64(np.multiply, a, b, rounding), name, how)
        product = to_float64(a, name) * to_float64(b, name)
    return settle(product, name, how)


def _nearly_sum(product: Float64, c: Float64) -> Float64:
    """Add so that rounding to the nearest f32 afterwards is the only rounding that counts.

    The float64 sum will do, except where it lies on the middle between two f32, or near the
    subnormal ones: there it is rounded to odd.
    """
    total = product + c
    halfway = (total.view(np.uint64) & np.uint64(0x1FFF_FFFF)) == np.uint64(0x1000_0000)
    doubtful = halfway | (np.abs(total) <= 2.0**-126)
    if doubtful.any():
        product, c = np.broadcast_arrays(product, c)
        total[doubtful] = odd_sum(product[doubtful], c[doubtful])
    return total


def fma(name: str, a: Bits, b: Bits, c: Bits, **how: Unpack[Modifiers]) -> Bits:
    """`fma.rnd{.ftz}{.sat}{.relu}`: a * b + c with infinite precision, rounded once."""
    if max(a.size, b.size, c.size) > BLOCK:
        return in_blocks(partial(fma, name, **how), a, b, c)
    rounding = how.get("rounding", "rn")
    a, b, c = _flushed(name, how, a, b, c)
    with np.errstate(all="ignore"):
        if name == "f64":
            return _finish(_fma64(a, b, c, rounding), name, how)
        product = np.atleast_1d(to_float64(a, name) * to_float64(b, name))
        addend = to_float64(c, name)
        if name == "f32" and rounding == "rn":
            total = _nearly_sum(product, addend)
        else:
            total = _zero_of_sum(product, addend, odd_sum(product, addend), rounding)
    total = total.reshape(np.broadcast_shapes(a.shape, b.shape, c.shape))
    return settle(total, name, how)


def divide(name: str, a: Bits, b: Bits, **how: Unpack[Modifiers]) -> Bits:
    """`div.rnd{.ftz}` on f32 or f64: IEEE 754, not the approximate one."""
    a, b = _flushed(name, how, a, b)
    with np.errstate(all="ignore"):
        if name == "f64":
            return _binary64(np.divide, a, b, how.get("rounding", "rn"))
        quotient = to_float64(a, name) / to_float64(b, name)
    return settle(quotient, name, how)


def square_root(name: str, a: Bits, **how: Unpack[Modifiers]) -> Bits:
    """`sqrt.rnd{.ftz}` on f32 or f64."""
    (a,) = _flushed(name, how, a)
    with np.errstate(all="ignore"):
        if name == "f64":
            return _root64(a, how.get("rounding", "rn"))
        root = np.sqrt(to_float64(a, name))
    return settle(root, name, how)


def reciprocal(name: str, a: Bits, **how: Unpack[Modifiers]) -> Bits:
    """`rcp.rnd{.ftz}` on f32 or f64."""
    return divide(name, np.broadcast_to(from_float64(np.array(1.0), name), a.shape), a, **how)


def extremum(
    name: str,
    a: Bits,
    b: Bits,
    *others: Bits,
    largest: bool,
    ftz: bool = False,
    nan: bool = False,
    xorsign: bool = False,
) -> Bits:
    """`min` or `max`, of two operands or three (PTX ISA 9.7.3.11 and 9.7.3.12).

    -0 is less than +0. A NaN loses against a number unless `nan` (`.NaN`) is set; two NaN give
    the canonical one (f64: the second). With `xorsign` the magnitudes compete, and the signs are
    multiplied.
    """
    form = FORMATS[name]
    operands = [flush(x, name) if ftz else x for x in (a, b, *others)]
    kind = a.dtype.type
    sign = kind(1 << form.sign_shift)
    signs = kind(0)
    if xorsign:
        signs = operands[0] & sign
        for operand in operands[1:]:
            signs = signs ^ (operand & sign)
        operands = [x & ~sign for x in operands]
    choose = _better32 if name == "f32" else _better
    best = operands[0]
    for operand in operands[1:]:
        best = choose(name, best, operand, largest=largest, nan=nan)
    if not xorsign:
        return best
    magnitude = best & ~sign
    infinity = kind(form.top + 1)
    return np.where(magnitude > infinity, best, magnitude | signs)


def _better32(name: str, a: Bits, b: Bits, *, largest: bool, nan: bool) -> Bits:
    """As `_better`, by the processor's own operations."""
    x, y = to_float32(a, name), to_float32(b, name)
    with np.errstate(all="ignore"):
        if nan:
            chosen = np.maximum(x, y) if largest else np.minimum(x, y)
        else:
            chosen = np.fmax(x, y) if largest else np.fmin(x, y)
    bits = _narrow(chosen, name)
    zero = (chosen == 0) & (x == y)
    if zero.any():
        # Which of two zeros comes out is the processor's choice, not ours.
        bits = np.where(zero, a & b if largest else a | b, bits)
    return bits


def _better(name: str, a: Bits, b: Bits, *, largest: bool, nan: bool) -> Bits:
    form = FORMATS[name]
    kind = a.dtype.type
    sign = kind(1 << form.sign_shift)
    infinity = kind(form.top + 1)
    # Codes with the sign turned into an order: -inf < ... < -0 < +0 < ... < inf.
    order_a = np.where(a & sign, ~a, a | sign)
    order_b = np.where(b & sign, ~b, b | sign)
    first = order_a >= order_b if largest else order_a <= order_b
    chosen = np.where(first, a, b)
    nan_a, nan_b = (a & ~sign) > infinity, (b & ~sign) > infinity
    if not (nan_a.any() or nan_b.any()):
        return chosen
    if not nan:
        chosen = np.where(nan_a, b, np.where(nan_b, a, chosen))
    lost = (nan_a | nan_b) if nan else (nan_a & nan_b)
    none = _quiet(b) if name == "f64" else kind(canonical_nan(name))
    return np.where(lost, none, chosen)


def packed(operation: Callable[..., Bits], width: int, *operands: Bits) -> Bits:
    """Apply an operation to each part of packed registers (f16x2, bf16x2, f32x2).

    `operation`: takes and returns unsigned arrays of one part. `width`: bits of one part; the
    registers are a whole number of parts wide. `operands`: unsigned registers of one type and
    shape. Returns registers as the operands.
    """
    part = np.dtype(f"u{width // 8}")
    registers = np.broadcast_arrays(*operands)
    whole = registers[0].dtype
    parts = [np.ascontiguousarray(r)[..., None].view(part) for r in registers]
    return np.ascontiguousarray(operation(*parts)).view(whole)[..., 0]


Change = Callable[..., Bits]
"""From what is there and the operands, in unsigned integers, to what is there afterwards."""


def combine(operation: str, kind: str, **how: Unpack[Modifiers]) -> Change:
    """What an atomic operation or a reduction makes of old bits and an operand's bits.

    `operation`: and, or, xor, exch, cas, inc, dec, add, min or max. `kind`: u8 to u64, s8 to s64, a
    floating-point format, or two of one in a register (`f16x2`).
    """
    if operation in _ON_BITS:
        return _ON_BITS[operation]
    if kind.endswith("x2"):
        return partial(packed, combine(operation, kind.removesuffix("x2")), 16)
    if kind[0] in "us":
        dtype = np.dtype(f"{'i' if kind[0] == 's' else 'u'}{int(kind[1:]) // 8}")
        integer = {"add": np.add, "min": np.minimum, "max": np.maximum}[operation]
        return lambda old, b: integer(old.view(dtype), b.view(dtype)).view(old.dtype)
    if operation == "add":
        return partial(add, kind, **how)
    return partial(extremum, kind, largest=operation == "max")


def _are_equal(a: Bits, b: Bits) -> Bits:
    """Bit by bit: 16 bytes are kept as a complex number."""
    if a.dtype.itemsize < 16:
        return np.equal(a, b)
    halves = [np.ascontiguousarray(value)[..., None].view(np.uint64) for value in (a, b)]
    return np.asarray(np.equal(*halves).all(axis=-1))


BITWISE: dict[str, Callable[[Bits, Bits], Bits]] = {
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip
_ON_BITS: dict[str, Change] = {
    **BITWISE,
    "exch": lambda _, b: b, "cas": lambda old, b, c: np.where(_are_equal(old, b), c, old),
    "inc": lambda old, b: np.where(old >= b, old.dtype.type(0), old + old.dtype.type(1)),
    "dec": lambda old, b: np.where((old == 0) | (old > b), b, old - old.dtype.type(1)),
}  # fmt: skip


def _root(x: Float64) -> Float64:
    return 1.0 / np.sqrt(x)


_FUNCTIONS: dict[str, Callable[[Float64], Float64]] = {
    "rcp": np.reciprocal, "sqrt": np.sqrt, "rsqrt": _root, "sin": np.sin, "cos": np.cos,
    "lg2": np.log2, "ex2": np.exp2, "tanh": np.tanh,
}  # fmt: skip


_APPROXIMATE = {
    "f32": _FUNCTIONS.keys(), "f16": {"tanh", "ex2"}, "bf16": {"tanh", "ex2"},
    "f64": {"rcp", "rsqrt"},
}  # fmt: skip


def approximate(function: str, name: str, a: Bits, *, ftz: bool = False) -> Bits:
    """`function.approx{.ftz}.name`, rounded to nearest.

    `function`: rcp, sqrt, rsqrt, sin, cos, lg2, ex2 or tanh. `name`: f32, f16, bf16; f64 for rcp
    and rsqrt, which look at the upper 32 bits alone and return 32 zeros below them. `a`: registers,
    any shape. `ftz`: subnormal sources and results become zero. Raises `KeyError`: there is no such
    instruction.
    """
    if function not in _APPROXIMATE[name]:
        raise KeyError(f"{function}.approx.{name}")
    if name == "f64":
        upper = np.uint64(0xFFFF_FFFF_0000_0000)
        value = to_float64(flush(a & upper, "f64"), "f64")
        with np.errstate(all="ignore"):
            result = from_float64(_FUNCTIONS[function](value), "f64")
        return flush(result & upper, "f64")
    if ftz:
        a = flush(a, name)
    with np.errstate(all="ignore"):
        value = _FUNCTIONS[function](to_float64(a, name))
    return settle(value, name, {"ftz": ftz})


def inverse_root(a: Bits) -> Bits:
    """`rsqrt.approx.f64`, within 2^-52 or so of the value; subnormal numbers count."""
    with np.errstate(all="ignore"):
        return from_float64(_root(to_float64(a, "f64")), "f64")


def approximate_divide(a: Bits, b: Bits, *, full: bool, ftz: bool = False) -> Bits:
    """`div.approx{.ftz}.f32`, or `div.full{.ftz}.f32`.

    `div.approx` multiplies by a reciprocal: for |b| over 2^126 it returns zero, or NaN where a is
    infinite. `div.full` scales and holds everywhere.
    """
    if ftz:
        a, b = flush(a, "f32"), flush(b, "f32")
    x, y = to_float64(a, "f32"), to_float64(b, "f32")
    with np.errstate(all="ignore"):
        quotient = x / y
        if not full:
            large = (np.abs(y) > 2.0**126) & np.isfinite(y)
            lost = np.where(np.isinf(x), np.nan, np.copysign(0.0, x) * np.sign(y))
            quotient = np.where(large & ~np.isnan(x), lost, quotient)
    return settle(quotient, "f32", {"ftz": ftz})


COMPARE: dict[str, Callable[[Bits, Bits], Bits]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "f": lambda a, b: np.zeros((a + b).shape, np.bool_),
    "t": lambda a, b: np.ones((a + b).shape, np.bool_),
}  # fmt: skip
"""What compares numbers of one type."""
JOIN: dict[str, Callable[[Bits, Bits], Bits]] = {
    "and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor,
}  # fmt: skip
"""How a comparison and a predicate are joined."""


def compare_floats(order: str, *, ftz: bool = False) -> Callable[[Bits, Bits], Bits]:
    """What compares floats: where one is a NaN it holds with `u` behind the order alone.

    `num` and `nan`: whether neither is one, or one is. `ftz`: subnormal numbers count as zero.
    """

    def compare(a: Bits, b: Bits) -> Bits:
        if order in ("num", "nan"):
            lost = np.isnan(a) | np.isnan(b)
            return lost if order == "nan" else ~lost
        holds = COMPARE[order[:2]](a, b)
        if order.endswith("u"):
            return holds | np.isnan(a) | np.isnan(b)
        # numpy's `!=` says that a NaN differs from everything.
        return holds & ~(np.isnan(a) | np.isnan(b)) if order == "ne" else holds

    if ftz:
        return lambda a, b: compare(flushed_values(a), flushed_values(b))
    return COMPARE[order] if order in COMPARE and order != "ne" else compare


def flushed_values(a: Bits) -> Bits:
    """Numbers of a format of numpy's, subnormal ones as zero."""
    return np.where(np.abs(a) < np.finfo(a.dtype).tiny, a.dtype.type(0), a)


_OUT_OF_BOUNDS = np.uint16(0x7FF7)
"""The NaN that tensor copies put where there is nothing (an H200 does; of f16 and bf16 alike)."""


def fma_within_bounds(name: str, a: Bits, b: Bits, c: Bits, **how: Unpack[Modifiers]) -> Bits:
    """`fma.oob`: zero where a factor is what lies out of bounds."""
    lost = (a == _OUT_OF_BOUNDS) | (b == _OUT_OF_BOUNDS)
    return np.where(lost, np.uint16(0), fma(name, a, b, c, **how))


def halves_of(name: str, *registers: Bits) -> list[Bits]:
    """Values of both halves of packed registers, in one more dimension, the lower ones first."""
    dtype = np.dtype(np.float16 if name == "f16" else ml_dtypes.bfloat16)
    return [
        np.ascontiguousarray(words)[..., None].view(dtype)
        for words in np.broadcast_arrays(*registers)
    ]


def pair_of(high: Bits, low: Bits, width: int) -> Bits:
    """Two numbers of 4, 8 or 16 bits side by side, in a register of twice as many (8 at least)."""
    dtype = np.dtype(f"u{max(width // 4, 1)}")
    return (high.astype(dtype) << dtype.type(width)) | low.astype(dtype)


def _parts(register: Bits, width: int, *, signed: bool) -> Bits:
    """The parts of 32-bit registers in one more dimension, least significant first, as int64."""
    kind = np.dtype(f"{'i' if signed else 'u'}{width // 8}")
    words = np.ascontiguousarray(register.astype(np.uint32))[..., None]
    return words.view(kind).astype(np.int64)


def dp4a(a: Bits, b: Bits, c: Bits, *, a_signed: bool, b_signed: bool) -> Bits:
    """C plus the four products of bytes; wraps at 32 bits. uint32 registers, any shape."""
    products = _parts(a, 8, signed=a_signed) * _parts(b, 8, signed=b_signed)
    return ((c.astype(np.int64) + products.sum(axis=-1)) & 0xFFFF_FFFF).astype(np.uint32)


def dp2a(a: Bits, b: Bits, c: Bits, *, a_signed: bool, b_signed: bool, high: bool) -> Bits:
    """C plus two products: 16-bit halves of a, two bytes of b (the upper two where `high`)."""
    halves = _parts(a, 16, signed=a_signed)
    own = _parts(b, 8, signed=b_signed)[..., slice(2, 4) if high else slice(2)]
    return ((c.astype(np.int64) + (halves * own).sum(axis=-1)) & 0xFFFF_FFFF).astype(np.uint32)
