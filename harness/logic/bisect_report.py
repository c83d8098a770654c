"""What a bisection says: the finding, with the rows that it rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from harness.logic.bisection import Boundary, Finding, Probe, conclude
from harness.logic.followed import Followed
from harness.logic.ir_difference import StageStory
from harness.logic.trust import Tally, confidence
from harness.values.kernel import Config
from harness.values.row import Row

__all__ = ["BisectReport", "Evidence"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectReport:
    """What was found of one cell along one axis; `rows` are by version, in the order of `versions`.

    `config` is None where none was ever captured. `tallies` say how often each version was run.
    `stages` is what the compilers at both sides of a Triton boundary made. `trouble` says why it
    ended early.
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

    @property
    def signature(self) -> str | None:
        """The failure that is followed, or that of the row whose numbers are."""
        return self.followed.signature

    def version(self, index: int) -> str:
        """The name of a point of the axis."""
        return self.versions[index]

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
    def ptx_identical(self) -> bool | None:
        """Whether both sides of the boundary had the same program; None where one is not known."""
        boundary = self.boundary
        if boundary is None:
            return None
        sides = [self.rows.get(self.version(i)) for i in (boundary.before, boundary.after)]
        bodies = [side.ptx_body_sha256 if side else None for side in sides]
        return None if None in bodies else bodies[0] == bodies[1]

    @property
    def blame(self) -> str | None:
        """Whose failure it is, as far as this axis alone can say."""
        if self.boundary is None:
            return None
        if self.axis == "ptxas" and self.ptx_identical:
            return "ptxas"
        return "triton" if self.axis == "triton" and self.ptx_identical is False else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
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
        )

    def named(self, values: Mapping[int, T]) -> dict[str, T]:
        """Values by index, by version instead."""
        return {self.versions[index]: value for index, value in sorted(values.items())}
