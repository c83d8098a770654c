"""Integer arithmetic. PTX ISA, "Integer Arithmetic Instructions" and "Extended-Precision"."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from gpu_emulator.numbers.dot_products import dp2a, dp4a
from gpu_emulator.ptx.program.binder import Binder
from gpu_emulator.ptx.program.table import opcode
from gpu_emulator.steps import Step
from gpu_emulator.types import BITS, DTYPES, Array

__all__: list[str] = []

_TITLE = "Integer Arithmetic Instructions"
_TYPE = ".{type:u16|u32|u64|s16|s32|s64}"
_WIDE = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}


def _same(template: str, section: str, function: Callable[..., Array], arity: int) -> None:
    """A row whose operands and result are all of its `{type}`."""

    @opcode(template, section=f"{_TITLE}: {section}", pure=True)
    def make(line: Binder) -> Step:
        kind = line.parts["type"]
        return line.computed(function, [kind] * arity, kind)


def _limits(value: Array) -> tuple[int, int]:
    info = np.iinfo(value.dtype)
    return int(info.min), int(info.max)


def _saturate(wide: Array) -> Array:
    return np.clip(wide, -(1 << 31), (1 << 31) - 1).astype(np.int32)


def _add_saturated(a: Array, b: Array) -> Array:
    return _saturate(a.astype(np.int64) + b)


def _subtract_saturated(a: Array, b: Array) -> Array:
    return _saturate(a.astype(np.int64) - b)


def _magnitude_quotient(a: Array, b: Array) -> Array:
    """Division that cuts off; by zero all bits are set, as hardware does (unspecified)."""
    zero = b == 0
    safe = np.where(zero, b.dtype.type(1), b)
    if a.dtype.kind == "u":
        quotient = a // safe
    else:
        quotient = _unsigned_magnitude(a) // _unsigned_magnitude(safe)
        quotient = np.where((a < 0) != (safe < 0), -quotient, quotient).view(a.dtype)
    return np.where(zero, ~a.dtype.type(0), quotient) if zero.any() else quotient


def _unsigned_magnitude(a: Array) -> Array:
    bits = a.view(f"u{a.dtype.itemsize}")
    return np.where(a < 0, -bits, bits)


def _remainder(a: Array, b: Array) -> Array:
    zero = b == 0
    safe = np.where(zero, b.dtype.type(1), b)
    rest = a - _magnitude_quotient(a, safe) * safe
    return np.where(zero, a, rest)


_same("add" + _TYPE, "add", np.add, 2)
_same("add.{type:u16x2|s16x2}", "add", lambda a, b: _halves(np.add, a, b), 2)
_same("sub" + _TYPE, "sub", np.subtract, 2)
_same("add.sat.{type:s32}", "add", _add_saturated, 2)
_same("sub.sat.{type:s32}", "sub", _subtract_saturated, 2)
_same("mul.lo" + _TYPE, "mul", np.multiply, 2)
_same("mad.lo" + _TYPE, "mad", lambda a, b, c: a * b + c, 3)
_same("div" + _TYPE, "div", _magnitude_quotient, 2)
_same("rem" + _TYPE, "rem", _remainder, 2)
_same("abs.{type:s16|s32|s64}", "abs", np.abs, 1)
_same("neg.{type:s16|s32|s64}", "neg", np.negative, 1)
_same("min" + _TYPE, "min", np.minimum, 2)
_same("max" + _TYPE, "max", np.maximum, 2)


def _halves(function: Callable[..., Array], *operands: Array, signed: bool = False) -> Array:
    kind = "i2" if signed else "u2"
    parts = [
        np.ascontiguousarray(each)[..., None].view(kind) for each in np.broadcast_arrays(*operands)
    ]
    return np.ascontiguousarray(function(*parts)).view("u4")[..., 0]


@opcode(
    "min?{relu:relu}.{type:u16x2|s16x2}", "max?{relu:relu}.{type:u16x2|s16x2}",
    "min.{relu:relu}.{type:s32}", "max.{relu:relu}.{type:s32}",
    section=f"{_TITLE}: min, max", pure=True,
)  # fmt: skip
def _extremum(line: Binder) -> Step:
    kind = line.parts["type"]
    choose = np.minimum if line.line.opcode.startswith("min") else np.maximum

    def function(a: Array, b: Array) -> Array:
        best = choose(a, b)
        return np.maximum(best, best.dtype.type(0)) if line.parts["relu"] else best

    if kind == "s32":
        return line.computed(function, [kind, kind], kind)
    return line.computed(partial(_halves, function, signed=kind[0] == "s"), [kind, kind], kind)


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
    other = (x & low) * (y >> half) + (middle & low)
    high = (x >> half) * (y >> half) + (middle >> half) + (other >> half)
    if a.dtype.kind == "i":
        high = high - np.where(a < 0, y, np.uint64(0)) - np.where(b < 0, x, np.uint64(0))
    answer: Array = high.view(a.dtype)
    return answer


_same("mul.hi" + _TYPE, "mul", high_product, 2)
_same("mad.hi" + _TYPE, "mad", lambda a, b, c: high_product(a, b) + c, 3)
_same("mad.hi.sat.{type:s32}", "mad", lambda a, b, c: _add_saturated(high_product(a, b), c), 3)


@opcode("mul.wide.{type:u16|s16|u32|s32}", section=f"{_TITLE}: mul", pure=True)
def _multiply_wide(line: Binder) -> Step:
    kind = line.parts["type"]
    wide = DTYPES[_WIDE[kind]]
    return line.computed(lambda a, b: np.multiply(a, b, dtype=wide), [kind, kind], _WIDE[kind])


@opcode("mad.wide.{type:u16|s16|u32|s32}", section=f"{_TITLE}: mad", pure=True)
def _multiply_add_wide(line: Binder) -> Step:
    kind = line.parts["type"]
    wide = DTYPES[_WIDE[kind]]
    return line.computed(
        lambda a, b, c: np.multiply(a, b, dtype=wide) + c, [kind, kind, _WIDE[kind]], _WIDE[kind]
    )


@opcode("mul24.{half:lo|hi}.{type:u32|s32}", section=f"{_TITLE}: mul24", pure=True)
def _multiply_24(line: Binder) -> Step:
    kind, half = line.parts["type"], line.parts["half"]
    return line.computed(partial(_product_24, half), [kind, kind], kind)


@opcode(
    "mad24.{half:lo|hi}.{type:u32|s32}", "mad24.{half:hi}.{sat:sat}.{type:s32}",
    section=f"{_TITLE}: mad24", pure=True,
)  # fmt: skip
def _multiply_add_24(line: Binder) -> Step:
    kind, half = line.parts["type"], line.parts["half"]
    total = _add_saturated if line.parts.get("sat") else np.add
    return line.computed(
        lambda a, b, c: total(_product_24(half, a, b), c), [kind, kind, kind], kind
    )


def _product_24(half: str, a: Array, b: Array) -> Array:
    """Bits 0-31 or 16-47 of the product of the low 24 bits."""
    eight = a.dtype.type(8)
    x, y = ((each << eight) >> eight for each in (a, b))
    product = x.astype(f"{a.dtype.kind}8") * y
    answer: Array = (product if half == "lo" else product >> product.dtype.type(16)).astype(a.dtype)
    return answer


@opcode("sad" + _TYPE, section=f"{_TITLE}: sad", pure=True)
def _sum_of_differences(line: Binder) -> Step:
    kind = line.parts["type"]
    return line.computed(
        lambda a, b, c: c + (np.maximum(a, b) - np.minimum(a, b)), [kind] * 3, kind
    )


@opcode("popc.{type:b32|b64}", section=f"{_TITLE}: popc", pure=True)
def _population(line: Binder) -> Step:
    return line.computed(count_ones, [line.parts["type"]], "u32")


def count_ones(a: Array) -> Array:
    """How many bits are set, as uint32."""
    octets = np.ascontiguousarray(a)[..., None].view(np.uint8)
    answer: Array = _ONES[octets].sum(axis=-1, dtype=np.uint32)
    return answer


_ONES = np.array([each.bit_count() for each in range(256)], dtype=np.uint8)


def leading_zeros(a: Array) -> Array:
    """How many bits above the highest one are clear, as uint32."""
    bits = a.dtype.itemsize * 8
    smeared = a
    shift = 1
    while shift < bits:
        smeared = smeared | (smeared >> a.dtype.type(shift))
        shift *= 2
    answer: Array = np.uint32(bits) - count_ones(smeared)
    return answer


@opcode("clz.{type:b32|b64}", section=f"{_TITLE}: clz", pure=True)
def _leading(line: Binder) -> Step:
    return line.computed(leading_zeros, [line.parts["type"]], "u32")


@opcode("bfind?{shift:shiftamt}.{type:u32|u64|s32|s64}", section=f"{_TITLE}: bfind", pure=True)
def _find_highest(line: Binder) -> Step:
    kind, is_shift = line.parts["type"], bool(line.parts["shift"])
    bits = BITS[kind]

    def function(a: Array) -> Array:
        unsigned = np.where(a < 0, ~a, a).view(f"u{a.dtype.itemsize}")
        zeros = leading_zeros(unsigned)
        place = zeros if is_shift else np.uint32(bits - 1) - zeros
        return np.where(unsigned == 0, np.uint32(0xFFFF_FFFF), place)

    return line.computed(function, [kind], "u32")


@opcode("brev.{type:b32|b64}", section=f"{_TITLE}: brev", pure=True)
def _reverse(line: Binder) -> Step:
    kind = line.parts["type"]

    def function(a: Array) -> Array:
        octets = np.ascontiguousarray(a)[..., None].view(np.uint8)
        return np.ascontiguousarray(_REVERSED[octets[..., ::-1]]).view(a.dtype)[..., 0]

    return line.computed(function, [kind], kind)


_REVERSED = np.array([int(f"{each:08b}"[::-1], 2) for each in range(256)], dtype=np.uint8)


@opcode("fns.b32", section=f"{_TITLE}: fns", pure=True)
def _nth_set(line: Binder) -> Step:
    def one(mask: int, base: int, offset: int) -> int:
        if offset == 0:
            return base if base < 32 and mask >> base & 1 else 0xFFFF_FFFF
        step, left, at = (1, offset, base) if offset > 0 else (-1, -offset, base)
        while 0 <= at < 32:
            left -= mask >> at & 1
            if left == 0:
                return at
            at += step
        return 0xFFFF_FFFF

    each = np.frompyfunc(lambda m, b, o: one(int(m), int(b), int(o)), 3, 1)
    return line.computed(
        lambda m, b, o: each(m, b, o).astype(np.uint32), ["b32", "b32", "s32"], "b32"
    )


@opcode("bfe.{type:u32|u64|s32|s64}", section=f"{_TITLE}: bfe", pure=True)
def _extract(line: Binder) -> Step:
    kind = line.parts["type"]
    bits = BITS[kind]

    def function(a: Array, position: Array, length: Array) -> Array:
        position, length = position & 0xFF, length & 0xFF
        # The sign is that of the last bit of the field, or of the whole number beyond its end.
        kept = shifted_right(a, position)
        room = np.clip(bits - length.astype(np.int64), 0, bits)
        if a.dtype.kind == "u":
            return shifted_right(shifted_left(kept, room), room)
        last = np.minimum(position.astype(np.int64) + length - 1, bits - 1)
        sign = np.where(
            length == 0, 0, -(shifted_right(a.view(f"u{bits // 8}"), last) & 1).view(a.dtype)
        )
        low = shifted_right(shifted_left(kept.view(f"u{bits // 8}"), room), room)
        return (
            low | shifted_left(sign.astype(a.dtype).view(f"u{bits // 8}"), np.minimum(length, bits))
        ).view(a.dtype)

    return line.computed(function, [kind, "u32", "u32"], kind)


@opcode("bfi.{type:b32|b64}", section=f"{_TITLE}: bfi", pure=True)
def _insert(line: Binder) -> Step:
    kind = line.parts["type"]
    bits = BITS[kind]

    def function(a: Array, b: Array, position: Array, length: Array) -> Array:
        position, length = position & 0xFF, length & 0xFF
        ones = ~shifted_left(~a.dtype.type(0) & (b | ~b), np.minimum(length, bits))
        mask = shifted_left(ones, position)
        return (b & ~mask) | (shifted_left(a, position) & mask)

    return line.computed(function, [kind, kind, "u32", "u32"], kind)


@opcode("szext.{mode:clamp|wrap}.{type:u32|s32}", section=f"{_TITLE}: szext", pure=True)
def _extend(line: Binder) -> Step:
    kind, wraps = line.parts["type"], line.parts["mode"] == "wrap"

    def function(a: Array, b: Array) -> Array:
        width = b & 31 if wraps else np.minimum(b, 32)
        room = 32 - width.astype(np.int64)
        return shifted_right(shifted_left(a, room), np.minimum(room, 32))

    return line.computed(function, [kind, "u32"], kind)


@opcode("bmsk.{mode:clamp|wrap}.b32", section=f"{_TITLE}: bmsk", pure=True)
def _bit_mask(line: Binder) -> Step:
    wraps = line.parts["mode"] == "wrap"

    def function(a: Array, b: Array) -> Array:
        place, width = (a & 31, b & 31) if wraps else (a, np.minimum(b, 32))
        ones = ~shifted_left(~np.uint32(0) & (b | ~b), width)
        return shifted_left(ones, place)

    return line.computed(function, ["b32", "b32"], "b32")


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
        answer: Array = a >> np.minimum(amount, bits - 1).astype(a.dtype)
        return answer
    inside = amount < bits
    return np.where(inside, a >> np.where(inside, amount, 0).astype(a.dtype), a.dtype.type(0))


@opcode("dp4a.{a:u32|s32}.{b:u32|s32}", section=f"{_TITLE}: dp4a", pure=True)
def _dot4(line: Binder) -> Step:
    a, b = line.parts["a"], line.parts["b"]
    return line.computed(
        partial(dp4a, a_signed=a[0] == "s", b_signed=b[0] == "s"), ["b32"] * 3, "b32"
    )


@opcode("dp2a.{half:lo|hi}.{a:u32|s32}.{b:u32|s32}", section=f"{_TITLE}: dp2a", pure=True)
def _dot2(line: Binder) -> Step:
    a, b, high = line.parts["a"], line.parts["b"], line.parts["half"] == "hi"
    return line.computed(
        partial(dp2a, a_signed=a[0] == "s", b_signed=b[0] == "s", high=high), ["b32"] * 3, "b32"
    )
