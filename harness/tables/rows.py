"""Rows as a table for people: one line a config, the numbers that decide first."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from harness.tables.said import BLANK, Block, Counted, GridColumn, SaidGrid, Tone, say, verdict_said
from harness.tables.samples import Sample, samples_said, untried
from harness.tables.survivors import Fate, group_rows, survivors
from harness.values.row import CellNames, Row
from harness.values.toolchain import BUNDLED
from harness.values.verdict import VerdictKind

_SHORT_NAMES = {"num_warps": "warps", "num_stages": "stages", "num_ctas": "ctas"}
_WORDS = ("cell", "assembler", "verdict")
_MOST_TABLES = 3  # of one row each; more assemblers of one program are one table
_MIX_TITLE = "tens:vec:sfu:mem:local"
_CLASSES = ("tensor", "vector", "special", "memory", "local")


def rows_said(
    rows: Sequence[Row],
    width: int,
    samples: Sequence[Sample] = (),
    launches: Mapping[str, str] = {},
) -> list[Block]:
    """A table and its survivorship for each launch, target and toolchain, in order.

    `samples` say which configs were left out, `launches` by cell what tells its launch from the
    others of the kernel. `width` is that of the reader's console in
    characters; columns that do not fit are left out.
    """
    parts: list[Block] = []
    left_out: dict[str, None] = {}
    for _, run in itertools.groupby(group_rows(rows), key=_one_program):
        groups = list(run)
        if len(groups) > _MOST_TABLES:
            rows_of_tools = [row for group in groups for row in group]
            words = _program_words(groups[0][0], launches) + _config_words(rows_of_tools)
            parts += [say(words, Tone.HEAD), _table(rows_of_tools, width, left_out)]
            parts += [*_fates_said(rows_of_tools), BLANK]
            continue
        for group in groups:
            parts += [say(heading_of(group, launches), Tone.HEAD), _table(group, width, left_out)]
            headline = survivors(group, untried(group, samples)).headline
            parts += [say(headline, Tone.HEAD), *_fates_said(group), BLANK]
    if left_out:
        parts.append(say(f"left out for width: {', '.join(left_out)}", Tone.FAINT))
    return [*parts, *samples_said(samples)]


def _one_program(rows: Sequence[Row]) -> object:
    """Equal for groups of one config each that differ in their assembler alone."""
    row = rows[0]
    same = (row.kernel, row.launch, row.target, row.compiler, row.compiler_version, row.config)
    return same if len(rows) == 1 else rows


def heading_of(rows: Sequence[Row], launches: Mapping[str, str] = {}) -> str:
    """What all rows of one group share: kernel, launch, target, toolchain, parameters, PTX."""
    words = f"{_program_words(rows[0], launches)} · {_tool(rows[0])}"
    return words + _config_words(rows) + _ptx_words(rows)


def _config_words(rows: Sequence[Row]) -> str:
    return "".join(f" · {name}={value}" for name, value in lifted_of(rows).items())


def lifted_of(rows: Sequence[CellNames]) -> dict[str, object]:
    """The part of the config that all rows share: said once, above the table."""
    names = dict.fromkeys(name for row in rows for name in row.config)
    values = {name: {row.config.get(name) for row in rows} for name in names}
    return {name: next(iter(distinct)) for name, distinct in values.items() if len(distinct) == 1}


def _program_words(row: Row, launches: Mapping[str, str]) -> str:
    words = f" ({launches[row.cell]})" if row.cell in launches else ""
    return f"{row.kernel} · {row.launch}{words} · {row.target} · {row.compiler_name}"


def _tool(row: Row) -> str:
    return f"{row.tool}{' (bundled)' if row.ptxas_origin == BUNDLED else ''}"


def _ptx_words(rows: Sequence[Row]) -> str:
    """Which PTX the ptxas was given, where it is not simply the one that belongs to it."""
    versions = sorted({row.ptx_version for row in rows if row.ptx_version})
    if not versions:
        return ""
    words = f" · PTX {'/'.join(versions)}"
    if rows[0].frozen:
        return words + ", generated for the bundled ptxas"
    compared = {row.ptx_same_as_bundled for row in rows} - {None}
    if rows[0].ptxas_origin == BUNDLED or not compared:
        return words
    if compared == {True}:
        return words + ", else the same program as for the bundled ptxas"
    return words + ", not the same program as for the bundled ptxas"


def figure(value: int | None) -> str:
    """With commas; what is not known is `-`."""
    return "-" if value is None else f"{value:,}"


def _occupancy(row: Row) -> str:
    return "-" if row.occupancy is None else f"{row.occupancy:.1%} {row.occupancy_limiter}"


def _mix(row: Row) -> str:
    if row.instructions is None:
        return "-"
    return ":".join(str(row.instructions[name]) for name in _CLASSES)


def _seconds(row: Row) -> str:
    if row.seconds is None:
        return "-"
    return f"{row.seconds:.1f}{'*' if row.cached else ''}"


_COLUMNS: tuple[tuple[str, Callable[[Row], str]], ...] = (
    ("regs", lambda row: figure(row.n_regs)),
    ("spill st", lambda row: figure(row.spill_stores)),
    ("spill ld", lambda row: figure(row.spill_loads)),
    ("stack", lambda row: figure(row.stack)),
    ("shared", lambda row: figure(row.shared)),
    ("tmem", lambda row: figure(row.tmem_size)),
    ("occupancy", _occupancy),
    (_MIX_TITLE, _mix),
    ("s", _seconds),
)
# What a narrow terminal goes without: first what says nothing in this table, then these in their
# order; a cut number would be worse than none.
_EXPENDABLE = ("s", _MIX_TITLE, "stack", "tmem", "occupancy", "spill ld", "shared")
_NOTHING = ("0", "-", "0:0:0:0:0")


def columns_of(rows: Sequence[Row], lifted: Mapping[str, object]) -> dict[str, list[str]]:
    """Title to cells, one a row; parameters in `lifted` are said elsewhere."""
    names = [n for n in dict.fromkeys(n for row in rows for n in row.config) if n not in lifted]
    columns: dict[str, list[str]] = {"cell": [row.short for row in rows]}
    if len(tools := [_tool(row) for row in rows]) == len(set(tools)) > 1:
        columns["assembler"] = tools
    for name in names:
        columns[_SHORT_NAMES.get(name, name)] = [str(row.config.get(name, "-")) for row in rows]
    columns["verdict"] = [row.verdict for row in rows]
    return columns | {title: [show(row) for row in rows] for title, show in _COLUMNS}


def _table(rows: Sequence[Row], width: int, left_out: dict[str, None]) -> SaidGrid:
    """The table; the titles of columns that do not fit go to `left_out`."""
    columns = columns_of(rows, lifted_of(rows))
    empty = [title for title in _EXPENDABLE if set(columns[title]) <= set(_NOTHING)]
    for title in dict.fromkeys((*empty, *_EXPENDABLE)):
        if _width(columns) > width:
            del columns[title]
            left_out[title] = None
    shown = [
        [verdict_said(VerdictKind(word)) if title == "verdict" else say(word) for word in words]
        for title, words in columns.items()
    ]
    titles = (GridColumn(title=column, is_number=column not in _WORDS) for column in columns)
    return SaidGrid(columns=tuple(titles), rows=tuple(zip(*shown, strict=True)))


def _width(columns: Mapping[str, Sequence[str]]) -> int:
    return sum(3 + max(map(len, [title, *words])) for title, words in columns.items())


def _fates_said(rows: Sequence[Row]) -> list[Block]:
    lines: list[Block] = [
        Counted(len(fate.rows), verdict_said(fate.verdict, [say(fate_words(fate))]))
        for fate in survivors(rows).fates
        if not fate.verdict.is_healthy
    ]
    # What could not be checked of those that compile: `ok` claims nothing of it.
    reasons = (row.reason for row in rows if row.verdict is VerdictKind.OK)
    counts = Counter(reason.partition("; ")[2] for reason in reasons)
    lines += [
        Counted(count, verdict_said(VerdictKind.OK, [say(f": {words}")]))
        for words, count in counts.items()
        if words
    ]
    return lines + suspect_lines([row.suspect for row in rows])


def suspect_lines(suspects: Sequence[str | None]) -> list[Block]:
    """What reading the source finds, each once with the number of its configs."""
    counts = Counter(words for words in suspects if words)
    return [
        Counted(count, say("statically suspect", Tone.POOR) + say(f": {words}"))
        for words, count in counts.items()
    ]


def fate_words(fate: Fate) -> str:
    """Which configs, why, and whose fault it is."""
    where = f" [{fate.where}]" if fate.where else ""
    return f"{where}: {fate.reason}" + (f" ({fate.at_fault})" if fate.at_fault else "")
