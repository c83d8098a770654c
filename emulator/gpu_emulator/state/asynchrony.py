"""Operations under way: they take effect between their issue and the wait that orders them.

Groups (`cp.async`, bulk stores, `wgmma`) are waited for by the thread that issued them. Flights
(bulk loads, `tcgen05`) signal an mbarrier: completed late, they are so when nothing else can go on,
the oldest first, so that whatever does not wait for them runs before them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gpu_emulator.state.frame import Frame
from gpu_emulator.state.happens_before import HappensBefore, Task
from gpu_emulator.state.memory import Trouble
from gpu_emulator.steps import MASK
from gpu_emulator.types import Array
from gpu_emulator.values import Place

# Does an operation for a mask of threads (None: all of the frame).
Effect = Callable[[Array | None], None]


@dataclass(slots=True)
class _Entry:
    """An effect to come, the threads it is for, and the number of their group."""

    effect: Effect
    mask: Array | None
    group: Array
    place: Place
    task: Task | None


class Groups:
    """What the threads of a frame issued, by group, in order."""

    def __init__(self, frame: Frame, asynchrony: Asynchrony, kind: str) -> None:
        self._frame = frame
        self._kind = kind
        self._asynchrony = asynchrony
        self._committed: Array = np.zeros((1, 1), dtype=np.int64)
        self._entries: list[_Entry] = []

    @property
    def is_pending(self) -> bool:
        """Whether anything is still to come."""
        return bool(self._entries)

    def issue(self, effect: Effect, place: Place) -> None:
        """Do it now or later, for the active threads."""
        mask = self._frame.registers[MASK]
        watch = self._asynchrony.watch
        task = None if watch is None else watch.begin(self._frame, self._kind)
        entry = _Entry(effect, mask, self._committed, place, task)
        if self._asynchrony.is_now():
            self._do(entry, mask)
        else:
            self._entries.append(entry)

    def commit(self) -> None:
        """End the current group of the active threads."""
        mask = self._frame.registers[MASK]
        if self._asynchrony.watch is not None:
            self._asynchrony.watch.commit(self._frame, self._kind)
        more = self._committed + 1
        self._committed = more if mask is None else np.where(mask, more, self._committed)

    def wait(self, pending: int) -> None:
        """Complete all groups of the active threads but so many of the newest; -1: everything."""
        mask = self._frame.registers[MASK]
        limit = self._committed - pending
        kept = []
        for entry in self._entries:
            ready = entry.group < limit if pending >= 0 else np.ones((1, 1), np.bool_)
            if ready.all() and mask is None:
                self._do(entry, entry.mask)
                continue
            due = ready if mask is None else ready & mask
            due = due if entry.mask is None else due & entry.mask
            if due.any():
                self._do(entry, due)
                rest = ~due if entry.mask is None else entry.mask & ~due
                if np.broadcast_to(rest, self._frame.shape).any():
                    entry.mask = rest
                    kept.append(entry)
            else:
                kept.append(entry)
        self._entries = kept
        if self._asynchrony.watch is not None:
            self._asynchrony.watch.wait(self._frame, self._kind, pending)

    def finish(self) -> None:
        """Complete everything, of all threads."""
        for entry in self._entries:
            self._do(entry, entry.mask)
        self._entries = []

    def _do(self, entry: _Entry, mask: Array | None) -> None:
        self._asynchrony.perform(self._frame, entry.effect, mask, entry.place, entry.task)


@dataclass(slots=True)
class _Flight:
    frame: Frame
    effect: Effect
    mask: Array | None
    queue: str
    place: Place
    task: Task | None


class Asynchrony:
    """All that is under way in a batch."""

    def __init__(self, completion: str, random: np.random.Generator) -> None:
        self._completion = completion
        self._random = random
        self._groups: dict[tuple[int, str], Groups] = {}
        self._flights: list[_Flight] = []
        self.watch: HappensBefore | None = None

    def perform(
        self, frame: Frame, effect: Effect, mask: Array | None, place: Place, task: Task | None
    ) -> None:
        """Do an operation for a mask of threads, as the agent that it is for the race check."""
        registers = frame.registers
        outer, outer_task = registers[MASK], None if self.watch is None else self.watch.task
        registers[MASK] = mask
        if self.watch is not None:
            self.watch.task = task
        try:
            effect(mask)
        except Trouble as trouble:
            # Found where it takes effect, but it is about the line that issued it.
            trouble.place = trouble.place or place
            raise
        registers[MASK] = outer
        if self.watch is not None:
            self.watch.task = outer_task

    def is_now(self) -> bool:
        """Whether an operation that is issued takes effect at once."""
        if self._completion == "random":
            return bool(self._random.integers(2))
        return self._completion == "early"

    def groups(self, frame: Frame, kind: str) -> Groups:
        """The groups of one kind that the threads of a frame issued."""
        key = (frame.first, kind)
        if key not in self._groups:
            self._groups[key] = Groups(frame, self, kind)
        return self._groups[key]

    def launch(
        self, frame: Frame, effect: Effect, place: Place, *, queue: str = "", slot: int = 0
    ) -> None:
        """An operation that signals by itself; in a queue, not before those that came before it.

        `slot` tells apart what no queue keeps in order: the offset of the mbarrier.
        """
        mask = frame.registers[MASK]
        is_first = not queue or all(each.queue != queue for each in self._flights)
        task = None if self.watch is None else self.watch.begin(frame, queue, slot)
        if is_first and self.is_now():
            self.perform(frame, effect, mask, place, task)
        else:
            self._flights.append(_Flight(frame, effect, mask, queue, place, task))

    def complete_some(self) -> bool:
        """Complete the oldest flight; whether there was one."""
        if not self._flights:
            return False
        flight = self._flights.pop(0)
        self.perform(flight.frame, flight.effect, flight.mask, flight.place, flight.task)
        return True

    def finish(self) -> None:
        """Complete everything: the CTAs have left."""
        while self.complete_some():
            pass
        for groups in self._groups.values():
            groups.finish()
