"""The table of opcodes: whole names only, each row with its chapter of the PTX ISA manual.

A row's template spells an opcode out. `.{name:a|b}` is one of these modifiers, `?{name:a|b}` one or
none. What no template matches as a whole is refused by name, so that no modifier is ever ignored.

The manual has the modifiers of an opcode in one order. ptxas takes most of them in any order: only
types among each other, and state spaces, keep theirs (seen with 13.5.37). So does this table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from gpu_emulator.ptx.program.binder import Binder
from gpu_emulator.steps import Step

_GAP = re.compile(r"([.?])\{(\w+):([^{}]*)\}")

_TYPE = re.compile(r"(?:[busf][0-9]+|bf16|tf32|pred|e[0-9]m[0-9]|ue8m0)(?:x[0-9]+)?\Z")
_SPACE = re.compile(r"(?:global|shared|local|const|param)(?:::\w+)?\Z")
# Families whose modifiers say by their order what is done.
_ORDERED = (
    "clusterlaunchcontrol", "cp", "createpolicy", "fence", "mbarrier", "mma", "multimem", "tcgen05",
    "tensormap", "wgmma", "wmma",
)  # fmt: skip

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

    def spelled(self, words: Sequence[str]) -> str | None:
        """An opcode in the template's order; None if its words are not those of the template."""
        left, chosen = list(words), []
        for mark, choices in _elements(self.template):
            found = next((each for each in left if each in choices), None)
            if found is None and mark != "?":
                return None
            if found is not None:
                left.remove(found)
                chosen.append(found)
        for kind in (_TYPE, _SPACE):
            if [w for w in words if kind.match(w)] != [w for w in chosen if kind.match(w)]:
                return None
        return ".".join(chosen) if not left else None


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
        usual = in_order(name)
        _FOUND[name] = _exact(name) if usual == name else find_row(usual)
    return _FOUND[name]


def in_order(name: str) -> str:
    """An opcode with its modifiers in the order of its row; what no row knows, as it is."""
    base, *rest = name.split(".")
    if base in _ORDERED or _exact(name):
        return name
    spelled = (row.spelled([base, *rest]) for row in _ROWS.get(base, []))
    return next((each for each in spelled if each), name)


def _exact(name: str) -> tuple[OpcodeRow, dict[str, str]] | None:
    return next(
        (
            (row, {key: value or "" for key, value in found.groupdict().items()})
            for row in _ROWS.get(name.split(".", 1)[0], [])
            if (found := row.pattern.fullmatch(name))
        ),
        None,
    )


def rows() -> list[OpcodeRow]:
    """All rows, for the table in the documentation and for tests."""
    return [row for each in _ROWS.values() for row in each]


@lru_cache(maxsize=1 << 12)
def _elements(template: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The words of a template: `.` (must stand) or `?` (may), and which it may be."""
    found: list[tuple[str, tuple[str, ...]]] = []
    position = 0
    for gap in [*_GAP.finditer(template), None]:
        end = gap.start() if gap else len(template)
        found += ((".", (word,)) for word in template[position:end].split(".") if word)
        if gap:
            found.append((gap[1], tuple(gap[3].split("|"))))
            position = gap.end()
    return tuple(found)


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
