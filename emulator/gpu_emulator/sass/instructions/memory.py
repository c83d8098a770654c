"""Loads, stores and atomic operations of all spaces.

How strong an access is follows the PTX ISA, "Memory Consistency Model", of what ptxas makes it of.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gpu_emulator.numbers.arithmetic import combine
from gpu_emulator.sass.binder import Binder, opcode
from gpu_emulator.sass.listing import Operand
from gpu_emulator.state.atomics import apply_to_memory
from gpu_emulator.state.frame import (
    WEAK,
    WITHIN_CTA,
    WITHIN_GPU,
    Semantics,
    gather,
    joined_words,
    scatter,
)
from gpu_emulator.steps import BITS, Array, Reader, Registers, Step

_SPACES = {"G": "global", "": "generic", "L": "local", "S": "shared"}
_SIZES = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "": 4, "32": 4, "64": 8, "128": 16,
          "ENL2.256": 16}  # fmt: skip
_CACHE = "?{cache:EF|EL|LU|EU|NA}?{ltc:LTC64B|LTC128B|LTC256B}"
_SIZE = "?{size:U8|S8|U16|S16|64|128}"
_STRONG = ".STRONG.{scope:SM|GPU|SYS}"


def _address(line: Binder, number: int) -> Reader:
    is_wide = _SPACES[line.base[2:]] in ("global", "generic")
    return line.address(line.operands[number], is_wide=is_wide)


def semantics(line: Binder) -> Semantics:
    """How strong the access is, by the scope that its opcode names."""
    scope = line.parts.get("scope")
    if not scope:
        return WEAK
    line.is_plain = False
    return Semantics(WITHIN_CTA if scope == "SM" else WITHIN_GPU)


@opcode(
    f"LDG.E{_CACHE}{_SIZE}?{{how:CONSTANT}}", f"LDG.E{_CACHE}{_SIZE}{_STRONG}",
    f"LD.E{_CACHE}{_SIZE}", f"LD.E{_CACHE}{_SIZE}{_STRONG}",
    f"LDL?{{cache:LU}}{_SIZE}", f"LDS{_SIZE}", f"LDG.E{_CACHE}.{{size:ENL2.256}}?{{how:CONSTANT}}",
    evidence="CUDA Binary Utilities; PTX ISA: ld; 256 bits for sm_100a",
)  # fmt: skip
def _load(line: Binder) -> Step:
    """256 bits are twice 128: the upper ones go to the first register."""
    size, word = _SIZES[line.parts["size"]], line.parts["size"]
    *targets, _ = line.operands
    if len(targets) != 1 + (word == "ENL2.256"):
        raise line.refuse()
    slots = tuple(
        slot
        for target in reversed(targets)
        for slot in line.vector_results(target, max(size // 4, 1), "R")
    )
    address, space = _address(line, len(targets)), _SPACES[line.base[2:]]
    how = semantics(line)
    line.accesses.add((space, size))
    widen = _widened(word, size)

    def run(registers: Registers) -> None:
        frame, at = registers[0], address(registers)
        values = [gather(registers, space, size, at + size * n, how) for n in range(len(targets))]
        parts = [part for value in values for part in widen(value)]
        for slot, part in zip(slots, parts, strict=True):
            frame.write(slot, part)

    return Step(run, slots)


def _widened(word: str, size: int) -> Callable[[Array], tuple[Array, ...]]:
    if size > 4:
        return _words
    if word.startswith("S"):
        return lambda value: (value.view(f"i{size}").astype(np.int32).view(np.uint32),)
    return lambda value: (value.astype(np.uint32, copy=False),)


def _words(value: Array) -> tuple[Array, ...]:
    parts = np.ascontiguousarray(value)[..., None].view(np.uint32)
    return tuple(parts[..., number] for number in range(parts.shape[-1]))


@opcode(
    f"STG.E{_CACHE}{_SIZE}", f"STG.E{_CACHE}{_SIZE}{_STRONG}", f"ST.E{_CACHE}{_SIZE}",
    f"ST.E{_CACHE}{_SIZE}{_STRONG}", f"STL{_SIZE}", f"STS{_SIZE}",
    f"STG.E{_CACHE}.{{size:ENL2.256}}", f"STG.E{_SIZE}.MMIO.{{scope:SYS}}",
    evidence="CUDA Binary Utilities; PTX ISA: st; 256 bits for sm_100a",
)  # fmt: skip
def _store(line: Binder) -> Step:
    size = _SIZES[line.parts["size"]]
    _, *sources = line.operands
    count = max(size // 4, 1)
    if len(sources) != 1 + (line.parts["size"] == "ENL2.256"):
        raise line.refuse()
    readers: list[Reader] = []
    for source in sources:
        if source.kind not in ("R", "UR") or source.suffixes:
            raise line.refuse(source)
        readers += [
            line.read(Operand(source.text, source.kind, None if source.number is None
                              else source.number + more, source.sign, source.is_absolute), "b32")
            for more in range(count)
        ]  # fmt: skip
    address, space = _address(line, 0), _SPACES[line.base[2:]]
    how = semantics(line)
    line.accesses.add((space, size))

    def run(registers: Registers) -> None:
        values, at = [read(registers) for read in readers], address(registers)
        for more in range(len(sources)):
            own = values[more * count : (more + 1) * count]
            value = own[0].astype(f"u{size}", copy=False) if size <= 4 else joined_words(own)
            scatter(registers, space, at + size * more, value, how)

    return Step(run)


_STRENGTH = ".STRONG.{scope:SM|GPU|SYS}"
_OPERATIONS = (
    "{op:AND|OR|XOR|EXCH|ADD|MIN|MAX}?{type:S32|64}", "{op:MIN|MAX}.{type:S64}",
    "{op:INC|DEC}", "{op:ADD}.{type:F32|F32x2|F32x4}.FTZ.RN", "{op:ADD}.{type:F64}.RN",
    "{op:ADD|MIN|MAX}.{type:F16x2|F16x4|F16x8|BF16x2|BF16x4|BF16x8}.RN",
    "{op:ADD}.{type:BF16_V2}.RN",
)  # fmt: skip
# The type of each word, and how many words there are.
_TYPES = {
    "": ("u32", 1), "S32": ("s32", 1), "64": ("u64", 1), "S64": ("s64", 1), "F32": ("f32", 1),
    "F64": ("f64", 1), "F32x2": ("f32", 2), "F32x4": ("f32", 4), "F16x2": ("f16x2", 1),
    "F16x4": ("f16x2", 2), "F16x8": ("f16x2", 4), "BF16x2": ("bf16x2", 1), "BF16x4": ("bf16x2", 2),
    "BF16x8": ("bf16x2", 4), "BF16_V2": ("bf16x2", 1), "128": ("b128", 1),
}  # fmt: skip


@opcode(
    *(f"ATOMG|ATOM|REDG|RED.E.{form}{_STRENGTH}" for form in _OPERATIONS),
    f"ATOMG|ATOM.E.{{op:CAS}}?{{type:64}}{_STRENGTH}",
    f"ATOMG|ATOM.E.{{op:CAS|EXCH}}.{{type:128}}{_STRENGTH}", "ATOMS.{op:CAS|EXCH}.{type:128}",
    "ATOMS.{op:POPC}.INC.32",
    *(f"ATOMS.{form}" for form in _OPERATIONS[:3]), "ATOMS.{op:CAS|CAST}?{spin:SPIN}?{type:64}",
    is_plain=False, evidence="PTX ISA: atom, red, of which ptxas makes it",
)  # fmt: skip
def _atomic(line: Binder) -> Step:
    """CAST stores where the compared number is there, and says so: by 1, or a predicate.

    POPC adds 1 for each lane; what it gives is not known.
    """
    op, (kind, words) = line.parts["op"], _TYPES[line.parts.get("type", "")]
    if (op == "CAST") != bool(line.parts.get("spin")):
        raise line.refuse()
    bits = {"f16x2": "b32", "bf16x2": "b32"}.get(kind, f"b{kind.lstrip('bfsu')}")
    size = BITS[bits] // 8
    operands, space = (
        list(line.operands),
        {"G": "global", "S": "shared"}.get(line.base[4:], "generic"),
    )
    is_flag = False
    if line.base in ("RED", "REDG"):
        space = "global" if line.base == "REDG" else "generic"
        slots: tuple[int, ...] = ()
    else:
        if space != "shared" and operands.pop(0).text != "PT":
            raise line.refuse()
        target = operands.pop(0)
        is_flag = op == "CAST" and target.kind == "P"
        if is_flag:
            (slots,) = line.results([target], ["pred"])
        else:
            slots = tuple(line.vector_results(target, words * max(size // 4, 1)))
    count = {"CAS": 2, "CAST": 2, "POPC": 0}.get(op, 1)
    if len(operands) != 1 + count or (op == "POPC" and target.text != "RZ"):
        raise line.refuse()
    address = line.address(operands[0], is_wide=space != "shared")
    if op == "POPC":
        readers: list[list[Reader]] = [[lambda _: np.ones((1, 1), np.uint32)]]
    elif words > 1:
        readers = [[reader] for reader in line.vector(operands[1], words)]
    else:
        readers = [[line.read(x, bits) for x in operands[1:]]]
    strength = semantics(line) if space != "shared" else Semantics(WITHIN_GPU)
    line.accesses.add((space, size))
    change = combine({"CAST": "cas", "POPC": "add"}.get(op, op.lower()), kind)

    def run(registers: Registers) -> None:
        frame, at = registers[0], address(registers)
        parts: list[Array] = []
        for number, own in enumerate(readers):
            values = [frame.full(read(registers)) for read in own]
            old = apply_to_memory(registers, space, at + number * size, change, values, strength)
            if op == "CAST":
                old = (old == values[0]).astype(old.dtype)
            parts += [old != 0] if is_flag else _words(old)
        for slot, part in zip(slots, parts, strict=bool(slots)):
            frame.write(slot, part)

    return Step(run, slots, reads_old=True)
