"""Operations on integers of one type, element by element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpu_emulator.steps import Array


def high_product(a: Array, b: Array) -> Array:
    """The upper half of the whole product of two integers of one type."""
    bits = a.dtype.itemsize * 8
    if bits < 64:
        wide = np.dtype(f"{a.dtype.kind}{a.dtype.itemsize * 2}")
        product: Array = (a.astype(wide) * b.astype(wide)) >> wide.type(bits)
        return product.astype(a.dtype)
    x, y = a.view(np.uint64), b.view(np.uint64)
    half, low = np.uint64(32), np.uint64(0xFFFF_FFFF)
    middle = (x >> half) * (y & low) + (((x & low) * (y & low)) >> half)
    cross = (x & low) * (y >> half) + (middle & low)
    high = (x >> half) * (y >> half) + (middle >> half) + (cross >> half)
    if a.dtype.kind == "i":
        high = high - np.where(a < 0, y, np.uint64(0)) - np.where(b < 0, x, np.uint64(0))
    return high.view(a.dtype)


def count_ones(a: Array) -> Array:
    """How many bits are set, as uint32."""
    octets = np.ascontiguousarray(a)[..., None].view(np.uint8)
    return _ONES[octets].sum(axis=-1, dtype=np.uint32)


_ONES = np.array([octet.bit_count() for octet in range(256)], dtype=np.uint8)


def leading_zeros(a: Array) -> Array:
    """How many bits above the highest one are clear, as uint32."""
    bits = a.dtype.itemsize * 8
    smeared = a
    shift = 1
    while shift < bits:
        smeared = smeared | (smeared >> a.dtype.type(shift))
        shift *= 2
    return np.uint32(bits) - count_ones(smeared)


def reversed_bits(a: Array) -> Array:
    """The lowest bit first."""
    octets = np.ascontiguousarray(a)[..., None].view(np.uint8)
    return np.ascontiguousarray(_REVERSED[octets[..., ::-1]]).view(a.dtype)[..., 0]


_REVERSED = np.array([int(f"{octet:08b}"[::-1], 2) for octet in range(256)], dtype=np.uint8)


def shifted_left(a: Array, amount: Array) -> Array:
    """Shift; amounts of the width or more give zero."""
    bits = a.dtype.itemsize * 8
    inside = amount < bits
    shifted = a << np.where(inside, amount, 0).astype(a.dtype)
    return np.where(inside, shifted, a.dtype.type(0))


def shifted_right(a: Array, amount: Array) -> Array:
    """Shift, with copies of the sign if signed; amounts of the width or more give all of these."""
    bits = a.dtype.itemsize * 8
    if a.dtype.kind == "i":
        return a >> np.minimum(amount, bits - 1).astype(a.dtype)
    inside = amount < bits
    return np.where(inside, a >> np.where(inside, amount, 0).astype(a.dtype), a.dtype.type(0))


def permuted(mode: str, a: Array, b: Array, selector: Array) -> Array:
    """Bytes of two registers, as `prmt` in a mode chooses them."""
    pair = (b.astype(np.uint64) << np.uint64(32)) | a
    result: Any = np.uint32(0)
    for place in range(4):
        control = _CONTROLS[mode](selector, place).astype(np.uint64)
        octet = (pair >> ((control & np.uint64(7)) << np.uint64(3))) & np.uint64(255)
        sign = np.where(octet & np.uint64(128), np.uint64(255), np.uint64(0))
        chosen = np.where(control & np.uint64(8), sign, octet).astype(np.uint32)
        result = result | (chosen << np.uint32(8 * place))
    return result


_CONTROLS: dict[str, Callable[[Array, int], Array]] = {
    "": lambda n, place: (n >> np.uint32(4 * place)) & np.uint32(15),
    "f4e": lambda n, place: (n & np.uint32(3)) + np.uint32(place),
    "b4e": lambda n, place: ((n & np.uint32(3)) - np.uint32(place)) & np.uint32(7),
    "rc8": lambda n, _: n & np.uint32(3),
    "ecl": lambda n, place: np.maximum(n & np.uint32(3), np.uint32(place)),
    "ecr": lambda n, place: np.minimum(n & np.uint32(3), np.uint32(place)),
    "rc16": lambda n, place: ((n & np.uint32(1)) << np.uint32(1)) + np.uint32(place & 1),
}
