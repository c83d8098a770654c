"""Every number format of PTX as bits and as values.

A register is an unsigned array; a value is float64, which holds each format up to f64 exactly.
Sources: PTX ISA, "Alternate Floating-Point Data Formats" and "Fundamental Types" (5.2); "cvt"
(9.7.9.21) for rounding and saturation; the OCP formats e4m3, e5m2, e2m3, e3m2, e2m1, ue8m0.

Rounding float64 to the nearest bf16, or number of 8 bits or fewer, by the bits of a float32.
Rounding to float32 goes to odd, so that the second rounding is the only one that counts; that holds
because a float32 has at least two bits more than what it is rounded to (Boldo and Melquiond).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[Any]
Float64 = NDArray[np.float64]
_BF16_NAN = 0x7FFF


def odd_float32(values: Float64) -> Bits:
    """Bits of float32 numbers, rounded to odd: what is rounded on from there is rounded once."""
    with np.errstate(all="ignore"):
        near = values.astype(np.float32)
        bits: Bits = near.view(np.uint32)
        back = near.astype(np.float64)
        inexact = back != values
        if inexact.any():
            beyond = np.abs(back) > np.abs(values)
            bits = np.where(inexact, (bits - beyond.astype(np.uint32)) | np.uint32(1), bits)
        return bits


def round_bits_to_bf16(bits: Bits) -> Bits:
    """bf16 nearest to float32 numbers, all as bits: half of the lower half decides."""
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    rounded: Bits = (bits + np.uint32(0x7FFF) + odd) >> np.uint32(16)
    nan = (bits & np.uint32(0x7FFF_FFFF)) > np.uint32(0x7F80_0000)
    if nan.any():
        rounded = np.where(nan, np.uint32(_BF16_NAN), rounded)
    return rounded.astype(np.uint16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A binary floating-point format.

    `width` is the bits that carry the number; `container` is those of an element that stands
    alone in an array (6-bit formats sit in a byte with zeros above). `top` is the largest code
    of a finite number without its sign.
    """

    name: str
    width: int
    mantissa: int
    exponent_min: int
    top: int
    infinity: bool
    nan: int | None
    signed: bool = True

    @property
    def container(self) -> np.dtype[Any]:
        return np.dtype(f"u{max(1, self.width // 8)}")

    @property
    def sign_shift(self) -> int:
        return self.width - 1


def _ieee(name: str, width: int, mantissa: int, nan: int | None = None) -> Format:
    exponent = width - 1 - mantissa
    infinity = ((1 << exponent) - 1) << mantissa
    return Format(
        name=name, width=width, mantissa=mantissa, exponent_min=2 - (1 << (exponent - 1)),
        top=infinity - 1, infinity=True, nan=(1 << (width - 1)) - 1 if nan is None else nan,
    )  # fmt: skip


def _narrow(
    name: str, width: int, mantissa: int, exponent_min: int, *, nan: int | None, signed: bool = True
) -> Format:
    top = (1 << (width - 1)) - 1 if nan is None else nan - 1
    return Format(
        name=name, width=width, mantissa=mantissa, exponent_min=exponent_min, top=top,
        infinity=False, nan=nan, signed=signed,
    )  # fmt: skip


FORMATS = {
    form.name: form
    for form in (
        _ieee("f16", 16, 10),
        _ieee("bf16", 16, 7),
        _ieee("f32", 32, 23),
        # f64 alone keeps the payload of a NaN (see `arithmetic`); this one comes from numbers.
        _ieee("f64", 64, 52, nan=0xFFF8_0000_0000_0000),
        # 19 bits that a 32-bit register holds on the left: an f32 whose low 13 bits do not count.
        replace(_ieee("f32", 32, 23, nan=0x7FFF_E000), name="tf32", mantissa=10, top=0x7F7F_E000),
        _ieee("e5m2", 8, 2),
        _narrow("e4m3", 8, 3, -6, nan=0x7F),
        _narrow("e3m2", 6, 2, -2, nan=None),
        _narrow("e2m3", 6, 3, 0, nan=None),
        _narrow("e2m1", 4, 1, 0, nan=None),
        _narrow("ue4m3", 8, 3, -6, nan=0x7F, signed=False),
        _narrow("ue8m0", 8, 0, -127, nan=0xFF, signed=False),
    )
}
"""By PTX name. e4m3 has no infinity; e3m2, e2m3 and e2m1 have neither infinity nor NaN."""


def canonical_nan(name: str) -> int:
    """The NaN that arithmetic returns (PTX ISA, "Floating-Point Instructions": 0x7fffffff for f32).

    Raises `KeyError`: the format is unknown. Raises `ValueError`: the format has no NaN.
    """
    nan = FORMATS[name].nan
    if nan is None:
        raise ValueError(f"{name} has no NaN")
    return nan


@cache
def _decoded(name: str) -> Float64:
    """The value of each code of a format of 8 bits or fewer, indexed by the whole byte."""
    form = FORMATS[name]
    code = np.arange(256) & ((1 << form.width) - 1)
    if name == "ue8m0":
        values: Float64 = np.ldexp(1.0, np.arange(256) - 127)
        values[0xFF] = np.nan
        return values
    magnitude = code & ((1 << (form.width - 1)) - 1)
    field, fraction = magnitude >> form.mantissa, magnitude & ((1 << form.mantissa) - 1)
    significand = np.where(field > 0, fraction + (1 << form.mantissa), fraction)
    exponent = np.maximum(field, 1) - 1 + form.exponent_min - form.mantissa
    values = np.ldexp(significand.astype(np.float64), exponent)
    if form.infinity:
        values[magnitude == form.top + 1] = np.inf
    if form.nan is not None:
        values[magnitude > form.top + form.infinity] = np.nan
    if form.signed:
        values = np.where(code >> form.sign_shift, -values, values)
    return values


@cache
def _decoded32(name: str) -> NDArray[np.float32]:
    # The least ue8m0 is 2^-127: subnormal in float32, and exact.
    return _decoded(name).astype(np.float32)


def to_float32(bits: Bits, name: str) -> NDArray[np.float32]:
    """Values of elements, any shape, as float32: exact for every format but f64.

    tf32 drops the low 13 bits, as the tensor cores do (PTX ISA 5.2.3).
    """
    if name in ("f32", "tf32"):
        words: NDArray[np.uint32] = bits.astype(np.uint32, copy=False)
        return (words if name == "f32" else words & np.uint32(0xFFFF_E000)).view(np.float32)
    if name == "bf16":
        words = bits.astype(np.uint32) << np.uint32(16)
        return words.view(np.float32)
    if name == "f16":
        halves: NDArray[np.uint16] = bits.astype(np.uint16, copy=False)
        return halves.view(np.float16).astype(np.float32)
    if name == "f64":
        return to_float64(bits, name).astype(np.float32)
    return _decoded32(name)[bits & 0xFF]


def to_float64(bits: Bits, name: str) -> Float64:
    """Values of elements, any shape: exact. Bits above the format's width do not count."""
    if name == "f64":
        words: NDArray[np.uint64] = bits.astype(np.uint64, copy=False)
        return words.view(np.float64)
    if name in ("f32", "tf32", "bf16", "f16"):
        with np.errstate(invalid="ignore"):  # a signalling NaN
            return to_float32(bits, name).astype(np.float64)
    return _decoded(name)[bits & 0xFF]


@np.errstate(all="ignore")  # a signalling NaN is not our concern
def round_integral(values: Float64, rounding: str) -> Float64:
    """To an integral value. `rounding` is one of rn, rna, rz, rm, rp, or these with an i (rni).

    Raises `ValueError`: the rounding is unknown.
    """
    mode = rounding.removesuffix("i")
    if mode == "rn":
        return np.rint(values)
    if mode == "rna":
        # floor(|x| + 0.5) is wrong below one half and above 2^52; the fraction decides.
        whole = np.trunc(values)
        away = np.abs(values - whole) >= 0.5
        return np.where(away, whole + np.copysign(1.0, values), whole)
    if mode == "rz":
        return np.trunc(values)
    if mode == "rm":
        return np.floor(values)
    if mode == "rp":
        return np.ceil(values)
    raise ValueError(f"no rounding is called {rounding!r}")


def _overflow(values: Float64, name: str, rounding: str) -> Float64:
    """What a magnitude over the largest finite number becomes: infinity, or that number."""
    form = FORMATS[name]
    largest = float(to_float64(np.array(form.top), name))
    over = np.abs(values) > largest
    if not over.any():
        return values
    if not form.infinity:
        return np.where(over, np.copysign(largest, values), values)
    inward = {"rz": over, "rm": over & (values > 0), "rp": over & (values < 0)}.get(rounding)
    bounded = np.where(over, np.copysign(np.inf, values), values)
    return bounded if inward is None else np.where(inward, np.copysign(largest, values), bounded)


@np.errstate(all="ignore")
def round_float64(values: Float64, name: str, rounding: str = "rn") -> Float64:
    """Round float64 values to those that a format has, once; NaN and infinity stay.

    A magnitude over the largest finite number becomes infinity or that number, as IEEE 754 has
    it for each direction; in a format without infinity it becomes that number.
    """
    form = FORMATS[name]
    if name == "f64":
        return values
    finite = np.isfinite(values)
    numbers = np.where(finite, values, 0.0)
    _, exponent = np.frexp(numbers)
    unit = np.maximum(exponent - 1, form.exponent_min) - form.mantissa
    rounded = np.ldexp(round_integral(np.ldexp(numbers, -unit), rounding), unit)
    if name == "ue8m0":
        rounded = np.maximum(np.abs(rounded), 2.0**-127)
    return np.where(finite, _overflow(rounded, name, rounding), values)


def _encode(values: Float64, name: str) -> Bits:
    form = FORMATS[name]
    nan = np.isnan(values)
    with np.errstate(all="ignore"):
        if name == "f64":
            bits: Bits = values.astype(np.float64).view(np.uint64)
        elif name in ("f32", "tf32"):
            bits = values.astype(np.float32).view(np.uint32)
        elif name == "f16":
            bits = values.astype(np.float16).view(np.uint16)
        elif name == "bf16":
            bits = (values.astype(np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)
        else:
            magnitude = np.where(nan, 0.0, np.abs(values))
            code = np.searchsorted(_decoded(name)[: form.top + 1], magnitude).astype(np.uint8)
            sign = (np.signbit(values) & form.signed).astype(np.uint8)
            bits = code | (sign << np.uint8(form.sign_shift))
    if form.nan is not None and nan.any():
        bits = np.where(nan, bits.dtype.type(form.nan), bits)
    return bits


def _narrow_nearest(values: Float64, form: Format, *, satfinite: bool) -> Bits:
    """Codes of 8 bits or fewer, nearest even: normal ones from the bits of a float32."""
    bits = odd_float32(values) & np.uint32(0x7FFF_FFFF)
    shift = np.uint32(23 - form.mantissa)
    odd = (bits >> shift) & np.uint32(1)
    half = np.uint32((1 << (int(shift) - 1)) - 1)
    normal = ((bits + half + odd) >> shift).astype(np.int64)
    normal -= (126 + form.exponent_min) << form.mantissa
    with np.errstate(all="ignore"):
        magnitude = np.abs(values)
        small = magnitude < 2.0**form.exponent_min
        scaled = np.where(small, magnitude, 0.0) * 2.0 ** (form.mantissa - form.exponent_min)
    code = np.where(small, np.rint(scaled).astype(np.int64), normal)
    # What is larger than the largest code becomes that.
    code = np.minimum(code, form.top + (form.infinity and not satfinite)).astype(np.uint8)
    lost = np.isnan(values)
    code |= (np.signbit(values) & ~lost).astype(np.uint8) << np.uint8(form.sign_shift)
    nan = np.uint8(form.top if form.nan is None else form.nan)
    return np.where(lost, nan, code) if lost.any() else code


def _nearest(values: Float64, name: str, *, satfinite: bool) -> Bits | None:
    """Rounding to nearest even by bits, for what programs convert most; None for the rest."""
    form = FORMATS[name]
    if form.width <= 8:
        return _narrow_nearest(values, form, satfinite=satfinite) if form.signed else None
    if satfinite:
        return None
    if name == "bf16":
        return round_bits_to_bf16(odd_float32(values))
    return _encode(values, name) if name in ("f16", "f32") else None


def from_float64(
    values: Float64,
    name: str,
    rounding: str = "rn",
    *,
    satfinite: bool = False,
    sat: bool = False,
    relu: bool = False,
) -> Bits:
    """Bits of values rounded once to a format, as `cvt` does (PTX ISA 9.7.9.21).

    `values`: any shape. `name`: the format. `rounding`: rn, rna, rz, rm or rp. `satfinite`: a
    magnitude over the largest finite number, infinity too, becomes that number; NaN becomes the
    canonical NaN, or the largest number where the format has no NaN. `sat`: clamp to 0.0 - 1.0; NaN
    becomes +0. `relu`: a negative result becomes +0; NaN stays. Returns elements in
    `FORMATS[name].container`.
    """
    form = FORMATS[name]
    if rounding == "rn" and not (sat or relu):
        quick = _nearest(values, name, satfinite=satfinite)
        if quick is not None:
            return quick
    rounded = round_float64(values, name, rounding)
    largest = float(to_float64(np.array(form.top), name))
    if satfinite or not form.infinity:
        rounded = np.clip(rounded, -largest, largest)
    if form.nan is None:
        rounded = np.where(np.isnan(rounded), largest, rounded)
    if relu:
        rounded = np.where(rounded <= 0, 0.0, rounded)
    if sat:
        # min and max with NaN return the number.
        rounded = np.fmin(np.fmax(np.where(rounded == 0, 0.0, rounded), 0.0), 1.0)
    return _encode(rounded, name)


def odd_sum(a: Float64, b: Float64) -> Float64:
    """Add, with an inexact result rounded to the neighbour whose last bit is 1.

    What is rounded from that to a significand of 51 bits or fewer, in any direction, equals the
    exact sum rounded once (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums").
    """
    with np.errstate(all="ignore"):
        total = a + b
        part = total - a
        error = (a - (total - part)) + (b - part)
        bits = total.view(np.int64)
        inexact = (error != 0) & np.isfinite(total) & ((bits & 1) == 0)
        if not inexact.any():
            return total
        # The neighbour towards the error: away from zero where both have one sign.
        step = np.where((error > 0) == (total > 0), 1, -1)
        return np.where(inexact, bits + step, bits).view(np.float64)
