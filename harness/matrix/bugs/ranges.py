"""In which versions of a tool a bug is: what `triage bisect` would say of them, for all its cells.

A *line* is what differs in the version of one tool only. A version has the bug where a line has it
there; it is without it where one works there that has it elsewhere, and none has it. Where other
lines have it both before and after, and were not tried there, it is not known. Pure.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

from harness.bisect.search import Boundary, Finding, Probe, bounds_said, conclude, listed
from harness.io.packages.versions import version_order
from harness.judging.answers import LIMITS_OF_OURS, VerdictAnswer, answer_of
from harness.values.bug import AffectedRange, Seen, VersionMark
from harness.values.verdict import VerdictKind

Line: TypeAlias = tuple[str, ...]

_ANSWERS = {
    Seen.HERE: VerdictAnswer.SAME,
    Seen.FLAKY: VerdictAnswer.SAME,
    Seen.CLEAN: VerdictAnswer.OK,
    Seen.OTHER: VerdictAnswer.OTHER,
    Seen.UNTOLD: VerdictAnswer.UNTESTABLE,
}
_SEEN = {
    VerdictAnswer.OK: Seen.CLEAN,
    VerdictAnswer.OTHER: Seen.OTHER,
    VerdictAnswer.UNTESTABLE: Seen.UNTOLD,
    VerdictAnswer.INFRA: Seen.UNTOLD,
}
_ORDER = (Seen.HERE, Seen.FLAKY, Seen.CLEAN, Seen.OTHER, Seen.UNTOLD)
_NOT_EVERYWHERE = "works in some cells, and others that have it before and after were not tried"


@cache
def seen_of(verdict: str, stage: str | None, followed: str) -> Seen:
    """What a result that does not have the bug says of it; `followed` is the bug's verdict."""
    answer = answer_of(
        VerdictKind(verdict),
        stage=stage,
        signature=None,
        followed=None,
        followed_kind=VerdictKind(followed),
    )
    return _SEEN[answer]


@dataclass(frozen=True, slots=True, kw_only=True)
class LineResult:
    """One result on a line: the version, what it says of the bug, its verdict and reason."""

    line: Line
    version: str
    seen: Seen
    verdict: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bounds:
    versions: tuple[str, ...]
    finding: Finding
    has_all: bool
    shown: Mapping[str, LineResult]

    def said(self, index: int) -> str:
        return self.shown[self.versions[index]].reason

    def is_clean_end(self, index: int) -> bool:
        kind = VerdictKind(self.shown[self.versions[index]].verdict)
        return kind not in LIMITS_OF_OURS and kind not in (VerdictKind.INFRA, VerdictKind.NOT_RUN)


def affected_range(
    tool: str, results: Iterable[LineResult], known: Collection[str]
) -> AffectedRange | None:
    """What the results on the lines that ever had a bug say, oldest first; None where none had it.

    `tool` is its name for people, `known` are the versions that exist, tried or not; none where
    that is not known.
    """
    last: dict[Line, dict[str, LineResult]] = defaultdict(dict)
    ever: set[str] = set()
    for result in results:
        here = result.seen in (Seen.HERE, Seen.FLAKY)
        ever |= {result.version} if here else set()
        # The last result that tells anything counts.
        if result.seen is not Seen.UNTOLD or result.version not in last[result.line]:
            last[result.line][result.version] = result
    if not ever:
        return None
    tried = {version for line in last.values() for version in line}
    versions = tuple(sorted({*tried, *known}, key=version_order))
    shown = {version: _shown(version, list(last.values())) for version in tried}
    probes = {
        index: Probe(outcome=_ANSWERS[shown[version].seen])
        for index, version in enumerate(versions)
        if version in shown
    }
    finding = conclude(len(versions), probes)
    bounds = _Bounds(versions=versions, finding=finding, has_all=bool(known), shown=shown)
    marks = tuple(
        VersionMark(
            version=version,
            seen=shown[version].seen,
            counts=Counter(line[version].seen for line in last.values() if version in line),
        )
        for version in versions
        if version in shown
    )
    return _range(tool, bounds, marks, sorted(ever, key=version_order), list(last.values()))


def _shown(version: str, lines: Sequence[Mapping[str, LineResult]]) -> LineResult:
    there = [line[version] for line in lines if version in line]
    best = min(there, key=lambda each: _ORDER.index(each.seen))
    if best.seen is not Seen.CLEAN or any(
        line[version].seen is Seen.CLEAN and _surrounds(line, version)
        for line in lines
        if version in line
    ):
        return best
    if any(version not in line and _surrounds(line, version) for line in lines):
        return LineResult(
            line=best.line,
            version=version,
            seen=Seen.UNTOLD,
            verdict=best.verdict,
            reason=_NOT_EVERYWHERE,
        )
    return best


def _surrounds(line: Mapping[str, LineResult], version: str) -> bool:
    at = version_order(version)
    bad = [version_order(v) for v, each in line.items() if each.seen in (Seen.HERE, Seen.FLAKY)]
    return bool(bad) and min(bad) < at < max(bad)


def _range(
    tool: str,
    bounds: _Bounds,
    marks: tuple[VersionMark, ...],
    ever: Sequence[str],
    lines: Sequence[Mapping[str, LineResult]],
) -> AffectedRange:
    finding, versions = bounds.finding, bounds.versions
    if finding.newest_bad is None or finding.oldest_bad is None:
        seen = ever[0] if len(ever) == 1 else f"{ever[0]} to {ever[-1]}"
        return AffectedRange(
            tool=tool,
            last_good=None,
            first_bad=ever[0],
            last_bad=ever[-1],
            first_fixed=None,
            words=f"Seen with {tool} {seen}; by its last result, no cell has it any more.",
            short=f"{tool} {seen}, no longer",
            marks=marks,
        )
    begun, fixed = finding.regression, finding.fix
    first, last = _ends(bounds)
    between = [each for each in (begun, fixed) if each]
    low, high = finding.oldest_bad, finding.newest_bad
    clean = [
        index
        for index in range(low + 1, high)
        if versions[index] in bounds.shown and bounds.shown[versions[index]].seen is Seen.CLEAN
    ]
    return AffectedRange(
        tool=tool,
        last_good=versions[begun.before] if begun else None,
        first_bad=first,
        last_bad=last,
        first_fixed=versions[fixed.after] if fixed else None,
        first_bad_candidates=_candidates(bounds, begun),
        first_fixed_candidates=_candidates(bounds, fixed),
        clean_between=tuple(versions[index] for index in clean),
        untestable=tuple(versions[i] for i in sorted({i for b in between for i in b.holes})),
        not_tried=tuple(versions[i] for i in sorted({i for b in between for i in b.unprobed})),
        words=" ".join(_words(tool, bounds, lines, listed(bounds, clean))),
        short=_short(tool, bounds),
        marks=marks,
    )


def _candidates(bounds: _Bounds, boundary: Boundary | None) -> tuple[str, ...]:
    return tuple(bounds.versions[i] for i in boundary.candidates) if boundary else ()


def _words(
    tool: str, bounds: _Bounds, lines: Sequence[Mapping[str, LineResult]], between: str
) -> list[str]:
    finding, versions = bounds.finding, bounds.versions
    parts = bounds_said(bounds, tool)
    if finding.came_back:
        parts.append(f"It failed, worked, and failed again: without it between: {between}.")
    if finding.fix:
        since = version_order(versions[finding.fix.after])
        there = sum(any(version_order(v) >= since for v in line) for line in lines)
        if there < len(lines):
            parts.append(f"{there} of {len(lines)} cells that had it were tried from there on.")
    if finding.unprobed:
        count = len(finding.unprobed)
        parts.append(f"{count} version{'s were' if count > 1 else ' was'} not tried.")
    return parts


def _ends(bounds: _Bounds) -> tuple[str, str]:
    """The first and the last version of the newest stretch of failures."""
    finding, versions = bounds.finding, bounds.versions
    assert finding.oldest_bad is not None
    assert finding.newest_bad is not None
    begun, fixed = finding.regression, finding.fix
    first = versions[begun.after if begun else finding.oldest_bad]
    return first, versions[fixed.before if fixed else finding.newest_bad]


def _short(tool: str, bounds: _Bounds) -> str:
    finding, versions = bounds.finding, bounds.versions
    begun, fixed = finding.regression, finding.fix
    first, last = _ends(bounds)
    if begun is None and fixed is None and first == last:
        return f"{tool} {first}"
    since = f"since {first}" if begun and begun.exact else f"from {first}"
    if fixed:
        end = f" until {last}" if fixed.exact else f" to {last}, not in {versions[fixed.after]}"
    elif finding.newest_bad == len(versions) - 1 and bounds.has_all:
        end = ", in the newest" if first == last else f" to the newest, {last}"
    else:
        end = "" if first == last else f", last seen in {last}"
    return f"{tool} {since}{end}"
