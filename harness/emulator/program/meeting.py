"""Where threads that part at a branch meet again for certain: immediate post-dominators.

Source: K. Cooper, T. Harvey, K. Kennedy, "A simple, fast dominance algorithm" (2001), on the graph
turned round.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["meeting_points"]


def meeting_points(successors: Sequence[Sequence[int]]) -> list[int | None]:
    """For each block the first one that all ways from it lead through; None: only the end."""
    end = len(successors)
    onwards = [list(each) or [end] for each in successors]
    before: list[list[int]] = [[] for _ in range(end + 1)]
    for block, following in enumerate(onwards):
        for each in following:
            before[each].append(block)
    order = _finished(before, end)
    rank = {block: number for number, block in enumerate(order)}
    found: dict[int, int] = {end: end}
    changed = True
    while changed:
        changed = False
        for block in reversed(order[:-1]):
            known = [each for each in onwards[block] if each in found]
            new = known[0]
            for each in known[1:]:
                new = _common(found, rank, new, each)
            if found.get(block) != new:
                found[block] = new
                changed = True
    points = [found.get(block, end) for block in range(end)]
    return [None if point == end else point for point in points]


def _finished(before: Sequence[Sequence[int]], end: int) -> list[int]:
    """The blocks from which the end is reached, in the order in which a search leaves them."""
    order: list[int] = []
    seen = {end}
    pile = [(end, iter(before[end]))]
    while pile:
        block, rest = pile[-1]
        following = next((each for each in rest if each not in seen), None)
        if following is None:
            pile.pop()
            order.append(block)
        else:
            seen.add(following)
            pile.append((following, iter(before[following])))
    return order


def _common(found: dict[int, int], rank: dict[int, int], one: int, other: int) -> int:
    while one != other:
        while rank[one] < rank[other]:
            one = found[one]
        while rank[other] < rank[one]:
            other = found[other]
    return one
