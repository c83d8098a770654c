"""The grid that blame is read from: what each Triton made, and what each ptxas made of that. Pure.

A line is one program, byte for byte, with the flags that go with it; or what a Triton did that
came to no PTX. A column is a ptxas. Only *same* and *ok* say anything (`Outcome`).

A failure that differs over one PTX, byte for byte, is a failure of ptxas. One that every ptxas
shows on one PTX and none on another is a failure of the compiler that wrote the PTX. One that every
toolchain shows is the kernel's; but that every toolchain spills does not say why. A compiler that
crashes is at fault whatever its input; and a version that gave no result is not a pass.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from packaging.version import Version

from harness.bisect.ir_difference import StageDifference
from harness.judging.answers import LIMITS_OF_OURS, VerdictAnswer, works
from harness.judging.followed import PAIRING, FollowedFailure
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
    ordered = [case, *sorted(set(bundled), key=Version, reverse=True)]
    ordered += sorted(minors, key=Version, reverse=True)
    return list(dict.fromkeys([*ordered, *sorted(set(installed), key=Version, reverse=True)]))


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
    signature: str | None = None
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
        return self.stopped is not None and self.stopped.verdict == VerdictKind.REJECTED

    def ptxas(self, outcome: VerdictAnswer) -> list[str]:
        """The ptxas that came out so."""
        return [version for version, cell in self.cells.items() if cell.outcome is outcome]


class Varied(StrEnum):
    """What a trial varies: nothing, what must not matter, or how ptxas is called.

    Of what is executed: an option of the compiler, the target, or who lowers which stage. How many
    of the compiler's own passes there are, or of those of the LLVM inside it.
    """

    NOTHING = "nothing"
    NAME_OR_LINES = "name_or_lines"
    FLAGS = "flags"
    LEVEL = "level"
    OPTION = "option"
    TARGET = "target"
    STAGE = "stage"
    MLIR = "mlir"
    LLVM = "llvm"


PASSES = {Varied.MLIR: "{}'s optional passes", Varied.LLVM: "LLVM's optional passes"}
"""What people call them; `{}` stands for the compiler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairTrial:
    """One pair again, with something varied: `before` is what it did unvaried.

    `version` and `assembler` are the versions of the pair.
    """

    label: str
    varied: Varied
    version: str | None
    assembler: str
    before: VerdictAnswer = VerdictAnswer.SAME
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
    """Lines (that of the question first) and versions of the assembler, oldest first.

    Where the PTX is executed, the emulator stands in the assembler's place. `device` is the name
    of what executed cubins, where that is what was looked at; `is_held_to_ptx`: what they leave
    differs from what the emulated PTX does.
    """

    lines: tuple[Line, ...]
    assemblers: tuple[str, ...]
    focus: FollowedFailure
    trials: tuple[PairTrial, ...] = ()
    contrast: Contrasted | None = None
    device: str | None = None
    is_held_to_ptx: bool = False

    @property
    def title(self) -> str:
        """What people call the compiler."""
        return self.lines[0].title if self.lines else compiler_name(TRITON)

    @property
    def is_executed(self) -> bool:
        """The PTX is executed, and what comes out is followed."""
        return self.assemblers == (EMULATOR,)

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

        def age(line: Line) -> tuple[Version, str]:
            return min(map(Version, line.compilers), default=Version("0")), line.made_for or ""

        return sorted(self.lines, key=age)

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
        for failing in self.lines:
            for working in self.lines:
                if failing.body and working.body and (failing.body == working.body) is same_program:
                    works = working.ptxas(VerdictAnswer.OK)
                    yield from (
                        (failing, working, x)
                        for x in failing.ptxas(VerdictAnswer.SAME)
                        if x in works
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

    def varying(self, kind: Varied) -> list[PairTrial]:
        """The trials of one kind."""
        return [trial for trial in self.trials if trial.varied is kind]

    def compilers_with(self, kind: VerdictKind) -> list[str]:
        """The Tritons for which this verdict came out, on some ptxas or before it.

        Where numbers are followed, those for which the condition holds.
        """
        by_numbers = self.focus.condition is not None
        return [
            version
            for line in self.lines
            if any(
                cell.outcome is VerdictAnswer.SAME if by_numbers else cell.verdict == kind.value
                for cell in line.all_cells()
            )
            for version in line.compilers
        ]

    def ptxas_with(self, outcome: VerdictAnswer) -> list[str]:
        """The ptxas with this outcome on any line, oldest first."""
        versions = {version for line in self.lines for version in line.ptxas(outcome)}
        return [version for version in self.assemblers if version in versions]


def fold(chosen: Sequence[str], columns: Sequence[str]) -> str:
    """Versions in words, with neighbours among the columns as a range: `13.1.80 - 13.2.86 (5)`."""
    names, runs = set(chosen), list[list[str]]()
    fresh = True
    for version in columns:
        if version not in names:
            fresh = True
            continue
        if fresh:
            runs.append([])
        runs[-1].append(version)
        fresh = False
    words = (
        f"{run[0]} - {run[-1]} ({len(run)})" if len(run) > 2 else ", ".join(run) for run in runs
    )
    return ", ".join(words) or "none"


class Culprit(StrEnum):
    """The responsible component."""

    PTXAS = "ptxas"
    TRITON = "triton"
    KERNEL = "kernel"
    PAIRING = PAIRING
    CANNOT_TELL = "cannot_tell"


class Ground(StrEnum):
    """Why, in one word for each way to an answer; `harness.blame.blame_words` spells them out."""

    NOTHING_FAILS = "nothing_fails"
    SPLIT = "split"
    LEVELS = "levels"
    EVERY_LEVEL = "every_level"
    ORDER = "order"
    PTXAS_CRASH = "ptxas_crash"
    TRITON_CRASH = "triton_crash"
    STUB = "stub"
    FOLLOWS_PTX = "follows_ptx"
    ANOTHER_TRITON = "another_triton"
    DIALECT = "dialect"
    REJECTED = "rejected"
    LIMIT = "limit"
    EVERY_TOOLCHAIN = "every_toolchain"
    NO_BETTER = "no_better"
    UNSUPPORTED = "unsupported"
    SETTINGS = "settings"
    BOTH = "both"
    POINTED = "pointed"
    ONE_TRITON = "one_triton"
    ONE_PTXAS = "one_ptxas"
    NO_COMMON_PTXAS = "no_common_ptxas"
    STUB_BY_ALL = "stub_by_all"
    RAW_PTX = "raw_ptx"
    OUT_OF_BOUNDS = "out_of_bounds"
    NO_TRITON = "no_triton"
    FRAGILE = "fragile"
    FLAKY = "flaky"
    OPTION = "option"
    TARGET = "target"
    NOTHING_IS_RIGHT = "nothing_is_right"


_CULPRITS = {
    Ground.SPLIT: Culprit.PTXAS,
    Ground.LEVELS: Culprit.PTXAS,
    Ground.PTXAS_CRASH: Culprit.PTXAS,
    Ground.TRITON_CRASH: Culprit.TRITON,
    Ground.STUB: Culprit.TRITON,
    Ground.FOLLOWS_PTX: Culprit.TRITON,
    Ground.ANOTHER_TRITON: Culprit.TRITON,
    Ground.OPTION: Culprit.TRITON,
    Ground.TARGET: Culprit.TRITON,
    Ground.REJECTED: Culprit.KERNEL,
    Ground.LIMIT: Culprit.KERNEL,
    Ground.EVERY_TOOLCHAIN: Culprit.KERNEL,
    Ground.UNSUPPORTED: Culprit.PAIRING,
    Ground.DIALECT: Culprit.PAIRING,
    Ground.SETTINGS: Culprit.PAIRING,
    Ground.BOTH: Culprit.PAIRING,
    Ground.POINTED: Culprit.PAIRING,
}
_OF_THREADS = (VerdictKind.RACE, VerdictKind.NONDETERMINISTIC, VerdictKind.HANG)
_STUBS = (VerdictKind.TRAP_STUB, VerdictKind.SICK)


def culprit_of(ground: Ground) -> Culprit | None:
    """Who is at fault on this ground; None where nothing fails."""
    if ground is Ground.NOTHING_FAILS:
        return None
    return _CULPRITS.get(ground, Culprit.CANNOT_TELL)


def ground_of(grid: Grid) -> Ground:
    """What the grid says of the failure in its focus."""
    focus = grid.focus
    if not grid.failing:
        return Ground.NOTHING_FAILS
    if grid.is_executed:
        return _executed(grid)
    if grid.device:
        return _launched(grid)
    if focus.is_pairing:
        return Ground.UNSUPPORTED
    if focus.is_crash and focus.before_ptxas:
        return Ground.TRITON_CRASH
    if focus.is_crash:
        return Ground.SPLIT if grid.splits and not grid.is_flaky else Ground.PTXAS_CRASH
    if grid.is_flaky:
        return Ground.FLAKY
    if grid.splits:
        # Not a crash but a refusal: where other PTX is welcome, either side may be in the wrong.
        is_refusal = focus.kind in (VerdictKind.PTXAS_ERROR, VerdictKind.PASS_FAILURE)
        return Ground.BOTH if is_refusal and grid.follows else Ground.SPLIT
    return _before_ptxas(grid) if focus.before_ptxas else _in_ptxas(grid)


def _executed(grid: Grid) -> Ground:
    """The PTX computes the wrong thing: no matter of ptxas.

    The source says what it must compute, whichever compiler takes it, with whichever of its
    options, for whichever target.
    """
    if grid.working:
        return Ground.ANOTHER_TRITON
    # A race that the kernel itself has would go away too: fewer threads, fewer races.
    hides = grid.focus.kind in _OF_THREADS
    options = [trial for trial in grid.varying(Varied.OPTION) if trial.changed]
    if any(not hides or trial.label.startswith("num_stages") for trial in options):
        return Ground.OPTION
    if any(trial.changed for trial in grid.varying(Varied.TARGET)):
        return Ground.TARGET
    if len(grid.compilers_with(grid.focus.kind)) < 2:
        return Ground.ONE_TRITON
    # What a result is compared with may be wrong as well; what else is found needs no comparison.
    is_compared = grid.focus.kind is VerdictKind.WRONG_RESULT
    return Ground.NOTHING_IS_RIGHT if is_compared else Ground.EVERY_TOOLCHAIN


def _launched(grid: Grid) -> Ground:
    """Cubins go wrong on a GPU: one PTX, byte for byte, must do one thing on every ptxas."""
    by_level = any(trial.changed for trial in grid.varying(Varied.LEVEL))
    if grid.splits or by_level:
        # What the order of threads decides may come out otherwise with any other code.
        if grid.focus.kind in _OF_THREADS:
            return Ground.ORDER
        return Ground.SPLIT if grid.splits else Ground.LEVELS
    if grid.is_raw and grid.is_held_to_ptx:
        return Ground.EVERY_LEVEL
    return Ground.RAW_PTX if grid.is_raw else _executed(grid)


def _before_ptxas(grid: Grid) -> Ground:
    kind = grid.focus.kind
    if grid.is_raw:
        return Ground.RAW_PTX
    if kind in _STUBS and not works(kind, grid.focus.stage):
        # Code that breaks its own promises (`tl.assume`) may be a trap to every compiler.
        is_known = grid.working or grid.focus.is_over_limit
        return Ground.STUB if is_known else Ground.STUB_BY_ALL
    if grid.working:
        pointed = {name for line in grid.failing if line.made_for for name in line.compilers}
        if any(pointed.intersection(line.compilers) for line in grid.working):
            return Ground.POINTED
        # A source that one Triton refuses may use what that one does not know, or no longer does.
        return Ground.DIALECT if kind is VerdictKind.REJECTED else Ground.ANOTHER_TRITON
    if kind in LIMITS_OF_OURS:
        return Ground.OUT_OF_BOUNDS
    if kind is not VerdictKind.REJECTED and grid.newest_refuses:
        return Ground.REJECTED
    if len(grid.compilers_with(kind)) < 2:
        return Ground.ONE_TRITON
    if kind is VerdictKind.OUT_OF_RESOURCES:
        return Ground.LIMIT
    # A newer Triton that fails later has taken the source for good; an older one may have failed
    # for what a newer one says.
    if kind is VerdictKind.REJECTED and (grid.newest_refuses or not grid.fails_otherwise):
        return Ground.REJECTED
    return Ground.NO_TRITON


def _in_ptxas(grid: Grid) -> Ground:
    kind = grid.focus.kind
    if grid.settings or any(trial.changed for trial in grid.varying(Varied.FLAGS)):
        return Ground.SETTINGS
    if grid.is_fragile:
        return Ground.FRAGILE
    if grid.follows:
        most = max(len(failing.ptxas(VerdictAnswer.SAME)) for failing, _, _ in grid.follows)
        return Ground.FOLLOWS_PTX if most > 1 else Ground.ONE_PTXAS
    if grid.working:
        return Ground.NO_COMMON_PTXAS
    if kind in LIMITS_OF_OURS:
        return Ground.OUT_OF_BOUNDS
    if kind is VerdictKind.OUT_OF_RESOURCES and grid.is_raw:
        return Ground.LIMIT
    if len(grid.ptxas_with(VerdictAnswer.SAME)) < 2:
        return Ground.ONE_PTXAS
    if grid.is_raw:
        return Ground.RAW_PTX
    if len(grid.compilers_with(kind)) < 2:
        return Ground.ONE_TRITON
    if kind is VerdictKind.OUT_OF_RESOURCES:
        return Ground.LIMIT
    has_numbers = grid.focus.condition is not None or kind is VerdictKind.SICK
    return Ground.NO_BETTER if has_numbers else Ground.EVERY_TOOLCHAIN
