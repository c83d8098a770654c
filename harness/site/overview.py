"""What pages over all kernels need, gathered while the cells go by one kernel at a time. Pure."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from harness.diff.diff_words import ChangeGroup, group_changes
from harness.judging.answers import COULD_NOT_TELL, works
from harness.site.squares import (
    Tally,
    ToolchainKey,
    failing,
    kernel_page,
    toolchain_of_cell,
    toolchains_in_order,
    working,
)
from harness.tables.said import Tone
from harness.tables.summary import plural
from harness.values.bug import AffectedRange, Bug, Seen, VersionMark
from harness.values.change import Change, ChangeKind, Changes, MetricStep
from harness.values.row import BugFacts
from harness.values.verdict import VerdictKind

MOST_CELLS = 2_000
"""Cells that a bug's page lists; the page says how many there are."""

_MOST_ENTRIES = 20_000
_MOST_CLAUSES = 3
MOST_STEPS = 300
MOST_READ = 60
"""Nights in which it is looked up since when a kernel is broken."""
SEEN = {
    Seen.HERE: ("✗", "bad", "has it"),
    Seen.CLEAN: ("✓", "good", "works"),
    Seen.OTHER: ("!", "poor", "fails in another way"),
    Seen.UNTOLD: ("?", "hole", "cannot be determined"),
    Seen.FLAKY: ("~", "bad", "comes and goes"),
}
"""Mark, tone and words of what a cell says of a bug."""

_NIGHT_WORDS = {
    **{kind: "worse" for kind in ChangeKind if kind.is_bad},
    **{kind: "unknown" for kind in ChangeKind if kind.is_gap},
    ChangeKind.EXCLUDED: "gone",
    ChangeKind.REMOVED: "gone",
    ChangeKind.FIXED: "better",
    ChangeKind.METRIC_BETTER: "better",
    ChangeKind.NEW: "new",
}


def night_of(
    run: int, started: float, finished: float, changes: Changes | None
) -> dict[str, int | str | bool]:
    """A run, and how many cells changed since the one before; `compared` says if that is known.

    Times are in seconds since the epoch.
    """
    counts: Counter[str] = Counter(worse=0, better=0, new=0, unknown=0, gone=0, same=0)
    for kind, count in (changes.counts if changes else {}).items():
        counts[_NIGHT_WORDS.get(kind, "same")] += count
    return {
        "run": run,
        "date": f"{datetime.fromtimestamp(started, UTC):%a %d %b %Y, %H:%M} UTC",
        "took": str(timedelta(seconds=round(finished - started))),
        "compared": changes is not None,
        "cells": counts.total(),
        **counts,
    }


def day_of(seconds: float) -> str:
    """A time since the epoch as a day: `26 Nov 2026`."""
    return f"{datetime.fromtimestamp(seconds, UTC):%d %b %Y}"


def age_of(seconds: float, now: float) -> str:
    """How long before another time it was."""
    days = int((now - seconds) // 86_400)
    return plural(days, "day") if days else "less than a day"


def steps_of(changes: Iterable[Change]) -> list[tuple[float, ChangeGroup]]:
    """Cells whose numbers changed, the largest change first: in percent, infinite from 0 on."""

    def percent(step: MetricStep) -> float:
        before, after = step.older, step.newer
        if isinstance(before, str) or isinstance(after, str) or not before:
            return math.inf
        return (after - before) / before * 100

    steps = [(percent(change.steps[0]), change) for change in changes if change.steps]
    steps.sort(key=lambda step: -abs(step[0]))
    return [(moved, group_changes([change])[0]) for moved, change in steps[:MOST_STEPS]]


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
    """Counts over all cells; memory grows with kernels, toolchains and bugs, not with cells.

    `is_known` says of a failing cell and its bug that it is expected, or that people have decided
    to leave it: `known` counts those.
    """

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
    is_known: Callable[[BugFacts, int | None], bool] = lambda *_: False
    known: Counter[tuple[str, str, ToolchainKey]] = field(default_factory=Counter)
    open_bugs: dict[tuple[str, str], set[int]] = field(default_factory=lambda: defaultdict(set))

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
                if self.is_known(facts, bug):
                    self.known[kernel, target, toolchain] += 1
                elif bug is not None:
                    self.open_bugs[kernel, target].add(bug)
                if len(self.entries) < _MOST_ENTRIES:
                    words = f"{facts.short} {facts.verdict} {facts.code or ''} {facts.cell}"
                    href = href_of(facts.cell)
                    self.entries.append(("cell", f"{words} {toolchain.words}", href))
                else:
                    self.unlisted += 1
        self._follow(cells, href_of)

    def state(
        self, nights: Sequence[tuple[int, Tally]], first_seen: Mapping[int, int]
    ) -> tuple[str, Tone]:
        """What is broken, on which targets and since which run: one sentence, and its tone.

        A kernel is broken on a target where none of its cells works with some toolchain. `nights`
        are the last ones, newest first; `first_seen` has the first run of each bug.
        """
        broken: dict[tuple[str, str, int], list[str]] = defaultdict(list)
        partly: dict[str, None] = {}
        for target, kernels in self.matrix.items():
            for kernel, row in kernels.items():
                fails = {
                    toolchain: count
                    for toolchain, verdicts in row.items()
                    if (count := failing(verdicts) - self.known[kernel, target, toolchain]) > 0
                }
                dead = [toolchain for toolchain in fails if not working(row[toolchain])]
                if dead:
                    tools = "" if len(dead) == len(row) else f" with {len(dead)} toolchains"
                    tools = f" with {dead[0].words}" if tools and len(dead) == 1 else tools
                    seen = [first_seen[bug] for bug in self.open_bugs[kernel, target]]
                    since = 0 if tools else _dead_since(nights, (kernel, target))
                    broken[kernel, tools, since or min(seen, default=0)].append(target)
                elif fails:
                    partly[_name(kernel)] = None
        alike: dict[tuple[str, str, int], list[str]] = defaultdict(list)
        for (kernel, tools, since), targets in broken.items():
            alike[_and(targets), tools, since].append(_name(kernel))
        ordered = sorted(alike.items(), key=lambda entry: -entry[0][2])
        clauses = [
            f"{_and(kernels)} {'are' if len(kernels) > 1 else 'is'} broken on {targets}{tools}"
            + (f" since run {since}" if since else "")
            + (" or earlier" if len(nights) == MOST_READ and since == nights[-1][0] else "")
            for (targets, tools, since), kernels in ordered[:_MOST_CLAUSES]
        ]
        if more := {name for _, names in ordered[_MOST_CLAUSES:] for name in names}:
            clauses.append(f"{plural(len(more), 'kernel')} more")
        if partly:
            some = "some" if clauses else "Some"
            clauses.append(f"{some} configs of {_and(list(partly))} fail")
        if clauses:
            return "; ".join(clauses) + ".", Tone.BAD if broken else Tone.POOR
        parts = (
            ("known failures", self.known.total()),
            ("poor code", sum(n for kind, n in self.verdicts.items() if kind.facts.is_poor)),
            ("undetermined", sum(n for kind, n in self.verdicts.items() if kind.tells_nothing)),
        )
        count = len({kernel for kernels in self.matrix.values() for kernel in kernels})
        works = f"{working(self.verdicts):,} of {self.verdicts.total():,} cells"
        others = "".join(f"; {name}: {cells:,}" for name, cells in parts if cells)
        return f"Nothing is broken: {works} work, in {plural(count, 'kernel')}{others}.", Tone.GOOD

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
                seen = Seen.CLEAN if works(facts.verdict, facts.stage) else Seen.OTHER
                if bug == number:
                    seen = Seen.HERE
                elif facts.verdict in COULD_NOT_TELL:
                    seen = Seen.UNTOLD
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
            yield "bug", words, f"bug-{bug.record.number}.html"
        for index, toolchain in enumerate(toolchains_in_order(self.by_toolchain), start=1):
            yield "toolchain", toolchain.words, f"toolchains.html#t{index}"
        yield from self.entries


def _dead_since(nights: Sequence[tuple[int, Tally]], place: tuple[str, str]) -> int:
    """The first of the last runs in a row in which nothing works there; 0 where there is none."""
    since = 0
    for run, tally in nights:
        if place in tally:
            if working(tally[place]) or not failing(tally[place]):
                break
            since = run
    return since


def _name(kernel: str) -> str:
    """A kernel of a file without its file."""
    return kernel.rpartition("::")[2]


def _and(words: Sequence[str]) -> str:
    first = list(words[:_MOST_CLAUSES])
    if len(words) > _MOST_CLAUSES:
        first.append(f"{len(words) - _MOST_CLAUSES:,} more")
    return " and ".join(filter(None, (", ".join(first[:-1]), first[-1])))


def mark_said(mark: VersionMark, affected: AffectedRange) -> tuple[str, str, str, str]:
    """Of a version of a tool: mark, tone, words, and which ends of the range it is."""
    ends = ("last_good", "first_bad", "last_bad", "first_fixed")
    notes = [name.replace("_", " ") for name in ends if getattr(affected, name) == mark.version]
    words = ", ".join(
        f"{count:,} cell{'s' if count > 1 else ''}: {SEEN[seen][2]}"
        for seen, count in mark.counts.items()
    )
    mark_and_word = " ".join(SEEN[mark.seen][::2])
    return mark_and_word, SEEN[mark.seen][1], words, ", ".join(notes)
