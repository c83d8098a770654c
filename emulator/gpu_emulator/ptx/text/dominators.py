"""Dominators of a graph of blocks. Pure.

Source: K. Cooper, T. Harvey, K. Kennedy, "A simple, fast dominance algorithm" (2001).
"""

from __future__ import annotations

from collections.abc import Sequence


def dominators(after: Sequence[Sequence[int]], first: int) -> dict[int, int]:
    """The nearest block that every way from the `first` one to a block leads through.

    Of the blocks that are reached, each before what only follows it; the first is its own.
    """
    order = _in_order(after, first)
    place = {block: number for number, block in enumerate(order)}
    before: dict[int, list[int]] = {block: [] for block in order}
    for block in order:
        for following in after[block]:
            before[following].append(block)
    nearest = {first: first}
    changed = True
    while changed:
        changed = False
        for block in order[1:]:
            known = [each for each in before[block] if each in nearest]
            found = known[0]
            for other in known[1:]:
                found = _common(nearest, place, found, other)
            if nearest.get(block) != found:
                nearest[block] = found
                changed = True
    return nearest


def _in_order(after: Sequence[Sequence[int]], first: int) -> list[int]:
    """Those that are reached, in the reverse of the order in which a search leaves them."""
    seen, done = {first}, []
    pile = [(first, iter(after[first]))]
    while pile:
        block, rest = pile[-1]
        following = next((each for each in rest if each not in seen), None)
        if following is None:
            done.append(block)
            pile.pop()
        else:
            seen.add(following)
            pile.append((following, iter(after[following])))
    return done[::-1]


def _common(nearest: dict[int, int], place: dict[int, int], one: int, other: int) -> int:
    while one != other:
        while place[one] > place[other]:
            one = nearest[one]
        while place[other] > place[one]:
            other = nearest[other]
    return one
