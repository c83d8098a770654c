"""Whether two bugs that say the same have the same history. Pure.

A history maps where a bug was looked for (a version of the tool at fault, for one target and set of
flags) to whether it was there. Two histories are compared where both have an answer. Agreement is
evidence only where the bug came or went; it is not proof, since another bug may have the same
bounds. A disagreement may have its cause in the programs too: people decide.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from harness.io.packages.versions import version_order
from harness.values.bug import Likeness

_SHOWN = 3
_ALIKE = 0.75


class HistoryPlace(NamedTuple):
    """Where a bug was looked for."""

    tool: str
    version: str
    flags: str
    target: str

    @property
    def words(self) -> str:
        """As a user would name it."""
        flags = f" {self.flags}" if self.flags else ""
        return f"{self.tool} {self.version}{flags} for {self.target}"


def compare_histories(
    one: tuple[int, Mapping[HistoryPlace, bool]], other: tuple[int, Mapping[HistoryPlace, bool]]
) -> Likeness:
    """Compare two bugs (number, and whether each place has it); said of the second one."""
    (number, mine), (others_number, theirs) = one, other
    shared = sorted(mine.keys() & theirs.keys(), key=_order)
    differ = [place for place in shared if mine[place] is not theirs[place]]
    if differ:
        places = ", ".join(
            f"{place.words} (bug {number} {_word(mine[place])}, "
            f"bug {others_number} {_word(theirs[place])})"
            for place in differ[:_SHOWN]
        )
        more = f" and {len(differ) - _SHOWN} more" if len(differ) > _SHOWN else ""
        words = f"are different: histories differ in {places}{more}"
        return Likeness(number=others_number, agrees=False, words=words)
    failing = [place for place in shared if mine[place]]
    working = [place for place in shared if not mine[place]]
    if failing and working:
        words = (
            f"may be the same: histories agree (both fail with {_listed(failing)}; "
            f"both work with {_listed(working)})"
        )
        return Likeness(number=others_number, agrees=True, words=words)
    seen = f"both fail with {_listed(failing)}" if failing else "no version was tried with both"
    words = f"cannot be distinguished yet: {seen}; run `triage bisect` on each"
    return Likeness(number=others_number, agrees=None, words=words)


def _word(fails: bool) -> str:  # noqa: FBT001 - it is the answer itself
    return "fails" if fails else "works"


def _listed(places: Sequence[HistoryPlace]) -> str:
    words = [place.words for place in places]
    if len(words) <= _SHOWN:
        return ", ".join(words)
    return f"{words[0]}, ..., {words[-1]} ({len(words)} places)"


def _order(place: HistoryPlace) -> tuple[object, ...]:
    return place.tool, place.target, place.flags, version_order(place.version)


def related(bugs: Mapping[int, tuple[tuple[str | None, ...], str]]) -> dict[int, tuple[int, ...]]:
    """For each bug those that look alike: number -> (what must be equal, template).

    For people to look at: only equal signatures are merged.
    """
    groups: dict[tuple[str | None, ...], list[int]] = defaultdict(list)
    for number, (kind, _) in bugs.items():
        groups[kind].append(number)
    found: dict[int, list[int]] = {number: [] for number in bugs}
    for members in groups.values():
        for index, one in enumerate(members):
            # Its second text is what a matcher prepares for.
            matcher = SequenceMatcher(b=bugs[one][1], autojunk=False)
            for other in members[index + 1 :]:
                matcher.set_seq1(bugs[other][1])
                if matcher.quick_ratio() >= _ALIKE and matcher.ratio() >= _ALIKE:
                    found[one].append(other)
                    found[other].append(one)
    return {number: tuple(sorted(others)) for number, others in found.items()}
