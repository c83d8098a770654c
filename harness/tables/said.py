"""What a command has to say, as a value: lines, counted lines, named facts and grids. Pure.

Who renders it decides how it looks: `harness.tables.terminal` prints it; a page or a document can
read the same blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TypeAlias

import msgspec

from harness.values.verdict import VerdictKind


class Tone(StrEnum):
    """What a word means to the reader, not how it looks."""

    PLAIN = "plain"
    HEAD = "head"
    GOOD = "good"
    POOR = "poor"
    BAD = "bad"
    FAINT = "faint"
    ALARM = "alarm"
    RELIEF = "relief"
    NOTE = "note"


class SaidLine(msgspec.Struct, frozen=True):
    """Words in order, each with its tone."""

    parts: tuple[tuple[str, Tone], ...]

    def __add__(self, other: SaidLine) -> SaidLine:
        return SaidLine(self.parts + other.parts)

    @property
    def text(self) -> str:
        """The words alone."""
        return "".join(words for words, _ in self.parts)


class Counted(msgspec.Struct, frozen=True):
    """A line that is true so many times; the count stands in a column of its own."""

    count: int
    line: SaidLine


class GridColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A column of a grid; numbers stand at the right.

    `wraps`: its cells may be broken between words; `folds`: and, where a word is too long, in it.
    `spare` says what is left out where the width does not do: 0 nothing, 1 a column without any
    entry, 2 also one whose entries are all the same, and from 3 on also others, the largest first.
    """

    title: str
    is_number: bool = False
    wraps: bool = False
    folds: bool = False
    spare: int = 0


class SaidGrid(msgspec.Struct, frozen=True, kw_only=True):
    """A table: as many cells in each row as there are columns; without titles, it has no head."""

    columns: tuple[GridColumn, ...]
    rows: tuple[tuple[SaidLine, ...], ...] = msgspec.field(default=())
    title: str = ""


class SaidFacts(msgspec.Struct, frozen=True):
    """Facts about one thing, each with its name."""

    facts: tuple[tuple[str, SaidLine], ...]


Block: TypeAlias = SaidLine | Counted | SaidGrid | SaidFacts


def say(words: str, tone: Tone = Tone.PLAIN) -> SaidLine:
    """A line of one tone."""
    return SaidLine(((words, tone),))


BLANK = say("")


def tone_of(verdict: VerdictKind) -> Tone:
    """The tone of a verdict, wherever it stands."""
    if verdict.compiles:
        return Tone.GOOD if verdict.is_healthy else Tone.POOR
    return Tone.BAD if verdict.fails else Tone.FAINT


def verdict_said(verdict: VerdictKind, more: Sequence[SaidLine] = ()) -> SaidLine:
    """A verdict in its tone, and what follows it."""
    return sum(more, say(verdict.value, tone_of(verdict)))
