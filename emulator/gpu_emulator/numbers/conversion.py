"""`cvt`: every pair of integer and floating-point types, with its rounding and saturation.

Source: PTX ISA 9.7.9.21 and 9.7.9.22 (`cvt`, `cvt.pack`). Elements come and go as unsigned
arrays of any shape; bits above the width of the source type do not count, and the result is as
wide as the destination type: sign extension into a wider register is the register's business.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from gpu_emulator.numbers.arithmetic import BLOCK, flush, flush_tiny, in_blocks, pair_of
from gpu_emulator.numbers.formats import (
    FORMATS,
    Bits,
    Float64,
    canonical_nan,
    from_float64,
    odd_sum,
    round_bits_to_bf16,
    round_integral,
    to_float32,
    to_float64,
)

_FLUSHED = ("f32",)
_PAYLOADS = {
    ("f64", "f32"), ("f64", "f16"), ("f64", "f64"), ("f32", "f64"), ("f16", "f64"), ("bf16", "f32"),
}  # fmt: skip
"""Conversions that keep the payload of a NaN; only bf16 to f32 leaves it signalling."""


def integer_type(name: str) -> np.dtype[np.signedinteger | np.unsignedinteger] | None:
    """The numpy type of s8 ... u64 (and of b8 ... b64, as unsigned); None for other names."""
    if name[:1] not in ("s", "u", "b") or not name[1:].isdigit():
        return None
    return np.dtype(f"{'i' if name[0] == 's' else 'u'}{int(name[1:]) // 8}")


def _integer_dtype(name: str) -> np.dtype[np.signedinteger | np.unsignedinteger]:
    kind = integer_type(name)
    assert kind is not None
    return kind


def _integers(bits: Bits, name: str) -> Bits:
    kind = _integer_dtype(name)
    return bits.astype(f"u{kind.itemsize}").view(kind)


def _unsigned(values: Bits) -> Bits:
    return values.view(np.dtype(f"u{values.dtype.itemsize}"))


def _between_integers(bits: Bits, to: str, source: str, *, sat: bool) -> Bits:
    values, kind = _integers(bits, source), _integer_dtype(to)
    if sat:
        limits, own = np.iinfo(kind), np.iinfo(values.dtype)
        low, high = max(limits.min, own.min), min(limits.max, own.max)
        values = np.clip(values, values.dtype.type(low), values.dtype.type(high))
    return _unsigned(values.astype(kind))


@np.errstate(all="ignore")
def _to_integer(values: Float64, to: str, source: str, rounding: str) -> Bits:
    """Floating point to integer: clamped to the range, NaN by width.

    NaN is zero, except that from f64 or to 64 bits it is the bit pattern 1 << (width - 1).
    """
    kind = _integer_dtype(to)
    limits = np.iinfo(kind)
    whole = round_integral(np.where(np.isnan(values), 0.0, values), rounding)
    # 2^63 and 2^64 are floats, the largest integers below them are not: compare, then cast.
    over, under = whole >= float(limits.max) + (limits.bits < 53), whole <= float(limits.min)
    inside = np.where(over | under, 0.0, whole)
    result = _unsigned(inside.astype(kind))
    unsigned = result.dtype.type
    mask = (1 << limits.bits) - 1
    result = np.where(over, unsigned(limits.max & mask), result)
    result = np.where(under, unsigned(limits.min & mask), result)
    wide = source == "f64" or limits.bits == 64
    nan = unsigned(1 << (limits.bits - 1) if wide else 0)
    return np.where(np.isnan(values), nan, result)


def _from_integer(bits: Bits, to: str, source: str, rounding: str) -> Bits:
    values = _integers(bits, source)
    if values.dtype.itemsize < 8:
        return from_float64(values.astype(np.float64), to, rounding)
    # 64 bits do not fit in a float64: the upper and the lower half do.
    upper, lower = values >> values.dtype.type(32), values & values.dtype.type(0xFFFF_FFFF)
    high, low = np.ldexp(upper.astype(np.float64), 32), lower.astype(np.float64)
    if to != "f64":
        return from_float64(odd_sum(high, low), to, rounding)
    nearest = high + low
    error = low - (nearest - high)
    if rounding in ("rm", "rz", "rp"):
        outward = (error > 0) if rounding == "rp" else (error < 0)
        if rounding == "rz":
            outward = (error != 0) & ((error < 0) == (nearest > 0))
        towards = {"rm": -np.inf, "rp": np.inf, "rz": 0.0}[rounding]
        nearest = np.where(outward, np.nextafter(nearest, towards), nearest)
    return from_float64(nearest, "f64")


def _quickly(bits: Bits, to: str, source: str, rounding: str | None) -> Bits | None:
    """The conversions that half precision needs at every step, in a few operations."""
    if to == "f32" and rounding is None:
        if source == "bf16":
            return bits.astype(np.uint32) << np.uint32(16)
        if source == "f16":
            wide = to_float32(bits, "f16")
            nan = np.isnan(wide)
            words: Bits = wide.view(np.uint32)
            return np.where(nan, np.uint32(canonical_nan("f32")), words) if nan.any() else words
    if (to, source, rounding) == ("bf16", "f32", "rn"):
        return round_bits_to_bf16(bits.astype(np.uint32, copy=False))
    return None


def convert(
    bits: Bits,
    to: str,
    source: str,
    *,
    rounding: str | None = None,
    ftz: bool = False,
    sat: bool = False,
    satfinite: bool = False,
    relu: bool = False,
) -> Bits:
    """Convert elements as `cvt{.rounding}{.ftz}{.sat|.satfinite}{.relu}.to.source` does.

    `bits`: elements of the source type in unsigned registers, any shape. `to`: destination type: an
    integer (`s32`), a float format, or `tf32`. `source`: source type. `rounding`: rn, rna, rz, rm,
    rp; with i (rni) for an integral result. None where the instruction needs none. `ftz`: subnormal
    f32 sources and results become zero. `sat`: clamp to the integer's range, or to 0.0 - 1.0.
    `satfinite`: as `from_float64`. `relu`: a negative result becomes +0. Returns unsigned elements
    of the destination's width. Raises `ValueError`: the rounding is unknown.
    """
    if not (ftz or sat or satfinite or relu):
        quick = _quickly(bits, to, source, rounding)
        if quick is not None:
            return quick
    if bits.size > BLOCK:
        flags: dict[str, Any] = {"ftz": ftz, "sat": sat, "satfinite": satfinite, "relu": relu}
        whole = partial(convert, to=to, source=source, rounding=rounding, **flags)
        return in_blocks(whole, bits)
    into_integer, from_integer = integer_type(to) is not None, integer_type(source) is not None
    if into_integer and from_integer:
        return _between_integers(bits, to, source, sat=sat)
    if from_integer:
        result = _from_integer(bits, to, source, rounding or "rn")
        return from_float64(to_float64(result, to), to, sat=True) if sat else result
    if ftz and source in _FLUSHED:
        # What flushes makes a NaN canonical, too.
        nan = np.isnan(to_float64(bits, source))
        bits = np.where(nan, bits.dtype.type(canonical_nan(source)), flush(bits, source))
    values = to_float64(bits, source)
    if into_integer:
        return _to_integer(values, to, source, rounding or "rzi")
    mode = rounding or "rn"
    if mode.endswith("i"):
        values, mode = round_integral(values, mode), "rn"
    if ftz and to in _FLUSHED:
        values = flush_tiny(values, to, mode)
    result = from_float64(values, to, mode, sat=sat, satfinite=satfinite, relu=relu)
    keeps_payload = (source, to) in _PAYLOADS or (to == "tf32" and mode == "rna")
    return _with_payloads(result, bits, values, to, source) if keeps_payload and not sat else result


def _with_payloads(result: Bits, bits: Bits, values: Float64, to: str, source: str) -> Bits:
    """The NaN of conversions that keep sign and payload, as an H200 does; the rest as it is."""
    nan = np.isnan(values)
    if not nan.any():
        return result
    kind = result.dtype.type
    own, origin = FORMATS[to], FORMATS[source]
    wide = bits.astype(np.uint64)
    sign = (wide >> np.uint64(origin.sign_shift)) & np.uint64(1)
    fraction = wide & np.uint64((1 << origin.mantissa) - 1)
    shift = own.mantissa - origin.mantissa
    moved = fraction << np.uint64(shift) if shift >= 0 else fraction >> np.uint64(-shift)
    if to == "tf32":
        # Rounded as if it were a number: only the low bits go.
        return np.where(nan, bits.astype(kind) & kind(0xFFFF_E000), result)
    infinity = np.uint64(own.top + 1)
    whole = (sign << np.uint64(own.sign_shift)) | infinity | moved
    if source != "bf16":
        whole |= np.uint64(1 << (own.mantissa - 1))
    return np.where(nan, whole.astype(kind), result)


@np.errstate(all="ignore")
def convert_randomly(
    bits: Bits, to: str, random: Bits, *, satfinite: bool = False, relu: bool = False
) -> Bits:
    """Stochastic rounding of f32 to f16 or bf16 (`cvt.rs`).

    The discarded bits of the significand and the random bits are added; a carry rounds away from
    zero, and what is left is cut off.

    `bits`: f32 elements. `to`: f16 or bf16. `random`: on the right, as many random bits as an
    element loses (13 or 16). `satfinite`: as `from_float64`. `relu`: a negative result becomes +0.
    """
    form = FORMATS[to]
    values = to_float64(bits, "f32")
    lost = FORMATS["f32"].mantissa - form.mantissa
    _, exponent = np.frexp(np.where(np.isfinite(values), values, 0.0))
    unit = np.maximum(exponent - 1, form.exponent_min) - form.mantissa
    dither = np.ldexp((random & ((1 << lost) - 1)).astype(np.float64), unit - lost)
    moved = values + np.copysign(dither, values)
    return from_float64(moved, to, "rz", satfinite=satfinite, relu=relu)


def convert_both(bits: Bits, widths: tuple[int, int], convert_one: Callable[[Bits], Bits]) -> Bits:
    """Two numbers of so many bits in a register, each converted, to as many as the second width."""
    width, own = widths
    part = np.dtype(f"u{max(width // 8, 1)}")
    low = (bits & bits.dtype.type((1 << width) - 1)).astype(part)
    return pair_of(
        convert_one((bits >> bits.dtype.type(width)).astype(part)), convert_one(low), own
    )


def pack_integers(a: Bits, b: Bits, c: Bits | None, *, to: str, source: str = "s32") -> Bits:
    """`cvt.pack.sat.to.source{.b32} d, a, b{, c}`: saturate a and b, b in the low part.

    With `c` its low bits are moved up past the two new elements: 4 elements of 8 bits from two
    instructions, for example. `to` is u8, s8, u16, s16, or u4, s4, u2, s2.

    Returns uint32 registers.
    """
    width = int(to[1:])
    low = -(1 << (width - 1)) if to[0] == "s" else 0
    high = low + (1 << width) - 1
    first, second = (
        np.clip(_integers(x, source).astype(np.int64), low, high) & ((1 << width) - 1)
        for x in (a, b)
    )
    packed = (first << width) | second
    if c is not None:
        packed = packed | (c.astype(np.int64) << (2 * width))
    return (packed & 0xFFFF_FFFF).astype(np.uint32)
