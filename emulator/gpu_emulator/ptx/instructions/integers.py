"""Integer arithmetic. PTX ISA, "Integer Arithmetic", "Extended-Precision Integer", "Video".

The condition code of sums and products longer than a register is a register of its own; what sets
or reads it is not pure. Operands of video instructions select parts by suffixes (`%r1.h0`,
`%r2.b3210`), and so do results: which parts of the third operand they replace. What is computed
between is wider than a register.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from gpu_emulator.numbers.arithmetic import COMPARE, dp2a, dp4a, packed
from gpu_emulator.numbers.integers import (
    bit_mask,
    count_ones,
    distance,
    extended,
    find_highest,
    high_product,
    leading_zeros,
    reversed_bits,
    saturated,
    shifted_left,
    shifted_right,
)
from gpu_emulator.ptx.program.binder import Binder, computed, opcode
from gpu_emulator.steps import DTYPES, Array, Reader, Registers, Step

_TYPE = ".{type:u16|u32|u64|s16|s32|s64}"
_WIDE = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}


def _same(template: str, function: Callable[..., Array], arity: int) -> None:
    computed(template, takes="type " * arity)(function)


def _add_saturated(a: Array, b: Array) -> Array:
    return saturated(a.astype(np.int64) + b)


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
    return np.where(zero, a, a - _magnitude_quotient(a, safe) * safe)


_same("add" + _TYPE, np.add, 2)
_same("add.{type:u16x2|s16x2}", partial(packed, np.add, 16), 2)
_same("sub" + _TYPE, np.subtract, 2)
_same("add.sat.{type:s32}", _add_saturated, 2)
_same("sub.sat.{type:s32}", lambda a, b: saturated(a.astype(np.int64) - b), 2)
_same("mul.lo" + _TYPE, np.multiply, 2)
_same("mad.lo" + _TYPE, lambda a, b, c: a * b + c, 3)
_same("div" + _TYPE, _magnitude_quotient, 2)
_same("rem" + _TYPE, _remainder, 2)
_same("abs.{type:s16|s32|s64}", np.abs, 1)
_same("neg.{type:s16|s32|s64}", np.negative, 1)
_same("min" + _TYPE, np.minimum, 2)
_same("max" + _TYPE, np.maximum, 2)


@opcode("min|max?{relu:relu}.{type:u16x2|s16x2}", "min|max.{relu:relu}.{type:s32}")
def _extremum(line: Binder) -> Step:
    kind, choose = line.parts["type"], _BINARY[line.base]

    def function(a: Array, b: Array) -> Array:
        best = choose(a, b)
        return np.maximum(best, best.dtype.type(0)) if line.parts["relu"] else best

    if kind == "s32":
        return line.computed(function, [kind, kind], kind)
    half = np.dtype("i2" if kind[0] == "s" else "u2")

    def of_halves(*halves: Array) -> Array:
        return function(*(bits.view(half) for bits in halves))

    return line.computed(partial(packed, of_halves, 16), [kind, kind], kind)


_same("mul.hi" + _TYPE, high_product, 2)
_same("mad.hi" + _TYPE, lambda a, b, c: high_product(a, b) + c, 3)
_same("mad.hi.sat.{type:s32}", lambda a, b, c: _add_saturated(high_product(a, b), c), 3)


@opcode("mul|mad.wide.{type:u16|s16|u32|s32}")
def _multiply_wide(line: Binder) -> Step:
    kind, wide = line.parts["type"], _WIDE[line.parts["type"]]
    product = partial(np.multiply, dtype=DTYPES[wide])
    if line.base == "mul":
        return line.computed(product, [kind, kind], wide)
    return line.computed(lambda a, b, c: product(a, b) + c, [kind, kind, wide], wide)


@computed("mul24.{half:lo|hi}.{type:u32|s32}", takes="type type", by_parts=True)
def _product_24(parts: dict[str, str], a: Array, b: Array) -> Array:
    """Bits 0-31 or 16-47 of the product of the low 24 bits."""
    eight = a.dtype.type(8)
    x, y = ((factor << eight) >> eight for factor in (a, b))
    product = x.astype(f"{a.dtype.kind}8") * y
    high = parts["half"] == "hi"
    return (product >> product.dtype.type(16) if high else product).astype(a.dtype)


@computed(
    "mad24.{half:lo|hi}.{type:u32|s32}", "mad24.{half:hi}.{sat:sat}.{type:s32}",
    takes="type type type", by_parts=True,
)  # fmt: skip
def _multiply_add_24(parts: dict[str, str], a: Array, b: Array, c: Array) -> Array:
    return (_add_saturated if parts.get("sat") else np.add)(_product_24(parts, a, b), c)


_same("sad" + _TYPE, lambda a, b, c: c + distance(a, b), 3)


computed("popc.{type:b32|b64}", takes="type", gives="u32")(count_ones)
computed("clz.{type:b32|b64}", takes="type", gives="u32")(leading_zeros)
computed("brev.{type:b32|b64}", takes="type")(reversed_bits)


@computed("bfind?{shift:shiftamt}.{type:u32|u64|s32|s64}", takes="type", gives="u32", by_parts=True)
def _find_highest(parts: dict[str, str], a: Array) -> Array:
    return find_highest(a, from_top=bool(parts["shift"]))


@opcode("fns.b32")
def _nth_set(line: Binder) -> Step:
    def place(mask: int, base: int, offset: int) -> int:
        if offset == 0:
            return base if base < 32 and mask >> base & 1 else 0xFFFF_FFFF
        step, count, at = (1, offset, base) if offset > 0 else (-1, -offset, base)
        while 0 <= at < 32:
            count -= mask >> at & 1
            if count == 0:
                return at
            at += step
        return 0xFFFF_FFFF

    places = np.frompyfunc(lambda m, b, o: place(int(m), int(b), int(o)), 3, 1)
    return line.computed(
        lambda m, b, o: places(m, b, o).astype(np.uint32), ["b32", "b32", "s32"], "b32"
    )


@computed("bfe.{type:u32|u64|s32|s64}", takes="type u32 u32")
def _extract(a: Array, position: Array, length: Array) -> Array:
    position, length = position & 0xFF, length & 0xFF
    bits, unsigned = a.dtype.itemsize * 8, f"u{a.dtype.itemsize}"
    # The sign is that of the last bit of the field, or of the whole number beyond its end.
    field = shifted_right(a, position)
    room = np.clip(bits - length.astype(np.int64), 0, bits)
    if a.dtype.kind == "u":
        return shifted_right(shifted_left(field, room), room)
    last = np.minimum(position.astype(np.int64) + length - 1, bits - 1)
    sign = np.where(length == 0, 0, -(shifted_right(a.view(unsigned), last) & 1).view(a.dtype))
    low = shifted_right(shifted_left(field.view(unsigned), room), room)
    signs = shifted_left(sign.astype(a.dtype).view(unsigned), np.minimum(length, bits))
    return (low | signs).view(a.dtype)


@computed("bfi.{type:b32|b64}", takes="type type u32 u32")
def _insert(a: Array, b: Array, position: Array, length: Array) -> Array:
    position, length = position & 0xFF, length & 0xFF
    ones = ~shifted_left(~a.dtype.type(0) & (b | ~b), np.minimum(length, a.dtype.itemsize * 8))
    mask = shifted_left(ones, position)
    return (b & ~mask) | (shifted_left(a, position) & mask)


@computed("szext.{mode:clamp|wrap}.{type:u32|s32}", takes="type u32", by_parts=True)
def _extend(parts: dict[str, str], a: Array, b: Array) -> Array:
    return extended(a, b, wraps=parts["mode"] == "wrap")


@computed("bmsk.{mode:clamp|wrap}.b32", takes="b32 b32", gives="b32", by_parts=True)
def _bit_mask(parts: dict[str, str], a: Array, b: Array) -> Array:
    return bit_mask(a, b, wraps=parts["mode"] == "wrap")


@opcode("dp4a.{a:u32|s32}.{b:u32|s32}", "dp2a.{half:lo|hi}.{a:u32|s32}.{b:u32|s32}")
def _dot_product(line: Binder) -> Step:
    half = line.parts.get("half")
    function = partial(dp2a, high=half == "hi") if half else dp4a
    signs: dict[str, Any] = {f"{name}_signed": line.parts[name][0] == "s" for name in "ab"}
    return line.computed(partial(function, **signs), ["b32"] * 3, "b32")


_CARRY_TYPE = ".{type:u32|s32|u64|s64|b32|b64}"


@opcode("addc|subc?{cc:cc}" + _CARRY_TYPE, "add|sub.{cc:cc}" + _CARRY_TYPE)
def _add(line: Binder) -> Step:
    return _carrying(line, line.read(1, _bits(line)), line.read(2, _bits(line)))


@opcode(
    "mad.{half:lo|hi}.{cc:cc}.{type:u32|s32|u64|s64}",
    "madc.{half:lo|hi}?{cc:cc}.{type:u32|s32|u64|s64}",
)  # fmt: skip
def _multiply_add(line: Binder) -> Step:
    kind = line.parts["type"]
    a, b, right = line.read(1, kind), line.read(2, kind), line.read(3, _bits(line))

    def left(registers: Registers) -> Array:
        x, y = a(registers), b(registers)
        product = x * y if line.parts["half"] == "lo" else high_product(x, y)
        return product.view(f"u{product.dtype.itemsize}")

    return _carrying(line, left, right)


def _bits(line: Binder) -> str:
    return f"b{line.parts['type'][1:]}"


def _carrying(line: Binder, left: Reader, right: Reader) -> Step:
    takes, subtracts = line.base.endswith("c"), line.base.startswith("sub")
    slot, _ = line.target(line.operand(0), _bits(line))
    carry = line.slots.hidden("%cc", 1)
    sets = bool(line.parts["cc"])

    def run(registers: Registers) -> None:
        frame = registers[0]
        a, b = left(registers), right(registers)
        extra = registers[carry].astype(a.dtype) if takes else a.dtype.type(0)
        if subtracts:
            # The condition code of a subtraction is its borrow.
            first = a - b
            result = first - extra
            out = (a < b) | (first < extra)
        else:
            first = a + b
            result = first + extra
            out = (first < a) | (result < first)
        frame.write(slot, result)
        if sets:
            frame.write(carry, np.asarray(out))

    return Step(run, (slot, carry) if sets else (slot,))


_SELECTED = re.compile(
    r"(?P<minus>-?)\s*(?P<name>[^.\s]+)(?:\.(?P<kind>[bh])(?P<digits>[0-7]+))?\Z"
)
_WIDTHS = {"b": 8, "h": 16}
_WORD = 0xFFFF_FFFF
# Bits of what a scalar instruction computes before it saturates; signed.
_BETWEEN = 34
_SIGNS = ".{d:u32|s32}.{a:u32|s32}.{b:u32|s32}"
_SECOND = "?{second:add|min|max}"
_ORDER = ".{order:eq|ne|lt|le|gt|ge}"
_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add, "sub": np.subtract, "min": np.minimum, "max": np.maximum,
    "absdiff": lambda a, b: np.abs(a - b),
    # Halves are rounded away from zero.
    "avrg": lambda a, b: (a + b + (a + b >= 0)) >> 1,
}  # fmt: skip


def _selected(line: Binder, text: str) -> tuple[bool, str, int, list[int]]:
    """An operand's minus, its register, the width of its parts and their numbers, lowest first."""
    match = _SELECTED.match(text)
    if not match:
        raise line.refuse(f"has the operand {text}, which cannot be read")
    numbers = [int(digit) for digit in reversed(match["digits"] or "0")]
    return bool(match["minus"]), match["name"], _WIDTHS.get(match["kind"], 32), numbers


def _selected_part(line: Binder, text: str) -> tuple[bool, str, int, int]:
    """The same where one part may be selected: with its number."""
    minus, name, width, numbers = _selected(line, text)
    if len(numbers) != 1 or numbers[0] >= 32 // width:
        raise line.refuse(f"selects the parts {text}")
    return minus, name, width, numbers[0]


def _signed(value: Array, width: int, *, is_signed: bool) -> Array:
    wide = value.astype(np.int64) & ((1 << width) - 1)
    return wide - ((wide >> (width - 1)) << width) if is_signed else wide


def _part(line: Binder, number: int, kind: str) -> tuple[bool, Reader]:
    """A scalar operand: whether it is negated, and the part that it selects as int64."""
    minus, name, width, place = _selected_part(line, line.operand(number))
    reader = line.source(name, "b32")

    def read(registers: Registers) -> Array:
        return _signed(
            reader(registers) >> np.uint32(width * place), width, is_signed=kind == "s32"
        )

    return minus, read


def _clamped(value: Array, width: int, *, is_signed: bool) -> Array:
    low = -(1 << (width - 1)) if is_signed else 0
    return np.clip(value, low, low + (1 << width) - 1)


def _finished(line: Binder, compute: Callable[[Registers], Array], kind: str, third: int) -> Step:
    """Saturate, then apply a second operation or put the result into a part of the last operand."""
    _, name, width, place = _selected_part(line, line.operand(0))
    second, has_part = line.parts["second"], name != line.operand(0).strip()
    if line.count != third + bool(second or has_part):
        raise line.refuse(f"has {line.count} operands")
    c = line.read(third, "b32") if second or has_part else None
    mask = ((1 << width) - 1) << (width * place)
    is_signed = kind == "s32"

    def read(registers: Registers) -> Array:
        value = _signed(compute(registers), _BETWEEN, is_signed=True)
        if line.parts.get("sat"):
            value = _clamped(value, width, is_signed=is_signed)
        if c is not None and second:
            value = _BINARY[second](value, _signed(c(registers), 32, is_signed=is_signed))
        elif c is not None:
            value = ((value << (width * place)) & mask) | (c(registers).astype(np.int64) & ~mask)
        return (value & _WORD).astype(np.uint32)

    return line.gives("b32", read, name)


@opcode(
    f"vadd|vsub|vabsdiff|vmin|vmax{_SIGNS}?{{sat:sat}}{_SECOND}",
    f"vset.{{a:u32|s32}}.{{b:u32|s32}}{_ORDER}{_SECOND}",
    f"vshl|vshr.{{d:u32|s32}}.{{a:u32|s32}}.{{b:u32}}?{{sat:sat}}.{{mode:clamp|wrap}}{_SECOND}",
)
def _scalar(line: Binder) -> Step:
    _, a = _part(line, 1, line.parts["a"])
    _, b = _part(line, 2, line.parts["b"])
    mode, name = line.parts.get("mode"), line.base[1:]

    def shift(value: Array, amount: Array) -> Array:
        amount = amount & 31 if mode == "wrap" else np.minimum(amount, 32)
        return value << amount if name == "shl" else value >> amount

    compare = COMPARE[line.parts.get("order", "eq")]
    function = shift if mode else compare if name == "set" else _BINARY[name]
    return _finished(
        line, lambda r: function(a(r), b(r)).astype(np.int64), line.parts.get("d", "u32"), 3
    )


@opcode(f"vmad{_SIGNS}?{{po:po}}?{{sat:sat}}?{{scale:shr7|shr15}}")
def _video_multiply_add(line: Binder) -> Step:
    minus_a, a = _part(line, 1, line.parts["a"])
    minus_b, b = _part(line, 2, line.parts["b"])
    minus_c, name, _, _ = _selected(line, line.operand(3))
    c, is_minus = line.source(name, "b32"), minus_a != minus_b
    shift = int((line.parts["scale"] or "shr0")[3:])
    is_signed = "s32" in (line.parts["a"], line.parts["b"]) or is_minus or minus_c

    def read(registers: Registers) -> Array:
        product = a(registers).astype(object) * b(registers).astype(object)
        addend = c(registers)
        if not is_minus and minus_c:
            addend = ~addend
        whole = _signed(addend, 32, is_signed=is_signed).astype(object)
        whole = whole + (-product if is_minus else product)
        if line.parts["po"] or (minus_c and not is_minus):
            whole = whole + 1
        whole = np.asarray(whole >> shift)
        if line.parts["sat"]:
            whole = _clamped(whole, 32, is_signed=is_signed)
        return np.asarray(whole & _WORD).astype(np.uint32)

    return line.gives("b32", read)


_BY_PARTS = "|".join(
    f"v{name}{many}" for name in ("add", "sub", "avrg", "absdiff", "min", "max") for many in (2, 4)
)


@opcode(
    f"{_BY_PARTS}{_SIGNS}?{{sat:sat}}",
    f"{_BY_PARTS}{_SIGNS}.{{second:add}}",
    f"vset2|vset4.{{a:u32|s32}}.{{b:u32|s32}}{_ORDER}?{{second:add}}",
)
def _parts(line: Binder) -> Step:
    many = int(line.base[-1])
    width = 32 // many
    order = line.parts.get("order")
    function = COMPARE[order] if order else _BINARY[line.base[1:-1]]
    a, b = _lanes(line, 1, width, 0), _lanes(line, 2, width, many)
    _, target, _, mask = _selected(line, line.operand(0))
    chosen = mask if target != line.operand(0).strip() else list(range(many))
    c, is_sum = line.read(3, "b32"), bool(line.parts.get("second"))

    def read(registers: Registers) -> Array:
        third = c(registers).astype(np.int64)
        result = third
        for place in range(many):
            if place not in chosen:
                continue
            value = function(a(registers, place), b(registers, place)).astype(np.int64)
            if line.parts.get("sat"):
                value = _clamped(value, width, is_signed=line.parts["d"] == "s32")
            if is_sum:
                result = result + value
                continue
            field = ((1 << width) - 1) << (width * place)
            result = (result & ~field) | ((value << (width * place)) & field)
        return (result & _WORD).astype(np.uint32)

    return line.gives("b32", read, target)


def _lanes(line: Binder, number: int, width: int, first: int) -> Callable[[Registers, int], Array]:
    """A function that reads a part of the operands 1 and 2 side by side, as an operand selects."""
    _, name, chosen_width, numbers = _selected(line, line.operand(number))
    many = 32 // width
    if name == line.operand(number).strip():
        numbers = [first + place for place in range(many)]
    elif chosen_width != width or len(numbers) != many or max(numbers) >= 2 * many:
        raise line.refuse(f"selects the parts {line.operand(number)}")
    readers = [line.source(_selected(line, line.operand(n))[1], "b32") for n in (1, 2)]
    is_signed = line.parts["a" if number == 1 else "b"] == "s32"

    def read(registers: Registers, place: int) -> Array:
        source, shift = divmod(numbers[place], many)
        value = readers[source](registers) >> np.uint32(width * shift)
        return _signed(value, width, is_signed=is_signed)

    return read
