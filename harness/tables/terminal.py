"""What a command says, as the terminal shows it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from harness.tables.said import Block, Counted, SaidFacts, SaidGrid, SaidLine, Tone, say
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


def for_terminal(blocks: Iterable[Block]) -> RenderableType:
    """The blocks one below the other."""
    return Group(*map(_rendered, blocks))


def _rendered(block: Block) -> RenderableType:
    if isinstance(block, SaidLine):
        return _text(block)
    if isinstance(block, Counted):
        return _counted(block)
    return _facts(block) if isinstance(block, SaidFacts) else _Grid(block)


def _text(line: SaidLine) -> Text:
    return Text.assemble(*((shown(words), _STYLES.get(tone, "")) for words, tone in line.parts))


def _counted(block: Counted) -> Table:
    """The count in a column of its own, so that a long reason wraps beside it."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(justify="right", min_width=5)
    grid.add_column()
    grid.add_row(str(block.count), _text(block.line))
    return grid


def _facts(block: SaidFacts) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    for name, line in block.facts:
        grid.add_row(name, _text(line))
    return grid


class _Grid:
    """A table; one that fits as it is looks as Rich would show it, in a tenth of the time."""

    def __init__(self, block: SaidGrid) -> None:
        self.block = block

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType | Segment]:
        columns = self.block.columns
        styles = {tone: console.get_style(style) for tone, style in _STYLES.items()}
        head = [say(column.title, Tone.HEAD) for column in columns]
        rows = [
            [
                [Segment(shown(words), styles.get(tone)) for words, tone in cell.parts]
                for cell in row
            ]
            for row in (head, *self.block.rows)
        ]
        lengths = [[sum(part.cell_length for part in cell) for cell in row] for row in rows]
        widths = list(map(max, zip(*lengths, strict=True)))
        whole = sum(widths) + 3 * len(widths) - 1
        has_breaks = any("\n" in part.text for row in rows for cell in row for part in cell)
        is_bare = not any(column.title for column in columns)
        if is_bare or self.block.title or has_breaks or whole > options.max_width:
            yield _table(self.block)
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


def _table(block: SaidGrid) -> Table:
    if any(column.title for column in block.columns):
        table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    else:
        table = Table(box=None, pad_edge=False, padding=(0, 2), show_header=False)
    if block.title:
        table.title, table.title_justify = block.title, "left"
    for column in block.columns:
        table.add_column(
            column.title,
            justify="right" if column.is_number else "left",
            no_wrap=not column.wraps,
            overflow="fold" if column.folds else "ellipsis",
        )
    for row in block.rows:
        table.add_row(*map(_text, row))
    return table
