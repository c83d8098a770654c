"""What a command says, as the terminal shows it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace
from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from harness.tables.said import Block, Counted, GridColumn, SaidGrid, SaidLine, Tone, say
from harness.values.shown import shown

_STYLES = {
    Tone.HEAD: "bold",
    Tone.GOOD: "green",
    Tone.POOR: "yellow",
    Tone.BAD: "red",
    Tone.FAINT: "dim",
    Tone.ALARM: "bold red",
    Tone.RELIEF: "bold green",
    Tone.NOTE: "cyan",
}


_NOTHING = frozenset({"", "-", "0", "0 KiB", "0:0:0:0:0"})
_READABLE = 36
"""Characters of a line that is broken between words."""
_TIGHT = 5
"""Columns that are as spare as this go before the gaps between the others get narrow."""


def for_terminal(blocks: Iterable[Block]) -> RenderableType:
    """The blocks one below the other; at the end the titles of columns that did not fit."""
    return _Blocks(list(blocks))


class _Blocks:
    def __init__(self, blocks: Sequence[Block]) -> None:
        self.blocks = blocks

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        left_out: dict[str, set[str]] = {}
        for block in self.blocks:
            if isinstance(block, SaidGrid):
                yield _Grid(block, left_out)
            elif isinstance(block, SaidLine):
                yield _text(block)
            elif isinstance(block, Counted):
                # The count in a column of its own, so that a long reason wraps beside it.
                counted = Table.grid(padding=(0, 1))
                counted.add_column(justify="right", min_width=5)
                counted.add_column()
                counted.add_row(str(block.count), _text(block.line))
                yield counted
            else:
                facts = Table.grid(padding=(0, 2))
                facts.add_column(style="dim", no_wrap=True)
                facts.add_column()
                for name, line in block.facts:
                    facts.add_row(name, _text(line))
                yield facts
        titles = []
        for title, words in left_out.items():
            is_said = len(words) == 1 and words.isdisjoint(_NOTHING)
            titles.append(f"{title} ({min(words)} in all rows)" if is_said else title)
        if titles:
            yield Text(shown(f"left out for width: {', '.join(titles)}"), _STYLES[Tone.FAINT])


def _fitted(grid: SaidGrid, most: int, left_out: dict[str, set[str]]) -> tuple[SaidGrid, int]:
    """The grid without the columns that `most` characters have no room for, and its gaps."""
    columns, gap = grid.columns, 3
    texts = [[row[at].text for row in grid.rows] for at in range(len(columns))]
    kept = list(range(len(columns)))

    def needless(at: int) -> tuple[bool, bool, int]:
        distinct, spare = set(texts[at]), columns[at].spare
        is_same = spare > 1 and len(distinct) == 1 and len(grid.rows) > 1
        return spare > 0 and distinct <= _NOTHING, is_same, spare

    while sum(_needed(columns[at], texts[at], gap) + gap for at in kept) + 2 - gap > most:
        at = max(kept, key=needless)
        is_empty, is_same, spare = needless(at)
        if is_empty or is_same or spare >= (3 if gap == 1 else _TIGHT):
            kept.remove(at)
            left_out.setdefault(columns[at].title, set()).update(texts[at])
        elif gap > 1 and any(column.spare for column in columns):
            gap -= 1
        else:
            break
    rows = tuple(tuple(row[at] for at in kept) for row in grid.rows)
    return replace(grid, columns=tuple(columns[at] for at in kept), rows=rows), gap


def _needed(column: GridColumn, texts: Sequence[str], gap: int) -> int:
    """How wide it has to be to be read; with narrow gaps a title takes a line a word."""
    lines = [line for text in texts for line in text.split("\n")]
    title = column.title.split() if gap < 3 else [column.title]
    longest, head = (max(map(_length, some), default=0) for some in (lines, title))
    if column.wraps or column.folds:
        longest = min(longest, _READABLE)
    if column.wraps and not column.folds:
        longest = max(longest, *(_length(word) for line in lines for word in line.split()), 0)
    return max(longest, head)


def _length(text: str) -> int:
    return cell_len(shown(text))


def _text(line: SaidLine) -> Text:
    return Text.assemble(*((shown(words), _STYLES.get(tone, "")) for words, tone in line.parts))


class _Grid:
    """A table; one that fits as it is looks as Rich would show it, in a tenth of the time."""

    def __init__(self, block: SaidGrid, left_out: dict[str, set[str]]) -> None:
        self.block, self.left_out = block, left_out

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType | Segment]:
        block, gap = _fitted(self.block, options.max_width, self.left_out)
        columns = block.columns
        styles = {tone: console.get_style(style) for tone, style in _STYLES.items()}
        head = [say(column.title, Tone.HEAD) for column in columns]
        rows = [
            [
                [Segment(shown(words), styles.get(tone)) for words, tone in cell.parts]
                for cell in row
            ]
            for row in (head, *block.rows)
        ]
        lengths = [[sum(part.cell_length for part in cell) for cell in row] for row in rows]
        widths = list(map(max, zip(*lengths, strict=True)))
        whole = sum(widths) + 3 * len(widths) - 1
        has_breaks = any("\n" in part.text for row in rows for cell in row for part in cell)
        is_bare = not any(column.title for column in columns)
        if is_bare or block.title or has_breaks or whole > options.max_width:
            yield _table(block, gap)
            return
        yield Segment(f"{'':{whole}}\n")
        for row, own in zip(rows, lengths, strict=True):
            for index, (cell, column) in enumerate(zip(row, columns, strict=True)):
                pad = " " * (widths[index] - own[index])
                yield Segment(("   " if index else " ") + (pad if column.is_number else ""))
                yield from cell
                yield Segment("" if column.is_number else pad)
            yield Segment(" \n")
            if row is rows[0]:
                yield Segment(f" {'─' * (whole - 2)} \n")
        yield Segment(f"{'':{whole}}\n")


def _table(block: SaidGrid, gap: int = 3) -> Table:
    if any(column.title for column in block.columns):
        table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, gap // 2, 0, (gap - 1) // 2))
    else:
        table = Table(box=None, pad_edge=False, padding=(0, 2), show_header=False)
    if block.title:
        table.title, table.title_justify = block.title, "left"
    for column in block.columns:
        table.add_column(
            column.title.replace(" ", "\n") if gap < 3 else column.title,
            justify="right" if column.is_number else "left",
            no_wrap=not column.wraps,
            overflow="fold" if column.folds else "ellipsis",
        )
    for row in block.rows:
        table.add_row(*map(_text, row))
    return table
