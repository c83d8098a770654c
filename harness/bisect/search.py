"""Bisection over an ordered axis that has holes and need not be monotone. Pure.

A probe answers one of five words (`Outcome`). Only *same* and *ok* move a bound; the others are
holes: they are stepped around, and a boundary that holds one is answered as a bracket, never as
one version. Where what is left fits the budget everything is probed: only a sweep shows a history
that fails, passes and fails again.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from harness.judging.answers import VerdictAnswer

# How often a thing must be run before one believes what was seen.

DOUBT = 0.01
"""How likely a version that fails now and then may be to pass for one that works."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Of `runs`, how many showed the failure that is looked for."""

    failures: int = 0
    runs: int = 0

    @property
    def rate(self) -> float:
        """The share that failed; 1 where nothing was run: a failure is taken to be steady."""
        return self.failures / self.runs if self.runs else 1.0

    @property
    def is_flaky(self) -> bool:
        """Whether it failed sometimes."""
        return 0 < self.failures < self.runs

    def __add__(self, other: Tally) -> Tally:
        return Tally(failures=self.failures + other.failures, runs=self.runs + other.runs)


def runs_to_trust(bad: Tally, *, doubt: float = DOUBT) -> int:
    """How many runs without a failure show that a version works.

    One that fails as often as `bad` does would pass n runs with the probability (1 - rate)**n;
    n is the least for which that is below `doubt`. 1 for a failure that always comes.
    """
    if bad.rate >= 1:
        return 1
    if bad.rate <= 0:
        raise ValueError("a failure that was never seen has no rate")
    return math.ceil(math.log(doubt) / math.log1p(-bad.rate))


def confidence(bad: Tally, good: Tally) -> float:
    """How sure it is that the good side works, and did not only get away: 1 - (1 - rate)**runs.

    `rate` is how often the bad side fails. 0 where the good side failed too, or a side was not run.
    """
    if not bad.failures or not good.runs or good.failures:
        return 0.0
    return float(1 - (1 - bad.rate) ** good.runs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """The answer of one version; `verdict` and `signature` tell apart what `outcome` does not."""

    outcome: VerdictAnswer
    verdict: str = ""
    signature: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Neighbouring versions that were probed and answered alike: `first` to `last`, inclusive."""

    first: int
    last: int
    probe: Probe


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """Between `before` and `after`, which were probed, the failure came or went.

    `holes` lie between and could not be tested; `unprobed` lie between and were not tried. With
    either, the change happened at one of them or at `after`: it is not known at which. Where it
    went, `turned` lie between and fail in another way: none of them works.
    """

    before: int
    after: int
    holes: tuple[int, ...] = ()
    unprobed: tuple[int, ...] = ()
    turned: tuple[int, ...] = ()

    @property
    def exact(self) -> bool:
        """Whether `after` is the very version that changed it."""
        return not self.holes and not self.unprobed

    @property
    def candidates(self) -> tuple[int, ...]:
        """The versions at which it may have happened."""
        every = range(self.before + 1, self.after + 1)
        return tuple(index for index in every if index not in self.turned)

    @property
    def left(self) -> Boundary | None:
        """Where it went, and another failure came; None where what comes after it works."""
        return self._part(self.before, self.turned[0]) if self.turned else None

    @property
    def works_again(self) -> Boundary:
        """Where the other failures that it turned into end; the same where it did not turn."""
        return self._part(self.turned[-1], self.after) if self.turned else self

    def _part(self, before: int, after: int) -> Boundary:
        inside = range(before + 1, after)
        return Boundary(
            before=before,
            after=after,
            holes=tuple(index for index in self.holes if index in inside),
            unprobed=tuple(index for index in self.unprobed if index in inside),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What the probes say, and nothing that they do not.

    `regression` is the boundary at which the stretch of failures began that holds the newest
    version known to fail among those asked about (`focus`), `fix` the one at which it ended; None
    where none was seen. `regressions` and `fixes` are all of them, oldest first. Where no version
    works beyond the oldest or the newest failure, `appears` and `vanishes` lead to the next one
    that was probed, if there is one: it neither works nor shows the failure. `holes` were probed
    and could not tell; `unprobed` were not tried.
    """

    segments: tuple[Segment, ...]
    regressions: tuple[Boundary, ...]
    fixes: tuple[Boundary, ...]
    regression: Boundary | None
    fix: Boundary | None
    appears: Boundary | None
    vanishes: Boundary | None
    oldest_bad: int | None
    newest_bad: int | None
    holes: tuple[int, ...]
    unprobed: tuple[int, ...]

    @property
    def came_back(self) -> bool:
        """Whether it failed, worked, and failed again."""
        moving = (part.probe.outcome for part in self.segments if part.probe.outcome.moves_a_bound)
        begins_bad = next(moving, VerdictAnswer.OK) is not VerdictAnswer.OK
        return len(self.regressions) + begins_bad > 1 and self.newest_bad is not None


def next_probes(
    size: int,
    answers: Mapping[int, Probe],
    *,
    budget: int,
    focus: int | None = None,
    at_once: int = 1,
) -> list[int]:
    """Which of the versions 0 .. size-1 to probe next; none when everything worth it is answers.

    Args:
        size: how many versions there are, oldest first.
        answers: what is known so far.
        budget: how many probes may still be made.
        focus: the version at which the failure was seen, if one is named.
        at_once: how many may be probed side by side.
    """
    unprobed = [index for index in range(size) if index not in answers]
    budget = min(budget, len(unprobed))
    if budget <= 0:
        return []
    if len(unprobed) <= budget:
        return unprobed[:at_once]
    chosen: list[int] = []
    imagined = dict(answers)
    while len(chosen) < min(at_once, budget):
        index = _most_useful(size, imagined, focus)
        if index is None:
            break
        chosen.append(index)
        # A pending probe is a place not to choose again, and promises nothing.
        imagined[index] = Probe(outcome=VerdictAnswer.INFRA)
    return chosen


def _most_useful(size: int, answers: Mapping[int, Probe], focus: int | None) -> int | None:
    """The version that is named, the ends, an open boundary, then the widest blank."""
    if focus is not None and focus not in answers:
        return focus
    for order in (range(size - 1, -1, -1), range(size)):
        outermost = _outermost(order, answers)
        if outermost is not None:
            return outermost
    boundaries = [b for b in _boundaries(size, answers) if b.unprobed]
    if boundaries:
        # The newest first: it is what today's user meets.
        # Of it the middle; where a hole is known inside, what is farthest from holes and sides.
        boundary = boundaries[-1]
        middle = (boundary.before + boundary.after) / 2
        marks = (*boundary.holes, boundary.before, boundary.after) if boundary.holes else ()
        return min(
            boundary.unprobed,
            key=lambda index: (
                -min((abs(index - mark) for mark in marks), default=0),
                abs(index - middle),
                index,
            ),
        )
    blanks = list(_blanks(size, answers))
    if not blanks:
        return None
    widest = max(blanks, key=len)
    return widest[len(widest) // 2]


def _outermost(order: Sequence[int], answers: Mapping[int, Probe]) -> int | None:
    """The end in this direction, or the nearest to it that can be tested.

    Past a hole the step doubles, so that a long row of untestable versions costs little.
    """
    position, step = 0, 1
    while position < len(order):
        index = order[position]
        if index not in answers:
            return index
        if answers[index].outcome.moves_a_bound:
            return None
        position += step
        step *= 2
    return None


def _blanks(size: int, answers: Mapping[int, Probe]) -> Iterator[list[int]]:
    for is_known, blank in itertools.groupby(range(size), key=answers.__contains__):
        if not is_known:
            yield list(blank)


def _boundaries(size: int, answers: Mapping[int, Probe]) -> list[Boundary]:
    bounds = [
        index for index in range(size) if index in answers and answers[index].outcome.moves_a_bound
    ]
    return [
        _boundary(answers, before, after)
        for before, after in itertools.pairwise(bounds)
        if answers[before].outcome is not answers[after].outcome
    ]


def _boundary(answers: Mapping[int, Probe], before: int, after: int) -> Boundary:
    between = range(before + 1, after)
    probed = [index for index in between if index in answers]
    # One that fails otherwise may hide this failure; that it does not work is certain.
    is_fix = answers[after].outcome is VerdictAnswer.OK
    turned = [i for i in probed if is_fix and answers[i].outcome is VerdictAnswer.OTHER]
    return Boundary(
        before=before,
        after=after,
        holes=tuple(index for index in probed if index not in turned),
        unprobed=tuple(index for index in between if index not in answers),
        turned=tuple(turned),
    )


def conclude(size: int, answers: Mapping[int, Probe], *, focus: int | None = None) -> Finding:
    """What the answers so far say of the versions 0 .. size-1; `focus` as in `next_probes`."""
    boundaries = _boundaries(size, answers)
    regressions = tuple(b for b in boundaries if answers[b.after].outcome is VerdictAnswer.SAME)
    fixes = tuple(b for b in boundaries if answers[b.after].outcome is VerdictAnswer.OK)
    bad = [index for index in sorted(answers) if answers[index].outcome is VerdictAnswer.SAME]
    failure = focus if focus in bad else (bad[-1] if bad else None)
    regression = next(
        reversed([b for b in regressions if failure is not None and b.after <= failure]), None
    )
    fix = next((b for b in fixes if failure is not None and b.before >= failure), None)
    probed = sorted(answers)
    return Finding(
        segments=tuple(_segments(size, answers)),
        regressions=regressions,
        fixes=fixes,
        regression=regression,
        fix=fix,
        appears=None if regression or not bad else _edge(answers, probed[::-1], bad[0]),
        vanishes=None if fix or not bad else _edge(answers, probed, bad[-1]),
        oldest_bad=bad[0] if bad else None,
        newest_bad=bad[-1] if bad else None,
        holes=tuple(i for i in sorted(answers) if not answers[i].outcome.moves_a_bound),
        unprobed=tuple(index for index in range(size) if index not in answers),
    )


def _edge(answers: Mapping[int, Probe], order: Sequence[int], bad: int) -> Boundary | None:
    """From the outermost failure to the next one that was probed, in this order of versions."""
    beyond = order[order.index(bad) + 1 :]
    if not beyond:
        return None
    before, after = sorted((bad, beyond[0]))
    unprobed = tuple(index for index in range(before + 1, after) if index not in answers)
    return Boundary(before=before, after=after, unprobed=unprobed)


def _segments(size: int, answers: Mapping[int, Probe]) -> Iterator[Segment]:
    for probe, alike in itertools.groupby(range(size), key=answers.get):
        indices = list(alike)
        if probe is not None:
            yield Segment(first=indices[0], last=indices[-1], probe=probe)


# What the versions of one tool say of a failure: where it began and ended.
#
# `triage bisect` says it of one cell, `triage bugs` of all cells that ever had the failure: the
# same sentences, from the same `Finding`.

_MOST_LISTED = 12


class VersionHistory(Protocol):
    """The versions of one tool that exist, oldest first, and what those that were tried say."""

    @property
    def versions(self) -> tuple[str, ...]:
        """All that exist, oldest first."""

    @property
    def finding(self) -> Finding:
        """What the answers say, by index in `versions`."""

    @property
    def has_all(self) -> bool:
        """Whether `versions` are all that there are, or may be those of some results only."""

    def reason_of(self, index: int) -> str:
        """The reason of a version's answer, in words."""

    def is_clean_end(self, index: int) -> bool:
        """Whether a version comes to an end of its own, with a reason: no limit cut it."""


def bounds_said(line: VersionHistory, tool: str) -> list[str]:
    """Where the failure began, where it ended, and what lies between; it was seen at least once."""
    return [_begin(line, tool), _end(line, tool), *_between(line)]


def bound_words(line: VersionHistory, boundary: Boundary) -> str:
    """The version, or all that it may be."""
    if boundary.exact:
        return line.versions[boundary.after]
    return f"any of {listed(line, boundary.candidates)}"


def listed(line: VersionHistory, indices: Collection[int]) -> str:
    """The versions by name, oldest first; of very many, the outermost and their number."""
    names = [line.versions[index] for index in sorted(indices)]
    if len(names) > _MOST_LISTED:
        return f"{names[0]}, ..., {names[-1]} ({len(names)} versions)"
    return ", ".join(names)


def _begin(line: VersionHistory, tool: str) -> str:
    finding = line.finding
    if finding.regression is not None:
        good = line.versions[finding.regression.before]
        return f"First bad: {tool} {bound_words(line, finding.regression)}. Last good: {good}."
    assert finding.oldest_bad is not None
    oldest = line.versions[finding.oldest_bad]
    if finding.appears is None:
        return f"Present in the oldest {tool} {_reach(line, 0)}, {oldest}."
    older = finding.appears.before
    if not line.is_clean_end(older):
        return f"Present in the oldest testable {tool}, {oldest}."
    return (
        f"First seen: {tool} {bound_words(line, finding.appears)}. No older one that was tried "
        f"works: {line.versions[older]} ends with: {_plain(line.reason_of(older))}."
    )


def _end(line: VersionHistory, tool: str) -> str:
    finding = line.finding
    if finding.fix is not None and (left := finding.fix.left):
        reason = _plain(line.reason_of(left.after))
        return (
            f"Gone from {bound_words(line, left)} on, which ends with: {reason}; works again from "
            f"{bound_words(line, finding.fix.works_again)} on."
        )
    if finding.fix is not None:
        return f"First fixed: {bound_words(line, finding.fix)}."
    assert finding.newest_bad is not None
    newest = line.versions[finding.newest_bad]
    if finding.vanishes is None:
        return f"Still present in the newest {tool} {_reach(line, -1)}, {newest}."
    newer = finding.vanishes.after
    if not line.is_clean_end(newer):
        return (
            f"Still present in {newest}, the newest testable {tool}; {line.versions[newer]} ends "
            f"with: {_plain(line.reason_of(newer))}."
        )
    first = bound_words(line, finding.vanishes)
    return f"Gone from {first} on, which ends with: {_plain(line.reason_of(newer))}."


def _plain(reason: str) -> str:
    return reason.rstrip(".")


def _reach(line: VersionHistory, place: int) -> str:
    bad = line.finding.oldest_bad if place == 0 else line.finding.newest_bad
    assert bad is not None
    is_outermost = bad == range(len(line.versions))[place]
    return "there is" if is_outermost and line.has_all else "that was tried"


def _between(line: VersionHistory) -> list[str]:
    bounds = [bound for bound in (line.finding.regression, line.finding.fix) if bound]
    if not bounds:
        return []
    parts = []
    for words, indices in (
        ("Untestable between", {index for bound in bounds for index in bound.holes}),
        ("Not tried between", {index for bound in bounds for index in bound.unprobed}),
    ):
        if indices or words.startswith("Untestable"):
            parts.append(f"{words}: {listed(line, indices) or 'none'}.")
    return parts
