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


def find_highest(a: Array, *, from_top: bool) -> Array:
    """The place of the highest bit that is no copy of the sign, or its distance from the top."""
    unsigned = np.where(a < 0, ~a, a).view(f"u{a.dtype.itemsize}")
    zeros = leading_zeros(unsigned)
    place = zeros if from_top else np.uint32(a.dtype.itemsize * 8 - 1) - zeros
    return np.where(unsigned == 0, np.uint32(0xFFFF_FFFF), place)


def extended(a: Array, width: Array, *, wraps: bool) -> Array:
    """The low bits of 32, so many, and copies of their sign, or zeros."""
    room = 32 - (width & 31 if wraps else np.minimum(width, 32)).astype(np.int64)
    return shifted_right(shifted_left(a, room), room)


def bit_mask(place: Array, width: Array, *, wraps: bool) -> Array:
    """So many ones from a place on, in 32 bits."""
    place, width = (place & 31, width & 31) if wraps else (place, np.minimum(width, 32))
    ones = ~shifted_left(np.full_like(width, 0xFFFF_FFFF, dtype=np.uint32), width)
    return shifted_left(ones + np.zeros_like(place), place)


def funnel(
    low: Array, high: Array, amount: Array, kind: str, *, is_left: bool, wraps: bool, is_upper: bool
) -> Array:
    """Two registers of 32 bits shifted as one number, and one half of it.

    The amount is at most what the type `kind` has bits; its letter says what comes in from above.
    """
    bits = np.uint32(int(kind[1:]))
    amount = amount & (bits - np.uint32(1)) if wraps else np.minimum(amount, bits)
    whole = low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)
    if is_left:
        moved = shifted_left(whole, amount)
    else:
        moved = shifted_right(whole.view(np.int64 if kind[0] == "s" else np.uint64), amount)
    return (moved.view(np.uint64) >> np.uint64(32 * is_upper)).astype(np.uint32)


def looked_up(table: int) -> Callable[[Array, Array, Array], Array]:
    """`lop3`: bit by bit, bit 4a + 2b + c of a table; what is done most in few operations."""
    rows = [row for row in range(8) if table >> row & 1]

    def function(a: Array, b: Array, c: Array) -> Array:
        if not rows:
            return np.zeros_like(a) if a.dtype != np.bool_ else np.zeros((1, 1), np.bool_)
        result: Any = None
        for row in rows:
            x = a if row & 4 else ~a
            y = b if row & 2 else ~b
            z = c if row & 1 else ~c
            term = x & y & z
            result = term if result is None else result | term
        return np.asarray(result)

    return _COMMON_TABLES.get(table, function)


_COMMON_TABLES: dict[int, Callable[[Array, Array, Array], Array]] = {
    0xC0: lambda a, b, _: a & b, 0xFC: lambda a, b, _: a | b, 0x3C: lambda a, b, _: a ^ b,
    0x30: lambda a, b, _: a & ~b, 0x33: lambda _, b, __: ~b, 0x0F: lambda a, _, __: ~a,
    0x80: lambda a, b, c: a & b & c, 0xFE: lambda a, b, c: a | b | c,
    0x96: lambda a, b, c: a ^ b ^ c, 0xF8: lambda a, b, c: a | b & c,
    0xE2: lambda a, b, c: a & b | c & ~b, 0xB8: lambda a, b, c: a & ~b | b & c,
    0xCA: lambda a, b, c: a & b | ~a & c,
}  # fmt: skip


def distance(a: Array, b: Array) -> Array:
    """How far apart two integers of one type are, in that type."""
    return np.maximum(a, b) - np.minimum(a, b)


def saturated(wide: Array) -> Array:
    """int64 as int32, clamped."""
    return np.clip(wide, -(1 << 31), (1 << 31) - 1).astype(np.int32)


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
