"""A write of several threads in one step, as the race check sees it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gpu_emulator.state.memory import Memory
from gpu_emulator.types import Array


@dataclass(frozen=True, slots=True)
class Write:
    """`size` bytes each at offsets (n,) into a memory, by CTAs in rows (n,).

    `strength` is that of the opcode.
    """

    memory: Memory
    spots: Array
    size: int
    rows: Array
    strength: int

    def at(self, chosen: Array) -> Write:
        """Some of it."""
        return replace(self, spots=self.spots[chosen], rows=self.rows[chosen])

    def undo(self, before: Array) -> None:
        """Put back what was there before."""
        self.memory.store(self.spots, before, self.size)

    def done(self, values: Array, grain: int) -> Done:
        """Write these values."""
        before = self.memory.load(self.spots, self.size)
        self.memory.store(self.spots, values, self.size)
        now = self.memory.load(self.spots, self.size)
        lost = _differ(now, values, self.size).reshape(-1)
        return Done(before, _differ(before, now, min(grain, self.size)).reshape(-1), lost)


@dataclass(frozen=True, slots=True)
class Done:
    """What a write of several threads did.

    `before` (n,) was there; `changes` says which pieces hold other bytes now; `lost` (n,) which of
    the values are not there now, because another one was written to the same place.
    """

    before: Array
    changes: Array
    lost: Array


def _differ(left: Array, right: Array, size: int) -> Array:
    """Whether elements have other bits, in pieces of `size` bytes, (n, pieces).

    16 bytes are not compared as the complex numbers that they are.
    """
    if left.dtype.itemsize == size < 16:
        answer: Array = left != right
        return answer
    kind = f"u{min(size, 8)}"
    count = (len(left), left.dtype.itemsize // size, -1)
    pieces = (np.ascontiguousarray(each).view(kind).reshape(count) for each in (left, right))
    return np.asarray(np.not_equal(*pieces).any(axis=2))
