"""What makes a candidate interesting: it fails here the same way, and other versions do as before.

A failure's words alone let a reducer drift to another bug that says the same, or to input that no
version takes. What holds it is the pattern over versions, of ptxas or of Triton: those next to the
failing one that accept the original must accept every candidate too. Which versions must is chosen
here; running them is `harness.minimize.reduction.interest`'s.

Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from packaging.version import Version

from harness.judging.answers import COULD_NOT_TELL
from harness.judging.conditions import Condition, fields_of, holds
from harness.values.kernel import Scalar
from harness.values.outcome import ProcessEnd
from harness.values.verdict import Signature, Stage, VerdictKind


class Answer(StrEnum):
    """A reaction, as the fingerprint sees it."""

    SAME = "same"
    ACCEPTS = "accepts"
    OTHER = "other"
    UNTOLD = "untold"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaction:
    """What one version of a compiler did with one text.

    `printed` is all that a user sees of it, as far as it is known. `is_accepted`: it compiled it.
    `is_refusal`: that the version does not support it counts as a refusal like any other. `fields`
    are named as in a row; what is not known of them is None. `errors` are the templates of all the
    errors that ptxas printed, where it was run.
    """

    verdict: VerdictKind
    reason: str
    is_accepted: bool
    is_refusal: bool = False
    end: ProcessEnd
    printed: str = ""
    stage: Stage | None = None
    code: str | None = None
    signature: Signature | None = None
    fields: Mapping[str, Scalar | None] = field(default_factory=dict)
    errors: frozenset[str] = frozenset()

    @property
    def key(self) -> str | None:
        """The signature's key, None where nothing failed."""
        return self.signature.key if self.signature else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """What every candidate has to show.

    `bad` is the version that must fail with `signature`, or whose numbers meet `condition`;
    `failing` are more versions that must fail that way, `accepting` those that must accept,
    `refusing` those that must refuse in another way. With a `script` that command alone decides.
    `errors` are all kinds of error that the original shows where it fails this way: with one more,
    a candidate is another program that is wrong. None: they do not matter. `held_for` is another
    target for which `bad` must accept it, where no version accepts the original.
    """

    bad: str
    signature: str | None = None
    condition: Condition | None = None
    script: str | None = None
    failing: tuple[str, ...] = ()
    accepting: tuple[str, ...] = ()
    refusing: tuple[str, ...] = ()
    errors: frozenset[str] | None = None
    held_for: str | None = None

    @property
    def checks(self) -> tuple[str, ...]:
        """Every version that is asked about a candidate."""
        if self.script:
            return ()
        return (self.bad, *self.failing, *self.accepting, *self.refusing)

    def required(self, version: str) -> Answer:
        """What that version has to answer."""
        if version in self.accepting:
            return Answer.ACCEPTS
        return Answer.OTHER if version in self.refusing else Answer.SAME

    def with_guards(self, answers: Mapping[str, Answer], versions: Iterable[str]) -> Fingerprint:
        """These versions have to answer as `answers` says, too."""
        new = [version for version in versions if version not in self.checks]
        return replace(
            self,
            failing=(*self.failing, *(v for v in new if answers[v] is Answer.SAME)),
            accepting=(*self.accepting, *(v for v in new if answers[v] is Answer.ACCEPTS)),
            refusing=(*self.refusing, *(v for v in new if answers[v] is Answer.OTHER)),
        )

    def with_errors_of(self, reactions: Iterable[Reaction]) -> Fingerprint:
        """No kind of error may be added to those that the original shows where it fails so."""
        if self.signature is None:
            return self
        shown = (reaction.errors for reaction in reactions if self.shows(reaction))
        return replace(self, errors=frozenset[str]().union(*shown))

    def shows(self, reaction: Reaction) -> bool:
        """Whether the version that is asked about did what it has to."""
        if self.condition is not None:
            return holds(self.condition, reaction.fields)
        is_same = self.signature is not None and reaction.key == self.signature
        return is_same and (self.errors is None or reaction.errors <= self.errors)

    def passes(self, version: str, reaction: Reaction) -> bool:
        """Whether that version did what it has to."""
        return self.answer(reaction) is self.required(version)

    def described(self, reaction: Reaction) -> str:
        """What a reader wants to hear of a reaction: the reason, or the numbers that are asked."""
        if self.condition is None or reaction.verdict in COULD_NOT_TELL:
            return reaction.reason
        values = {name: reaction.fields.get(name) for name in fields_of(self.condition)}
        return ", ".join(f"{name} {value}" for name, value in values.items() if value is not None)

    def answer(self, reaction: Reaction) -> Answer:
        """What a reaction is, beside the failure that is looked for."""
        if reaction.verdict is VerdictKind.INFRA:
            return Answer.UNTOLD
        if self.shows(reaction):
            return Answer.SAME
        if reaction.verdict in COULD_NOT_TELL and not reaction.is_refusal:
            return Answer.UNTOLD
        return Answer.ACCEPTS if reaction.is_accepted else Answer.OTHER


def accepting_neighbours(
    answers: Mapping[str, Answer],
    bad: str,
    *,
    kinds: Collection[Answer] = frozenset({Answer.ACCEPTS}),
) -> tuple[str | None, str | None]:
    """The versions nearest to `bad`, below and above, that accept (or answer one of `kinds`)."""
    here = Version(bad)
    ordered = sorted((Version(v), v) for v, answer in answers.items() if answer in kinds)
    below = [name for version, name in ordered if version < here]
    above = [name for version, name in ordered if version > here]
    return (below[-1] if below else None, above[0] if above else None)


def guards_of(
    answers: Mapping[str, Answer], bad: str, *, keeps_refusals: bool = False
) -> tuple[str, ...]:
    """The versions that are asked about every candidate, besides `bad`.

    The nearest on both sides that accept the original; with `keeps_refusals` also the nearest that
    refuse it in another way, where they are nearer.
    """
    neighbours = list(accepting_neighbours(answers, bad))
    if keeps_refusals:
        kinds = (Answer.ACCEPTS, Answer.OTHER)
        neighbours += accepting_neighbours(answers, bad, kinds=kinds)
    return tuple(dict.fromkeys(version for version in neighbours if version))


def drifted(
    original: Mapping[str, Answer], now: Mapping[str, Answer], *, keeps_refusals: bool = False
) -> tuple[str, ...]:
    """The versions that failed this way, or accepted, and no longer do; in their order.

    A version that could not tell about the original asks for nothing; nor does one that failed
    otherwise, except with `keeps_refusals`.
    """
    telling = (Answer.SAME, Answer.ACCEPTS, *((Answer.OTHER,) if keeps_refusals else ()))
    return tuple(
        version
        for version in sorted(original, key=Version)
        if original[version] in telling and now.get(version) is not original[version]
    )


@dataclass(slots=True, kw_only=True)
class CheckCost:
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


def lower_versions(version: str) -> list[str]:
    """The `.version`s below this one, highest first; some of them may never have been."""
    major, minor = map(int, version.split("."))
    below = [(major, number) for number in reversed(range(minor))]
    below += [(older, number) for older in reversed(range(major)) for number in reversed(range(10))]
    return [f"{high}.{low}" for high, low in below]
