"""How a table of opcodes spells them: whole, with the modifiers that each may have.

A template spells an opcode out. `.{name:a|b}` is one of these modifiers, `?{name:a|b}` one or none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

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
