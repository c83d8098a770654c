"""Pages of kernels, cells and bugs: what survives where, numbers over versions, grids. Pure."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from harness.cells.spelling import OfLaunch, spell_command, words_of
from harness.io.packages.versions import toolchain_order, version_order
from harness.site import squares
from harness.site.overview import SEEN
from harness.site.squares import Square, SquareGrid, SquareLine, cell_page, slug
from harness.tables.charts import Chart, Frame, charts_over
from harness.values.bug import Bug, Seen
from harness.values.limits import Limits
from harness.values.row import BugFacts

# Numbers over toolchains as points of a drawing.


_FRAME = Frame(width=420, height=236, left=52, right=22, top=14, bottom=102)
"""Of a chart with its axes: about as wide as a phone, so that its words are not scaled down."""


_NAMED = 120
"""Room for names at its right."""
_MOST_LETTERS = 16
_LETTER_HEIGHT = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelChart:
    """A chart of a launch; `compare` is where the two sides of its worst step are compared.

    `ends` are names beside the ends of lines: words, y, and whether it has the worst step.
    """

    chart: Chart
    labels: tuple[tuple[str, float], ...]
    compare: str
    ends: tuple[tuple[str, float, bool], ...]


def charts_of(
    cells: Sequence[BugFacts], limits: Limits | None, pair: Callable[[BugFacts, BugFacts], str]
) -> list[KernelChart]:
    """A chart for each number that is known of any cell and is not always 0; none of one toolchain.

    `pair` gives the page that compares two cells, "" for none.
    """
    columns = squares.toolchains_in_order(map(squares.toolchain_of_cell, cells))
    # A chart is over versions: what other options do is no step between two of them.
    columns = [column for column in columns if not column.flags] or columns
    if len(columns) < 2:
        return []
    labels = [column.words for column in columns]
    configs: dict[str, dict[str, BugFacts]] = defaultdict(dict)
    for facts in cells:
        if facts.verdict.compiles:
            label = squares.toolchain_of_cell(facts).words
            configs[facts.config_label][label] = facts
    names = _names_of_lines({name: next(iter(of.values())) for name, of in configs.items()})
    frame = _FRAME._replace(right=_NAMED) if names else _FRAME
    # Where there are many toolchains, not each is named below the axis.
    every = len(columns) // 16 + 1
    axis = tuple(
        (f"{column.compiler_version or '-'} / {column.ptxas or '-'}", frame.x(index, len(columns)))
        for index, column in enumerate(columns)
    )[::every]
    charts = []
    for chart in charts_over(labels, configs, limits, frame):
        compare = ""
        if chart.worst:
            of_config = configs[chart.worst.line.names[0]]
            compare = pair(of_config[chart.worst.before.label], of_config[chart.worst.after.label])
        ends = tuple(_ends(chart, names)) if names else ()
        charts.append(KernelChart(chart=chart, labels=axis, compare=compare, ends=ends))
    return charts


def _names_of_lines(configs: Mapping[str, BugFacts]) -> dict[str, str]:
    """What tells each config from the others, by its label: `warps=4`, else values alone."""
    cells = list(configs.values())
    names = squares.vary(cells)
    parts = {label: squares.parts_of(facts, names) for label, facts in configs.items()}
    words = {
        label: ",".join(f"{n.removeprefix('num_')}={v}" for n, v in zip(names, values, strict=True))
        for label, values in parts.items()
    }
    if any(len(each) > _MOST_LETTERS for each in words.values()):
        words = {label: "/".join(values) for label, values in parts.items()}
    return {label: each[:_MOST_LETTERS] for label, each in words.items()} if names else {}


def _ends(chart: Chart, names: Mapping[str, str]) -> Iterator[tuple[str, float, bool]]:
    """Names beside the ends of lines, moved apart; that of the worst step where its line ends."""
    ended = [line for line in chart.lines if line.points[-1].index == len(chart.labels) - 1]
    worst = chart.worst.line if chart.worst else None
    top, lowest = chart.frame.top, chart.frame.height - chart.frame.bottom
    ended = sorted(ended, key=lambda line: -line.points[-1].y)[: int(lowest // _LETTER_HEIGHT)]
    places: list[float] = []
    for line in ended:
        places.append(min(line.points[-1].y, places[-1] - _LETTER_HEIGHT if places else lowest))
    for at, y in reversed([*enumerate(places)]):
        places[at] = max(y, top)
        top = places[at] + _LETTER_HEIGHT
    for line, y in zip(ended, places, strict=True):
        # The configs of one line: `warps=2, 4`, else the first and how many more there are.
        first, *others = [names[name] for name in line.names]
        option = first.partition("=")[0] + "="
        words = ", ".join([first, *(name.removeprefix(option) for name in others)])
        is_plain = len(words) <= _MOST_LETTERS and not any("," in name for name in (first, *others))
        yield words if is_plain or not others else f"{first} +{len(others)}", y, line is worst


ROWS = 1_000
"""Rows on one page of them."""

_EACH = 3
_NO_ANCHOR = re.compile(r"[^A-Za-z0-9]+")


@dataclass(slots=True)
class CellPages:
    """Where each cell is shown: on a page of its own, or in a line of its kernel's rows.

    Of each kernel, target and failure the first few get a page. `most` bounds them all; what
    compiles counts as a failure of its own kind here, so that one of it can be looked at too.
    `wanted` are chosen whatever they are. `passed_over` counts the failures that get none.
    """

    most: int
    wanted: frozenset[str] = frozenset()
    pages: int = 0
    passed_over: int = 0
    _own: set[str] = field(default_factory=set)
    _lines: dict[str, str] = field(default_factory=dict)
    _seen: Counter[tuple[str, ...]] = field(default_factory=Counter)

    def takes(self, facts: BugFacts) -> bool:
        """Whether the cell gets a page; counts it."""
        key = (facts.kernel, facts.target, facts.verdict, facts.signature or "")
        self._seen[key] += 1
        most = _EACH if facts.verdict.is_failure else 1
        if self.pages < self.most and (facts.cell in self.wanted or self._seen[key] <= most):
            self.pages += 1
            self._own.add(facts.cell)
            return True
        self.passed_over += facts.verdict.is_failure
        return False

    def add(self, cells: Sequence[BugFacts]) -> None:
        """Give each cell of one kernel and target the address of its line."""
        for index, facts in enumerate(cells):
            page = f"rows-{slug(facts.kernel, facts.target)}-{index // ROWS + 1}.html"
            self._lines[facts.cell] = f"{page}#{anchor_of(facts)}"

    def of(self, cell: str) -> str:
        """The relative address of a cell; "" where it is not shown."""
        return self.page(cell) or self._lines.get(cell, "")

    def page(self, cell: str) -> str:
        """The page of its own that a cell has; "" where it has none."""
        return cell_page(cell) if cell in self._own else ""


def anchor_of(facts: BugFacts) -> str:
    """The name of a cell's line on a page of rows."""
    return f"c{_NO_ANCHOR.sub('', facts.short)}"


_ISSUE = re.compile(r"([\w.-]+/[\w.-]+)#(\d+)")
_HASH = 8
_MOST_SQUARES = 3_000
_MOST_SAID = 6

_Beside: TypeAlias = tuple[BugFacts, str, Seen]
_Lines: TypeAlias = dict[tuple[str, str], dict[str, _Beside]]
"""By program (or compiler) and flags, then by assembler."""
_Compilers: TypeAlias = dict[tuple[str, str], list[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlameView:
    """Programs by assemblers at one place: what each pair does with a bug, and what that says.

    `place` is the kernel, launch, config and target. `command` tries the pairs that are missing.
    """

    place: str
    grid: SquareGrid
    says: tuple[str, ...]
    command: str


def blame_view(beside: Sequence[_Beside], others: Iterable[OfLaunch] = ()) -> BlameView | None:
    """The grid of the cells at one place; None where there is none. `others` are of its kernel.

    A line is one program, byte for byte, or a compiler that came to none; a column an assembler.
    """
    if not beside:
        return None
    ordered = sorted(
        beside,
        key=lambda entry: toolchain_order(
            entry[0].compiler_version, entry[0].ptxas, entry[0].ptxas_origin
        ),
    )
    tools = {facts.tool: (facts.assembler, version_order(facts.ptxas)) for facts, _, _ in beside}
    columns = sorted(tools, key=lambda tool: tools[tool])
    lines: _Lines = defaultdict(dict)
    compilers: _Compilers = defaultdict(list)
    for facts, href, seen in ordered:
        program = facts.ptx_body_sha256 or ""
        key = (program or facts.compiler_name, facts.flags)
        lines[key][facts.tool] = (facts, href, seen)
        if facts.compiler_name not in compilers[key]:
            compilers[key].append(facts.compiler_name)
    most = max(1, _MOST_SQUARES // len(columns))
    shown = list(lines.items())[:most]
    hidden = len(lines) - len(shown)
    example = next((facts for facts, _, seen in ordered if seen is Seen.HERE), ordered[0][0])
    return BlameView(
        place=example.place,
        grid=SquareGrid(
            title="Programs by assemblers",
            columns=tuple(columns),
            lines=tuple(
                SquareLine(
                    _label(key, compilers[key]),
                    tuple(_square(*cells[tool]) if tool in cells else None for tool in columns),
                )
                for key, cells in shown
            ),
            left_out=f"{hidden:,} of {len(lines):,} programs; the rows have all." if hidden else "",
            heads=("program",),
        ),
        says=tuple(_says(lines, compilers)),
        command=spell_command("blame", words_of(example, others)),
    )


def _label(key: tuple[str, str], compilers: Sequence[str]) -> str:
    program, flags = key
    is_known = program not in compilers
    more = (f", program {program[:_HASH]}" if is_known else "") + (f", {flags}" if flags else "")
    return f"{', '.join(compilers)}{more}"


def _square(facts: BugFacts, href: str, seen: Seen) -> Square:
    mark, tone, says = SEEN[seen]
    words = f"{facts.compiler_name}, {facts.tool}: {says} ({facts.verdict})"
    return Square(f"{mark} {says}", tone, words, href)


def _says(lines: _Lines, compilers: _Compilers) -> list[str]:
    sentences: list[str] = []
    of_tool: dict[tuple[str, str], dict[str, _Beside]] = defaultdict(dict)
    of_options: dict[tuple[str, str], dict[str, _Beside]] = defaultdict(dict)
    for (program, flags), results in lines.items():
        is_program = program not in compilers[program, flags]
        options = f" {flags}" if flags else ""
        if is_program and (pair := _both(results)):
            sentences.append(
                f"Program {program[:_HASH]}{options}, the same each time, fails with {pair[0]} "
                f"and works with {pair[1]}: it depends on the assembler."
            )
        for tool, result in results.items():
            of_tool[tool, flags][", ".join(compilers[program, flags])] = result
            if is_program:
                of_options[tool, program][flags or "none"] = result
    for (tool, flags), results in of_tool.items():
        options = f" {flags}" if flags else ""
        if pair := _both(results):
            sentences.append(
                f"{tool}{options} fails with what {pair[0]} generates and works with what "
                f"{pair[1]} generates: it depends on the program."
            )
    for (tool, program), results in of_options.items():
        if pair := _both(results):
            sentences.append(
                f"Program {program[:_HASH]} on {tool} fails with the options {pair[0]} and works "
                f"with {pair[1]}: it depends on the options."
            )
    more = len(sentences) - _MOST_SAID
    if more > 0:
        sentences = [*sentences[:_MOST_SAID], f"{more:,} more such comparisons are in the grid."]
    return sentences or [
        "No two of these cells differ in one thing alone and in whether they fail."
    ]


def _both(results: Mapping[str, _Beside]) -> tuple[str, str] | None:
    words = []
    for state in (Seen.HERE, Seen.CLEAN):
        names = [name for name, (_, _, seen) in results.items() if seen is state]
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        words.append(", ".join(names[:3]) + more)
    return (words[0], words[1]) if all(words) else None


def upstream_links(bug: Bug) -> list[tuple[str, str]]:
    """Words and address of each upstream issue; "" for one that is not an address."""
    links = {}
    if bug.record.url:
        links[bug.record.url] = bug.record.url
    for issue in bug.issues:
        match = _ISSUE.fullmatch(issue)
        links[issue] = f"https://github.com/{match[1]}/issues/{match[2]}" if match else issue
    return [
        (words, url if url.startswith(("https://", "http://")) else "")
        for words, url in links.items()
    ]
