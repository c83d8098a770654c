"""Rows as a table for people: one line a config, the numbers that decide first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from harness.tables.said import (
    BLANK,
    Block,
    Counted,
    GridColumn,
    SaidGrid,
    SaidLine,
    Tone,
    say,
    verdict_said,
)
from harness.tables.samples import Sample, samples_said, untried
from harness.tables.survivors import Fate, group_rows, survivors
from harness.values.row import Row
from harness.values.toolchain import BUNDLED
from harness.values.verdict import VerdictKind

_SHORT_NAMES = {"num_warps": "warps", "num_stages": "stages", "num_ctas": "ctas"}
_WORDS = {"cell", "kernel", "launch", "target", "is", "compiler", "assembler", "verdict"}
_MIX_TITLE = "tens:vec:sfu:mem:local"
_CLASSES = ("tensor", "vector", "special", "memory", "local")


def rows_said(
    rows: Sequence[Row], samples: Sequence[Sample] = (), launches: Mapping[str, str] = {}
) -> list[Block]:
    """A table and its survivorship for each launch, target and toolchain, in order.

    One config with several toolchains is one table.

    `samples` say which configs were left out, `launches` by cell what tells its launch from the
    others of the kernel.
    """
    groups, places = group_rows(rows), {(row.kernel, row.launch, row.target) for row in rows}
    if len(rows) == len(groups) > 1 == len(places):
        head = _program_words(rows[0], launches) + _config_words(rows)
        return [
            say(head, Tone.HEAD),
            _table(rows),
            *fates_said(rows),
            BLANK,
            *samples_said(samples),
        ]
    parts: list[Block] = []
    for group in groups:
        headline = survivors(group, untried(group, samples)).headline
        parts += [say(heading_of(group, launches), Tone.HEAD), _table(group)]
        parts += [say(headline, Tone.HEAD), *fates_said(group), BLANK]
    return [*parts, *samples_said(samples)]


def heading_of(rows: Sequence[Row], launches: Mapping[str, str] = {}) -> str:
    """What all rows of one group share: kernel, launch, target, toolchain, parameters, PTX."""
    words = f"{_program_words(rows[0], launches)} · {rows[0].compiler_name} · {_tool(rows[0])}"
    return words + _config_words(rows) + _ptx_words(rows)


def _config_words(rows: Sequence[Row]) -> str:
    return "".join(f" · {word}" for word in lifted_words([row.config for row in rows]))


def lifted_words(configs: Sequence[Mapping[str, object]]) -> list[str]:
    """The part that all configs share, as `name=value`: said once, above their table."""
    return [f"{name}={values.pop()}" for name, values in _values(configs) if len(values) == 1]


def differing(configs: Sequence[Mapping[str, object]]) -> tuple[str, ...]:
    """The parameters in which the configs differ, in their order."""
    return tuple(name for name, values in _values(configs) if len(values) > 1)


def config_columns(configs: Sequence[Mapping[str, object]]) -> dict[str, list[str]]:
    """Title to values, one a config, of the parameters in which they differ."""
    return {
        _SHORT_NAMES.get(name, name): [str(config.get(name, "-")) for config in configs]
        for name in differing(configs)
    }


def _values(configs: Sequence[Mapping[str, object]]) -> list[tuple[str, set[object]]]:
    names = dict.fromkeys(name for config in configs for name in config)
    return [(name, {config.get(name) for config in configs}) for name in names]


def _program_words(row: Row, launches: Mapping[str, str]) -> str:
    words = f" ({launches[row.cell]})" if row.cell in launches else ""
    return f"{row.kernel} · {row.launch}{words} · {row.target}"


def toolchain_words(rows: Sequence[Row]) -> str:
    """What all rows were made with: the compiler, the assembler, and which PTX that was given."""
    return f"{rows[0].compiler_name} · {_tool(rows[0])}{_ptx_words(rows)}"


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


def share(value: float | None) -> str:
    """In percent; what is not known is `-`."""
    return "-" if value is None else f"{value:.1%}"


_COLUMNS: tuple[tuple[str, Callable[[Row], str]], ...] = (
    ("regs", lambda row: figure(row.n_regs)),
    ("spill st", lambda row: figure(row.spill_stores)),
    ("spill ld", lambda row: figure(row.spill_loads)),
    ("stack", lambda row: figure(row.stack)),
    ("shared", lambda row: figure(row.shared)),
    ("tmem", lambda row: figure(row.tmem_size)),
    (
        "occupancy",
        lambda row: (
            "-" if row.occupancy is None else f"{share(row.occupancy)} {row.occupancy_limiter}"
        ),
    ),
    (
        _MIX_TITLE,
        lambda row: (
            ":".join(str(row.instructions[name]) for name in _CLASSES) if row.instructions else "-"
        ),
    ),
    (
        "s",
        lambda row: "-" if row.seconds is None else f"{row.seconds:.1f}{'*' if row.cached else ''}",
    ),
)
# What a narrow terminal goes without, as `GridColumn.spare` has it. The numbers by which a kernel
# is sick, or asks for too much, stay; a cut number would be worse than none.
_SPARE = {"occupancy": 3, _MIX_TITLE: 5, "s": 6}


def columns_of(rows: Sequence[Row]) -> dict[str, list[str]]:
    """Title to cells, one a row; parameters that all rows share are said elsewhere."""
    columns: dict[str, list[str]] = {"cell": [row.short for row in rows]}
    tools = {
        "compiler": [row.compiler_name for row in rows],
        "assembler": [_tool(row) for row in rows],
    }
    columns |= {title: words for title, words in tools.items() if len(set(words)) > 1}
    columns |= config_columns([row.config for row in rows])
    columns["verdict"] = [row.verdict for row in rows]
    return columns | numbers_of(rows, *dict(_COLUMNS))


def numbers_of(rows: Sequence[Row], *titles: str) -> dict[str, list[str]]:
    """The columns of these titles, in the order of the table."""
    return {title: [show(row) for row in rows] for title, show in _COLUMNS if title in titles}


def _table(rows: Sequence[Row]) -> SaidGrid:
    are_healthy = all(row.verdict.is_healthy for row in rows)
    numbers = {title: _SPARE.get(title, 2 if are_healthy else 1) for title, _ in _COLUMNS}
    said = {"verdict": [verdict_said(row.verdict) for row in rows]}
    return grid_of({**columns_of(rows), **said}, numbers)


def grid_of(
    columns: Mapping[str, Sequence[str | SaidLine]],
    spare: Mapping[str, int],
    words: Sequence[str] = (),
) -> SaidGrid:
    """A grid of columns by their titles; `words` are those that are broken between words.

    `spare` is as in `GridColumn`.
    """
    return SaidGrid(
        columns=tuple(
            GridColumn(
                title=title,
                is_number=title not in {*_WORDS, *words},
                wraps=title in words,
                spare=spare.get(title, 0),
            )
            for title in columns
        ),
        rows=tuple(
            tuple(say(cell) if isinstance(cell, str) else cell for cell in row)
            for row in zip(*columns.values(), strict=True)
        ),
    )


def fates_said(rows: Sequence[Row]) -> list[Block]:
    """What did not come out well, each with how many configs, why, and whose fault it is."""
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
