"""A table that fits is laid out as Rich lays it out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from harness.tables.said import GridColumn, SaidGrid, SaidLine, Tone
from harness.tables.terminal import _table, for_terminal

WORDS = st.text(st.sampled_from("ab ·é漢\n\x1b"), max_size=8).map(str.strip)
LINES = st.builds(
    SaidLine, st.lists(st.tuples(WORDS, st.sampled_from(list(Tone))), max_size=3).map(tuple)
)
COLUMNS = st.builds(
    GridColumn,
    title=st.text("ab ·漢", max_size=6).map(str.strip),
    is_number=st.booleans(),
    wraps=st.booleans(),
)


@st.composite
def grids(draw: st.DrawFn) -> SaidGrid:
    columns = draw(st.lists(COLUMNS, min_size=1, max_size=4))
    row = st.tuples(*[LINES] * len(columns))
    rows = draw(st.lists(row, max_size=4))
    title = draw(st.sampled_from(["", "title"]))
    return SaidGrid(columns=tuple(columns), rows=tuple(rows), title=title)


@given(grids(), st.integers(10, 120))
def test_a_grid_looks_as_rich_would_show_it(grid: SaidGrid, width: int) -> None:
    console = Console(width=width, color_system=None, emoji=False, markup=False, highlight=False)
    with console.capture() as ours:
        console.print(for_terminal([grid]))
    with console.capture() as theirs:
        console.print(_table(grid))
    assert ours.get() == theirs.get()
