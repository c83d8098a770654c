"""Operands of an instruction as closures over the list of registers; the table of opcodes.

Every register has the same slot in every program, so that what an instruction becomes depends on
its text alone, and is kept by it. R0 ... are 32 bits of a thread; 64-bit values are two of them.
Uniform registers and predicates, and barrier registers, belong to a warp: what any active lane
writes is there for all of its lanes.

A row of the table is `@computed(template, signature, evidence=...)` above a function of arrays,
`@acts(...)` above one that is given the registers, too, and acts for the active threads alone, or
`@opcode(template, evidence=...)` above a function that makes a `Step`. A template is spelled as
`opcodes.py` says: what no template matches as a whole is refused by name. `evidence` says where the
meaning comes from.

A signature is `results = operands`, a word for each: `b32`, `s32`, `b64`, `f32`, `pred`, ... (the
types of PTX; 64 bits are two registers); `a32` and `a64` are addresses in brackets. `?` behind a
word: it may be missing (an operand is then False, a result dropped). Before a type stand the signs
that its operand may have: `-`, `~`, `|` (its absolute value); a predicate may always have `!`; and
the kind that a register has to be of, `UR:b32`. An operand with another sign, or a suffix, is
refused. `PT` and `RZ` have to stand there (`UPT` and `URZ` count as them), `PT?` may.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from gpu_emulator.opcodes import OpcodeTable
from gpu_emulator.sass.listing import Instruction, Operand, read_instruction, read_operand
from gpu_emulator.state.frame import joined_words
from gpu_emulator.steps import (
    BITS,
    DTYPES,
    FIRST_SLOT,
    Array,
    Reader,
    Registers,
    Slots,
    Step,
    under,
)
from gpu_emulator.values import NotExecutable

SPECIAL = {
    "SR_TID.X": "%tid.x", "SR_TID.Y": "%tid.y", "SR_TID.Z": "%tid.z", "SR_CTAID.X": "%ctaid.x",
    "SR_CTAID.Y": "%ctaid.y", "SR_CTAID.Z": "%ctaid.z", "SR_LANEID": "%laneid",
    "SR_EQMASK": "%lanemask_eq", "SR_LTMASK": "%lanemask_lt", "SR_LEMASK": "%lanemask_le",
    "SR_GTMASK": "%lanemask_gt", "SR_GEMASK": "%lanemask_ge", "SR_SWINHI": "%shared_window_high",
    "SR_CgaCtaId": "%cluster_ctarank", "SR_VIRTUALSMID": "%smid",
    "SR_LMEMHIOFF": "%stack_limit", "SR_VIRTID": "%warp_of_virtual_id",
}  # fmt: skip
"""Special registers by what they are called in PTX, or by names of our own."""

_NAMES = ["_32", "_1", "_branch", *(f"P{n}" for n in range(7)), *(f"UP{n}" for n in range(7))]
_NAMES += [f"B{n}" for n in range(16)] + [f"c{n}" for n in range(5)] + [*SPECIAL.values()]
_NAMES += ["result of a barrier", "phase of a cluster", "Rpc.LO", "Rpc.HI"]
_FIXED = {name: FIRST_SLOT + number for number, name in enumerate(_NAMES)}
_FIRST = FIRST_SLOT + len(_NAMES)
_PREDICATES = {slot for name, slot in _FIXED.items() if re.match(r"_1|_branch|U?P[0-9]", name)}
_TRUE = np.ones((1, 1), np.bool_)
_PART = re.compile(r"(U?R)([0-9]+|Z)(?:\.(64|X4|X8|X16))?\Z")
BRANCH = _FIXED["_branch"]
"""The slot of a predicate that two others decide, of a branch with both."""
BARRIER_RESULT = _FIXED["result of a barrier"]
"""The slot of what a reduction at a barrier of the CTA gave."""
CLUSTER_PHASE = _FIXED["phase of a cluster"]
"""The slot of the phase in which a thread arrived at the barrier of its cluster."""
RETURN = {name: _FIXED[name] for name in ("Rpc.LO", "Rpc.HI")}
"""The slots of the halves of a register of threads that is made for where a call returns to."""


def slot_of(kind: str, number: int) -> int:
    """The slot of a register: R and UR take turns, all others have few."""
    if kind in ("R", "UR"):
        return _FIRST + 2 * number + (kind == "UR")
    return _FIXED[f"{kind}{number}"]


def bank_slot(number: int) -> int:
    """The slot of a constant bank: its words, (words, 1, 1)."""
    return _FIXED[f"c{number}"]


def slots_of(touched: set[int]) -> Slots:
    """The slots of a program that touches some of them."""
    slots = Slots()
    slots.count = max([_FIRST, *(slot + 1 for slot in touched)])
    slots.bits = {slot: 1 if slot in _PREDICATES else 32 for slot in _FIXED.values()}
    slots.special = {name: _FIXED[name] for name in SPECIAL.values() if _FIXED[name] in touched}
    slots.uniform = {slot_of("UR", number) for number in range((slots.count - _FIRST) // 2 + 1)}
    slots.uniform |= {_FIXED[name] for name in _NAMES if name.startswith(("UP", "B"))}
    return slots


class Binder:
    """An instruction, and its `step`: all of it depends on its text alone.

    `parts` are the modifiers that its row names, `reads` slots, `constants` the words of constant
    banks that it reads: (bank, offset). `meeting`: the lanes that wait for each other here.
    `accesses` are (space, bytes).
    """

    def __init__(self, text: str, parts: dict[str, str]) -> None:
        self.text, self.parts, line = text, parts, read_instruction(text)
        self.opcode, self.operands = line.opcode, line.operands
        self.step = NOTHING
        self.reads: set[int] = set()
        self.constants: set[tuple[int, int]] = set()
        self.accesses: set[tuple[str, int]] = set()
        self.meeting: Reader | None = None
        self.is_plain = True

    @classmethod
    def of(cls, step: Step, reads: Iterable[int] = ()) -> Binder:
        """A step that no instruction of the listing stands for."""
        own = cls("NOP", {})
        own.step, own.reads = step, set(reads)
        return own

    @property
    def base(self) -> str:
        """The first word of the opcode."""
        return self.opcode.split(".")[0]

    def refuse(self, operand: Operand | None = None, why: str = "") -> NotExecutable:
        """This form of the instruction is not known."""
        what = f"the operand {operand.text}" if operand else why or "these operands"
        form = f"{self.opcode} with {what}"
        return NotExecutable(f"not known: {form}, in {self.text}", (form,))

    def has(self, count: int) -> None:
        """Refuse another number of operands."""
        if len(self.operands) != count:
            raise self.refuse()

    def _bits(self, operand: Operand, width: int) -> Reader:
        """The bits of an operand without its sign: 1, 32 or 64 of them."""
        kind, number = operand.kind, operand.number
        if width == 1 and kind in ("P", "UP"):
            if number is None:
                return lambda _: _TRUE
            slot = slot_of(kind, number)
            self.reads.add(slot)
            return lambda registers: registers[slot]
        if width == 1:
            raise self.refuse(operand)
        if kind in ("R", "UR", "B"):
            if number is None:
                nothing = np.zeros((1, 1), f"u{width // 8}")
                return lambda _: nothing
            slot = slot_of(kind, number)
            self.reads.add(slot)
            if width == 32:
                return lambda registers: registers[slot]
            high = slot_of(kind, number + 1)
            self.reads.add(high)
            return lambda registers: joined(registers[slot], registers[high])
        if kind == "bank":
            return self._constant(operand, width)
        if kind == "special" and width == 32 and operand.base in SPECIAL:
            slot = _FIXED[SPECIAL[operand.base]]
            self.reads.add(slot)
            return lambda registers: registers[slot]
        raise self.refuse(operand)

    def _constant(self, operand: Operand, width: int) -> Reader:
        bank, offset, words = operand.number or 0, operand.offset, width // 32
        slot = bank_slot(bank)
        self.reads.add(slot)
        if operand.base in ("RZ", "URZ", ""):
            first = offset // 4
            if offset % 4:
                raise self.refuse(operand)
            self.constants |= {(bank, offset + 4 * more) for more in range(words)}
            if words == 1:
                return lambda registers: registers[slot].item(first)
            return lambda registers: joined(
                registers[slot].item(first), registers[slot].item(first + 1)
            )
        index = self._bits(read_operand(operand.base), 32)
        self.constants.add((bank, -1))

        def read(registers: Registers) -> Array:
            at = (index(registers).astype(np.int64) + offset) % (1 << 32)
            values = registers[slot].at(registers, at, words)
            return values[0] if words == 1 else joined(*values)

        return read

    def address(self, operand: Operand, *, is_wide: bool) -> Reader:
        """The address in brackets, int64: a pair and a number (wide, `.E`), or 32 bits that wrap.

        Where no description of memory stands, the listing leaves the `.64` of the pair out.
        """
        if operand.kind != "address" or operand.suffixes:
            raise self.refuse(operand)
        if description := re.match(r"desc\[UR([0-9]+)\]", operand.text):
            # A description of global memory, which changes no address.
            self.reads |= {slot_of("UR", int(description[1]) + more) for more in (0, 1)}
        terms: list[tuple[int, np.uint32]] = []
        pairs: list[tuple[int, int]] = []
        number = 0
        for part in operand.parts:
            found = _PART.match(part)
            if not found:
                try:
                    number += int(part.replace(" ", ""), 0)
                except ValueError:
                    raise self.refuse(operand) from None
                continue
            kind, name, suffix = found.groups()
            if name == "Z":
                continue
            slot = slot_of(kind, int(name))
            self.reads.add(slot)
            if suffix == "64" or (is_wide and suffix is None):
                pairs.append((slot, slot_of(kind, int(name) + 1)))
                self.reads.add(pairs[-1][1])
            else:
                terms.append((slot, np.uint32(int((suffix or "X1")[1:]))))
        if len(pairs) != is_wide or (is_wide and terms):
            raise self.refuse(operand)
        if is_wide:
            ((low, high),) = pairs
            return lambda registers: joined(registers[low], registers[high]).view(np.int64) + number
        start = np.full((1, 1), number % (1 << 32), np.uint32)
        if len(terms) == 1 and terms[0][1] == 1:
            only = terms[0][0]
            return lambda registers: (registers[only] + start).astype(np.int64)

        def read(registers: Registers) -> Array:
            total = start
            for slot, scale in terms:
                total = total + registers[slot] * scale
            return total.astype(np.int64)

        return read

    def word_around(self, operand: Operand) -> Callable[[Registers], tuple[Array, Array]]:
        """The word of a constant bank in which an address lies, and the address."""
        if operand.base in ("RZ", "URZ", ""):
            word = self._constant(replace(operand, offset=operand.offset & ~3), 32)
            where = np.array([[operand.offset]])
            return lambda registers: (word(registers), where)
        bank = operand.number or 0
        slot, index = bank_slot(bank), self._bits(read_operand(operand.base), 32)
        self.reads.add(slot)
        self.constants.add((bank, -1))

        def read(registers: Registers) -> tuple[Array, Array]:
            at = (index(registers).astype(np.int64) + operand.offset) % (1 << 32)
            return registers[slot].at(registers, at & ~3, 1)[0], at

        return read

    def read(self, operand: Operand, kind: str, allowed: str = "") -> Reader:
        """A closure that reads an operand as a type, with those of the signs that are allowed."""
        if kind in ("a32", "a64"):
            return self.address(operand, is_wide=kind == "a64")
        bits, dtype = BITS[kind], DTYPES[kind]
        if operand.suffixes or (operand.sign and operand.sign not in allowed + "!" * (bits == 1)):
            raise self.refuse(operand)
        if operand.is_absolute and "|" not in allowed:
            raise self.refuse(operand)
        if operand.kind == "number":
            value = immediate(operand.text, kind)
            if value is None:
                raise self.refuse(operand)
            return lambda _: value
        if bits == 128:
            parts = self.vector(operand, 4)
            return lambda registers: joined_words([read(registers) for read in parts])
        plain = self._bits(operand, bits)
        if bits == 1:
            return (lambda registers: ~plain(registers)) if operand.sign else plain
        if dtype.kind == "f":
            return _float_signs(plain, dtype, operand)
        if operand.is_absolute:
            raise self.refuse(operand)
        if operand.sign == "~":
            return lambda registers: (~plain(registers)).view(dtype)
        if operand.sign == "-":
            return lambda registers: (-plain(registers)).view(dtype)
        if dtype.kind == "u":
            return plain
        return lambda registers: plain(registers).view(dtype)

    def results(self, operands: Sequence[Operand], kinds: Sequence[str]) -> list[tuple[int, ...]]:
        """The slots of each result: one, or two of 64 bits."""
        slots: list[tuple[int, ...]] = []
        for operand, kind in zip(operands, kinds, strict=True):
            if operand.sign or operand.suffixes or operand.is_absolute:
                raise self.refuse(operand)
            own = ("P", "UP") if kind == "pred" else ("R", "UR", "B")
            if operand.kind not in own:
                raise self.refuse(operand)
            count = max(BITS[kind] // 32, 1)
            if operand.number is None:
                slots.append((_FIXED["_1" if kind == "pred" else "_32"],) * count)
            else:
                numbers = range(operand.number, operand.number + count)
                slots.append(tuple(slot_of(operand.kind, number) for number in numbers))
        return slots

    def vector(self, operand: Operand, count: int, suffixes: tuple[str, ...] = ()) -> list[Reader]:
        """Readers of so many registers of 32 bits from an operand on; RZ is as many zeros."""
        if operand.kind != "R" or operand.sign or operand.suffixes != suffixes:
            raise self.refuse(operand)
        first = operand.number
        return [
            self._bits(replace(operand, number=None if first is None else first + more), 32)
            for more in range(count)
        ]

    def vector_results(self, operand: Operand, count: int, kind: str = "") -> list[int]:
        """The slots of so many registers, of a kind, from an operand on."""
        if kind and operand.kind != kind:
            raise self.refuse(operand)
        numbers = [None if operand.number is None else operand.number + n for n in range(count)]
        own = [replace(operand, number=number) for number in numbers]
        return [slot for (slot,) in self.results(own, ["b32"] * count)]

    def is_of_warps(self, operands: Sequence[Operand]) -> bool:
        """Whether results belong to warps; a discarded one belongs to neither."""
        kinds = {operand.kind for operand in operands if operand.number is not None}
        if kinds & {"UR", "UP", "B"} and kinds & {"R", "P"}:
            raise self.refuse(why="results of a lane and of a warp")
        return bool(kinds & {"UR", "UP", "B"})


class Words:
    """A constant bank of a launch: its words, and which of them mean something that is known."""

    def __init__(self, number: int, words: Array, known: Array) -> None:
        self._number = number
        self._words = words.reshape(-1, 1, 1)
        self._known = known

    def item(self, number: int) -> Array:
        """One word, (1, 1)."""
        return self._words[number]

    def at(self, registers: Registers, offsets: Array, count: int) -> list[Array]:
        """So many words at offsets (CTAs, threads); those of active threads have to exist."""
        frame = registers[0]
        active = np.broadcast_to(frame.active(), frame.shape)
        places = np.broadcast_to(offsets, frame.shape)
        first = places >> 2
        bad = (places & 3 != 0) | (first + count > len(self._known))
        inside = np.where(bad, 0, first)
        for more in range(count):
            bad = bad | ~self._known[np.minimum(inside + more, len(self._known) - 1)]
        if (bad & active).any():
            where = int(places[bad & active].flat[0])
            raise NotExecutable(
                f"reads constant bank {self._number} at {where:#x}, whose meaning is not known"
            )
        return [self._words[np.where(bad, 0, inside + more), 0, 0] for more in range(count)]


def joined(low: Array, high: Array) -> Array:
    """Two registers as one number of 64 bits."""
    return low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)


def _float_signs(plain: Reader, dtype: np.dtype[Any], operand: Operand) -> Reader:
    bits = np.dtype(f"u{dtype.itemsize}")
    sign = bits.type(1 << (8 * dtype.itemsize - 1))
    if operand.is_absolute and operand.sign:
        return lambda registers: (plain(registers) | sign).view(dtype)
    if operand.is_absolute:
        return lambda registers: (plain(registers) & ~sign).view(dtype)
    if operand.sign:
        return lambda registers: (plain(registers) ^ sign).view(dtype)
    return lambda registers: plain(registers).view(dtype)


def immediate(text: str, kind: str) -> Array | None:
    """A number of the listing as a type, (1, 1); None if it is not one of that type."""
    dtype = DTYPES[kind]
    if text.startswith("0f"):
        if dtype.kind != "f" or dtype.itemsize < 4:
            return None
        # Of 64 bits it is the upper half.
        bits = int(f"0x{text[2:]}", 0) << 8 * (dtype.itemsize - 4)
        return np.array([[bits]], f"u{dtype.itemsize}").view(dtype)
    if dtype.kind == "f":
        word = text.removesuffix(".NEG")
        special = {"INF": np.inf, "QNAN": np.nan, "SNAN": np.nan}.get(word.lstrip("+-"))
        if special is None and word.startswith("0x"):
            return None
        number = float(word) if special is None else special
        value = -number if text.endswith(".NEG") or (special and word[0] == "-") else number
        return np.array([[value]], dtype=dtype)
    try:
        value = int(text, 0)
    except ValueError:
        return None
    if dtype.itemsize == 8 and not (0 if kind == "b64" else -(1 << 31)) <= value < 1 << 31:
        # 32 bits are encoded, and the listing does not say how they are extended; with a minus by
        # their sign (seen in 64-bit division and min.u64 of ptxas for sm_120a).
        return None
    return np.array([[value % (1 << 8 * dtype.itemsize)]], dtype=f"u{dtype.itemsize}").view(dtype)


Maker = Callable[[Binder], Step]
TABLE = OpcodeTable[Maker]()
opcode = TABLE.enter
NOTHING = Step(lambda _: None, is_pure=True)
_WORD = re.compile(r"(?:(\w+):)?([-~|]*)(\w+)(\??)")


def computed(
    *templates: str, signature: str, evidence: str, by_parts: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Rows whose results are a function of the operands: one array, or one for each result.

    `by_parts`: the function is given the parts of the opcode before the operands. A word of the
    signature may be the name of a part.
    """

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        @opcode(*templates, evidence=evidence)
        def make(line: Binder) -> Step:
            return bound(line, signature, partial(function, line.parts) if by_parts else function)

        return function

    return enter


def acts(
    *templates: str,
    signature: str = "=",
    accesses: tuple[tuple[str, int], ...] = (),
    by_parts: bool = False,
    reads_old: bool = False,
    **how: Any,  # noqa: ANN401
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Rows of a function that is given registers, (parts,) and operands, as `acting` has it.

    `how` are the arguments of `opcode`.
    """

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        @opcode(*templates, **how)
        def make(line: Binder) -> Step:
            line.accesses.update(accesses)
            plain = function
            whole = (lambda r, *values: plain(r, line.parts, *values)) if by_parts else plain
            return acting(line, signature, whole, reads_old=reads_old)

        return function

    return enter


# Of each word the kind of its register, the signs, the type, a question mark: it may be missing.
_Words = list[tuple[str, str, str, str]]


@lru_cache(maxsize=1 << 10)
def _words(signature: str) -> tuple[_Words, _Words]:
    results, operands = ([*_WORD.findall(side)] for side in signature.split("="))
    return results, operands


def taken(line: Binder, signature: str) -> tuple[list[tuple[Operand | None, str]], list[Reader]]:
    """The results that a signature has, None where one is missing, with types; and the readers."""
    results, operands = _words(signature)
    pending = list(line.operands)

    def take(words: _Words) -> list[tuple[Operand | None, str, str]]:
        taken: list[tuple[Operand | None, str, str]] = []
        for own, signs, word, may_miss in words:
            if word in ("PT", "RZ"):
                fits = bool(pending) and pending[0].text in (word, f"U{word}")
                if not fits and not may_miss:
                    raise line.refuse(pending[0] if pending else None)
                pending[:1] = pending[fits:1]
                continue
            kind = line.parts.get(word, word)
            is_predicate = bool(pending) and pending[0].kind in ("P", "UP")
            fits = bool(pending) and is_predicate == (kind == "pred")
            fits = fits and own in ("", pending[0].kind)
            if not fits and not may_miss:
                raise line.refuse()
            taken.append((pending.pop(0) if fits else None, kind, signs))
        return taken

    written, read = take(results), take(operands)
    if pending:
        raise line.refuse()
    readers = [
        line.read(operand, kind, signs) if operand else (lambda _: ~_TRUE)
        for operand, kind, signs in read
    ]
    return [(operand, kind) for operand, kind, _ in written], readers


def bound(
    line: Binder, signature: str, function: Callable[..., Any], more: Sequence[Reader] = ()
) -> Step:
    """A pure step that applies a function to operands as a signature has them.

    The function is given what `more` reads after the operands.
    """
    written, readers = taken(line, signature)
    readers += more
    present = [(operand, kind) for operand, kind in written if operand]
    own = [operand for operand, _ in present]
    slots = line.results(own, [kind for _, kind in present])
    places = [number for number, (operand, _) in enumerate(written) if operand]
    flat = tuple(slot for pair in slots for slot in pair)

    if len(written) == 1 and len(flat) == 1:
        (slot,) = flat
        if len(readers) == 1:
            (only,) = readers

            def unary(registers: Registers) -> None:
                registers[slot] = canonical(function(only(registers)))

            return Step(unary, flat, is_pure=True, for_warps=line.is_of_warps(own))

        def single(registers: Registers) -> None:
            registers[slot] = canonical(function(*[read(registers) for read in readers]))

        return Step(single, flat, is_pure=True, for_warps=line.is_of_warps(own))

    def run(registers: Registers) -> None:
        values = function(*[read(registers) for read in readers])
        values = values if isinstance(values, tuple) else (values,)
        for number, pair in zip(places, slots, strict=True):
            for slot, value in zip(pair, in_registers(values[number]), strict=True):
                registers[slot] = value

    return Step(run, flat, is_pure=True, for_warps=line.is_of_warps(own))


def acting(
    line: Binder,
    signature: str,
    function: Callable[..., Any],
    more: Sequence[Reader] = (),
    *,
    reads_old: bool = False,
) -> Step:
    """A step of a function that is given the registers, and operands as a signature has them.

    What it gives is written for the active threads; that of a register of a warp for all of its
    lanes. `reads_old`: as of `Step`.
    """
    written, readers = taken(line, signature)
    readers += more
    writes: list[tuple[int, tuple[int, ...], bool]] = []
    for number, (operand, kind) in enumerate(written):
        if operand:
            (pair,) = line.results([operand], [kind])
            writes.append((number, pair, operand.kind in ("UR", "UP", "B")))

    def run(registers: Registers) -> None:
        values = function(registers, *[read(registers) for read in readers])
        values = values if isinstance(values, tuple) else (values,)
        for number, pair, for_warps in writes:
            write = registers[0].write_for_warps if for_warps else registers[0].write
            for slot, value in zip(pair, in_registers(values[number]), strict=True):
                write(slot, value)

    flat = tuple(slot for _, pair, _ in writes for slot in pair)
    return Step(run, flat, reads_old=reads_old)


def canonical(value: Array) -> Array:
    """A result of one register as it is stored."""
    return value if value.dtype.kind in "ub" else value.view(np.uint32)


def in_registers(value: Array) -> tuple[Array, ...]:
    """A value as registers: one, or the low and the high word."""
    if value.dtype.itemsize < 8:
        return (canonical(value),)
    wide = value.view(np.uint64)
    return wide.astype(np.uint32), (wide >> np.uint64(32)).astype(np.uint32)


find_row = lru_cache(maxsize=1 << 10)(TABLE.find)


def guard_slot(line: Instruction) -> tuple[int | None, bool]:
    """The slot of a guard (None: there is none), and whether the instruction never runs."""
    if not line.guard.strip("UPT"):
        return None, bool(line.guard) and line.is_negated
    kind = line.guard.rstrip("0123456789")
    return slot_of(kind, int(line.guard[len(kind) :])), False


@lru_cache(maxsize=1 << 16)
def bind(text: str) -> Binder:
    """Make an instruction ready; NotExecutable where its form is not known."""
    line = read_instruction(text)
    match = find_row(line.opcode)
    assert match is not None
    row, parts = match
    binder = Binder(text, parts)
    guard, is_never = guard_slot(line)
    binder.is_plain = row.is_plain
    if is_never:
        return binder
    step = row.make(binder)
    if guard is not None:
        binder.reads.add(guard)
        run = under(step, guard, is_negated=line.is_negated)
        step = Step(run, step.writes, reads_old=True)
    binder.step = step
    return binder
