"""What a bisection says: the finding, with the rows that it rests on. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from harness.bisect.confidence import Tally, confidence
from harness.bisect.ir_difference import StageStory
from harness.bisect.search import Boundary, Finding, Probe, Segment, conclude
from harness.judging.answers import LIMITS_OF_OURS, VerdictAnswer
from harness.judging.followed import PAIRING, Followed, is_followable
from harness.values.kernel import Config
from harness.values.row import Row
from harness.values.toolchain import NO_ASSEMBLER, PTXAS, RELEASE
from harness.values.verdict import VerdictKind

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectReport:
    """What was found of one cell along one axis; `rows` are by version, in the order of `versions`.

    `config` is None where none was ever captured. `tallies` say how often each version was run.
    `stages` is what the compilers at both sides of a Triton boundary made. `trouble` says why it
    ended early; `has_all`: `versions` are all that there are.
    """

    axis: str
    versions: tuple[str, ...]
    rows: dict[str, Row]
    reasons: dict[str, str]
    tallies: dict[str, Tally]
    finding: Finding
    followed: Followed
    config: Config | None
    others: tuple[str, ...]
    stages: StageStory | None
    trouble: str | None
    has_all: bool = True

    @property
    def signature(self) -> str | None:
        """The failure that is followed, or that of the row whose numbers are."""
        return self.followed.signature

    def version(self, index: int) -> str:
        """The name of a point of the axis."""
        return self.versions[index]

    def row(self, index: int) -> Row | None:
        """What a version did; None where there was nothing to compile, or only a script's word."""
        return self.rows.get(self.version(index))

    def said(self, index: int) -> str:
        """The reason of a version's answer, in words."""
        row = self.row(index)
        return row.reason if row else self.reasons.get(self.version(index), "nothing that is known")

    def is_clean_end(self, index: int) -> bool:
        """Whether a version comes to an end of its own, with a reason: no limit cut it."""
        row = self.row(index)
        if row is None:
            return self.version(index) in self.reasons
        kind = VerdictKind(row.verdict)
        return kind not in LIMITS_OF_OURS and kind not in (VerdictKind.INFRA, VerdictKind.NOT_RUN)

    def reasons_of(self, segment: Segment) -> tuple[str, ...]:
        """What the versions of a segment say, each reason once."""
        found = (self.said(index) for index in range(segment.first, segment.last + 1))
        return tuple(dict.fromkeys(found))

    @property
    def other_failures(self) -> tuple[Row, ...]:
        """One row for each other failure that was seen, the newest version that shows it."""
        found: dict[str | None, Row] = {}
        for version in self.versions:
            row = self.rows.get(version)
            if row and is_followable(row) and self._is_another(row):
                found[row.signature] = row
        return tuple(found.values())

    def _is_another(self, row: Row) -> bool:
        """Whether a row fails otherwise; better numbers, where they are followed, do not."""
        outcome = self.followed.of(row)
        is_better = outcome is VerdictAnswer.OK and self.followed.condition is not None
        return outcome is not VerdictAnswer.SAME and not is_better

    @property
    def boundary(self) -> Boundary | None:
        """The one that the report rests on: where it began, else where it ended."""
        return self.finding.regression or self.finding.fix

    @property
    def sides(self) -> tuple[Tally, Tally] | None:
        """How often the failing and the working side of the boundary were run, and failed."""
        if self.boundary is None:
            return None
        before, after = (
            self.tallies.get(self.version(i), Tally())
            for i in (self.boundary.before, self.boundary.after)
        )
        return (after, before) if self.finding.regression else (before, after)

    @property
    def confidence(self) -> float | None:
        """How sure it is that the working side works; None without a boundary."""
        return confidence(*self.sides) if self.sides else None

    @property
    def along_assembler(self) -> bool:
        """Whether its versions are those of an assembler, and not of what lowers for it."""
        kinds = {row.assembler for row in self.rows.values()}
        return self.axis == PTXAS or self.axis in kinds

    @property
    def code(self) -> str:
        """What is assembled, for people."""
        return "Program" if any(row.program_sha256 for row in self.rows.values()) else "PTX"

    def version_of(self, row: Row) -> str | None:
        """The version of the tool on the axis that a row is about."""
        if self.axis == RELEASE:
            return next((version for version, each in self.rows.items() if each == row), None)
        return row.ptxas if self.along_assembler else row.compiler_version

    @property
    def ptx_identical(self) -> bool | None:
        """Whether both sides of the boundary had the same program; None where one is not known."""
        boundary = self.boundary
        if boundary is None:
            return None
        sides = [self.rows.get(self.version(i)) for i in (boundary.before, boundary.after)]
        bodies = [side.program if side else None for side in sides]
        return None if None in bodies else bodies[0] == bodies[1]

    @property
    def blame(self) -> str | None:
        """Whose failure it is, as far as this axis alone can say."""
        if self.boundary is None:
            return None
        is_fix = self.finding.regression is None
        failing = self.row(self.boundary.before if is_fix else self.boundary.after)
        if failing and replace(self.followed, kind=VerdictKind(failing.verdict)).is_pairing:
            return PAIRING
        rows = self.rows.values()
        if self.axis in {row.compiler for row in rows if row.assembler == NO_ASSEMBLER}:
            return self.axis  # nothing else takes part
        return self.axis if self.ptx_identical is self.along_assembler else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Neighbouring versions with one verdict and one reason; `verdict` is empty for a script's."""

    first: str
    last: str
    outcome: VerdictAnswer
    verdict: str
    reason: str


def spans(report: BisectReport) -> list[Span]:
    """The versions that were probed, oldest first; a segment falls apart where its reasons do."""
    kinds = {kind.value for kind in VerdictKind}
    found: list[Span] = []
    for part in report.finding.segments:
        verdict = part.probe.verdict if part.probe.verdict in kinds else ""
        fresh = True
        for index in range(part.first, part.last + 1):
            reason = report.said(index) if verdict else part.probe.verdict
            if fresh or found[-1].reason != reason:
                version = report.version(index)
                found.append(
                    Span(
                        first=version,
                        last=version,
                        outcome=part.probe.outcome,
                        verdict=verdict,
                        reason=reason,
                    )
                )
            found[-1] = replace(found[-1], last=report.version(index))
            fresh = False
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeEvidence:
    """All that was seen, by index on the axis; `focus` as in `conclude`."""

    axis: str
    versions: tuple[str, ...]
    probes: Mapping[int, Probe] = field(default_factory=dict)
    reasons: Mapping[int, str] = field(default_factory=dict)
    rows: Mapping[int, Row] = field(default_factory=dict)
    tallies: Mapping[int, Tally] = field(default_factory=dict)
    focus: int | None = None
    followed: Followed = field(default_factory=Followed)
    config: Config | None = None
    others: tuple[str, ...] = ()
    stages: StageStory | None = None
    trouble: str | None = None
    has_all: bool = True

    def report(self) -> BisectReport:
        """What it says."""
        return BisectReport(
            axis=self.axis,
            versions=self.versions,
            rows=self.named(self.rows),
            reasons=self.named(self.reasons),
            tallies=self.named(self.tallies),
            finding=conclude(len(self.versions), self.probes, focus=self.focus),
            followed=self.followed,
            config=self.config,
            others=self.others,
            stages=self.stages,
            trouble=self.trouble,
            has_all=self.has_all,
        )

    def named(self, values: Mapping[int, T]) -> dict[str, T]:
        """Values by index, by version instead."""
        return {self.versions[index]: value for index, value in sorted(values.items())}
