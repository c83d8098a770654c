"""Moves, choices and predicates, and constant banks."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from gpu_emulator.numbers.integers import looked_up, permuted
from gpu_emulator.sass.binder import RETURN, Binder, acting, bound, computed, immediate, opcode
from gpu_emulator.sass.listing import Operand
from gpu_emulator.state.lanes import of_leaders
from gpu_emulator.steps import Array, Reader, Registers, Step
from gpu_emulator.values import NotExecutable

_BINARIES = "CUDA Binary Utilities"

computed("MOV|UMOV", signature="b32 = b32", evidence=_BINARIES)(lambda a: a)


@opcode("MOV|UMOV.64", evidence=f"{_BINARIES}; all 64 bits of a constant are encoded, and listed")
def _move_wide(line: Binder) -> Step:
    if len(line.operands) == 2 and re.fullmatch(r"0x[0-9a-f]{1,16}", line.operands[1].text):
        value = np.array([[int(line.operands[1].text, 16)]], np.uint64)
        line.operands = line.operands[:1]
        return bound(line, "b64 =", lambda a: a, (lambda _: value,))
    return bound(line, "b64 = b64", lambda a: a)


@opcode(
    "RPCMOV.32",
    evidence="inferred from code of ptxas, which keeps a register there and fetches it again: for"
    " mbarrier.arrive.noComplete, and for min.f32 of three operands on sm_120a",
)
def _move_return(line: Binder) -> Step:
    """Between a register and one of the halves of `Rpc`, a register of each thread."""
    line.has(2)
    to, origin = line.operands
    if to.text in RETURN and origin.kind == "R":
        slot, value = RETURN[to.text], line.read(origin, "b32")

        def keep(registers: Registers) -> None:
            registers[slot] = value(registers)

        return Step(keep, (slot,), is_pure=True)
    if to.kind != "R" or origin.text not in RETURN:
        raise line.refuse()
    kept = RETURN[origin.text]
    line.reads.add(kept)
    line.operands = (to,)
    return bound(line, "b32 =", lambda a: a, (lambda registers: registers[kept],))


computed("SEL|USEL", signature="b32 = b32 b32 pred", evidence="PTX ISA: selp")(
    lambda a, b, p: np.where(p, a, b)
)


@opcode(
    "SEL|USEL.64",
    evidence="PTX ISA: selp.b64, of whose constants ptxas 13.5.37 encodes 32 bits, with a bit that"
    " says whether their sign is extended: they are listed with a minus",
)
def _select_wide(line: Binder) -> Step:
    if len(line.operands) == 4 and re.fullmatch(r"0x[0-9a-f]{8}", line.operands[2].text):
        value = np.array([[int(line.operands[2].text, 16)]], np.int64)
        line.operands = (*line.operands[:2], line.operands[3])
        return bound(line, "b64 = s64 pred", lambda a, p, b: np.where(p, a, b), (lambda _: value,))
    return bound(line, "b64 = s64 s64 pred", lambda a, b, p: np.where(p, a, b))


computed(
    "PRMT|UPRMT?{mode:F4E|B4E|RC8|ECL|ECR|RC16}", signature="b32 = b32 b32 b32", by_parts=True,
    evidence="PTX ISA: prmt",
)(lambda parts, a, selector, b: permuted(parts["mode"].lower(), a, b, selector))  # fmt: skip


@opcode(
    "R2UR?{join:OR}", "R2UR.BROADCAST", "S2UR",
    evidence=f"{_BINARIES}; which lane, where they differ, is open; the predicate: a loop of ptxas",
)  # fmt: skip
def _to_uniform(line: Binder) -> Step:
    """A predicate says which lanes have something else than the warp gets, or (OR) had before.

    ptxas loops until there is no such lane, where a uniform instruction takes what lanes have.
    """
    flags = line.operands[:-2]
    joins = bool(line.parts.get("join"))
    if joins:
        line.operands = (*line.operands, *flags)

    def move(registers: Registers, value: Array, differed: Array) -> tuple[Array, ...]:
        chosen = of_leaders(registers[0], value)
        differs = value != chosen
        return (differs | differed if joins else differs), chosen

    form = f"P:pred? b32 = b32 {'P:pred' if joins else 'pred?'}"
    return acting(line, form, move, reads_old=bool(flags))


computed("S2R", signature="b32 = b32", evidence=_BINARIES)(lambda a: a)


@opcode("CS2R?{size:32}", evidence=f"{_BINARIES}; PTX ISA: %clock, %globaltimer; SRZ is zero")
def _special_pair(line: Binder) -> Step:
    kind, size = ("b32", 4) if line.parts["size"] else ("b64", 8)
    if len(line.operands) != 2 or line.operands[1].text not in (*_ZEROS, *_CLOCKS):
        raise line.refuse()
    shift = _CLOCKS.get(line.operands[1].text)
    line.is_plain = shift is None
    line.operands = line.operands[:1]

    def read(registers: Registers) -> Array:
        now = 0 if shift is None else registers[0].clock() >> shift
        return np.array([[now % (1 << 8 * size)]], f"u{size}")

    return bound(line, f"{kind} =", lambda a: a, (read,))


# Where the constants of clusters lie depends on SR_CgaSize, and nothing else (`cubin.py`).
_ZEROS = ("SRZ", "SR_CgaSize")
_CLOCKS = {
    "SR_CLOCKLO": 0, "SR_CLOCKHI": 32, "SR_GLOBALTIMERLO": 0, "SR_GLOBALTIMERHI": 32,
}  # fmt: skip
_LOADED = {"U8": "u1", "S8": "i1", "U16": "u2", "S16": "i2"}


@opcode("LDCU.128", evidence=f"{_BINARIES}; -O0 of the same PTX, which loads twice 64 bits")
def _load_four(line: Binder) -> Step:
    if len(line.operands) != 2 or line.operands[1].kind != "bank":
        raise line.refuse()
    target, source = line.operands
    if target.kind != "UR" or target.number is None or source.base not in ("", "RZ", "URZ"):
        raise line.refuse()
    slots = [
        line.results([replace(target, number=target.number + n)], ["b32"])[0][0] for n in range(4)
    ]
    readers = [line.read(replace(source, offset=source.offset + 4 * n), "b32") for n in range(4)]

    def run(registers: Registers) -> None:
        for slot, read in zip(slots, readers, strict=True):
            registers[slot] = read(registers)

    return Step(run, tuple(slots), is_pure=True, for_warps=True)


@opcode("LDC|ULDC|LDCU?{size:64|U8|S8|U16|S16}", evidence=f"{_BINARIES}")
def _load_constant(line: Binder) -> Step:
    size = line.parts["size"]
    if size == "64":
        return bound(line, "b64 = b64", lambda a: a)
    if not size:
        return bound(line, "b32 = b32", lambda a: a)
    if len(line.operands) != 2 or line.operands[1].kind != "bank":
        raise line.refuse()
    kind, around = np.dtype(_LOADED[size]), line.word_around(line.operands[1])

    def run(registers: Registers) -> Array:
        word, at = around(registers)
        if kind.itemsize == 2 and (at & 1 & registers[0].active()).any():
            raise NotExecutable("reads two bytes of a constant bank at an odd address")
        part = word >> (8 * (at & 3)).astype(np.uint32)
        return part.astype(f"u{kind.itemsize}").view(kind).astype(np.int32)

    line.operands = line.operands[:1]
    return bound(line, "b32 =", lambda a: a, [run])


def table_of(line: Binder, operand: Operand) -> int:
    """The 8 bits of a truth table."""
    value = immediate(operand.text, "b32") if operand.kind == "number" else None
    if value is None or int(value[0, 0]) > 255:
        raise line.refuse(operand)
    return int(value[0, 0])


@opcode("LOP3|ULOP3.LUT?{join:PAND}", evidence="PTX ISA: lop3")
def _logic(line: Binder) -> Step:
    *operands, table, _ = line.operands
    line.operands = (*operands, line.operands[-1])
    number = table_of(line, table)
    function = looked_up(number)
    join = np.logical_and if line.parts["join"] else np.logical_or
    if operands[0].kind not in ("P", "UP"):
        # What is joined with the predicate goes to no result.
        line.read(line.operands[-1], "pred")
        line.operands = tuple(operands)
        return bound(line, "b32 = ~b32 ~b32 ~b32", function)

    def both(a: Array, b: Array, c: Array, third: Array) -> tuple[Array, Array]:
        value = function(a, b, c)
        return join(value != 0, third), value

    return bound(line, "pred b32 = ~b32 ~b32 ~b32 pred", both)


@opcode("PLOP3|UPLOP3.LUT", evidence="PTX ISA: lop3; Mesa NAK (MIT), reference: PLop3")
def _predicate_logic(line: Binder) -> Step:
    """Two results, each with its table; `.SIGN` is the sign of a register."""
    line.has(7)
    first, second = (looked_up(table_of(line, operand)) for operand in line.operands[5:])
    readers = [_truth(line, operand) for operand in line.operands[2:5]]
    line.operands = line.operands[:2]
    return bound(line, "pred pred =", lambda *flags: (first(*flags), second(*flags)), readers)


def _truth(line: Binder, operand: Operand) -> Reader:
    if operand.suffixes != ("SIGN",):
        return line.read(operand, "pred")
    read = line.read(replace(operand, suffixes=()), "b32")
    return lambda registers: read(registers) >= 1 << 31


_PREDICATES = 7


@opcode("P2R", evidence="inferred from code of ptxas 13.5.37 that spills predicates")
def _from_predicates(line: Binder) -> Step:
    """The predicates as bits, where a mask has them; the rest is that of a register."""
    if len(line.operands) != 4 or line.operands[1].text != "PR":
        raise line.refuse()
    flags = [line.read(Operand(f"P{n}", "P", n), "pred") for n in range(_PREDICATES)]
    line.operands = (line.operands[0], *line.operands[2:])

    def gather(rest: Array, mask: Array, *bits: Array) -> Array:
        own = sum(flag.astype(np.uint32) << np.uint32(n) for n, flag in enumerate(bits))
        return own & mask | rest & ~mask

    return bound(line, "R:b32 = b32 b32", gather, flags)


@opcode("R2P", evidence="inferred from code of ptxas 13.5.37 that spills predicates")
def _to_predicates(line: Binder) -> Step:
    """Predicates that a mask has become bits of a register."""
    if len(line.operands) != 3 or line.operands[0].text != "PR":
        raise line.refuse()
    value = line.read(line.operands[1], "b32")
    mask = immediate(line.operands[2].text, "b32") if line.operands[2].kind == "number" else None
    if mask is None or int(mask[0, 0]) >> _PREDICATES:
        raise line.refuse(line.operands[2])
    numbers = [n for n in range(_PREDICATES) if int(mask[0, 0]) >> n & 1]
    slots = [line.results([Operand("", "P", n)], ["pred"])[0][0] for n in numbers]

    def run(registers: Registers) -> None:
        bits = value(registers)
        for number, slot in zip(numbers, slots, strict=True):
            registers[slot] = bits >> np.uint32(number) & np.uint32(1) != 0

    return Step(run, tuple(slots), is_pure=True)
