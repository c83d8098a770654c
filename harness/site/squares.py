"""Squares by verdict: one cell, a line, a grid; each has a letter besides its colour. Pure."""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from harness.io.packages.versions import toolchain_order
from harness.tables.said import tone_of
from harness.values.kernel import Config
from harness.values.row import BugFacts
from harness.values.toolchain import BUNDLED, PTXAS, assembler_name, compiler_name
from harness.values.verdict import VerdictKind

K = TypeVar("K")

# How pages are named.

_NO_NAME = re.compile(r"[^A-Za-z0-9_]+")
_LONGEST = 60


def kernel_page(kernel: str, target: str) -> str:
    """The file of a kernel on one target."""
    return f"kernel-{_slug(kernel, target)}.html"


def rows_page(kernel: str, target: str, number: int) -> str:
    """The file of a part of the rows of a kernel on one target; parts are numbered from 1."""
    return f"rows-{_slug(kernel, target)}-{number}.html"


def cell_page(cell: str) -> str:
    """The file of one cell."""
    return f"cell-{_slug(cell)}.html"


def pair_page(left: str, right: str) -> str:
    """The file that compares two cells, or two results of one."""
    return f"pair-{_slug(left, right)}.html"


def bug_page(number: int) -> str:
    """The file of one bug."""
    return f"bug-{number}.html"


def _slug(*words: str) -> str:
    """Words as a file name: readable, safe everywhere, and different for different words."""
    readable = _NO_NAME.sub("-", "-".join(words)).strip("-")[:_LONGEST]
    digest = hashlib.sha256("\0".join(words).encode("utf-8", "surrogatepass")).hexdigest()[:10]
    return f"{readable}-{digest}"


MOST_SQUARES = 12_000
"""Squares on one page: about 3 MB of HTML, which a phone still opens."""


class ToolchainKey(NamedTuple):
    """What compiled and assembled a cell: `flags` and `frozen` where they are not the default."""

    compiler: str | None
    version: str | None
    ptxas: str | None
    origin: str | None
    flags: str
    frozen: bool
    assembler: str = PTXAS

    @property
    def label(self) -> str:
        """For people; the parts stand on lines of their own."""
        tool = assembler_name(self.assembler, self.ptxas)
        bundled = " (bundled)" if self.origin == BUNDLED else ""
        more = (f" {self.flags}" if self.flags else "") + (" frozen" if self.frozen else "")
        return f"{compiler_name(self.compiler, self.version)}\n{tool}{bundled}{more}"

    @property
    def words(self) -> str:
        """The same in one line."""
        return self.label.replace("\n", ", ")


def toolchain_of_cell(facts: BugFacts) -> ToolchainKey:
    """The toolchain of a cell."""
    return ToolchainKey(
        compiler=facts.compiler,
        version=facts.compiler_version,
        assembler=facts.assembler,
        ptxas=facts.ptxas,
        origin=facts.ptxas_origin,
        flags=facts.flags,
        frozen=facts.frozen,
    )


def toolchains_in_order(toolchains: Iterable[ToolchainKey]) -> list[ToolchainKey]:
    """By compiler, its version, and the assembler's; each once."""
    return sorted(
        set(toolchains),
        key=lambda toolchain: (
            toolchain.compiler or "",
            toolchain_order(toolchain.version, toolchain.ptxas, toolchain.origin),
            toolchain.frozen,
            toolchain.flags,
        ),
    )


@dataclass(frozen=True, slots=True)
class Square:
    """One verdict: a letter, a tone, the words that a pointer or a screen reader gets, a link.

    `count` is what stands beside the letter where the square is of several cells.
    """

    letter: str
    tone: str
    words: str
    href: str
    count: str = ""


@dataclass(frozen=True, slots=True)
class SquareLine:
    """Squares with one name, in the order of the columns; None where nothing was tried."""

    label: str
    squares: tuple[Square | None, ...]
    href: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SquareGrid:
    """Lines of squares under one title; `left_out` says what is not shown, "" for nothing."""

    title: str
    columns: tuple[str, ...]
    lines: tuple[SquareLine, ...]
    left_out: str = ""
    row_title: str = "config"


def letters_of(verdicts: Collection[VerdictKind]) -> list[Square]:
    """The key to the letters: each verdict once, in the order of the verdicts."""
    return [
        Square(kind.facts.letter, tone_of(kind).value, kind.value, "")
        for kind in VerdictKind
        if kind in verdicts
    ]


def _square(facts: BugFacts, href: str) -> Square:
    code = f" {facts.code}" if facts.code else ""
    numbers = "" if facts.n_regs is None else f", {facts.n_regs} registers"
    return Square(
        facts.verdict.facts.letter,
        tone_of(facts.verdict).value,
        f"{facts.verdict}{code}{numbers}",
        href,
    )


def grid_of(
    columns: Iterable[K],
    rows: Mapping[str, Mapping[K, Square]],
    *,
    title: str,
    left_out: str = "",
    row_title: str = "config",
    href_of: Callable[[str], str] = lambda label: "",  # noqa: ARG005
) -> SquareGrid:
    """A line of squares for each row, by column; a toolchain is named by its label."""
    columns = tuple(columns)
    return SquareGrid(
        title=title,
        columns=tuple(getattr(column, "label", str(column)) for column in columns),
        lines=tuple(
            SquareLine(label, tuple(map(squares.get, columns)), href_of(label))
            for label, squares in rows.items()
        ),
        left_out=left_out,
        row_title=row_title,
    )


def config_grid(
    title: str, cells: Sequence[BugFacts], href_of: Callable[[str], str], most: int = MOST_SQUARES
) -> SquareGrid:
    """Configs by toolchains. Where there are too many, configs that always compile go first."""
    columns = toolchains_in_order(map(toolchain_of_cell, cells))
    by_config: dict[str, dict[ToolchainKey, BugFacts]] = defaultdict(dict)
    for facts in cells:
        by_config[Config.of(dict(facts.config)).label][toolchain_of_cell(facts)] = facts
    labels = _worst_first(by_config, max(1, most // max(1, len(columns))))
    rows = {
        label: {key: _square(facts, href_of(facts.cell)) for key, facts in of.items()}
        for label, of in by_config.items()
        if label in labels
    }
    hidden = len(by_config) - len(labels)
    left_out = (
        f"{hidden:,} of {len(by_config):,} configs are left out, those with the fewest failures "
        "first; the rows have them all."
    )
    return grid_of(columns, rows, title=title, left_out=left_out if hidden else "")


def _worst_first(by_config: Mapping[str, Mapping[ToolchainKey, BugFacts]], most: int) -> set[str]:
    if len(by_config) <= most:
        return set(by_config)
    failures = {
        label: sum(facts.verdict.is_failure for facts in by_toolchain.values())
        for label, by_toolchain in by_config.items()
    }
    return set(sorted(by_config, key=lambda label: -failures[label])[:most])


def matrix_grid(
    target: str,
    kernels: Mapping[str, Mapping[ToolchainKey, Counter[VerdictKind]]],
    most: int = MOST_SQUARES,
) -> SquareGrid:
    """Kernels by toolchains on one target; the letter is that of the commonest failure."""
    columns = toolchains_in_order(
        toolchain for by_toolchain in kernels.values() for toolchain in by_toolchain
    )
    fits = max(1, most // max(1, len(columns)))
    hidden = max(0, len(kernels) - fits)
    rows = {
        name: {key: _square_of_many(each, kernel_page(name, target)) for key, each in of.items()}
        for name, of in list(kernels.items())[:fits]
    }
    left_out = f"{hidden:,} of {len(kernels):,} kernels are left out; the search has them all."
    return grid_of(
        columns,
        rows,
        title=target,
        left_out=left_out if hidden else "",
        row_title="kernel",
        href_of=lambda name: kernel_page(name, target),
    )


def _square_of_many(verdicts: Counter[VerdictKind], href: str) -> Square:
    # A failure weighs more than what tells nothing, and that more than what compiles.
    def weight(verdict: VerdictKind) -> tuple[bool, bool, int]:
        return verdict.is_failure, verdict.tells_nothing, verdicts[verdict]

    worst = max(verdicts, key=weight)
    works = sum(count for verdict, count in verdicts.items() if verdict.compiles)
    words = ", ".join(f"{count:,} {verdict}" for verdict, count in verdicts.most_common())
    count = f"{works:,}/{verdicts.total():,}"
    return Square(worst.facts.letter, tone_of(worst).value, words, href, count)
