"""Passes that make single instructions of a PTX module simpler. Pure.

Each is a function from a document to swaps: an instruction's guard, opcode or operand for a simpler
one, or the instruction for nothing. Whether a swap may be made is not their business.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from gpu_emulator.ptx.text.document import Document, Statement, StatementKind, statement
from gpu_emulator.ptx.text.facts import Instruction, split_operands
from gpu_emulator.ptx.text.registers import type_finder
from harness.minimize.reduction.driver import Edit

DELETED, ALL, GUARD, OPCODE = -4, -3, -2, -1
_WIDTH = re.compile(r"([xv])(1|2|4|8|16|32|64|128)")
_IMMEDIATE = re.compile(r"[-+]?[0-9][\w.]*")
_OFFSET = re.compile(r"(?<=[\w$%])\s*[+]\s*-?\w+(?=\s*\])")


@dataclass(frozen=True, slots=True)
class Swap:
    """`text` in the place of one part of an instruction.

    `part` is `DELETED`, `ALL`, `GUARD`, `OPCODE`, or the number of an operand.
    """

    place: int
    part: int
    text: str = ""


@dataclass(frozen=True)
class Swapping:
    """A pass whose opportunities are swaps."""

    name: str
    find: Callable[[Document], Iterable[Swap]]

    def opportunities(self, document: Document) -> Sequence[Edit]:
        """What the function finds."""
        return list(self.find(document))

    def apply(self, document: Document, chosen: Sequence[Edit]) -> Document | None:
        """The document with these swaps; those of one instruction are made one after another."""
        changes: dict[int, Sequence[Statement]] = {}
        for swap in chosen:
            assert isinstance(swap, Swap)
            present = changes.get(swap.place, [document.statements[swap.place]])
            changes[swap.place] = _swapped(present[0], swap) if present else ()
        return document.replaced(changes) if changes else None


def _swapped(one: Statement, swap: Swap) -> Sequence[Statement]:
    if swap.part == DELETED:
        return ()
    if swap.part == ALL:
        return [statement(one.kind, swap.text, one.before)]
    old = one.instruction
    if old is None:
        return [one]
    if swap.part == GUARD:
        new = replace(old, guard=swap.text)
    elif swap.part == OPCODE:
        new = replace(old, opcode=swap.text)
    else:
        operands = list(old.operands)
        operands[swap.part] = swap.text
        new = replace(old, operands=tuple(operands))
    return [statement(one.kind, str(new), one.before)]


@dataclass(frozen=True)
class Modifiers:
    """Drops modifiers of opcodes; all instructions with the same opcode go together."""

    name: str = "modifiers"

    def opportunities(self, document: Document) -> Sequence[Edit]:
        """Each modifier of each opcode, by its number."""
        found = dict.fromkeys(instruction.opcode for _, instruction in document.instructions)
        return [(opcode, n) for opcode in found for n in range(1, opcode.count(".") + 1)]

    def apply(self, document: Document, chosen: Sequence[Edit]) -> Document | None:
        """The document without these modifiers."""
        dropped = set(chosen)
        changes: dict[int, Sequence[Statement]] = {}
        for place, old in document.instructions:
            words = old.opcode.split(".")
            kept = [word for n, word in enumerate(words) if (old.opcode, n) not in dropped]
            if len(kept) < len(words):
                new = replace(old, opcode=".".join(kept))
                before = document.statements[place].before
                changes[place] = [statement(StatementKind.INSTRUCTION, str(new), before)]
        return document.replaced(changes)


def deletions(document: Document) -> Iterable[Swap]:
    """Every instruction may go."""
    return (Swap(place, DELETED) for place, _ in document.instructions)


def guards(document: Document) -> Iterable[Swap]:
    """Every guard may go."""
    return (Swap(place, GUARD) for place, one in document.instructions if one.guard)


def immediates(document: Document) -> Iterable[Swap]:
    """Every constant may be 0."""
    for place, one in document.instructions:
        for number, operand in enumerate(one.operands):
            if _IMMEDIATE.fullmatch(operand) and operand != "0":
                yield Swap(place, number, "0")


def offsets(document: Document) -> Iterable[Swap]:
    """Every address may be without its offset."""
    for place, one in document.instructions:
        for number, operand in enumerate(one.operands):
            plain = _OFFSET.sub("", operand)
            if plain != operand:
                yield Swap(place, number, plain)


def definitions(document: Document) -> Iterable[Swap]:
    """Every result may come from the thread's number instead, or be 0 where that has no type."""
    type_of = type_finder(document)
    for place, one in document.instructions:
        if one.results and len(one.writes) == 1 and one.writes == [one.operands[0]]:
            source = _plainest(type_of(place, one.writes[0]))
            if source and one.base != "mov":
                text = Instruction(one.guard, source[0], (one.writes[0], source[1]))
                yield Swap(place, ALL, str(text))


def _plainest(kind: str | None) -> tuple[str, str] | None:
    """Opcode and operand of the plainest way to give a register of this type a value."""
    if kind in (".b32", ".u32", ".s32"):
        return "mov.u32", "%tid.x"
    if kind in (".b16", ".b64", ".u16", ".s16", ".u64", ".s64"):
        return f"mov{kind}", "0"
    if kind in (".f32", ".f64"):
        return f"mov{kind}", "0f00000000" if kind == ".f32" else "0d0000000000000000"
    return ("setp.eq.u32", "%tid.x, 0") if kind == ".pred" else None


def narrowest(document: Document) -> Iterable[Swap]:
    """Every vector may be one element."""
    return _narrowed(document, to_one=True)


def halves(document: Document) -> Iterable[Swap]:
    """Every vector may be half as long."""
    return _narrowed(document, to_one=False)


def _narrowed(document: Document, *, to_one: bool) -> Iterable[Swap]:
    for place, one in document.instructions:
        new = _narrow(one, to_one=to_one)
        if new:
            yield Swap(place, ALL, str(new))


def _narrow(one: Instruction, *, to_one: bool) -> Instruction | None:
    """The instruction with its width, and all its vectors, divided by the same number."""
    words = one.opcode.split(".")
    at = next((n for n, word in enumerate(words) if n and _WIDTH.fullmatch(word)), None)
    if at is None:
        return None
    letter, width = words[at][0], int(words[at][1:])
    part = width if to_one else 2
    if width == 1:
        return None
    narrow = [f"{letter}{width // part}"] if letter == "x" or width > part else []
    is_bare = letter == "v" and width == part
    operands = [_shortened(operand, part, is_bare=is_bare) for operand in one.operands]
    return replace(
        one, opcode=".".join([*words[:at], *narrow, *words[at + 1 :]]), operands=tuple(operands)
    )


def _shortened(operand: str, part: int, *, is_bare: bool) -> str:
    """The first elements of a vector, one in `part`; any other operand as it is."""
    elements = split_operands(operand[1:-1]) if operand.startswith("{") else ()
    if not elements or len(elements) % part:
        return operand
    kept = elements[: len(elements) // part]
    return kept[0] if is_bare and len(kept) == 1 else "{" + ", ".join(kept) + "}"
