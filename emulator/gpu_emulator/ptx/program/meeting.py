"""Where threads that part at a branch meet again for certain: immediate post-dominators."""

from __future__ import annotations

from collections.abc import Sequence

from gpu_emulator.ptx.text.dominators import dominators


def meeting_points(successors: Sequence[Sequence[int]]) -> list[int | None]:
    """For each block the first one that all ways from it lead through; None: only the end."""
    end = len(successors)
    before: list[list[int]] = [[] for _ in range(end + 1)]
    for block, following in enumerate(successors):
        for each in following or [end]:
            before[each].append(block)
    found = dominators(before, end)
    points = [found.get(block, end) for block in range(end)]
    return [None if point == end else point for point in points]
