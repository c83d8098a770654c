"""What a command says, as the terminal shows it."""

from __future__ import annotations

from collections.abc import Iterable

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from harness.tables.said import Block, Counted, SaidFacts, SaidGrid, SaidLine, Tone
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
    return _facts(block) if isinstance(block, SaidFacts) else _table(block)


def _text(said: SaidLine) -> Text:
    return Text.assemble(*((shown(words), _STYLES.get(tone, "")) for words, tone in said.parts))


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
    for name, said in block.facts:
        grid.add_row(name, _text(said))
    return grid


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
