"""Rounding float64 to the nearest bf16, or number of 8 bits or fewer, by the bits of a float32.

Rounding to float32 goes to odd, so that the second rounding is the only one that counts; that
holds because a float32 has at least two bits more than what it is rounded to (Boldo and Melquiond).
"""

from __future__ import annotations

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


def narrow_nearest(
    values: Float64, *, mantissa: int, exponent_min: int, top: int, nan: int, sign_shift: int
) -> Bits:
    """Codes of 8 bits or fewer, nearest even: normal ones from the bits of a float32.

    Args:
        values: any shape.
        mantissa: bits of the significand after the point.
        exponent_min: exponent of the least normal number.
        top: the largest code without its sign; what is larger becomes that.
        nan: the code of a NaN.
        sign_shift: where the sign is.
    """
    bits = odd_float32(values) & np.uint32(0x7FFF_FFFF)
    shift = np.uint32(23 - mantissa)
    odd = (bits >> shift) & np.uint32(1)
    half = np.uint32((1 << (int(shift) - 1)) - 1)
    normal = ((bits + half + odd) >> shift).astype(np.int64)
    normal -= (126 + exponent_min) << mantissa
    with np.errstate(all="ignore"):
        magnitude = np.abs(values)
        small = magnitude < 2.0**exponent_min
        scaled = np.where(small, magnitude, 0.0) * 2.0 ** (mantissa - exponent_min)
    code = np.where(small, np.rint(scaled).astype(np.int64), normal)
    code = np.minimum(code, top).astype(np.uint8)
    lost = np.isnan(values)
    sign = np.signbit(values) & ~lost
    code |= sign.astype(np.uint8) << np.uint8(sign_shift)
    return np.where(lost, np.uint8(nan), code) if lost.any() else code
