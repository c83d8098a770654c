"""What the threads of one CTA did, instruction by instruction, with who wrote what they read.

A recording is of one CTA. Each instruction of a warp is an event: the registers and the memory that
it read, with the events that had written them, and what it wrote. What an asynchronous operation
accesses belongs to the instruction that issued it, whenever it takes effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpu_emulator.state.frame import TENSOR_MEMORY, Frame, Memory, Touch
from gpu_emulator.state.happens_before import Task
from gpu_emulator.state.watching import RaceWatch, Watched
from gpu_emulator.steps import WARP, Array, Region
from gpu_emulator.values import Element, NotExecutable, Place

ANOTHER = -1
"""The writer of what another CTA wrote; 0 is that of what nothing has written."""


@dataclass(slots=True)
class AccessSpan:
    """Accesses to `size` bytes each at offsets, of lanes (None: the operation as a whole).

    `writers` and `data` are of reads: who wrote the first of the bytes, and the bytes.
    """

    space: str
    offsets: Array
    size: int
    lanes: Array | None
    writers: Array | None = None
    data: Array | None = None

    def read_at(self, number: int) -> tuple[int, Array]:
        """Who wrote what a read has at one of the offsets, and the bytes."""
        assert self.writers is not None
        assert self.data is not None
        return int(self.writers[number]), self.data[number]


@dataclass(slots=True)
class Event:
    """An instruction of a warp, the `nth` time that this warp executes it.

    `reads` are registers: by lane, their values and who wrote them.
    """

    place: Place
    warp: int
    nth: int
    reads: dict[int, tuple[Array, Array]] = field(default_factory=dict)
    writes: dict[int, Array] = field(default_factory=dict)
    loads: list[AccessSpan] = field(default_factory=list)
    stores: list[AccessSpan] = field(default_factory=list)

    @property
    def key(self) -> tuple[int, int, int]:
        """What it is in another recording of the same program."""
        return self.place.order, self.warp, self.nth


class Recording:
    """Events of the CTA at `focus`, from 1; without a focus, only who wrote to global memory.

    `most` bounds the bytes that are remembered.
    """

    def __init__(self, element: Element, focus: tuple[int, int, int] | None, most: int) -> None:
        self.element = element
        self.focus = focus
        self.events: list[Event] = []
        # The CTA that wrote the element last, and where in global memory the element is.
        self.owner: tuple[int, int, int] | None = None
        self.start = 0
        self.regions: Sequence[Region] = ()
        self._most = most
        self._used = 0
        self._row: int | None = None
        self._batch: Any = None
        self._current: Event | None = None
        self._number = 0
        self._last: dict[tuple[int, int], Array] = {}
        self._times: dict[tuple[int, int], int] = {}
        self._writers: dict[str, Array] = {}
        self._tasks: dict[int, tuple[Task, int]] = {}

    def locate(self, regions: Sequence[Region]) -> None:
        """These are the allocations, and what follows them, in global memory."""
        self.regions = regions
        self.start = regions[self.element.allocation].start + self.element.offset

    def begin(self, batch: Any, first: int, watched: Watched) -> TraceWatch:  # noqa: ANN401
        """Record a batch from now on; what watches its memory."""
        self._batch = batch
        self._row = None
        if self.focus is not None:
            rows = np.nonzero((batch.coordinates == np.array(self.focus)).all(axis=1))[0]
            self._row = int(rows[0]) if len(rows) else None
        return TraceWatch(batch.ctas, first, batch.memories["shared"], watched, self)

    def before(self, frame: Frame, reads: frozenset[int]) -> None:
        """An instruction is about to be executed by the active threads of a frame."""
        self._current = None
        if self._row is None:
            return
        if frame.lanes != WARP:
            raise NotExecutable("a trace is of warps one by one: not of the schedule lockstep")
        if not frame.active()[self._row].any():
            return
        warp, place = frame.first // WARP, frame.place
        times = (place.order, warp)
        self._times[times] = self._times.get(times, 0) + 1
        event = Event(place, warp, self._times[times])
        for slot in reads:
            values = np.broadcast_to(frame.registers[slot], frame.shape)[self._row].copy()
            writers = self._last.get((warp, slot))
            by = np.zeros(WARP, np.int32) if writers is None else writers.copy()
            event.reads[slot] = values, by
            self._spend(values.nbytes + 4 * WARP)
        self.events.append(event)
        self._number = len(self.events)
        self._current = event
        self._spend(500)

    def after(self, frame: Frame, writes: tuple[int, ...]) -> None:
        event = self._current
        if event is None or self._row is None:
            return
        active = frame.active()[self._row]
        for slot in writes:
            values = np.broadcast_to(frame.registers[slot], frame.shape)[self._row].copy()
            event.writes[slot] = values
            last = self._last.setdefault((event.warp, slot), np.zeros(WARP, np.int32))
            last[active] = self._number
            self._spend(values.nbytes)
        self._current = None

    def issued(self, task: Task) -> None:
        if self._current is not None:
            self._tasks[id(task)] = (task, self._number)

    def by_threads(self, touch: Touch, task: Task | None, *, writes: bool) -> None:
        frame, memory = touch.frame, touch.memory
        if memory.name == "param":
            return
        spots = np.broadcast_to(touch.index, frame.shape)
        mask = np.ones(frame.shape, np.bool_) if touch.active is None else touch.active
        mask = np.broadcast_to(mask, frame.shape)
        if memory.name == "global" and writes:
            for row in range(frame.ctas):
                if row != self._row and mask[row].any():
                    self._mark(memory, spots[row][mask[row]], touch.size, ANOTHER, row)
        if self._row is None:
            return
        lanes = np.nonzero(mask[self._row])[0]
        self._access(memory, spots[self._row][lanes], touch.size, lanes, task, writes=writes)

    def by_engine(
        self, space: str, rows: Array, spots: Array, size: int, task: Task | None, *, writes: bool
    ) -> None:
        """An operation accesses `size` bytes each at offsets, for CTAs in rows."""
        own = rows == (-1 if self._row is None else self._row)
        if space == TENSOR_MEMORY:
            self._cells(spots[own], task, writes=writes)
            return
        memory = self._batch.memories[space]
        if space == "global" and writes:
            for row in np.unique(rows[~own]).tolist():
                self._mark(memory, spots[rows == row], size, ANOTHER, row)
        if self._row is not None:
            self._access(memory, spots[own], size, None, task, writes=writes)

    def writer(self, offset: int) -> int:
        writers = self._writers.get("global")
        return 0 if writers is None else int(writers[offset])

    def _event(self, task: Task | None) -> tuple[Event | None, int]:
        if task is None:
            return self._current, self._number
        _, number = self._tasks.get(id(task), (task, 0))
        return (self.events[number - 1], number) if number else (None, 0)

    def _access(
        self,
        memory: Memory,
        spots: Array,
        size: int,
        lanes: Array | None,
        task: Task | None,
        *,
        writes: bool,
    ) -> None:
        event, number = self._event(task)
        if event is None or not len(spots):
            return
        spots = spots.astype(np.int64)
        writers = self._writers_of(memory.name, len(memory.data))
        self._spend(32 * len(spots))
        if writes:
            event.stores.append(AccessSpan(memory.name, spots, size, lanes))
            self._mark(memory, spots, size, number, self._row or 0)
            return
        data = memory.data[spots[:, None] + np.arange(size)]
        span = AccessSpan(memory.name, spots, size, lanes, writers[spots], data)
        self._spend(data.nbytes)
        event.loads.append(span)

    def _cells(self, spots: Array, task: Task | None, *, writes: bool) -> None:
        event, number = self._event(task)
        if event is None or not len(spots):
            return
        words = self._batch.tensor_memories.words.reshape(-1)
        writers = self._writers_of(TENSOR_MEMORY, len(words))
        self._spend(32 * len(spots))
        if writes:
            event.stores.append(AccessSpan(TENSOR_MEMORY, spots, 1, None))
            writers[spots] = number
            return
        data = words[spots].copy()[:, None].view(np.uint8)
        event.loads.append(AccessSpan(TENSOR_MEMORY, spots, 1, None, writers[spots], data))

    def _mark(self, memory: Memory, spots: Array, size: int, number: int, row: int) -> None:
        writers = self._writers_of(memory.name, len(memory.data))
        where = (spots[:, None] + np.arange(size)).reshape(-1)
        writers[where] = number
        if memory.name == "global":
            low, high = self.start, self.start + self.element.size
            if ((where >= low) & (where < high)).any():
                x, y, z = self._batch.coordinates[row].tolist()
                self.owner = (x, y, z)

    def _writers_of(self, name: str, size: int) -> Array:
        if name not in self._writers or len(self._writers[name]) != size:
            self._writers[name] = np.zeros(size, np.int32)
        return self._writers[name]

    def _spend(self, count: int) -> None:
        self._used += count
        if self._used > self._most:
            raise NotExecutable(
                f"a trace of it takes more than {self._most >> 20} MiB: take a smaller launch"
            )


class TraceWatch(RaceWatch):
    """In the place of the race check: every access goes to the recording."""

    def __init__(
        self, ctas: int, first: int, shared: Memory, watched: Watched, recording: Recording
    ) -> None:
        super().__init__(ctas, first, shared, watched, has_clusters=True)
        self._recording = recording

    def begin(self, frame: Frame, kind: str, slot: int = 0) -> Task:
        task = super().begin(frame, kind, slot)
        self._recording.issued(task)
        return task

    def read(self, touch: Touch) -> None:
        self._recording.by_threads(touch, self.task, writes=False)

    def write(self, touch: Touch, values: Array | None) -> None:
        del values
        self._recording.by_threads(touch, self.task, writes=True)

    def engine(
        self, space: str, warp: int, rows: Array, spots: Array, size: int, place: Place, *,
        writes: bool,
    ) -> None:  # fmt: skip
        del warp, place
        self._recording.by_engine(space, rows, spots, size, self.task, writes=writes)
