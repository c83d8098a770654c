"""Threads that run together: their registers, where they are, what they wait for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_emulator.steps import MASK, Registers
from gpu_emulator.types import Array
from gpu_emulator.values import Place


@dataclass(slots=True)
class Hold:
    """Threads that wait: until `over` says so, thread by thread. Then `then` runs for them."""

    mask: Array
    over: Callable[[], Array]
    why: Callable[[], str]
    then: Callable[[], None] | None = None
    place: Place | None = None


@dataclass(slots=True, eq=False)
class Parting:
    """Threads that parted from others of their warp, and have not come to where all meet again.

    `meets_at` is a block, None where only the end is common; `place` is the branch.
    """

    mask: Array
    meets_at: int | None
    place: Place


class Frame:
    """The threads `first` to `first + lanes` of each CTA of a batch, with their registers.

    Rows are CTAs, columns threads. `rows` is (CTAs, 1), `threads` (1, lanes). `at` is the block
    where all threads are, or an array of these that broadcasts to the shape; `end` is the number
    behind the last block: where the threads are that have left.
    """

    def __init__(self, batch: Any, first: int, lanes: int, end: int) -> None:  # noqa: ANN401
        # The `Batch`, whose module builds on this one.
        self.batch = batch
        self.first = first
        self.lanes = lanes
        self.ctas = batch.ctas
        self.rows = np.arange(batch.ctas, dtype=np.int64)[:, None]
        self.threads = np.arange(first, first + lanes, dtype=np.int64)[None, :]
        self.shape = (batch.ctas, lanes)
        self.registers: Registers = []
        self.end = end
        self.at: int | Array = 0
        self.holds: list[Hold] = []
        self.parted: list[Parting] = []
        # Registers that `tcgen05.ld` writes, where, and the threads that have not waited for it.
        self._unwaited: dict[int, tuple[Place, Array]] = {}

    def clock(self) -> int:
        """A clock that never stands still: instructions of threads so far."""
        self.batch.ticks += 1
        answer: int = self.batch.executed + self.batch.ticks
        return answer

    def full(self, value: Array) -> Array:
        """A value for every thread of the frame."""
        return np.broadcast_to(value, self.shape)

    def active(self) -> Array:
        """Which threads are active, for every thread."""
        mask = self.registers[MASK]
        if mask is None:
            return np.ones(self.shape, dtype=np.bool_)
        return np.broadcast_to(mask, self.shape)

    def loaded_late(self, slots: Sequence[int], place: Place) -> None:
        """Active threads wait for these registers by `tcgen05.wait::ld`."""
        self._unwaited.update(dict.fromkeys(slots, (place, self.active())))

    def waited_for_loads(self) -> None:
        """Active threads have waited for all of them."""
        active = self.active()
        left = {slot: (place, mask & ~active) for slot, (place, mask) in self._unwaited.items()}
        self._unwaited = {slot: one for slot, one in left.items() if one[1].any()}

    def too_early(self, touched: AbstractSet[int]) -> Place | None:
        """The load of a register that active threads touch, and have not waited for."""
        for slot in sorted(self._unwaited.keys() & touched):
            place, mask = self._unwaited[slot]
            if (mask & self.active()).any():
                return place
        return None

    def alive(self) -> Array:
        """Which threads have not left, for every thread."""
        return np.broadcast_to(np.asarray(self.at) != self.end, self.shape)

    def write(self, slot: int, value: Array) -> None:
        """Give a register of the active threads a value."""
        mask = self.registers[MASK]
        if mask is not None:
            value = np.where(mask, value, self.registers[slot])
        self.registers[slot] = value

    def hold(
        self, mask: Array, over: Callable[[], Array], why: Callable[[], str],
        then: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        """Let threads wait after this block; `then` runs for those that go on, as active ones."""
        self.holds.append(Hold(mask, over, why, then))

    def held(self) -> Array | None:
        """The threads that wait still; None if none does. Those that go on are let go."""
        if not self.holds:
            return None
        kept = []
        waiting: Array | None = None
        for one in self.holds:
            gone = one.mask & one.over()
            if gone.any():
                if one.then is not None:
                    self.registers[MASK] = gone
                    one.then()
                    self.registers[MASK] = None
                one.mask = one.mask & ~gone
            if one.mask.any():
                kept.append(one)
                waiting = one.mask if waiting is None else waiting | one.mask
        self.holds = kept
        return waiting

    @property
    def is_done(self) -> bool:
        """Whether every thread has left."""
        return bool(np.all(np.asarray(self.at) == self.end))
