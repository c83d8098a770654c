"""The grid that blame is read from: what each Triton made, and what each ptxas made of that. Pure.

A line is one program, byte for byte, with the flags that go with it; or what a Triton did that
came to no PTX. A column is a ptxas. Only *same* and *ok* say anything (`Outcome`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from packaging.version import Version

from harness.bisect.ir_difference import StageDifference
from harness.judging.answers import VerdictAnswer
from harness.judging.followed import Followed
from harness.judging.messages import PTXAS_NOT_ON_TARGET
from harness.values.row import Row
from harness.values.toolchain import (
    EMULATOR,
    NO_ASSEMBLER,
    PTXAS,
    TRITON,
    assembler_name,
    compiler_name,
)
from harness.values.verdict import VerdictKind

# Which versions a blame is worth trying with, so that the grid stays affordable.


def worth_trying(versions: Sequence[str], case: str, limit: int) -> list[str]:
    """At most `limit` versions: the case's own first, the newest, then the nearest to the case."""
    ordered = sorted({*versions, case}, key=Version)
    place = ordered.index(case)
    near = sorted(ordered, key=lambda version: abs(ordered.index(version) - place))
    return list(dict.fromkeys([case, ordered[-1], *near]))[:limit]


def order_for_the_first(
    *, case: str, bundled: Iterable[str], minors: Sequence[str], installed: Iterable[str]
) -> list[str]:
    """The ptxas for the line that the question begins with, the most telling first."""
    wanted = [case, *sorted(set(bundled), key=Version, reverse=True)]
    wanted += sorted(minors, key=Version, reverse=True)
    return list(dict.fromkeys([*wanted, *sorted(set(installed), key=Version, reverse=True)]))


def order_for_others(
    case: str, first: Mapping[str, VerdictAnswer], columns: Sequence[str]
) -> list[str]:
    """The ptxas for the other lines: what the first line did on each says what is worth asking.

    The case's own, then both sides of every change, then those that fail, then the rest; within
    each the newest first. What could not read the first line's PTX is asked last.
    """
    answered = [
        version for version in columns if first.get(version, VerdictAnswer.OTHER).moves_a_bound
    ]
    edges: set[str] = set()
    for older, newer in itertools.pairwise(answered):
        if first[older] is not first[newer]:
            edges |= {older, newer}
    failing = [version for version in answered if first[version] is VerdictAnswer.SAME]
    ranks: tuple[Sequence[str], ...] = (
        [case] if case in columns else [],
        sorted(edges, key=Version, reverse=True),
        failing[::-1],
        answered[::-1],
        columns[::-1],
    )
    return list(dict.fromkeys(version for rank in ranks for version in rank))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What one pair of compilers did; `verdict` is empty where there was nothing to judge.

    `row` holds the numbers, where there are any.
    """

    outcome: VerdictAnswer
    verdict: str = ""
    reason: str = ""
    stage: str | None = None
    signature: str | None = None
    short: str | None = None
    row: Row | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One program and what every ptxas made of it; `stopped` instead where there is no PTX.

    `compilers` are the versions of the compiler (`title`) that generate it, all the same; none for
    raw PTX. `tool` and `code` are the assembler and what it takes, for people. `made_for` names the
    ptxas that the compiler saw, where it is not the bundled one.
    """

    compilers: tuple[str, ...] = ()
    title: str = compiler_name(TRITON)
    tool: str = PTXAS
    code: str = "PTX"
    body: str | None = None
    version: str | None = None
    flags: tuple[str, ...] = ()
    made_for: str | None = None
    stopped: Cell | None = None
    cells: Mapping[str, Cell] = field(default_factory=dict)

    def all_cells(self) -> list[Cell]:
        """Every cell of it."""
        return [*([self.stopped] if self.stopped else []), *self.cells.values()]

    def has(self, outcome: VerdictAnswer) -> bool:
        """Whether any cell came out so."""
        return any(cell.outcome is outcome for cell in self.all_cells())

    @property
    def is_refused(self) -> bool:
        """Whether the compiler refuses the source with a message."""
        return self.stopped is not None and self.stopped.verdict == VerdictKind.REJECTED.value

    def ptxas(self, outcome: VerdictAnswer) -> list[str]:
        """The ptxas that came out so."""
        return [version for version, cell in self.cells.items() if cell.outcome is outcome]


class Varied(StrEnum):
    """What a trial varies: nothing, what must not matter, or how ptxas is called.

    Of what is executed: an option of the compiler, the target, or who lowers which stage.
    """

    NOTHING = "nothing"
    NAME_OR_LINES = "name_or_lines"
    FLAGS = "flags"
    LEVEL = "level"
    OPTION = "option"
    TARGET = "target"
    STAGE = "stage"


@dataclass(frozen=True, slots=True, kw_only=True)
class PairTrial:
    """One pair again, with something varied: `before` is what it did unvaried."""

    what: str
    varied: Varied
    triton: str | None
    ptxas: str
    before: VerdictAnswer
    after: VerdictAnswer
    verdict: str
    reason: str = ""

    @property
    def changed(self) -> bool:
        """Whether the failure came or went; what is not known, or fails otherwise, did not."""
        return {self.before, self.after} == {VerdictAnswer.SAME, VerdictAnswer.OK}


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrasted:
    """The IR that fails beside the nearest that works (`name`), stage by stage."""

    name: str
    stages: tuple[StageDifference, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Lines (the one that the question begins with first) and ptxas versions, oldest first.

    Where the PTX is executed, the emulator stands in the place of ptxas. `device` is the GPU that
    cubins were launched on, where that is what was looked at.
    """

    lines: tuple[Line, ...]
    ptxas: tuple[str, ...]
    focus: Followed
    trials: tuple[PairTrial, ...] = ()
    contrast: Contrasted | None = None
    device: str | None = None

    @property
    def title(self) -> str:
        """What people call the compiler."""
        return self.lines[0].title if self.lines else compiler_name(TRITON)

    @property
    def is_executed(self) -> bool:
        """The PTX is executed, and what comes out is followed."""
        return self.ptxas == (EMULATOR,)

    @property
    def tool(self) -> str:
        """What people call the assembler."""
        return self.lines[0].tool if self.lines else PTXAS

    @property
    def is_assembled(self) -> bool:
        """There is an assembler that what the compiler writes goes through."""
        return self.tool != assembler_name(NO_ASSEMBLER)

    @property
    def early(self) -> str:
        """Where something happens that no assembler has a part in."""
        return f"before {self.tool}" if self.is_assembled else f"in {self.title}"

    @property
    def code(self) -> str:
        """What people call that which it takes."""
        return self.lines[0].code if self.lines else "PTX"

    @property
    def is_raw(self) -> bool:
        """PTX of which the origin is not known."""
        return not any(line.compilers for line in self.lines)

    def by_compiler(self) -> list[Line]:
        """The lines by the oldest Triton of each."""
        return sorted(self.lines, key=_age)

    @property
    def failing(self) -> list[Line]:
        """Lines with the failure."""
        return [line for line in self.lines if line.has(VerdictAnswer.SAME)]

    @property
    def working(self) -> list[Line]:
        """Lines that never have the failure, and do work."""
        return [
            line
            for line in self.lines
            if line.has(VerdictAnswer.OK) and not line.has(VerdictAnswer.SAME)
        ]

    @property
    def splits(self) -> list[Line]:
        """Lines whose one PTX fails on some ptxas and works on others."""
        return [line for line in self.failing if line.has(VerdictAnswer.OK)]

    @property
    def follows(self) -> list[tuple[Line, Line, str]]:
        """A failing line, a line with another program that works, and a ptxas that says both."""
        return list(self._contrasts(same_program=False))

    @property
    def settings(self) -> list[tuple[Line, Line, str]]:
        """As `follows`, with one program under another PTX version or other flags."""
        return list(self._contrasts(same_program=True))

    def _contrasts(self, *, same_program: bool) -> Iterator[tuple[Line, Line, str]]:
        for one in self.lines:
            for other in self.lines:
                if one.body and other.body and (one.body == other.body) is same_program:
                    works = other.ptxas(VerdictAnswer.OK)
                    yield from (
                        (one, other, x) for x in one.ptxas(VerdictAnswer.SAME) if x in works
                    )

    @property
    def fails_otherwise(self) -> bool:
        """Whether a toolchain takes the source, and fails later; not where it refuses the target.

        Where the failure is not a refusal of the source, it has taken it itself.
        """
        cells = (cell for line in self.lines for cell in line.all_cells())
        return self.focus.kind is not VerdictKind.REJECTED or any(
            cell.outcome is VerdictAnswer.OTHER
            and cell.verdict != self.focus.kind.value
            and not PTXAS_NOT_ON_TARGET.search(cell.reason)
            for cell in cells
        )

    @property
    def newest_refuses(self) -> bool:
        """Whether the newest compiler that says anything refuses the source with a message."""
        telling = [
            line
            for line in self.lines
            if line.compilers
            and any(
                cell.outcome.moves_a_bound or cell.outcome is VerdictAnswer.OTHER
                for cell in line.all_cells()
            )
        ]
        newest = max(telling, key=lambda line: max(map(Version, line.compilers)), default=None)
        return newest is not None and newest.is_refused

    @property
    def is_flaky(self) -> bool:
        """The same thing again came out otherwise."""
        return any(trial.changed for trial in self.varying(Varied.NOTHING))

    @property
    def is_fragile(self) -> bool:
        """It comes or goes with what must not matter."""
        return any(trial.changed for trial in self.varying(Varied.NAME_OR_LINES))

    def varying(self, what: Varied) -> list[PairTrial]:
        """The trials of one kind."""
        return [trial for trial in self.trials if trial.varied is what]

    def compilers_with(self, kind: VerdictKind) -> list[str]:
        """The Tritons for which this verdict came out, on some ptxas or before it.

        Where numbers are followed, those for which the condition holds.
        """
        by_numbers = self.focus.condition is not None
        return [
            triton
            for line in self.lines
            if any(
                cell.outcome is VerdictAnswer.SAME if by_numbers else cell.verdict == kind.value
                for cell in line.all_cells()
            )
            for triton in line.compilers
        ]

    def ptxas_with(self, outcome: VerdictAnswer) -> list[str]:
        """The ptxas with this outcome on any line, oldest first."""
        found = {version for line in self.lines for version in line.ptxas(outcome)}
        return [version for version in self.ptxas if version in found]


def _age(line: Line) -> tuple[Version, str]:
    return min(map(Version, line.compilers), default=Version("0")), line.made_for or ""


def fold(chosen: Sequence[str], columns: Sequence[str]) -> str:
    """Versions in words, with neighbours among the columns as a range: `13.1.80 - 13.2.86 (5)`."""
    wanted, runs = set(chosen), list[list[str]]()
    fresh = True
    for version in columns:
        if version not in wanted:
            fresh = True
            continue
        if fresh:
            runs.append([])
        runs[-1].append(version)
        fresh = False
    return ", ".join(_run(run) for run in runs) or "none"


def _run(run: Sequence[str]) -> str:
    if len(run) < 3:
        return ", ".join(run)
    return f"{run[0]} - {run[-1]} ({len(run)})"
