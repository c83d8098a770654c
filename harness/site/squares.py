"""Squares by verdict: one cell, a line, a grid; each has a mark and a word, and a colour. Pure."""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from harness.io.packages.versions import toolchain_order
from harness.tables.rows import differing
from harness.tables.said import Tone, tone_of
from harness.values.kernel import Config
from harness.values.row import BugFacts
from harness.values.toolchain import BUNDLED, PTXAS, assembler_name, compiler_name
from harness.values.verdict import VerdictKind

# How pages are named.

_NO_NAME = re.compile(r"[^A-Za-z0-9_]+")
_LONGEST = 60


def kernel_page(kernel: str, target: str) -> str:
    """The file of a kernel on one target."""
    return f"kernel-{slug(kernel, target)}.html"


def cell_page(cell: str) -> str:
    """The file of one cell."""
    return f"cell-{slug(cell)}.html"


def slug(*words: str) -> str:
    """Words as a file name: readable, safe everywhere, and different for different words."""
    readable = _NO_NAME.sub("-", "-".join(words)).strip("-")[:_LONGEST]
    digest = hashlib.sha256("\0".join(words).encode("utf-8", "surrogatepass")).hexdigest()[:10]
    return f"{readable}-{digest}"


MOST_SQUARES = 12_000
"""Squares on one page: about 3 MB of HTML, which a phone still opens."""


class ToolchainKey(NamedTuple):
    """What compiled and assembled a cell: `flags` and `frozen` where they are not the default."""

    compiler: str | None
    compiler_version: str | None
    ptxas: str | None
    ptxas_origin: str | None
    flags: str
    frozen: bool
    assembler: str = PTXAS

    @property
    def label(self) -> str:
        """For people; the parts stand on lines of their own."""
        tool = assembler_name(self.assembler, self.ptxas)
        bundled = " (bundled)" if self.ptxas_origin == BUNDLED else ""
        more = (f" {self.flags}" if self.flags else "") + (" frozen" if self.frozen else "")
        return f"{compiler_name(self.compiler, self.compiler_version)}\n{tool}{bundled}{more}"

    @property
    def words(self) -> str:
        """The same in one line."""
        return self.label.replace("\n", ", ")


def toolchain_of_cell(facts: BugFacts) -> ToolchainKey:
    """The toolchain of a cell."""
    return ToolchainKey(*(getattr(facts, name) for name in ToolchainKey._fields))


def toolchains_in_order(toolchains: Iterable[ToolchainKey]) -> list[ToolchainKey]:
    """By compiler, its version, and the assembler's; each once."""
    return sorted(
        set(toolchains),
        key=lambda toolchain: (
            toolchain.compiler or "",
            toolchain_order(toolchain.compiler_version, toolchain.ptxas, toolchain.ptxas_origin),
            toolchain.frozen,
            toolchain.flags,
        ),
    )


@dataclass(frozen=True, slots=True)
class Square:
    """One verdict: what is shown, a tone, the words that a pointer or a screen reader gets, a link.

    `count` is a number that stands after it.
    """

    text: str
    tone: str
    words: str
    href: str
    count: str = ""


@dataclass(frozen=True, slots=True)
class SquareLine:
    """Squares with one name, in the order of the columns; None where nothing was tried.

    `parts` are what stands in the columns of the name.
    """

    label: str
    squares: tuple[Square | None, ...]
    href: str = ""
    parts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SquareGrid:
    """Lines of squares under one title; `left_out` says what is not shown, "" for nothing.

    `heads` are the titles of the columns of a line's name; `same` is what all lines share. `hrefs`
    are where the titles of columns lead.
    """

    title: str
    columns: tuple[str, ...]
    lines: tuple[SquareLine, ...]
    left_out: str = ""
    heads: tuple[str, ...] = ("config",)
    same: str = ""
    hrefs: tuple[str, ...] = ()


_MARKS = {Tone.GOOD: "✓", Tone.POOR: "!", Tone.BAD: "✗", Tone.FAINT: "?"}


def verdict_square(kind: VerdictKind, words: str = "", href: str = "", count: str = "") -> Square:
    """The square of a verdict: a mark and its name."""
    tone = tone_of(kind)
    return Square(f"{_MARKS[tone]} {kind}", tone.value, words or kind.value, href, count)


def _square(facts: BugFacts, href: str) -> Square:
    code = f" {facts.code}" if facts.code else ""
    numbers = "" if facts.n_regs is None else f", {facts.n_regs} registers"
    count = "" if facts.n_regs is None or facts.verdict.is_failure else f"{facts.n_regs} regs"
    return verdict_square(facts.verdict, f"{facts.verdict}{code}{numbers}", href, count)


def vary(cells: Sequence[BugFacts]) -> tuple[str, ...]:
    """The options in which the configs of cells differ, in their order."""
    return differing([facts.config for facts in cells])


def parts_of(facts: BugFacts, names: Sequence[str]) -> tuple[str, ...]:
    """What a config has of these options; "" for one that it has not."""
    values = dict(Config.of(dict(facts.config)).parts)
    return tuple(values.get(name, "") for name in names)


def same_words(cells: Sequence[BugFacts], names: Sequence[str]) -> str:
    """What the configs of all cells have alike: all but the options that vary; "" for nothing."""
    parts = Config.of(dict(cells[0].config)).parts
    return ", ".join("=".join(part) for part in parts if part[0] not in names)


def config_grid(
    title: str, cells: Sequence[BugFacts], href_of: Callable[[str], str], most: int = MOST_SQUARES
) -> SquareGrid:
    """Configs by toolchains. Where there are too many, configs that always compile go first."""
    columns = toolchains_in_order(map(toolchain_of_cell, cells))
    by_config: dict[str, dict[ToolchainKey, BugFacts]] = defaultdict(dict)
    for facts in cells:
        by_config[facts.config_label][toolchain_of_cell(facts)] = facts
    failures = {
        label: sum(facts.verdict.is_failure for facts in by_toolchain.values())
        for label, by_toolchain in by_config.items()
    }
    fits = max(1, most // max(1, len(columns)))
    labels = set(sorted(by_config, key=lambda label: -failures[label])[:fits])
    hidden = len(by_config) - len(labels)
    left_out = (
        f"{hidden:,} of {len(by_config):,} configs are left out, those with the fewest failures "
        "first; the rows have them all."
    )
    names = vary(cells)

    def line(label: str, of: Mapping[ToolchainKey, BugFacts]) -> SquareLine:
        shown = {key: _square(facts, href_of(facts.cell)) for key, facts in of.items()}
        parts = parts_of(next(iter(of.values())), names)
        return SquareLine(label, tuple(map(shown.get, columns)), parts=parts)

    return SquareGrid(
        title=title,
        columns=tuple(column.label for column in columns),
        lines=tuple(line(label, by_config[label]) for label in by_config if label in labels),
        left_out=left_out if hidden else "",
        heads=tuple(name.removeprefix("num_") for name in names) or ("config",),
        same=same_words(cells, names),
    )


def matrix_grid(
    target: str,
    kernels: Mapping[str, Mapping[ToolchainKey, Counter[VerdictKind]]],
    most: int = MOST_SQUARES,
) -> SquareGrid:
    """Kernels by toolchains on one target; the word is that of the commonest failure."""
    columns = toolchains_in_order(
        toolchain for by_toolchain in kernels.values() for toolchain in by_toolchain
    )
    fits = max(1, most // max(1, len(columns)))
    hidden = max(0, len(kernels) - fits)
    left_out = f"{hidden:,} of {len(kernels):,} kernels are left out; the search has them all."

    def line(name: str, of: Mapping[ToolchainKey, Counter[VerdictKind]]) -> SquareLine:
        href = kernel_page(name, target)
        shown = {key: _square_of_many(each, href) for key, each in of.items()}
        return SquareLine(name, tuple(map(shown.get, columns)), href)

    return SquareGrid(
        title=target,
        columns=tuple(column.label for column in columns),
        lines=tuple(line(name, of) for name, of in list(kernels.items())[:fits]),
        left_out=left_out if hidden else "",
        heads=("kernel",),
    )


Tally: TypeAlias = Mapping[tuple[str, str], Counter[VerdictKind]]
"""The results of a run by kernel and target."""


def nights_grid(
    nights: Sequence[tuple[int, str, Tally, Collection[tuple[str, str]]]], most: int = MOST_SQUARES
) -> SquareGrid:
    """Kernels and targets by nights, the newest first.

    A night is its run, its date, its results, and the kernels and targets that got worse in it.
    Kernels that fail now come first.
    """
    runs = [run for run, *_ in nights]
    places = dict.fromkeys(sorted(place for *_, tally, _ in nights for place in tally))
    rows = {
        place: {
            run: _square_of_night(tally[place], kernel_page(*place), is_worse=place in worse)
            for run, _, tally, worse in nights
            if place in tally
        }
        for place in places
    }
    order = [tone.value for tone in (Tone.BAD, Tone.POOR, Tone.FAINT, Tone.GOOD)]

    def gravity(place: tuple[str, str]) -> tuple[int, int]:
        now = rows[place].get(runs[0])
        return order.index(now.tone) if now else len(order), -len(rows[place])

    fits = max(1, most // max(1, len(runs)))
    shown = sorted(places, key=gravity)[:fits]
    hidden = len(places) - len(shown)
    return SquareGrid(
        title="Nights",
        columns=tuple(f"run {run}\n{date}" for run, date, *_ in nights),
        hrefs=tuple(f"run-{run}.html" for run in runs),
        lines=tuple(
            SquareLine(
                " on ".join(place), tuple(map(rows[place].get, runs)), kernel_page(*place), place
            )
            for place in shown
        ),
        heads=("kernel", "target"),
        left_out=f"{hidden:,} of {len(places):,} lines, of kernels that work." if hidden else "",
    )


def working(verdicts: Mapping[VerdictKind, int]) -> int:
    """How many cells work, of those with each verdict."""
    return sum(count for kind, count in verdicts.items() if kind.compiles)


def failing(verdicts: Mapping[VerdictKind, int]) -> int:
    """How many fail."""
    return sum(count for kind, count in verdicts.items() if kind.is_failure)


def _square_of_night(verdicts: Counter[VerdictKind], href: str, *, is_worse: bool) -> Square:
    works, fails = working(verdicts), failing(verdicts)
    poor = [kind.value for kind in verdicts if kind.facts.is_poor]
    tone = Tone.POOR if is_worse or fails or poor else Tone.GOOD
    if not works:
        tone = Tone.BAD if fails else Tone.FAINT
    words = ", ".join(f"{count:,} {kind}" for kind, count in verdicts.most_common())
    return Square(
        f"{_MARKS[tone]} {works:,}/{verdicts.total():,}",
        tone.value,
        words + (", worse than before" if is_worse else ""),
        href,
        ", ".join((["worse"] if is_worse else []) + poor) if works else "",
    )


def _square_of_many(verdicts: Counter[VerdictKind], href: str) -> Square:
    # A failure weighs more than what tells nothing, and that more than what compiles.
    def weight(verdict: VerdictKind) -> tuple[bool, bool, int]:
        return verdict.is_failure, verdict.tells_nothing, verdicts[verdict]

    worst = max(verdicts, key=weight)
    words = ", ".join(f"{count:,} {verdict}" for verdict, count in verdicts.most_common())
    return verdict_square(worst, words, href, f"{working(verdicts):,}/{verdicts.total():,}")
