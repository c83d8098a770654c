"""Video instructions: scalar ones and those on two halves or four bytes. PTX ISA, "Video".

Operands select parts by suffixes (`%r1.h0`, `%r2.b3210`), and so do results: which parts of the
third operand they replace. What is computed between is wider than a register.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from gpu_emulator.ptx.program.binder import Binder
from gpu_emulator.ptx.program.table import opcode
from gpu_emulator.steps import Reader, Registers, Step
from gpu_emulator.types import Array

__all__: list[str] = []

_SCALAR = "Scalar Video Instructions"
_SIMD = "SIMD Video Instructions"
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
_COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal,
}  # fmt: skip
_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add, "sub": np.subtract, "min": np.minimum, "max": np.maximum,
    "absdiff": lambda a, b: np.abs(a - b),
    # Halves are rounded away from zero.
    "avrg": lambda a, b: (a + b + (a + b >= 0)) >> 1,
}  # fmt: skip


def _selected(line: Binder, text: str) -> tuple[bool, str, int, list[int]]:
    """An operand's minus, its register, the width of its parts and their numbers, lowest first."""
    found = _SELECTED.match(text)
    if not found:
        raise line.refuse(f"has the operand {text}, which cannot be read")
    numbers = [int(each) for each in reversed(found["digits"] or "0")]
    return bool(found["minus"]), found["name"], _WIDTHS.get(found["kind"], 32), numbers


def _one(line: Binder, text: str) -> tuple[bool, str, int, int]:
    """The same where one part may be selected: with its number."""
    minus, name, width, numbers = _selected(line, text)
    if len(numbers) != 1 or numbers[0] >= 32 // width:
        raise line.refuse(f"selects the parts {text}")
    return minus, name, width, numbers[0]


def _signed(value: Array, width: int, *, is_signed: bool) -> Array:
    """The low bits as int64, with their sign or without."""
    wide = value.astype(np.int64) & ((1 << width) - 1)
    return wide - ((wide >> (width - 1)) << width) if is_signed else wide


def _part(line: Binder, number: int, kind: str) -> tuple[bool, Reader]:
    """A scalar operand: whether it is negated, and the part that it selects as int64."""
    minus, name, width, place = _one(line, line.operand(number))
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
    _, name, width, place = _one(line, line.operand(0))
    slot, convert = line.target(name, "b32")
    second, has_part = line.parts["second"], name != line.operand(0).strip()
    if line.count != third + bool(second or has_part):
        raise line.refuse(f"has {line.count} operands")
    c = line.read(third, "b32") if second or has_part else None
    mask = ((1 << width) - 1) << (width * place)
    is_signed = kind == "s32"

    def run(registers: Registers) -> None:
        value = _signed(compute(registers), _BETWEEN, is_signed=True)
        if line.parts.get("sat"):
            value = _clamped(value, width, is_signed=is_signed)
        if c is not None and second:
            value = _BINARY[second](value, _signed(c(registers), 32, is_signed=is_signed))
        elif c is not None:
            value = ((value << (width * place)) & mask) | (c(registers).astype(np.int64) & ~mask)
        bits = (value & _WORD).astype(np.uint32)
        registers[slot] = bits if convert is None else convert(bits)

    return Step(run, (slot,), is_pure=True)


@opcode(
    *(f"v{name}{_SIGNS}?{{sat:sat}}{_SECOND}" for name in ("add", "sub", "absdiff", "min", "max")),
    section=f"{_SCALAR}: vadd, vsub, vabsdiff, vmin, vmax", pure=True,
)  # fmt: skip
def _scalar(line: Binder) -> Step:
    function = _BINARY[line.line.opcode.split(".")[0][1:]]
    _, a = _part(line, 1, line.parts["a"])
    _, b = _part(line, 2, line.parts["b"])
    return _finished(line, lambda r: function(a(r), b(r)), line.parts["d"], 3)


@opcode(f"vset.{{a:u32|s32}}.{{b:u32|s32}}{_ORDER}{_SECOND}", section=f"{_SCALAR}: vset", pure=True)
def _compare(line: Binder) -> Step:
    compare = _COMPARE[line.parts["order"]]
    _, a = _part(line, 1, line.parts["a"])
    _, b = _part(line, 2, line.parts["b"])
    return _finished(line, lambda r: compare(a(r), b(r)).astype(np.int64), "u32", 3)


@opcode(
    *(
        f"{name}.{{d:u32|s32}}.{{a:u32|s32}}.{{b:u32}}?{{sat:sat}}.{{mode:clamp|wrap}}{_SECOND}"
        for name in ("vshl", "vshr")
    ),
    section=f"{_SCALAR}: vshl, vshr", pure=True,
)  # fmt: skip
def _shift(line: Binder) -> Step:
    is_left, wraps = line.line.opcode.startswith("vshl"), line.parts["mode"] == "wrap"
    _, a = _part(line, 1, line.parts["a"])
    _, b = _part(line, 2, "u32")

    def compute(registers: Registers) -> Array:
        value, amount = a(registers), b(registers)
        amount = amount & 31 if wraps else np.minimum(amount, 32)
        return value << amount if is_left else value >> amount

    return _finished(line, compute, line.parts["d"], 3)


@opcode(
    f"vmad{_SIGNS}?{{po:po}}?{{sat:sat}}?{{scale:shr7|shr15}}",
    section=f"{_SCALAR}: vmad", pure=True,
)  # fmt: skip
def _multiply_add(line: Binder) -> Step:
    minus_a, a = _part(line, 1, line.parts["a"])
    minus_b, b = _part(line, 2, line.parts["b"])
    minus_c, name, _, _ = _selected(line, line.operand(3))
    c, is_minus = line.source(name, "b32"), minus_a != minus_b
    shift = int((line.parts["scale"] or "shr0")[3:])
    is_signed = "s32" in (line.parts["a"], line.parts["b"]) or is_minus or minus_c
    slot, convert = line.target(line.operand(0), "b32")

    def run(registers: Registers) -> None:
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
        bits = np.asarray(whole & _WORD).astype(np.uint32)
        registers[slot] = bits if convert is None else convert(bits)

    return Step(run, (slot,), is_pure=True)


@opcode(
    *(
        f"v{name}{many}{_SIGNS}{end}"
        for name in ("add", "sub", "avrg", "absdiff", "min", "max")
        for many in (2, 4)
        for end in ("?{sat:sat}", ".{second:add}")
    ),
    *(
        f"vset{many}.{{a:u32|s32}}.{{b:u32|s32}}{_ORDER}?{{second:add}}"
        for many in (2, 4)
    ),
    section=f"{_SIMD}: vadd2, vsub2, vavrg2, vabsdiff2, vmin2, vmax2, vset2, vadd4, ...", pure=True,
)  # fmt: skip
def _parts(line: Binder) -> Step:
    name, is_four = line.line.opcode.split(".")[0][1:-1], line.line.opcode.split(".")[0][-1] == "4"
    width, many = (8, 4) if is_four else (16, 2)
    order = line.parts.get("order")
    function = _COMPARE[order] if order else _BINARY[name]
    a, b = _lanes(line, 1, width, 0), _lanes(line, 2, width, many)
    _, target, _, mask = _selected(line, line.operand(0))
    chosen = mask if target != line.operand(0).strip() else list(range(many))
    slot, convert = line.target(target, "b32")
    c, is_sum = line.read(3, "b32"), bool(line.parts.get("second"))

    def run(registers: Registers) -> None:
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
        bits = (result & _WORD).astype(np.uint32)
        registers[slot] = bits if convert is None else convert(bits)

    return Step(run, (slot,), is_pure=True)


def _lanes(line: Binder, number: int, width: int, first: int) -> Callable[[Registers, int], Array]:
    """A function that reads a part of the operands 1 and 2 side by side, as an operand selects."""
    _, name, chosen_width, numbers = _selected(line, line.operand(number))
    many = 32 // width
    if name == line.operand(number).strip():
        numbers = [first + place for place in range(many)]
    elif chosen_width != width or len(numbers) != many or max(numbers) >= 2 * many:
        raise line.refuse(f"selects the parts {line.operand(number)}")
    readers = [line.source(_selected(line, line.operand(each))[1], "b32") for each in (1, 2)]
    is_signed = line.parts["a" if number == 1 else "b"] == "s32"

    def read(registers: Registers, place: int) -> Array:
        source, shift = divmod(numbers[place], many)
        value = readers[source](registers) >> np.uint32(width * shift)
        return _signed(value, width, is_signed=is_signed)

    return read
