"""A write of several threads in one step, as the race check sees it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from harness.emulator.program.types import Array
from harness.emulator.state.memory import Memory

__all__ = ["Write"]


@dataclass(frozen=True, slots=True)
class Write:
    """`size` bytes each at offsets (n,) into a memory, by CTAs in rows (n,).

    `values` (n,) is None where they are not known. `strength` is that of the opcode.
    """

    memory: Memory
    spots: Array
    size: int
    values: Array | None
    rows: Array
    strength: int

    def at(self, chosen: Array) -> Write:
        """Some of it."""
        values = None if self.values is None else self.values[chosen]
        return replace(self, spots=self.spots[chosen], values=values, rows=self.rows[chosen])

    def changes(self) -> Array | None:
        """Where memory holds something else before; None: everywhere, as far as is known."""
        if self.values is None:
            return None
        return _differ(self.memory.load(self.spots, self.size), self.values)

    def first_of_alike(self) -> Array | None:
        """The first write to each place, if all those to one place write the same; else None."""
        if self.values is None:
            return None
        _, first, which = np.unique(self.spots, return_index=True, return_inverse=True)
        if _differ(self.values[first][which.reshape(-1)], self.values).any():
            return None
        answer = np.zeros(len(self.spots), dtype=np.bool_)
        answer[first] = True
        return answer

    def store(self) -> None:
        """Write it."""
        if self.values is not None:
            self.memory.store(self.spots, self.values, self.size)


def _differ(left: Array, right: Array) -> Array:
    """Whether elements have other bits: 16 bytes are not compared as the numbers that they are."""
    if left.dtype.itemsize < 16:
        answer: Array = left != right
        return answer
    pairs = (np.ascontiguousarray(each).view(np.uint64).reshape(-1, 2) for each in (left, right))
    return np.asarray(np.not_equal(*pairs).any(axis=1))
