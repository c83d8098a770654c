"""Operands of a line as closures over the list of registers.

Slot 0 of the list is the frame, slot 1 the mask of active threads (None: all). A register is an
array that broadcasts to (CTAs, threads) of its frame, so that what is equal for all threads is
computed once.

The table of opcodes: whole names only, each row with its chapter of the PTX ISA manual. A row's
template spells an opcode out. `.{name:a|b}` is one of these modifiers, `?{name:a|b}` one or none;
`add|sub.s32` stands for two rows.
What no template matches as a whole is refused by name, so that no modifier is ever ignored.

The manual has the modifiers of an opcode in one order. ptxas takes most of them in any order: only
types among each other, and state spaces, keep theirs (seen with 13.5.37). So does this table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache, partial
from operator import itemgetter
from typing import Any

import numpy as np

from gpu_emulator.opcodes import OpcodeRow, OpcodeTable, elements
from gpu_emulator.ptx.program.listing import EntryListing, PtxLine
from gpu_emulator.ptx.text.constants import constant, float_bits, integer
from gpu_emulator.ptx.text.facts import split_operands
from gpu_emulator.steps import (
    BITS,
    CANONICAL,
    DTYPES,
    Array,
    Reader,
    Registers,
    Slots,
    Step,
    applied,
    cast,
    is_signed,
    under,
)
from gpu_emulator.values import NotExecutable

_ADDRESS = re.compile(r"\[\s*([\w$%.]+)\s*(?:\+\s*([^\[\]]+)|(-[^\[\]]+))?\]\Z")
_SYMBOL = re.compile(r"([A-Za-z_$%][\w$]*)\s*([+-].+)?\Z")
_SPECIAL = re.compile(
    r"%(?:(?:tid|ntid|ctaid|nctaid|clusterid|nclusterid|cluster_ctaid|cluster_nctaid)\.[xyz]"
    r"|laneid|warpid|nwarpid|smid|nsmid|gridid|is_explicit_cluster|cluster_ctarank"
    r"|cluster_nctarank|lanemask_(?:eq|le|lt|ge|gt)|clock|clock_hi|clock64|globaltimer"
    r"|globaltimer_lo|globaltimer_hi|dynamic_smem_size|total_smem_size|aggr_smem_size"
    r"|current_graph_exec|envreg[0-9]+|pm[0-9]+(?:_64)?"
    r"|reserved_smem_offset_(?:begin|end|cap|[01]))\Z"
)
# Special registers that are not the same whenever they are read.
CLOCKS = frozenset(
    ("%clock", "%clock_hi", "%clock64", "%globaltimer", "%globaltimer_lo", "%globaltimer_hi")
)
# What makes of a value of some type what its slot holds.
Convert = Callable[[Array], Array]


class PtxSlots(Slots):
    """Where each register of a listing is kept, too."""

    def __init__(self, listing: EntryListing) -> None:
        super().__init__()
        self.listing = listing
        self.names: dict[str, int] = {}
        # Registers that `wgmma` writes, and others that are written at a wait.
        self.accumulators: set[int] = set()
        self.late: set[int] = set()
        self._register_slots: set[int] = set()
        self._constant_slots: dict[tuple[int, int], int] = {}
        self.variables = {variable.name for variable in listing.variables}
        self.addressed = self.variables | {parameter.name for parameter in listing.parameters}

    def register(self, name: str) -> int:
        slot = self.names.get(name)
        if slot is None:
            kind = self.listing.registers.get(name)
            if kind is None:
                raise NotExecutable(f"{name} is not declared")
            if kind not in BITS:
                raise NotExecutable(f"{name} is a register of type .{kind}")
            slot = self.names[name] = self.new(BITS[kind])
            self._register_slots.add(slot)
        return slot

    def is_register(self, slot: int) -> bool:
        """Whether a slot is a register of the program: no constant, no address."""
        return slot in self._register_slots

    def constant(self, value: int, bits: int) -> int:
        key = (value % (1 << max(bits, 1)), bits)
        slot = self._constant_slots.get(key)
        if slot is None:
            slot = self._constant_slots[key] = self.new(bits)
            self.constants[slot] = np.array([[key[0]]], dtype=CANONICAL[bits])
        return slot

    def special_register(self, name: str) -> int:
        wide = ("%clock64", "%globaltimer", "%current_graph_exec", "%gridid")
        bits = 64 if name in wide or name.endswith("_64") else 32
        if name == "%is_explicit_cluster":
            bits = 1
        if name not in self.special:
            self.special[name] = self.new(bits)
        return self.special[name]

    def symbol(self, name: str, addend: int = 0) -> int:
        """The slot of the address of a variable in its own space, 64 bits, and so many bytes on."""
        if (name, addend) not in self.symbols:
            self.symbols[name, addend] = self.new(64)
        return self.symbols[name, addend]

    def hidden(self, name: str, bits: int) -> int:
        if name not in self.names:
            self.names[name] = self.new(bits)
        return self.names[name]


class Binder:
    """One line while its step is made: `parts` are the modifiers that its row names."""

    def __init__(self, slots: PtxSlots, line: PtxLine, parts: dict[str, str]) -> None:
        self.slots = slots
        self.line = line
        self.parts = parts
        self.touched: set[int] = set()
        self.meeting: Reader | None = None

    @property
    def count(self) -> int:
        return len(self.line.operands)

    @property
    def base(self) -> str:
        """The first word of the opcode."""
        return self.line.base

    def refuse(self, why: str) -> NotExecutable:
        return self.line.refuse(why)

    def operand(self, number: int) -> str:
        if number >= self.count:
            raise self.refuse(f"has {self.count} operands")
        return self.line.operands[number]

    def slot_reader(self, number: int, kind: str) -> Reader:
        """A closure that reads the bits of an operand, which is written as a type."""
        text = self.operand(number)
        if self.is_register(text) or text in CLOCKS:
            return self.source(text, f"b{BITS[kind]}")
        slot = self.slot_of(text, kind)
        return self._slot(slot, text, f"b{BITS[kind]}")

    def parts_of(self, number: int) -> list[str]:
        """The elements of a vector `{a, b}`, or the operand alone."""
        text = self.operand(number)
        return list(split_operands(text[1:-1])) if text.startswith("{") else [text]

    def sources(self, number: int, kind: str) -> list[Reader]:
        """Readers of the elements of a vector."""
        return [self.source(text, kind) for text in self.parts_of(number)]

    def targets(self, number: int, kind: str) -> list[tuple[int, Convert | None]]:
        """For each element of a vector that is written, what `target` says."""
        return [self.target(text, kind) for text in self.parts_of(number)]

    def results(self, *kinds: str) -> list[int]:
        """The slots of operand 0, `a` or `a|b`."""
        texts = self.operand(0).split("|")
        return [self.target(t.strip(), k)[0] for t, k in zip(texts, kinds, strict=False)]

    def is_register(self, text: str) -> bool:
        return text in self.slots.listing.registers

    def constant(self, number: int) -> int | None:
        return integer(self.operand(number)) if number < self.count else None

    def slot_of(self, text: str, kind: str) -> int:
        if text in self.slots.listing.registers:
            slot = self.slots.register(text)
            self.touched.add(slot)
            return slot
        if _SPECIAL.match(text):
            return self.slots.special_register(text)
        bits = _immediate(text, kind)
        if bits is not None:
            return self.slots.constant(bits, BITS[kind])
        if text in self.slots.listing.functions:
            return self.slots.constant(self.slots.listing.functions[text], BITS[kind])
        symbol = _SYMBOL.match(text)
        if symbol and symbol[1] in self.slots.addressed:
            addend = integer(symbol[2] or "0")
            if addend is not None:
                return self.slots.symbol(symbol[1], addend)
        raise self.refuse(f"has the operand {text}, which is not declared")

    def source(self, text: str, kind: str) -> Reader:
        if kind == "pred" and text.startswith("!"):
            inner = self.source(text[1:].strip(), kind)
            return lambda registers: ~inner(registers)
        slot = self.slot_of(text, kind)
        if text in CLOCKS:
            return _clock(text, kind)
        return self._slot(slot, text, kind)

    def _slot(self, slot: int, text: str, kind: str) -> Reader:
        bits, dtype = self.slots.bits[slot], DTYPES[kind]
        if CANONICAL[bits] is dtype:
            return itemgetter(slot)
        if bits == 1 or BITS[kind] == 1:
            raise self.refuse(f"uses {text} both as a predicate and as a number")
        if 128 in (bits, BITS[kind]):
            raise self.refuse(f"uses {text}, which has {bits} bits, as a .{kind}")
        if bits == BITS[kind]:
            return lambda registers: registers[slot].view(dtype)
        return lambda registers: cast(registers[slot], dtype)

    def read(self, number: int, kind: str) -> Reader:
        return self.source(self.operand(number), kind)

    def target(self, text: str, kind: str) -> tuple[int, Convert | None]:
        """The slot of a result, and what makes of it what the slot holds; None: nothing to do."""
        if text == "_":
            return self.slots.hidden(f"_{BITS[kind]}", BITS[kind]), None
        if not self.is_register(text):
            raise self.refuse(f"writes {text}, which is no register")
        slot = self.slots.register(text)
        bits, canonical = self.slots.bits[slot], CANONICAL[self.slots.bits[slot]]
        if DTYPES[kind] is canonical:
            return slot, None
        if BITS[kind] == bits:
            return slot, lambda value: value.view(canonical)
        if bits in (1, 128) or BITS[kind] == 1 or BITS[kind] > bits:
            raise self.refuse(f"writes a .{kind} to {text}, which has {bits} bits")
        signed = DTYPES[f"{'s' if is_signed(kind) else 'u'}{BITS[kind]}"]
        return slot, lambda value: cast(value.view(signed), canonical)

    def computed(self, function: Callable[..., Array], kinds: Sequence[str], result: str) -> Step:
        slot, convert = self.target(self.operand(0), result)
        readers = [self.read(number, kind) for number, kind in enumerate(kinds, 1)]
        if self.count != len(kinds) + 1:
            raise self.refuse(f"has {self.count} operands, not {len(kinds) + 1}")
        if convert is not None:
            plain = function
            function = lambda *values: convert(plain(*values))  # noqa: E731
        return Step(applied(function, slot, readers), (slot,), is_pure=True)

    def acting(
        self, function: Callable[..., Any], kinds: Sequence[str], results: Sequence[str] = ()
    ) -> Step:
        """A step of a function that is given the registers and operands, of types or `address`.

        What it gives is written for the active threads, to operand 0: `a` or `a|b`.
        """
        texts = self.operand(0).split("|") if results else []
        targets = [self.target(t.strip(), kind) for t, kind in zip(texts, results, strict=False)]
        readers = [
            self.address(number) if kind == "address" else self.read(number, kind)
            for number, kind in enumerate(kinds, bool(results))
        ]
        if self.count != len(kinds) + bool(results):
            raise self.refuse(f"has {self.count} operands, not {len(kinds) + bool(results)}")

        def run(registers: Registers) -> None:
            values = function(registers, *[read(registers) for read in readers])
            values = values if isinstance(values, tuple) else (values,)
            for (slot, convert), value in zip(targets, values, strict=False):
                registers[0].write(slot, value if convert is None else convert(value))

        return Step(run, tuple(slot for slot, _ in targets))

    def gives(self, kind: str, read: Reader, text: str | None = None) -> Step:
        """A pure step that writes what is read to operand 0, or to the register `text`."""
        slot, convert = self.target(self.operand(0) if text is None else text, kind)
        if convert is not None:
            return Step(applied(convert, slot, [read]), (slot,), is_pure=True)

        def run(registers: Registers) -> None:
            registers[slot] = read(registers)

        return Step(run, (slot,), is_pure=True)

    def names_a_variable(self, number: int) -> bool:
        """Whether the address of an operand is that of a variable, not of a parameter."""
        address = _ADDRESS.match(self.operand(number))
        return address is not None and address[1] in self.slots.variables

    def bracketed(self, number: int) -> Reader:
        reader = self.address(number)
        return lambda registers: reader(registers).astype(np.uint32)

    def address(self, number: int) -> Reader:
        return self.address_of(self.operand(number))

    def address_of(self, text: str) -> Reader:
        match = _ADDRESS.match(text)
        if not match:
            raise self.refuse(f"has the address {text}, which cannot be read")
        base, plus, minus = match.groups()
        addend, fixed = integer(plus or minus or "0"), integer(base)
        if addend is None:
            raise self.refuse(f"has the address {text}, which cannot be read")
        offset = _wrapped(addend)
        if fixed is not None:
            value = np.array([[_wrapped(fixed + offset)]], dtype=np.int64)
            return lambda _: value
        slot = self.slot_of(base, "b64")
        if self.slots.bits[slot] == 64:
            if offset == 0:
                return lambda registers: registers[slot].view(np.int64)
            return lambda registers: registers[slot].view(np.int64) + offset
        if offset == 0:
            return lambda registers: registers[slot].astype(np.int64)
        # An address of 32 bits is a sum of 32 bits: LLVM folds indices that begin below zero.
        more = np.uint32(offset % (1 << 32))
        return lambda registers: (registers[slot].astype(np.uint32) + more).astype(np.int64)

    def guarded(self, step: Step) -> Step:
        if not self.line.guard:
            return step
        predicate = self.slots.register(self.line.guard)
        self.touched.add(predicate)
        run = under(step, predicate, is_negated=self.line.is_negated)
        return Step(run, step.writes, reads_old=True)


def _wrapped(number: int) -> int:
    """A number of 64 bits, as a signed one: sums of addresses wrap."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def _immediate(text: str, kind: str) -> int | None:
    """The bits of a constant written in the PTX, for a type; None if it is none."""
    if exact := float_bits(text):
        bits, width = exact
        if width == BITS[kind] or kind not in ("f32", "f64"):
            return bits
    if kind == "pred" and text in ("true", "false"):
        return int(text == "true")
    value = constant(text)
    if isinstance(value, float) or (value is not None and kind in ("f32", "f64")):
        wide = np.array([value]).astype("f4" if BITS[kind] == 32 else "f8")
        return int.from_bytes(wide.tobytes(), "little")
    return value if kind != "pred" or value is None else int(value != 0)


def _clock(name: str, kind: str) -> Reader:
    dtype = DTYPES[kind]

    def read(registers: Registers) -> Array:
        now = registers[0].clock()
        value = now >> 32 if name.endswith("_hi") else now
        return np.array([[value % (1 << BITS[kind])]], dtype=f"u{dtype.itemsize}").view(dtype)

    return read


_TYPE = re.compile(r"(?:[busf][0-9]+|bf16|tf32|pred|e[0-9]m[0-9]|ue8m0)(?:x[0-9]+)?\Z")
_SPACE = re.compile(r"(?:global|shared|local|const|param)(?:::\w+)?\Z")
# Families whose modifiers say by their order what is done.
_ORDERED = (
    "clusterlaunchcontrol", "cp", "createpolicy", "fence", "mbarrier", "mma", "multimem", "tcgen05",
    "tensormap", "wgmma", "wmma",
)  # fmt: skip

Maker = Callable[[Binder], Step]
Parts = dict[str, str]

TABLE = OpcodeTable[Maker]()
opcode = TABLE.enter


def without_effect(*templates: str) -> None:
    """Rows of opcodes that change nothing here: memory is coherent at once, time does not pass."""
    opcode(*templates)(lambda _: Step(lambda _: None, is_pure=True))


def computed(
    *templates: str, takes: str, gives: str = "type", by_parts: bool = False
) -> Callable[[Callable[..., Array]], Callable[..., Array]]:
    """Rows whose result is a function of the operands: of types, or of what a `{part}` names.

    `by_parts`: the function is given the parts of the opcode before the operands.
    """

    def enter(function: Callable[..., Array]) -> Callable[..., Array]:
        @opcode(*templates)
        def make(line: Binder) -> Step:
            kinds = [line.parts.get(kind, kind) for kind in takes.split()]
            whole = partial(function, line.parts) if by_parts else function
            return line.computed(whole, kinds, line.parts.get(gives, gives))

        return function

    return enter


def acts(
    *templates: str, takes: str = "", gives: str = "", meets: bool = False, waits: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Rows of a function that is given registers, the parts of the opcode and operands.

    `takes` and `gives` as of `Binder.acting`, a word for each. `meets`: the last operand says which
    lanes wait for each other here.
    """

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        @opcode(*templates, meets=meets, waits=waits)
        def make(line: Binder) -> Step:
            kinds, results = (
                [line.parts.get(word, word) for word in words.split()] for words in (takes, gives)
            )
            if meets:
                line.meeting = line.read(line.count - 1, "b32")
            parts = line.parts
            return line.acting(lambda r, *values: function(r, parts, *values), kinds, results)

        return function

    return enter


@cache
def find_row(name: str) -> tuple[OpcodeRow[Maker], dict[str, str]] | None:
    """The row that knows an opcode and the modifiers by name; None if no row does."""
    return TABLE.find(in_order(name))


@cache
def in_order(name: str) -> str:
    """An opcode with its modifiers in the order of its row; what no row knows, as it is."""
    words = name.split(".")
    if words[0] in _ORDERED or TABLE.find(name):
        return name
    rows = TABLE.rows.get(words[0], ())
    return next(filter(None, (_spelled(row.template, words) for row in rows)), name)


def _spelled(template: str, words: Sequence[str]) -> str | None:
    """An opcode in the template's order; None if its words are not those of the template."""
    unused, chosen = list(words), []
    for is_optional, _, choices in elements(template):
        word = next((candidate for candidate in unused if (candidate,) in choices), None)
        if word is None and not is_optional:
            return None
        if word is not None:
            unused.remove(word)
            chosen.append(word)
    for kind in (_TYPE, _SPACE):
        if [w for w in words if kind.match(w)] != [w for w in chosen if kind.match(w)]:
            return None
    return ".".join(chosen) if not unused else None
