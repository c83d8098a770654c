"""The table of opcodes that each instruction set has.

A template spells an opcode out. `.{name:a|b}` is one of these modifiers, `?{name:a|b}` one or none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Generic, TypeVar

Maker = TypeVar("Maker")

_GAP = re.compile(r"([.?])\{(\w+):([^{}]*)\}")
# A word of a template, or the words that may stand there: whether it may be left out, its name.
Element = tuple[bool, str, tuple[tuple[str, ...], ...]]


@cache
def elements(template: str) -> tuple[Element, ...]:
    """The words of a template, one after the other."""
    elements: list[Element] = []
    position = 0
    for gap in [*_GAP.finditer(template), None]:
        stop = gap.start() if gap else len(template)
        words = filter(None, template[position:stop].split("."))
        elements += ((False, "", ((word,),)) for word in words)
        if gap:
            choices = tuple(tuple(choice.split(".")) for choice in gap[3].split("|"))
            elements.append((gap[1] == "?", gap[2], choices))
            position = gap.end()
    return tuple(elements)


def parts_of(template: str, words: Sequence[str]) -> dict[str, str] | None:
    """What stands for each named element of a template; None if the words do not match it."""
    return _match(elements(template), words)


def _match(elements: Sequence[Element], words: Sequence[str]) -> dict[str, str] | None:
    if not elements:
        return None if words else {}
    is_optional, name, choices = elements[0]
    for choice in (*choices, ()) if is_optional else choices:
        if tuple(words[: len(choice)]) == choice:
            parts = _match(elements[1:], words[len(choice) :])
            if parts is not None:
                return parts | {name: ".".join(choice)} if name else parts
    return None


@dataclass(frozen=True, slots=True)
class OpcodeRow(Generic[Maker]):
    """One row: its template, what makes a step of a line, and where its meaning comes from.

    `waits`: threads may have to wait here for others. `meets`: the lanes of a mask wait for each
    other here. `is_plain`: the order of warps cannot matter for it where every access is ordered.
    """

    template: str
    make: Maker
    evidence: str
    waits: bool
    meets: bool
    is_plain: bool

    def spellings(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Every opcode of this row, and what it has for each named element."""
        ways = [
            [*([(name, "")] if is_optional else []), *((name, ".".join(one)) for one in choices)]
            for is_optional, name, choices in elements(self.template)
        ]
        for chosen in product(*ways):
            parts = {name: word for name, word in chosen if name}
            yield ".".join(word for _, word in chosen if word), parts


class OpcodeTable(Generic[Maker]):
    """The rows of one instruction set; each module of its `instructions/` enters its own."""

    def __init__(self) -> None:
        self.rows: dict[str, list[OpcodeRow[Maker]]] = {}
        """By the first word of the opcode."""

    def enter(
        self,
        *templates: str,
        evidence: str = "",
        waits: bool = False,
        meets: bool = False,
        is_plain: bool = True,
    ) -> Callable[[Maker], Maker]:
        """Enter a row for each template; the decorated function makes the step."""

        def enter(make: Maker) -> Maker:
            for template in templates:
                head = re.split(r"[.?]", template)[0]
                for base in head.split("|"):
                    whole = base + template[len(head) :]
                    row = OpcodeRow(whole, make, evidence, waits, meets, is_plain)
                    self.rows.setdefault(base, []).append(row)
            return make

        return enter

    def find(self, opcode: str) -> tuple[OpcodeRow[Maker], dict[str, str]] | None:
        """The row that knows an opcode, and its modifiers by name; None if no row does."""
        words = opcode.split(".")
        for row in self.rows.get(words[0], ()):
            parts = parts_of(row.template, words)
            if parts is not None:
                return row, parts
        return None
