"""What makes a candidate interesting: fails here the same way, is accepted where it was accepted.

A failure's words alone let a reducer drift to another bug that says the same. What holds it is the
pattern over versions: those next to the failing one that accept must accept every candidate too.
Which versions must is chosen here; running them is `harness.verbs.minimizing`'s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from packaging.version import Version

from harness.logic.properties import Condition, fields_of, holds
from harness.values.kernel import Scalar
from harness.values.outcome import ProcessEnd
from harness.values.verdict import Signature, Stage, VerdictKind

__all__ = [
    "Answer",
    "Cost",
    "Fingerprint",
    "Reaction",
    "accepting_neighbours",
    "drifted",
    "in_order",
    "lower_versions",
]


class Answer(str, Enum):
    """A reaction, as the fingerprint sees it."""

    SAME = "same"
    ACCEPTS = "accepts"
    OTHER = "other"
    UNTOLD = "untold"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaction:
    """What one ptxas did with one PTX.

    `is_accepted`: it made a cubin. `said` is the one line that says what failed. `fields` are named
    as in a row; what is not known of them is None.
    """

    verdict: VerdictKind
    reason: str
    is_accepted: bool
    end: ProcessEnd
    stage: Stage | None = None
    code: str | None = None
    signature: Signature | None = None
    fields: Mapping[str, Scalar | None] = field(default_factory=dict)

    @property
    def key(self) -> str | None:
        """The signature's key, None where nothing failed."""
        return self.signature.key if self.signature else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """What every candidate has to show.

    `bad` is the version that must fail with `signature`, or whose numbers meet `condition`;
    `failing` are more versions that must fail that way, `accepting` those that must accept. With a
    `script` that command alone decides.
    """

    bad: str
    signature: str | None = None
    condition: Condition | None = None
    script: str | None = None
    failing: tuple[str, ...] = ()
    accepting: tuple[str, ...] = ()

    @property
    def checks(self) -> tuple[str, ...]:
        """Every version that is asked about a candidate."""
        return () if self.script else (self.bad, *self.failing, *self.accepting)

    def shows(self, reaction: Reaction) -> bool:
        """Whether the version that is asked about did what it has to."""
        if self.condition is not None:
            return holds(self.condition, reaction.fields)
        return self.signature is not None and reaction.key == self.signature

    def passes(self, version: str, reaction: Reaction) -> bool:
        """Whether that version did what it has to."""
        return reaction.is_accepted if version in self.accepting else self.shows(reaction)

    def told(self, reaction: Reaction) -> str:
        """What a reader wants to hear of a reaction: the reason, or the numbers that are asked."""
        if self.condition is None or reaction.verdict.tells_nothing:
            return reaction.reason
        known = {name: reaction.fields.get(name) for name in fields_of(self.condition)}
        return ", ".join(f"{name} {value}" for name, value in known.items() if value is not None)

    def answer(self, reaction: Reaction) -> Answer:
        """What a reaction is, beside the failure that is looked for."""
        if reaction.verdict.tells_nothing:
            return Answer.UNTOLD
        if self.shows(reaction):
            return Answer.SAME
        return Answer.ACCEPTS if reaction.is_accepted else Answer.OTHER


def accepting_neighbours(answers: Mapping[str, Answer], bad: str) -> tuple[str | None, str | None]:
    """The versions nearest to `bad`, below and above, that accept."""
    here = Version(bad)
    found = sorted((Version(v), v) for v, answer in answers.items() if answer is Answer.ACCEPTS)
    below = [name for version, name in found if version < here]
    above = [name for version, name in found if version > here]
    return (below[-1] if below else None, above[0] if above else None)


def drifted(original: Mapping[str, Answer], now: Mapping[str, Answer]) -> tuple[str, ...]:
    """The versions that failed this way, or accepted, and no longer do; in their order.

    A version that the original could not be told on, or that failed otherwise, asks for nothing.
    """
    telling = (Answer.SAME, Answer.ACCEPTS)
    return tuple(
        version
        for version in sorted(original, key=Version)
        if original[version] in telling and now.get(version) is not original[version]
    )


@dataclass(slots=True, kw_only=True)
class Cost:
    """How often a check was made, how often it refused, and how long it took."""

    runs: int = 0
    refusals: int = 0
    seconds: float = 0.0

    def add(self, *, refused: bool, seconds: float) -> None:
        """One more run."""
        self.runs += 1
        self.refusals += refused
        self.seconds += seconds

    @property
    def price(self) -> float:
        """Seconds for one refusal, as far as is known; a check that was never made looks fair."""
        mean = (self.seconds + 0.02) / (self.runs + 1)
        return mean * (self.runs + 2) / (self.refusals + 1)


def in_order(checks: Sequence[str], costs: Mapping[str, Cost]) -> list[str]:
    """The checks, the one that refuses at the least price first.

    All of them must pass, so that the order changes nothing but the time.
    """
    return sorted(checks, key=lambda check: costs[check].price)


def lower_versions(version: str) -> list[str]:
    """The `.version`s below this one, highest first; some of them may never have been."""
    major, minor = map(int, version.split("."))
    below = [(major, each) for each in reversed(range(minor))]
    below += [(older, each) for older in reversed(range(major)) for each in reversed(range(10))]
    return [f"{one}.{two}" for one, two in below]
