"""What atomic operations, fences and flags pass on: between warps, and from CTA to CTA.

A release to a location publishes what a warp knows, an acquire of it lets another one know that.
`.relaxed` operations do so by the fences around them. PTX ISA, "Memory Consistency Model: Release
and acquire patterns, Synchronizes-with".

Of another CTA all warps know the same: whatever one of them learned counts for each. So a missing
barrier behind an acquire is not found; nothing that is ordered is reported as a race.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from gpu_emulator.types import Array

# Clocks of the agents of CTAs, by the number of the CTA in the grid.
_Clocks = dict[int, Array]


class Releases:
    """What is published at each location, and what each CTA knows of others."""

    def __init__(self) -> None:
        self._published: dict[object, _Clocks] = {}
        self._known: dict[int, _Clocks] = {}

    def publish(self, location: object, cta: int, clocks: Array) -> None:
        """A warp of a CTA releases what it knows of its own CTA, (agents,), and of others."""
        target = self._published.setdefault(location, {})
        _raise(target, cta, clocks)
        for other, known in self._known.get(cta, {}).items():
            _raise(target, other, known)

    def acquire(self, location: object, cta: int) -> Array | None:
        """A CTA learns what is published at a location; what that is of itself."""
        found = self._published.get(location)
        if found is None:
            return None
        for other, clocks in found.items():
            if other != cta:
                _raise(self._known.setdefault(cta, {}), other, clocks)
        return found.get(cta)

    def meet(self, ctas: Iterable[int], clocks: Array) -> None:
        """CTAs of a cluster meet at its barrier; clocks (CTAs, agents) are of all their warps."""
        members = list(ctas)
        for cta in members:
            for other, known in zip(members, clocks, strict=True):
                if other != cta:
                    _raise(self._known.setdefault(cta, {}), other, known)

    def ordered(
        self, owners: Array, agents: Array, when: Array, ctas: Array, asked: Array
    ) -> Array:
        """Whether CTAs (n,) know of accesses (n,) by agents of other CTAs; `asked`: which count."""
        answer = np.zeros(len(owners), dtype=np.bool_)
        if not self._known:
            return answer
        at = np.nonzero(asked)[0]
        pairs = np.stack([owners[at], ctas[at]], axis=1)
        for owner, cta in np.unique(pairs, axis=0).tolist():
            clocks = self._known.get(cta, {}).get(owner)
            if clocks is not None:
                same = at[(pairs[:, 0] == owner) & (pairs[:, 1] == cta)]
                answer[same] = when[same] <= clocks[agents[same]]
        return answer


def _raise(target: _Clocks, cta: int, clocks: Array) -> None:
    old = target.get(cta)
    target[cta] = clocks.copy() if old is None else np.maximum(old, clocks)
