"""Sums and products longer than a register. PTX ISA, "Extended-Precision Integer Arithmetic".

The condition code is a register of its own; what sets or reads it is not pure.
"""

from __future__ import annotations

import numpy as np

from gpu_emulator.ptx.instructions.integers import high_product
from gpu_emulator.ptx.program.binder import Binder
from gpu_emulator.ptx.program.table import opcode
from gpu_emulator.steps import Reader, Registers, Step
from gpu_emulator.types import Array

__all__: list[str] = []

_TITLE = "Extended-Precision Integer Arithmetic Instructions"
_TYPE = ".{type:u32|s32|u64|s64|b32|b64}"


@opcode(
    "addc?{cc:cc}" + _TYPE,
    "add.{cc:cc}" + _TYPE,
    "subc?{cc:cc}" + _TYPE,
    "sub.{cc:cc}" + _TYPE,
    section=f"{_TITLE}: add.cc, addc, sub.cc, subc",
)
def _add(line: Binder) -> Step:
    base = line.line.opcode.split(".", 1)[0]
    left, right = line.read(1, _bits(line)), line.read(2, _bits(line))
    return _carrying(line, left, right, takes=base.endswith("c"), subtracts=base.startswith("sub"))


@opcode(
    "mad.{half:lo|hi}.{cc:cc}.{type:u32|s32|u64|s64}",
    "madc.{half:lo|hi}?{cc:cc}.{type:u32|s32|u64|s64}",
    section=f"{_TITLE}: mad.cc, madc",
)
def _multiply_add(line: Binder) -> Step:
    kind = line.parts["type"]
    a, b, right = line.read(1, kind), line.read(2, kind), line.read(3, _bits(line))

    def left(registers: Registers) -> Array:
        x, y = a(registers), b(registers)
        product = x * y if line.parts["half"] == "lo" else high_product(x, y)
        return product.view(f"u{product.dtype.itemsize}")

    return _carrying(line, left, right, takes=line.line.opcode.startswith("madc"), subtracts=False)


def _bits(line: Binder) -> str:
    return f"b{line.parts['type'][1:]}"


def _carrying(line: Binder, left: Reader, right: Reader, *, takes: bool, subtracts: bool) -> Step:
    slot, _ = line.target(line.operand(0), _bits(line))
    carry = line.slots.condition_code()
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

    return Step(run, (slot, carry) if sets else (slot,), is_pure=False)
