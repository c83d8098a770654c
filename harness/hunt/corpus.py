"""Real PTX with small changes: what a compiler wrote, as no compiler would write it. Pure.

In a step an instruction goes, comes twice, changes places with the next one, gets another constant,
register, opcode, modifier or guard, a constant in place of a register, or one of another source
stands behind it. Such a program need not mean anything: what is looked for is a ptxas that fails on
it, where it should refuse it or assemble it.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from gpu_emulator.ptx.text.document import Document, StatementKind, parse, statement
from gpu_emulator.ptx.text.facts import Instruction, without_debug
from harness.hunt.changes import ChangedProgram

_ENTRY = re.compile(r"(\.entry\s+)[\w$]+")
_NUMBER = re.compile(r"(?<![\w%$.])-?(?:0x[0-9a-fA-F]+|[0-9]+)(?![\w.])")
_REGISTER = re.compile(r"%[a-z]+(?=[0-9])[0-9]+")
_NUMBERS = (0, 1, -1, 2, 4, 8, 16, 31, 32, 33, 64, 127, 128, 255, 256, 65535, 0x7FFFFFFF, 1 << 31)
TOGETHER = 16
"""Programs in a row that are changes of one source: they can be one module."""

_KINDS = (
    "less", "twice", "swap", "number", "number", "register", "opcode", "graft", "word", "guard",
    "alias", "constant",
)  # fmt: skip


@dataclass(frozen=True)
class CorpusSource:
    """A module of one entry, which is called `k` here.

    `code` is what it may take: instructions, by their opcodes, by their first words.
    """

    text: str
    code: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)

    @classmethod
    def read(cls, text: str) -> CorpusSource | None:
        """A text of PTX, without its lines of the source; None if it has not one entry."""
        text = without_debug(text)
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
    def opcodes(self) -> list[str]:
        """All that it has."""
        return list(dict.fromkeys(op.opcode for _, op in self.instructions))

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
        old = {place: [str(op)] for place, op in self.instructions}
        for step in steps:
            change = self._change(random.Random(step))  # noqa: S311 - to repeat
            changes.update({n: codes for n, codes in change.items() if codes != old[n]})
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
        kind = draw.choice(_KINDS)
        if kind == "less":
            return {place: []}
        if kind == "twice":
            return {place: [code, code]}
        if kind == "swap" and number + 1 < len(self.instructions):
            following, other = self.instructions[number + 1]
            return {place: [str(other)], following: [code]}
        if kind == "opcode":
            opcode = draw.choice(list(self.code[op.base]))
            return {place: [code.replace(op.opcode, opcode, 1)]}
        if kind == "word":
            words = op.opcode.split(".")
            if draw.random() < 0.5 and len(words) > 1:
                del words[draw.randrange(1, len(words))]
            else:
                others = [word for name in self.code[op.base] for word in name.split(".")[1:]]
                words.insert(draw.randrange(1, len(words) + 1), draw.choice(others or ["u32"]))
            return {place: [code.replace(op.opcode, ".".join(words), 1)]}
        if kind == "guard":
            flags = self.registers.get("%p")
            if code.startswith("@"):
                return {place: [code.partition(" ")[2]]}
            guard = f"@{draw.choice(('', '!'))}{draw.choice(flags)} " if flags else ""
            return {place: [f"{guard}{code}"]}
        if kind == "graft":
            base = draw.choice(list(self.code))
            opcode = draw.choice(list(self.code[base]))
            return {place: [code, self._own(draw.choice(self.code[base][opcode]), draw)]}
        pattern = _NUMBER if kind == "number" else _REGISTER
        parts = list(pattern.finditer(code))
        if not parts:
            return {}
        part = draw.choice(parts)
        stem = part[0].rstrip("0123456789")
        new = str(draw.choice(_NUMBERS))
        if kind in ("register", "alias"):
            new = draw.choice([p[0] for p in parts] if kind == "alias" else self.registers[stem])
        return {place: [f"{code[: part.start()]}{new}{code[part.end() :]}"]}

    def _own(self, code: str, draw: random.Random) -> str:
        """Code of another source with registers of this one, where it has such."""

        def register(part: re.Match[str]) -> str:
            own = self.registers.get(part[0].rstrip("0123456789"))
            return draw.choice(own) if own else part[0]

        return _REGISTER.sub(register, code)


def acquainted(sources: Sequence[CorpusSource]) -> list[CorpusSource]:
    """The same sources, each of which may take code of all."""
    code: dict[str, dict[str, list[str]]] = {}
    for source in sources:
        for _, op in source.instructions:
            code.setdefault(op.base, {}).setdefault(op.opcode, []).append(str(op))
    return [CorpusSource(source.text, code) for source in sources]


def changed_program(seed: int, sources: Sequence[CorpusSource]) -> ChangedProgram[CorpusSource]:
    """The program of a seed; a short source is taken more often, as it takes less time."""
    choice = random.Random(seed // TOGETHER)  # noqa: S311 - to repeat, not to hide
    [source] = choice.choices(sources, [1 / len(one.text) for one in sources])
    return ChangedProgram.drawn(seed, source, random.Random(seed))  # noqa: S311
