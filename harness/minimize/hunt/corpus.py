"""Real PTX with small changes: what a compiler wrote, as no compiler would write it. Pure.

A change is a step: an instruction goes, comes twice, changes places with the next one, or gets
another constant, register or opcode. Steps are drawn from the text as it was and do not depend on
each other, so a list of them can be shortened. Such a program need not mean anything: what is
looked for is a ptxas that fails on it, where it should refuse it or assemble it.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from gpu_emulator.ptx.text.document import Document, StatementKind, parse, statement
from gpu_emulator.ptx.text.facts import Instruction

_ENTRY = re.compile(r"(\.entry\s+)[\w$]+")
_TARGET = re.compile(r"^\s*\.target\s+([\w.]+)", re.MULTILINE)
_NUMBER = re.compile(r"(?<![\w%$.])-?(?:0x[0-9a-fA-F]+|[0-9]+)(?![\w.])")
_REGISTER = re.compile(r"%[a-z]+(?=[0-9])[0-9]+")
_NUMBERS = (0, 1, -1, 2, 4, 8, 16, 31, 32, 33, 64, 127, 128, 255, 256, 65535, 0x7FFFFFFF, 1 << 31)
_MOST_STEPS = 10


@dataclass(frozen=True)
class CorpusSource:
    """A module of one entry, which is called `k` here."""

    text: str

    @classmethod
    def read(cls, text: str) -> CorpusSource | None:
        """A text of PTX; None if it has not one entry."""
        return cls(_ENTRY.sub(r"\1k", text)) if len(_ENTRY.findall(text)) == 1 else None

    @cached_property
    def document(self) -> Document:
        """The module, read."""
        return parse(self.text)

    @cached_property
    def instructions(self) -> list[tuple[int, Instruction]]:
        """All of them, with their places."""
        return list(self.document.instructions)

    @cached_property
    def opcodes(self) -> dict[str, list[str]]:
        """All that it has, by their first words."""
        opcodes: dict[str, dict[str, None]] = {}
        for _, op in self.instructions:
            opcodes.setdefault(op.base, {})[op.opcode] = None
        return {base: list(some) for base, some in opcodes.items()}

    @cached_property
    def registers(self) -> dict[str, list[str]]:
        """All that it names, by what stands before their numbers."""
        registers: dict[str, dict[str, None]] = {}
        for name in _REGISTER.findall(self.text):
            registers.setdefault(name.rstrip("0123456789"), {})[name] = None
        return {stem: list(some) for stem, some in registers.items()}

    def changed(self, steps: Sequence[int]) -> str:
        """The text with these steps; of two at one place the last counts."""
        changes: dict[int, list[str]] = {}
        for step in steps:
            changes.update(self._change(random.Random(step)))  # noqa: S311 - to repeat
        return str(
            self.document.replaced(
                {
                    place: [statement(StatementKind.INSTRUCTION, code) for code in codes]
                    for place, codes in changes.items()
                }
            )
        )

    def _change(self, draw: random.Random) -> Mapping[int, list[str]]:
        number = draw.randrange(len(self.instructions))
        place, op = self.instructions[number]
        code = str(op)
        kind = draw.choice(("less", "twice", "swap", "number", "number", "register", "opcode"))
        if kind == "less":
            return {place: []}
        if kind == "twice":
            return {place: [code, code]}
        if kind == "swap" and number + 1 < len(self.instructions):
            following, other = self.instructions[number + 1]
            return {place: [str(other)], following: [code]}
        if kind == "opcode":
            opcode = draw.choice(self.opcodes[op.base])
            return {place: [code.replace(op.opcode, opcode, 1)]}
        pattern = _NUMBER if kind == "number" else _REGISTER
        parts = list(pattern.finditer(code))
        if not parts:
            return {}
        part = draw.choice(parts)
        stem = part[0].rstrip("0123456789")
        new = draw.choice(_NUMBERS) if kind == "number" else draw.choice(self.registers[stem])
        return {place: [f"{code[: part.start()]}{new}{code[part.end() :]}"]}


@dataclass(frozen=True, slots=True)
class CorpusProgram:
    """A source with steps, from a seed."""

    seed: int
    source: CorpusSource
    steps: tuple[int, ...]

    @property
    def text(self) -> str:
        """What ptxas gets."""
        return self.source.changed(self.steps)

    @property
    def opcodes(self) -> list[str]:
        """Those of its source."""
        return [opcode for some in self.source.opcodes.values() for opcode in some]


def changed_program(seed: int, sources: Sequence[CorpusSource]) -> CorpusProgram:
    """The program of a seed; a short source is taken more often, as it takes less time."""
    draw = random.Random(seed)  # noqa: S311 - to repeat, not to hide
    [source] = draw.choices(sources, [1 / len(one.text) for one in sources])
    steps = tuple(draw.getrandbits(32) for _ in range(draw.randrange(1, _MOST_STEPS + 1)))
    return CorpusProgram(seed, source, steps)


def target_of(text: str) -> str | None:
    """Which target a text of PTX names."""
    match = _TARGET.search(text)
    return match[1] if match else None


def retargeted(text: str, target: str) -> str:
    """A text of PTX for another target."""
    return _TARGET.sub(f".target {target}", text, count=1)
