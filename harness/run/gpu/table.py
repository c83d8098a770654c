"""What cubins did on a GPU, for people: for each PTX, its assemblers side by side. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from harness.tables.said import BLANK, Block, GridColumn, SaidGrid, SaidLine, Tone, say
from harness.values.execution import RunRow, RunVerdict
from harness.values.timing import Faster, TimeMs, compare_times

_TONES = {RunVerdict.RIGHT: Tone.GOOD, RunVerdict.RAN: Tone.GOOD, RunVerdict.NOT_RUN: Tone.FAINT}


def measured_said(rows: Sequence[RunRow], device: str) -> list[Block]:
    """A heading for each kernel and launch; under it a line for each group of cubins alike."""
    kernels: dict[tuple[str, str, str, str], list[RunRow]] = {}
    for row in rows:
        config = ",".join(f"{name}={value}" for name, value in row.config.items())
        kernels.setdefault((row.kernel, row.launch, config, row.target), []).append(row)
    parts: list[Block] = []
    for place, found in kernels.items():
        heading = " · ".join(filter(None, (*place, device)))
        parts += [say(f"{heading}, measured", Tone.HEAD), *_groups(found), BLANK]
    return parts


def _groups(rows: Sequence[RunRow]) -> list[Block]:
    groups: dict[tuple[RunVerdict, str], list[RunRow]] = {}
    for row in rows:
        groups.setdefault((row.run, row.run_signature or row.run_reason), []).append(row)
    order = sorted(groups.items(), key=lambda each: not each[0][0].is_wrong)
    lines: list[Block] = []
    for (verdict, _), found in order:
        tools = ", ".join(dict.fromkeys(_tool(row) for row in found))
        said = say(f"  {verdict.value}", _TONES.get(verdict, Tone.BAD))
        lines += [said + say(f"  {tools}"), say(f"      {found[0].run_reason}")]
    return [*lines, *_sanitized(rows)]


def _sanitized(rows: Sequence[RunRow]) -> list[Block]:
    """What the tools of compute-sanitizer say, those cubins together of which they say the same."""
    groups: dict[tuple[str, int | None, str], list[str]] = {}
    for row in rows:
        for each in row.sanitizers:
            groups.setdefault((each.tool, each.errors, each.words), []).append(_tool(row))
    lines: list[Block] = []
    for (tool, errors, words), tools in groups.items():
        said = "no answer" if errors is None else f"{errors or 'no'} error{'s' * (errors != 1)}"
        tone = Tone.FAINT if errors is None else Tone.BAD if errors else Tone.GOOD
        more = f"; the first: {words}" if errors else f": {words}" if words else ""
        lines.append(say(f"  {tool}", tone) + say(f"  {said}{more} ({', '.join(tools)})"))
    return lines


def _tool(row: RunRow) -> str:
    """`13.0.88 -O3`, as the cell spells it."""
    words = row.cell.rpartition("/")[2].partition("ptxas-")[2]
    return words.replace(",", " ").replace("_", " ")


# Times of cubins, for people: those of one launch side by side, the fastest first.

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
