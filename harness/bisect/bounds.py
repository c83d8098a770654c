"""What the versions of one tool say of a failure: where it began and ended. Pure.

`triage bisect` says it of one cell, `triage bugs` of all cells that ever had the failure: the same
sentences, from the same `Finding`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from harness.bisect.search import Boundary, Finding

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

    def said(self, index: int) -> str:
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
        f"works: {line.versions[older]} ends with: {_plain(line.said(older))}."
    )


def _end(line: VersionHistory, tool: str) -> str:
    finding = line.finding
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
            f"with: {_plain(line.said(newer))}."
        )
    gone = bound_words(line, finding.vanishes)
    return f"Gone from {gone} on, which ends with: {_plain(line.said(newer))}."


def _plain(reason: str) -> str:
    """A reason as the end of a sentence."""
    return reason.rstrip(".")


def _reach(line: VersionHistory, end: int) -> str:
    """Whether the last version in this direction is the last of all, or of those tried."""
    bad = line.finding.oldest_bad if end == 0 else line.finding.newest_bad
    assert bad is not None
    is_outermost = bad == range(len(line.versions))[end]
    return "there is" if is_outermost and line.has_all else "that was tried"


def _between(line: VersionHistory) -> list[str]:
    """What lies inside the boundaries that are named: they are exact only without it."""
    named = [each for each in (line.finding.regression, line.finding.fix) if each]
    if not named:
        return []
    parts = []
    for words, indices in (
        ("Untestable between", {index for each in named for index in each.holes}),
        ("Not tried between", {index for each in named for index in each.unprobed}),
    ):
        if indices or words.startswith("Untestable"):
            parts.append(f"{words}: {listed(line, indices) or 'none'}.")
    return parts
