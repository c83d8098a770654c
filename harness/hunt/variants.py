"""Smaller variants of a program of PTX, and which of them are as well defined."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from functools import cache

from gpu_emulator.ptx.text.document import Document, parse, read_head
from gpu_emulator.ptx.text.facts import Instruction, names_in
from harness.hunt.generator import opcode_forms
from harness.minimize.ptx.reduce import count_instructions

# Chunks of a program that are taken away at once: halves, quarters, eighths.
_PARTS = (2, 4, 8)
_PARAMETERS = {"in", "out", "n", "m"}
# What may stand in a program beside the opcodes of the emulator's table that are closed.
_OTHERS = ("ld", "st", "mov", "bra", "ret", "bar")
# What makes an address of an address.
_ADDRESSING = ("mad", "add", "xor")
_REGISTERS = re.compile(r"(\s*\.reg \.\w+ )([^<>]*);")
# What every program has: it loads, stores, and leaves.
_COMMON = ("ld", "st", "ret", "mov")
_MEMORY = _COMMON[:2]
_INPUTS_AND_RESULTS = ("ld.param", "ld.global", "st.global")


def computing(document: Document) -> Iterator[Instruction]:
    """The instructions that are not about addresses, loads and stores."""
    for _, op in document.instructions:
        is_address = op.opcode == "mad.wide.u32" and {"%in", "%out"} & set(op.writes)
        if op.base not in _COMMON and not is_address:
            yield op


def accesses(document: Document) -> Iterator[Instruction]:
    """Loads and stores but for those of every program, which are of inputs and results."""
    for _, op in document.instructions:
        if op.base in _MEMORY and first_word(op.opcode) not in _INPUTS_AND_RESULTS:
            yield op


def first_word(opcode: str) -> str:
    """The first word of an opcode; of a load or store with the space."""
    base, *more = opcode.split(".")
    return ".".join([base, *more[: base in _MEMORY]])


def without(text: str, opcode: str) -> str:
    """A program without an opcode, or all of a first word.

    Its registers still have the values they began with.

    With what sets a carry goes what reads it.
    """
    document = parse(text)
    is_chain = _is_of_carry(opcode)
    dropped = [
        place
        for place, op in document.instructions
        if opcode in (op.opcode, first_word(op.opcode)) or (is_chain and _is_of_carry(op.opcode))
    ]
    return str(document.without(dropped))


def slices(text: str) -> list[str]:
    """For each store, the program with what this one needs alone: most hits need one value."""
    document = parse(text)
    stores = [place for place, op in document.instructions if op.opcode.startswith("st.global")]
    return [
        str(pruned(document.without([other for other in stores if other != store])))
        for store in stores
    ]


def chunks(document: Document) -> Iterator[Document]:
    """The document without each half, quarter and eighth of its instructions."""
    places = [place for place, _ in document.instructions]
    for parts in _PARTS:
        size = -(-len(places) // parts)
        if size > 1:
            for first in range(0, len(places), size):
                yield document.without(places[first : first + size])


def pruned(document: Document) -> Document:
    """Without what writes registers that nothing reads, and labels that nothing names."""
    kept = dict(document.instructions)
    while True:
        read = {name for op in kept.values() for name in op.reads}
        less = {n: op for n, op in kept.items() if not op.writes or read & set(op.writes)}
        if len(less) == len(kept):
            break
        kept = less
    dropped = {place for place, _ in document.instructions if place not in kept}
    labels = {
        n for n, line in enumerate(document.statements) if line.label and line.label not in read
    }
    return document.without(dropped | labels)


def combined(text: str, variants: Sequence[str]) -> str:
    """The text with the changes of several variants, as far as they are of different lines."""
    lines = text.splitlines()
    changes: dict[int, list[str]] = {}
    for variant in variants:
        matcher = SequenceMatcher(None, lines, variant.splitlines(), autojunk=False)
        hunks = [hunk for hunk in matcher.get_opcodes() if hunk[0] != "equal"]
        touched = {n for _, low, high, _, _ in hunks for n in range(low, max(high, low + 1))}
        if touched & changes.keys():
            continue
        for _, low, high, first, last in hunks:
            new = variant.splitlines()[first:last]
            if low == high:
                new = [*new, lines[low]] if low < len(lines) else new
            changes.update({n: [] for n in range(low, max(high, low + 1))})
            changes[low] = new
    return "\n".join(line for n, old in enumerate(lines) for line in changes.get(n, [old])) + "\n"


def _is_of_carry(opcode: str) -> bool:
    words = opcode.split(".")
    return "cc" in words or words[0] in ("addc", "subc", "madc")


@cache
def _allowed() -> frozenset[str]:
    return frozenset(form.opcode for form in opcode_forms())


def is_closed(candidate: str | Document) -> bool:
    """Whether a candidate is of the kind that is generated: no more is open than there."""
    document = parse(candidate) if isinstance(candidate, str) else candidate
    allowed = _allowed()
    carry = ""
    for _, op in document.instructions:
        if op.base not in _OTHERS and op.opcode not in allowed and not _is_of_carry(op.opcode):
            return False
        # A borrow is no carry: what takes the one must not follow what sets the other.
        kind = "borrow" if op.base in ("sub", "subc") else "carry"
        if op.base in ("addc", "subc", "madc") and carry != kind:
            return False
        carry = kind if "cc" in op.modifiers else ""
    if _tells_an_address(document):
        return False
    heads = [read_head(line.code) for line in document.statements if ".entry" in line.code]
    return len(heads) == 1 and all(
        head and head.name == "k" and {one.name for one in head.parameters} <= _PARAMETERS
        for head in heads
    )


def _tells_an_address(document: Document) -> bool:
    """Whether a result may depend on where a buffer or a variable lies, which nothing says."""
    addresses: set[str] = set()
    for _, op in document.instructions:
        named = {
            name
            for operand in op.operands[op.results :]
            if not operand.startswith("[")
            for name in names_in(operand)
        }
        names_one = op.base == "mov" and not all(name.startswith("%") for name in named)
        makes_one = op.base in _ADDRESSING and named & addresses
        if named & addresses and not makes_one:
            return True
        if op.opcode == "ld.param.u64" or names_one or makes_one:
            addresses.update(op.writes)
        else:
            addresses.difference_update(op.writes)
    return False


def tidy(text: str) -> str:
    """Without declarations of registers that nothing names; the entry and its parameters stay."""
    named = {name for _, op in parse(text).instructions for name in (*op.reads, *op.writes)}
    lines = []
    for line in text.splitlines():
        if match := _REGISTERS.fullmatch(line):
            names = [name for name in match[2].split(", ") if name in named]
            line = f"{match[1]}{', '.join(names)};" if names else ""  # noqa: PLW2901
        if line:
            lines.append(line)
    return "\n".join(lines) + "\n"


def size_of(text: str) -> tuple[int, int]:
    """Instructions and characters: the fewer, the smaller."""
    return count_instructions(text), len(text)
