"""What changed between two runs: kinds of change, and what they are derived from."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, StrEnum

import msgspec

from harness.values.cell import place_of
from harness.values.matrix import Expectation
from harness.values.row import Facts
from harness.values.verdict import VerdictKind


class ChangeKind(StrEnum):
    """The change of one cell since the older run; every cell of either run has exactly one."""

    REGRESSED = "regressed"
    MUTATED = "mutated"
    METRIC_WORSE = "metric-worse"
    FLAKY = "flaky"
    FIXED = "fixed"
    METRIC_BETTER = "metric-better"
    UNTESTABLE = "untestable"
    INFRA = "infra"
    MISSING = "missing"
    EXCLUDED = "excluded"
    REMOVED = "removed"
    NEW = "new"
    SAME_OK = "same-ok"
    SAME_FAIL = "same-fail"
    SAME_UNTOLD = "same-untold"
    EXPECTED = "expected"

    @property
    def is_quiet(self) -> bool:
        """Nothing that a reader of the nightly diff needs to see."""
        return self in _QUIET

    @property
    def is_bad(self) -> bool:
        """Something got worse, or is not the failure that it was."""
        return self in (
            ChangeKind.REGRESSED,
            ChangeKind.MUTATED,
            ChangeKind.METRIC_WORSE,
            ChangeKind.FLAKY,
        )

    @property
    def is_gap(self) -> bool:
        """What was known before cannot be determined now."""
        return self in (ChangeKind.UNTESTABLE, ChangeKind.INFRA, ChangeKind.MISSING)


_QUIET = frozenset(
    {ChangeKind.SAME_OK, ChangeKind.SAME_FAIL, ChangeKind.SAME_UNTOLD, ChangeKind.EXPECTED}
)


class Severity(IntEnum):
    """How much a step of a metric matters; each but the least belongs to one metric."""

    INFORMATIONAL = 0
    REGISTERS = 1
    SPILLS = 2
    LIMIT = 3
    SPILLS_BEGIN = 4
    TIME = 5
    HEALTH = 6


METRICS: Mapping[str, tuple[Severity, int, float]] = {
    "spills": (Severity.SPILLS, 16, 0.10),
    "occupancy": (Severity.LIMIT, 0, 0.0),
    "n_regs": (Severity.REGISTERS, 8, 0.05),
    **dict.fromkeys(("stack", "shared", "tmem_size"), (Severity.INFORMATIONAL, 0, 0.0)),
}
"""From which step on a difference of a number matters, and how much then.

The step is at least as large as the first number, and as this fraction of the smaller of both: a
step down follows the same rule as a step up. Counters are exact integers, so that a rule is a
threshold and no statistics. Occupancy moves in whole blocks: where it moved, a limit was crossed.
"""


def severity_of(metric: str, one: float, other: float) -> Severity:
    """How much it matters that a number is not the same; `spills` are stores plus loads."""
    step, least, fraction = METRICS[metric]
    if metric == "spills" and not (one and other):
        return Severity.SPILLS_BEGIN
    is_step = abs(one - other) >= max(least, fraction * min(one, other))
    return step if is_step else Severity.INFORMATIONAL


class MetricStep(msgspec.Struct, frozen=True, kw_only=True):
    """A number (or the health, `ok` or `sick`) that is not what it was."""

    metric: str
    older: int | float | str
    newer: int | float | str
    severity: Severity
    worse: bool


class ConfigSet(msgspec.Struct, frozen=True, kw_only=True):
    """The configs of one launch, on one target, with one toolchain: which of them work.

    `older` and `newer` are for each run the configs that work, and all; `spills` are for each run
    the spills of the best config, in bytes of a thread: None where none works, or none is known.
    """

    kernel: str
    launch: str
    target: str
    toolchain: str
    older: tuple[int, int]
    newer: tuple[int, int]
    spills: tuple[int | None, int | None]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One cell that is not what it was; one side is None where there was (or is) nothing.

    `why` is the reason that the matrix gives for a cell that it excludes now.
    `since` names the toolchain version that a new cell is compared across
    (`ptxas 13.1.80 after 13.0.88`); `older` is then the cell of the version before. One that does
    the same as there is `new` all the same. Where the source has other configs now, `older` is the
    config whose place that of `newer` takes. `configs` are those of the launch, where fewer work,
    or more of another list.
    """

    kind: ChangeKind
    older: Facts | None
    newer: Facts | None
    steps: tuple[MetricStep, ...] = ()
    since: str | None = None
    expectation: Expectation | None = None
    why: str | None = None
    configs: ConfigSet | None = None

    @property
    def is_of_other_configs(self) -> bool:
        """Whether the two sides are different configs of one launch."""
        sides = (side.cell for side in (self.older, self.newer) if side)
        return len({place_of(cell, across_targets=True) for cell in sides}) > 1

    @property
    def facts(self) -> Facts:
        """Those of the newer run, or of the older where the cell is missing."""
        side = self.newer or self.older
        assert side is not None
        return side


class Surprise(msgspec.Struct, frozen=True, kw_only=True):
    """A known failure of the matrix (`line` of its file) that did not hold, nor had before."""

    verdict: VerdictKind
    expected: VerdictKind
    issue: str | None
    line: int | None
    cells: int
    example: str


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """All that changed from one run to another.

    `counts` has every kind and counts every cell; `changes` has those that are not quiet, and
    `informational` the small differences of cells that count as the same. `older` is None where
    there was no run to compare with. `expired` says which workarounds are no longer needed,
    `broken` which no longer work.
    """

    older: int | None
    newer: int
    counts: Mapping[ChangeKind, int] = {}
    changes: tuple[Change, ...] = ()
    informational: tuple[Change, ...] = ()
    sets: tuple[ConfigSet, ...] = ()
    surprises: tuple[Surprise, ...] = ()
    expired: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()

    def exit_code(self, *, strict_fixed: bool = False) -> int:
        """As the command line: 1 worse, 4 something is unknown, 5 fixes where strict."""
        if any(self.counts.get(kind) for kind in ChangeKind if kind.is_bad):
            return 1
        if any(self.counts.get(kind) for kind in ChangeKind if kind.is_gap):
            return 4
        return 5 if strict_fixed and (self.counts.get(ChangeKind.FIXED) or self.surprises) else 0


class PullRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a change does to machine code.

    `command` makes it again, `cells` are those of head. `same_code` counts those whose machine code
    is that of base, `other_code` has those that have other code and the same numbers.
    `unexpected` counts the failures of head that no expectation has, `failures` are launches that
    could be captured in base alone. `lines` are the places of what got worse, by cell: paths below
    head, and lines from 1. `renamed` says which launches have another name in head. `unreached` are
    the files that differ, in comments alone, where nothing was compiled for that reason.
    """

    changes: Changes
    base: str = "base"
    head: str = "head"
    command: str = ""
    cells: tuple[Facts, ...] = ()
    same_code: int = 0
    other_code: tuple[Change, ...] = ()
    unexpected: int = 0
    failures: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    renamed: tuple[str, ...] = ()
    lines: Mapping[str, tuple[str, int]] = {}
    unreached: tuple[str, ...] | None = None

    def exit_code(self, fail_on: str) -> int:
        """As `triage diff`; `fail_on` is `regression`, `failure` (of any cell), or `never`."""
        if fail_on == "never":
            return 0
        code = self.changes.exit_code()
        if fail_on == "failure" and self.unexpected:
            return 1
        return code or (4 if self.failures else 0)
