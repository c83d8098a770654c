"""Which registers a PTX function may read before anything wrote them. Pure.

A forward analysis over the control flow graph. A register is defined where every way to the place
wrote it; a guarded write defines it for what has the same guard, until the predicate is written.
What a branch table may reach is taken to be any label of the function. Names must be unique in a
function: take out its inner scopes first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from gpu_emulator.ptx.text.document import Document, Function
from gpu_emulator.ptx.text.instruction import Instruction
from gpu_emulator.ptx.text.registers import Registers, read_registers

_LEAVES = frozenset({"ret", "exit", "trap"})


@dataclass(frozen=True, slots=True)
class UndefinedRead:
    """An instruction, by its place, and a register that it may read undefined."""

    place: int
    register: str


@dataclass(slots=True)
class _Block:
    """Instructions without a way in or out between them, and the blocks that may come next."""

    lines: list[tuple[int, Instruction]] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    next: list[int] = field(default_factory=list)


def undefined_reads(document: Document, function: Function) -> list[UndefinedRead]:
    """Every read of a register, in reachable code, that some way leads to without a write."""
    registers = read_registers(document, function)
    blocks = _blocks(document, function)
    numbers = _Numbers(registers)
    entering: list[int | None] = [None] * len(blocks)
    if blocks:
        entering[0] = 0
    waiting = [0] if blocks else []
    while waiting:
        number = waiting.pop()
        leaving = numbers.after(blocks[number], entering[number] or 0)
        for following in blocks[number].next:
            before = entering[following]
            merged = leaving if before is None else before & leaving
            if merged != before:
                entering[following] = merged
                waiting.append(following)
    return [
        read
        for block, known in zip(blocks, entering, strict=True)
        if known is not None
        for read in numbers.undefined(block, known)
    ]


class _Numbers:
    """Facts as bits: a register is defined, or is defined where a guard holds."""

    def __init__(self, registers: Registers) -> None:
        self._registers = registers
        self._bits: dict[tuple[str, str], int] = {}
        self._guarded_by: dict[str, int] = {}

    def after(self, block: _Block, known: int) -> int:
        """What is known after a block, from what is known before it."""
        for _, one in block.lines:
            known = self._step(one, known)
        return known

    def undefined(self, block: _Block, known: int) -> Iterator[UndefinedRead]:
        """The reads of a block that what is known before it does not cover."""
        for place, one in block.lines:
            for name in dict.fromkeys(one.reads):
                if self._registers.type_of(name) and not self._is_defined(name, one.guard, known):
                    yield UndefinedRead(place, name)
            known = self._step(one, known)

    def _is_defined(self, name: str, guard: str, known: int) -> bool:
        if known & self._bit("", name):
            return True
        return bool(guard) and bool(known & self._bit(guard, name))

    def _step(self, one: Instruction, known: int) -> int:
        for name in one.writes:
            known &= ~self._guarded_by.get(name, 0)
        for name in one.writes:
            # Not where it writes its own guard: the guard that held is no more.
            if one.guard.lstrip("@!") not in one.writes:
                known |= self._bit(one.guard, name)
        return known

    def _bit(self, guard: str, name: str) -> int:
        key = (guard, name)
        if key not in self._bits:
            self._bits[key] = 1 << len(self._bits)
            if guard:
                predicate = guard.lstrip("@!")
                self._guarded_by[predicate] = self._guarded_by.get(predicate, 0) | self._bits[key]
        return self._bits[key]


def _blocks(document: Document, function: Function) -> list[_Block]:
    blocks = [_Block()]
    for place in function.body:
        one = document.statements[place]
        if one.label:
            if blocks[-1].lines:
                blocks.append(_Block())
            blocks[-1].labels.append(one.label)
        elif instruction := one.instruction:
            blocks[-1].lines.append((place, instruction))
            if instruction.base in ("bra", "brx") or instruction.base in _LEAVES:
                blocks.append(_Block())
    starts = {label: number for number, block in enumerate(blocks) for label in block.labels}
    for number, block in enumerate(blocks):
        block.next = list(_following(block, number, starts, len(blocks)))
    return blocks


def _following(block: _Block, number: int, starts: dict[str, int], count: int) -> Iterator[int]:
    last = block.lines[-1][1] if block.lines else None
    if last and last.base == "brx":
        yield from starts.values()
    elif last and last.base == "bra":
        yield from (starts[name] for name in last.reads if name in starts)
    if (last is None or not last.ends) and number + 1 < count:
        yield number + 1
