"""What a bisection says: the finding, with the rows that it rests on."""

from __future__ import annotations

from dataclasses import dataclass

from harness.logic.bisection import Finding
from harness.values.kernel import Config
from harness.values.row import Row

__all__ = ["BisectReport", "Repeats"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeats:
    """How often the bad side failed alike, and the good side did, of `runs` each."""

    bad: int
    good: int
    runs: int

    @property
    def confidence(self) -> float:
        """How far apart the two sides are: 1 where one always fails and the other never."""
        return (self.bad - self.good) / self.runs


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectReport:
    """What was found of one cell along one axis; `rows` are by version, in the order of `versions`.

    `trouble` says why it ended early.
    """

    axis: str
    versions: tuple[str, ...]
    rows: dict[str, Row]
    reasons: dict[str, str]
    finding: Finding
    signature: str | None
    config: Config
    others: tuple[str, ...]
    repeats: Repeats | None
    trouble: str | None

    def version(self, index: int) -> str:
        """The name of a point of the axis."""
        return self.versions[index]

    @property
    def ptx_identical(self) -> bool | None:
        """Whether both sides of the boundary had the same program; None where one is not known."""
        boundary = self.finding.regression or self.finding.fix
        if boundary is None:
            return None
        sides = [self.rows.get(self.version(i)) for i in (boundary.before, boundary.after)]
        bodies = [side.ptx_body_sha256 if side else None for side in sides]
        return None if None in bodies else bodies[0] == bodies[1]
