"""A table that fits is laid out as Rich lays it out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from harness.tables.said import GridColumn, SaidGrid, SaidLine, Tone, say
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


def at_width(width: int, grid: SaidGrid, *more: SaidGrid) -> str:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(for_terminal([grid, *more]))
    return capture.get()


def grid_with(columns: dict[str, tuple[int, list[str]]]) -> SaidGrid:
    return SaidGrid(
        columns=tuple(
            GridColumn(title=title, is_number=True, spare=spare)
            for title, (spare, _) in columns.items()
        ),
        rows=tuple(zip(*(map(say, words) for _, words in columns.values()), strict=True)),
    )


NUMBERS = grid_with(
    {
        "cell": (0, ["4f617d90", "3710d5de"]),
        "shared": (1, ["262,144", "262,144"]),
        "empty": (1, ["0", "-"]),
        "constant": (2, ["1,024", "1,024"]),
        "varied": (3, ["31.2% registers", "37.5% shared"]),
        "spill ld": (1, ["1,024", "16"]),
    }
)


def test_what_says_nothing_goes_first_and_the_reason_of_a_verdict_never() -> None:
    gone: list[set[str]] = []
    for width in range(90, 30, -1):
        text = at_width(width, NUMBERS)
        _, _, said = text.partition("left out for width: ")
        left = {word.split()[0] for word in said.split(", ") if word.strip()}
        assert left not in gone[:-1]
        gone += [left] if left not in gone else []
        assert all(len(line) <= width for line in text.splitlines() if "left out" not in line)
        assert all(word in text for word in ("4f617d90", "262,144", "1,024", "16"))
    assert gone == [set(), {"empty"}, {"empty", "constant"}, {"empty", "constant", "varied"}]


def test_what_was_the_same_in_all_rows_is_said_once_below_all_tables() -> None:
    text = " ".join(at_width(52, NUMBERS, NUMBERS).split())
    assert text.count("left out for width: empty, constant (1,024 in all rows)") == 1
    # One row has nothing that it could be the same as.
    assert "constant" in at_width(60, SaidGrid(columns=NUMBERS.columns, rows=NUMBERS.rows[:1]))


def test_words_that_are_broken_keep_room_to_be_read() -> None:
    change = GridColumn(title="change", wraps=True, folds=True)
    columns = (change, *(GridColumn(title=f"n{n}", is_number=True, spare=3) for n in range(9)))
    words = "num_warps 2 -> 8, BLOCK_M 128 -> 64, maxnreg none -> 128"
    rows = (tuple(map(say, (words, *("1,234,567" for _ in range(9))))),) * 2
    text = at_width(80, SaidGrid(columns=columns, rows=rows))
    assert "num_warps 2 -> 8, BLOCK_M 128 ->" in text
