"""What pages over all kernels need, gathered while the cells go by one kernel at a time. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from harness.judging.answers import COULD_NOT_TELL, works
from harness.site.squares import (
    ToolchainKey,
    bug_page,
    kernel_page,
    toolchain_of_cell,
    toolchains_in_order,
)
from harness.values.bug import AffectedRange, Bug, Seen, VersionMark
from harness.values.change import ChangeKind, Changes
from harness.values.row import BugFacts
from harness.values.verdict import VerdictKind

MOST_CELLS = 2_000
"""Cells that a bug's page lists; the page says how many there are."""

_MOST_ENTRIES = 20_000
SEEN = {
    Seen.HERE: ("B", "bad", "has it"),
    Seen.CLEAN: ("G", "good", "works"),
    Seen.OTHER: ("X", "poor", "fails in another way"),
    Seen.UNTOLD: ("?", "hole", "cannot be determined"),
    Seen.FLAKY: ("F", "bad", "comes and goes"),
}
"""Letter, tone and words of what a cell says of a bug."""

_NIGHT_WORDS = {
    **{kind: "worse" for kind in ChangeKind if kind.is_bad},
    **{kind: "unknown" for kind in ChangeKind if kind.is_gap},
    ChangeKind.EXCLUDED: "gone",
    ChangeKind.REMOVED: "gone",
    ChangeKind.FIXED: "better",
    ChangeKind.METRIC_BETTER: "better",
    ChangeKind.NEW: "new",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """A run and what changed since the one before; `compared` is false where that is not known."""

    run: int
    date: str
    took: str
    compared: bool
    cells: int = 0
    worse: int = 0
    better: int = 0
    new: int = 0
    unknown: int = 0
    gone: int = 0
    same: int = 0

    @classmethod
    def of(cls, run: int, started: float, finished: float, changes: Changes | None) -> Night:
        """The night of a run; times are in seconds since the epoch."""
        seconds = round(finished - started)
        counts: Counter[str] = Counter()
        for kind, count in (changes.counts if changes else {}).items():
            counts[_NIGHT_WORDS.get(kind, "same")] += count
        return cls(
            run=run,
            date=f"{datetime.fromtimestamp(started, UTC):%a %d %b %Y, %H:%M} UTC",
            took=str(timedelta(seconds=seconds)),
            compared=changes is not None,
            cells=counts.total(),
            **counts,
        )


SearchEntry: TypeAlias = tuple[str, str, str]
"""What the search finds: its kind, words, and address."""


@dataclass(slots=True)
class BugCells:
    """The cells whose last result has a bug: how many, and the first of them.

    `beside` are all cells at one place that has it, that of which most are known, with where each
    is shown and what it says.
    """

    count: int = 0
    shown: list[tuple[BugFacts, str]] = field(default_factory=list)
    beside: list[tuple[BugFacts, str, Seen]] = field(default_factory=list)


@dataclass(slots=True)
class Overview:
    """Counts over all cells; memory grows with kernels, toolchains and bugs, not with cells."""

    matrix: dict[str, dict[str, dict[ToolchainKey, Counter[VerdictKind]]]] = field(
        default_factory=dict
    )
    verdicts: Counter[VerdictKind] = field(default_factory=Counter)
    by_toolchain: dict[ToolchainKey, Counter[VerdictKind]] = field(
        default_factory=lambda: defaultdict(Counter)
    )
    bugs_of: dict[ToolchainKey, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    bugs: dict[int, BugCells] = field(default_factory=lambda: defaultdict(BugCells))
    entries: list[SearchEntry] = field(default_factory=list)
    unlisted: int = 0

    def add(
        self,
        kernel: str,
        target: str,
        cells: Sequence[tuple[BugFacts, int | None]],
        href_of: Callable[[str], str],
    ) -> None:
        """Count the cells of a kernel on a target, each with the number of its bug."""
        row = self.matrix.setdefault(target, {}).setdefault(kernel, {})
        for facts, bug in cells:
            toolchain = toolchain_of_cell(facts)
            row.setdefault(toolchain, Counter())[facts.verdict] += 1
            self.by_toolchain[toolchain][facts.verdict] += 1
            self.verdicts[facts.verdict] += 1
            if bug is not None:
                self.bugs_of[toolchain][bug] += 1
                bug_cells = self.bugs[bug]
                bug_cells.count += 1
                if len(bug_cells.shown) < MOST_CELLS:
                    bug_cells.shown.append((facts, href_of(facts.cell)))
            if facts.verdict.is_failure:
                self._list(facts, href_of(facts.cell))
        self._follow(cells, href_of)

    def _list(self, facts: BugFacts, href: str) -> None:
        if len(self.entries) >= _MOST_ENTRIES:
            self.unlisted += 1
            return
        toolchain = toolchain_of_cell(facts).words
        words = f"{facts.short} {facts.verdict} {facts.code or ''} {facts.cell} {toolchain}"
        self.entries.append(("cell", words, href))

    def _follow(
        self, cells: Sequence[tuple[BugFacts, int | None]], href_of: Callable[[str], str]
    ) -> None:
        places: dict[str, set[int]] = defaultdict(set)
        for facts, bug in cells:
            if bug is not None:
                places[facts.place].add(bug)
        beside: dict[tuple[int, str], list[tuple[BugFacts, str, Seen]]] = defaultdict(list)
        for facts, bug in cells:
            for number in places.get(facts.place, ()):
                seen = Seen.HERE if bug == number else _seen(facts)
                beside[number, facts.place].append((facts, href_of(facts.cell), seen))
        for (number, _), cells_beside in beside.items():
            if len(cells_beside) > len(self.bugs[number].beside):
                self.bugs[number].beside = cells_beside

    def search(self, bugs: Sequence[Bug]) -> Iterator[SearchEntry]:
        """All that the search finds: kernels, bugs, toolchains, and the cells that fail."""
        for target, kernels in self.matrix.items():
            for kernel in kernels:
                yield "kernel", f"{kernel} on {target}", kernel_page(kernel, target)
        for bug in bugs:
            words = f"bug {bug.record.number} {bug.kind} {bug.code or ''} {bug.title}"
            yield "bug", words, bug_page(bug.record.number)
        for index, toolchain in enumerate(toolchains_in_order(self.by_toolchain), start=1):
            yield "toolchain", toolchain.words, f"toolchains.html#t{index}"
        yield from self.entries


def _seen(facts: BugFacts) -> Seen:
    if facts.verdict in COULD_NOT_TELL:
        return Seen.UNTOLD
    return Seen.CLEAN if works(facts.verdict, facts.stage) else Seen.OTHER


def mark_said(mark: VersionMark, affected: AffectedRange) -> tuple[str, str, str, str]:
    """Of a version of a tool: letter, tone, words, and which ends of the range it is."""
    ends = ("last_good", "first_bad", "last_bad", "first_fixed")
    notes = [name.replace("_", " ") for name in ends if getattr(affected, name) == mark.version]
    words = ", ".join(
        f"{count:,} cell{'s' if count > 1 else ''}: {SEEN[seen][2]}"
        for seen, count in mark.counts.items()
    )
    return *SEEN[mark.seen][:2], words, ", ".join(notes)
