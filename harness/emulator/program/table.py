"""The table of opcodes: whole names only, each row with its chapter of the PTX ISA manual.

A row's template spells an opcode out. `.{name:a|b}` is one of these modifiers, `?{name:a|b}` one or
none. What no template matches as a whole is refused by name, so that no modifier is ever ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from harness.emulator.program.binder import Binder
from harness.emulator.program.steps import Step

__all__ = ["OpcodeRow", "find_row", "opcode", "rows"]

_GAP = re.compile(r"([.?])\{(\w+):([^{}]*)\}")

Maker = Callable[[Binder], Step]


@dataclass(frozen=True, slots=True)
class OpcodeRow:
    """One row: its template, the manual's chapter and what makes a step of a line.

    `waits`: threads may have to wait here for others. `meets`: the lanes of a mask wait for each
    other here. `is_pure`: it writes only its first operand, from its other operands.
    """

    template: str
    section: str
    make: Maker
    pattern: re.Pattern[str]
    waits: bool
    meets: bool
    is_pure: bool


_ROWS: dict[str, list[OpcodeRow]] = {}
_FOUND: dict[str, tuple[OpcodeRow, dict[str, str]] | None] = {}


def opcode(
    *templates: str, section: str, waits: bool = False, meets: bool = False, pure: bool = False
) -> Callable[[Maker], Maker]:
    """Enter a row for each template; the function makes the step."""

    def enter(make: Maker) -> Maker:
        for template in templates:
            row = OpcodeRow(template, section, make, _pattern(template), waits, meets, pure)
            _ROWS.setdefault(re.split(r"[.?]", template)[0], []).append(row)
        return make

    return enter


def find_row(name: str) -> tuple[OpcodeRow, dict[str, str]] | None:
    """The row that knows an opcode and the modifiers by name; None if no row does."""
    if name not in _FOUND:
        _FOUND[name] = next(
            (
                (row, {key: value or "" for key, value in found.groupdict().items()})
                for row in _ROWS.get(name.split(".", 1)[0], [])
                if (found := row.pattern.fullmatch(name))
            ),
            None,
        )
    return _FOUND[name]


def rows() -> list[OpcodeRow]:
    """All rows, for the table in the documentation and for tests."""
    return [row for each in _ROWS.values() for row in each]


def _pattern(template: str) -> re.Pattern[str]:
    pieces, position = [], 0
    for gap in _GAP.finditer(template):
        pieces.append(re.escape(template[position : gap.start()]))
        choice = "|".join(re.escape(each) for each in gap[3].split("|"))
        optional = "?" if gap[1] == "?" else ""
        pieces.append(rf"(?:\.(?P<{gap[2]}>{choice})){optional}")
        position = gap.end()
    pieces.append(re.escape(template[position:]))
    return re.compile("".join(pieces))
