"""Cells as lines of a table, and which of them get a page of their own. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from harness.judging.answers import is_failure
from harness.site.squares import LETTERS, cell_page, rows_page, tone_of, toolchain_of_cell
from harness.values.bug import BugFacts
from harness.values.kernel import Config
from harness.values.row import Row
from harness.values.verdict import VerdictKind

ROWS = 1_000
"""Rows on one page of them."""

_EACH = 3
_NO_ANCHOR = re.compile(r"[^A-Za-z0-9]+")
_LONGEST_REASON = 400


@dataclass(slots=True)
class CellPages:
    """Cells that get a page of their own: of each kernel, target and failure the first few.

    `most` bounds them all; what compiles counts as a failure of its own kind here, so that one of
    it can be looked at too. `wanted` are chosen whatever they are. `passed_over` counts the
    failures that get none.
    """

    most: int
    wanted: frozenset[str] = frozenset()
    pages: int = 0
    passed_over: int = 0
    _seen: Counter[tuple[str, ...]] = field(default_factory=Counter)

    def takes(self, facts: BugFacts) -> bool:
        """Whether the cell gets a page; counts it."""
        key = (facts.kernel, facts.target, facts.verdict, facts.signature or "")
        self._seen[key] += 1
        most = _EACH if is_failure(facts.verdict) else 1
        if self.pages < self.most and (facts.cell in self.wanted or self._seen[key] <= most):
            self.pages += 1
            return True
        self.passed_over += is_failure(facts.verdict)
        return False


@dataclass(slots=True)
class Addresses:
    """Where each cell is shown: on a page of its own, or in a line of its kernel's rows."""

    pages: set[str] = field(default_factory=set)
    lines: dict[str, str] = field(default_factory=dict)

    def add(self, cells: Sequence[BugFacts]) -> None:
        """Give each cell of one kernel and target the address of its line."""
        for index, facts in enumerate(cells):
            page = rows_page(facts.kernel, facts.target, index // ROWS + 1)
            self.lines[facts.cell] = f"{page}#{_anchor(facts)}"

    def of(self, cell: str) -> str:
        """The relative address of a cell that was added."""
        return cell_page(cell) if cell in self.pages else self.lines[cell]

    def has(self, cell: str) -> bool:
        """Whether the cell is shown anywhere."""
        return cell in self.lines


def _anchor(facts: BugFacts) -> str:
    return f"c{_NO_ANCHOR.sub('', facts.short)}"


@dataclass(frozen=True, slots=True)
class RowLine:
    """A cell as a line of a table; what is not known is `-`. `page` is "" without one."""

    anchor: str
    page: str
    short: str
    place: str
    toolchain: str
    letter: str
    tone: str
    verdict: str
    registers: str
    spills: str
    shared: str
    occupancy: str
    reason: str

    @classmethod
    def of(cls, facts: BugFacts, page: str) -> RowLine:
        """The line of a cell."""
        kind = VerdictKind(facts.verdict)
        reason = facts.reason
        spills = "-"
        if facts.spill_stores is not None or facts.spill_loads is not None:
            spills = f"{_number(facts.spill_stores)}, {_number(facts.spill_loads)}"
        return cls(
            anchor=_anchor(facts),
            page=page,
            short=facts.short,
            place=f"{facts.launch}, {Config.of(dict(facts.config)).label}",
            toolchain=toolchain_of_cell(facts).label.replace("\n", ", "),
            letter=LETTERS[kind],
            tone=tone_of(facts.verdict).value,
            verdict=f"{facts.verdict} {facts.code or ''}".rstrip(),
            registers=_number(facts.n_regs),
            spills=spills,
            shared=_number(facts.shared),
            occupancy="-" if facts.occupancy is None else f"{facts.occupancy:.1%}",
            reason=reason if len(reason) <= _LONGEST_REASON else f"{reason[:_LONGEST_REASON]}...",
        )


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def resource_words(row: Row) -> str:
    """What is known of registers, memory and occupancy, in words; "" where nothing is."""
    found = [
        (row.n_regs, "registers"),
        (row.spill_stores, "bytes of spill stores"),
        (row.spill_loads, "bytes of spill loads"),
        (row.shared, "bytes of shared memory"),
        (row.tmem_size, "columns of tensor memory"),
    ]
    words = [f"{value:,} {name}" for value, name in found if value is not None]
    if row.occupancy is not None:
        limiter = f", limited by {row.occupancy_limiter}" if row.occupancy_limiter else ""
        words.append(f"occupancy {row.occupancy:.1%}{limiter}")
    return ", ".join(words)


def row_fields(row: Row) -> list[tuple[str, str]]:
    """The whole row by name; what is not known is `-`."""
    return [(each.name, _value(getattr(row, each.name))) for each in fields(row)]


def _value(value: Any) -> str:  # noqa: ANN401 - whatever a row holds
    if value is None or value == ():
        return "-"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={each}" for name, each in value.items())
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return str(value)
