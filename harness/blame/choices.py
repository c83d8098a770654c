"""Which versions a blame is worth trying with, so that the grid stays affordable. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

from packaging.version import Version

from harness.judging.answers import VerdictAnswer


def worth_trying(versions: Sequence[str], case: str, limit: int) -> list[str]:
    """At most `limit` versions: the case's own first, the newest, then the nearest to the case."""
    ordered = sorted({*versions, case}, key=Version)
    place = ordered.index(case)
    near = sorted(ordered, key=lambda version: abs(ordered.index(version) - place))
    return list(dict.fromkeys([case, ordered[-1], *near]))[:limit]


def order_for_the_first(
    *, case: str, bundled: Iterable[str], minors: Sequence[str], installed: Iterable[str]
) -> list[str]:
    """The ptxas for the line that the question begins with, the most telling first."""
    wanted = [case, *sorted(set(bundled), key=Version, reverse=True)]
    wanted += sorted(minors, key=Version, reverse=True)
    return list(dict.fromkeys([*wanted, *sorted(set(installed), key=Version, reverse=True)]))


def order_for_others(
    case: str, first: Mapping[str, VerdictAnswer], columns: Sequence[str]
) -> list[str]:
    """The ptxas for the other lines: what the first line did on each says what is worth asking.

    The case's own, then both sides of every change, then those that fail, then the rest; within
    each the newest first. What could not read the first line's PTX is asked last.
    """
    answered = [
        version for version in columns if first.get(version, VerdictAnswer.OTHER).moves_a_bound
    ]
    edges: set[str] = set()
    for older, newer in itertools.pairwise(answered):
        if first[older] is not first[newer]:
            edges |= {older, newer}
    failing = [version for version in answered if first[version] is VerdictAnswer.SAME]
    ranks: tuple[Sequence[str], ...] = (
        [case] if case in columns else [],
        sorted(edges, key=Version, reverse=True),
        failing[::-1],
        answered[::-1],
        columns[::-1],
    )
    return list(dict.fromkeys(version for rank in ranks for version in rank))
