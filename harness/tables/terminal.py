"""What a command says, as the terminal shows it."""

from __future__ import annotations

from collections.abc import Iterable

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from harness.tables.said import Block, Counted, SaidGrid, SaidLine, Tone

__all__ = ["counted", "for_terminal", "text_of"]

_STYLES = {
    Tone.HEAD: "bold",
    Tone.GOOD: "green",
    Tone.POOR: "yellow",
    Tone.BAD: "red",
    Tone.FAINT: "dim",
}


def for_terminal(blocks: Iterable[Block]) -> RenderableType:
    """The blocks one below the other."""
    return Group(*map(_rendered, blocks))


def text_of(said: SaidLine) -> Text:
    """A line in its colours; a long one wraps."""
    return Text.assemble(*((words, _STYLES.get(tone, "")) for words, tone in said.parts))


def _rendered(block: Block) -> RenderableType:
    if isinstance(block, SaidLine):
        return text_of(block)
    if isinstance(block, Counted):
        return counted(block.count, text_of(block.line))
    return _table(block)


def counted(count: int, words: Text) -> Table:
    """The count in a column of its own, so that a long reason wraps beside it."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(justify="right", min_width=5)
    grid.add_column()
    grid.add_row(str(count), words)
    return grid


def _table(block: SaidGrid) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for column in block.columns:
        side = "right" if column.is_number else "left"
        table.add_column(column.title, justify=side, no_wrap=not column.wraps)  # type: ignore[arg-type]
    for row in block.rows:
        table.add_row(*map(text_of, row))
    return table
