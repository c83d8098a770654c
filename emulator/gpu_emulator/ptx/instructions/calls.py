"""Calls that no function of the PTX answers, and the stack of a thread.

PTX ISA, "Control Flow Instructions: call", "Stack Manipulation Instructions". A call of a function
that the module defines is that function's own lines (`program.listing`); what is left are the two
that every driver brings along, and calls that lead nowhere. Their opcodes begin with `%`: no PTX
can say them.
"""

from __future__ import annotations

import re
import struct

import numpy as np

from gpu_emulator.ptx.program.binder import Binder, opcode
from gpu_emulator.ptx.program.listing import STACK, STACK_BYTES
from gpu_emulator.state.frame import Frame, Memory, Trouble
from gpu_emulator.steps import DTYPES, Array, Registers, Step

_LONGEST = 4096
_FORMAT = re.compile(
    r"%(?P<flags>[-+ #0]*)(?P<width>\d*|\*)(?P<precision>(?:\.\d*)?)(?P<size>hh|h|ll|l|z|t|j|L)?"
    r"(?P<kind>[diouxXcsfFeEgGaAp%])"
)
_WIDE = ("ll", "l", "z", "t", "j")


def _text(frame: Frame, address: int) -> str:
    """The bytes up to a zero at a generic address of global memory."""
    memory: Memory = frame.batch.memories["global"]
    start = address - memory.base
    if memory.region_of(start) < 0 or not 0 <= start < len(memory.data):
        return f"(no text at {hex(address)})"
    raw = memory.data[start : start + _LONGEST].tobytes()
    return raw.partition(b"\0")[0].decode(errors="replace")


@opcode("%assertfail")
def _assertion(line: Binder) -> Step:
    """`__assertfail(message, file, line, function, char size)`: the run ends."""
    readers = [line.read(number, "b32" if number == 2 else "b64") for number in range(4)]

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        active = frame.active()
        if not active.any():
            return
        row, column = np.argwhere(active)[0].tolist()
        message, file, number, function = (
            int(frame.full(reader(registers))[row, column]) for reader in readers
        )
        inside = _text(frame, function)
        words = [f"{_text(frame, file).rpartition('/')[2]}:{number}"]
        words += [inside] if inside != "unknown" else []
        cta = tuple(frame.batch.coordinates[row].tolist())
        raise Trouble(
            f"the assertion '{_text(frame, message)}' fails ({' in '.join(filter(None, words))}):"
            f" thread {column + frame.first} of CTA {cta}, {int(active.sum())} threads at once",
            "assertion",
        )

    return Step(run)


@opcode("%vprintf")
def _print(line: Binder) -> Step:
    """`vprintf(format, arguments)`: what threads print is kept, thread by thread."""
    slot, _ = line.target(line.operand(0), "b32")
    form, arguments = line.read(1, "b64"), line.read(2, "b64")

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        forms, places = frame.full(form(registers)), frame.full(arguments(registers))
        counts = np.zeros(frame.shape, dtype=np.uint32)
        for row, column in np.argwhere(frame.active()).tolist():
            if frame.batch.findings.is_full():
                continue
            text = _text(frame, int(forms[row, column]))
            values = _Values(frame, row, column, int(places[row, column]))
            words = _FORMAT.sub(values.spelled, text)
            counts[row, column] = values.count
            frame.batch.findings.messages.append(words.rstrip("\n"))
        frame.write(slot, counts)

    return Step(run, (slot,))


class _Values:
    """The arguments of `vprintf`, one after the other, each at a multiple of its size."""

    def __init__(self, frame: Frame, row: int, column: int, address: int) -> None:
        self._frame = frame
        self._at = 0
        self.count = 0
        spaces = ("local", "global", "shared", "param")
        where = np.array([address], np.uint64)
        space = next((name for name in spaces if frame.batch.is_in(name, where)[0]), "global")
        self._memory: Memory = frame.batch.memories[space]
        start = address - (frame.batch.windows[space] or self._memory.base)
        if space == "local":
            start += (row * frame.batch.threads + frame.first + column) * self._memory.stride
        elif space == "shared":
            start += row * self._memory.stride
        self._start = start

    def spelled(self, form: re.Match[str]) -> str:
        kind = form["kind"]
        if kind == "%":
            return "%"
        width = str(self._number(4, "<i")) if form["width"] == "*" else form["width"]
        style = f"%{form['flags']}{width}{form['precision']}"
        self.count += 1
        if kind in "fFeEgGaA":
            value = self._number(8, "<d")
            return float(value).hex() if kind in "aA" else f"{style}{kind}" % value
        if kind in "sp":
            address = int(self._number(8, "<Q"))
            return f"{style}s" % (hex(address) if kind == "p" else _text(self._frame, address))
        size = 8 if form["size"] in _WIDE else 4
        signed = kind in "dic"
        letter = "q" if size == 8 else "i"
        value = int(self._number(size, f"<{letter if signed else letter.upper()}"))
        if kind == "c":
            return chr(value & 0xFF)
        return f"{style}{'d' if kind in 'diu' else kind}" % value

    def _number(self, size: int, how: str) -> int | float:
        self._at = -(-self._at // size) * size
        start = self._start + self._at
        self._at += size
        raw = self._memory.data[max(start, 0) : start + size].tobytes()
        return struct.unpack(how, raw.ljust(size, b"\0"))[0]


@opcode("%too_deep")
def _too_deep(line: Binder) -> Step:
    why = line.refuse(f"is nested deeper than {line.operand(0)} calls: so deep none is executed")

    def run(registers: Registers) -> None:
        if registers[0].active().any():
            raise why

    return Step(run)


@opcode("%no_function")
def _no_function(line: Binder) -> Step:
    address = line.read(0, "b64")

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        active = frame.active()
        if active.any():
            value = int(frame.full(address(registers))[active].flat[0])
            raise Trouble(f"a call to {hex(value)}, where no function begins that it may call")

    return Step(run)


@opcode("stacksave.{type:u32|u64}")
def _save(line: Binder) -> Step:
    stack, dtype = line.source(STACK, "b64"), DTYPES[line.parts["type"]]
    return line.gives(line.parts["type"], lambda registers: stack(registers).astype(dtype))


@opcode("stackrestore.{type:u32|u64}")
def _restore(line: Binder) -> Step:
    saved = line.read(0, line.parts["type"])
    return line.gives("b64", lambda registers: saved(registers).astype(np.uint64), STACK)


@opcode("alloca.{type:u32|u64}")
def _allocate(line: Binder) -> Step:
    """The stack grows down, towards where a thread's own variables end."""
    stack, lowest = line.source(STACK, "b64"), line.source(f"{STACK}$memory", "b64")
    top = line.slots.register(STACK)
    slot, convert = line.target(line.operand(0), line.parts["type"])
    size, align = line.read(1, line.parts["type"]), max(line.constant(2) or 8, 8)
    if align & (align - 1) or align > 1 << 23:
        raise line.refuse(f"has the alignment {align}, which is no power of 2 up to 2^23")
    dtype = DTYPES[line.parts["type"]]

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        amount = size(registers).astype(np.float64)
        low = lowest(registers).astype(np.int64)
        room = stack(registers).astype(np.int64) - low
        active = frame.active()
        if (frame.full(amount > room) & active).any():
            raise Trouble(f"the stack of {STACK_BYTES:,} bytes overflows")
        place = room - np.minimum(amount, room).astype(np.int64)
        at: Array = ((place + low) & -align).astype(np.int64)
        if (frame.full(at < low) & active).any():
            raise Trouble(f"the stack of {STACK_BYTES:,} bytes overflows")
        frame.write(top, at.astype(np.uint64))
        value = at.astype(dtype)
        frame.write(slot, value if convert is None else convert(value))

    return Step(run, (top, slot))
