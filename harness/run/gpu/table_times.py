"""Times of cubins, for people: those of one launch side by side, the fastest first. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from harness.tables.said import BLANK, Block, GridColumn, SaidGrid, SaidLine, Tone, say
from harness.values.execution import RunRow
from harness.values.timing import Faster, TimeMs, compare_times

_WORDS = {Faster.FIRST: "slower", Faster.SECOND: "faster", Faster.AMBIGUOUS: "ambiguous"}


def times_said(rows: Sequence[RunRow], device: str) -> list[Block]:
    """A grid for each kernel and launch: how each compares with the fastest."""
    launches: dict[tuple[str, str, str], list[tuple[RunRow, TimeMs]]] = {}
    for row in rows:
        if row.time_ms:
            key = (row.kernel, row.launch, row.target)
            launches.setdefault(key, []).append((row, row.time_ms))
    parts: list[Block] = []
    for place, found in launches.items():
        heading = " · ".join((*place, device))
        parts += [say(f"{heading}, times measured", Tone.HEAD), _grid(found), BLANK]
    return parts


def _grid(found: list[tuple[RunRow, TimeMs]]) -> SaidGrid:
    titles = ("median ms", "min", "q3", "runs", "SM MHz", "times the best")
    columns = (
        GridColumn(title="config", wraps=True, folds=True),
        *(GridColumn(title=title, is_number=True) for title in titles),
        GridColumn(title=""),
    )
    ordered = sorted(found, key=lambda pair: pair[1].median)
    best = ordered[0][1]
    return SaidGrid(columns=columns, rows=tuple(_line(*pair, best) for pair in ordered))


def _line(row: RunRow, time: TimeMs, best: TimeMs) -> tuple[SaidLine, ...]:
    config = ",".join(f"{name}={value}" for name, value in row.config.items())
    tool = row.cell.rpartition("/")[2].partition("ptxas-")[2].partition(",")
    words = " ".join(filter(None, (config, tool[0], tool[2].replace("_", " "))))
    apart = "" if time is best else _WORDS[compare_times(best, time)]
    clock = "-" if time.sm_mhz is None else f"{time.sm_mhz:,}"
    numbers = (f"{time.median:.4f}", f"{time.min:.4f}", f"{time.q3:.4f}", str(time.samples), clock)
    ratio = f"{time.median / best.median:.2f}" if best.median else "-"
    return tuple(map(say, (words, *numbers, ratio, apart)))
