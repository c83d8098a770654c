"""What one value is made of, in two programs: the bytes of global memory that either run reads.

Two PTX have no instructions in common, but they are given the same buffers. So what a value comes
from can be compared: it is followed back through registers and memory to the bytes that nothing
wrote during the run. What is read together (by a matrix instruction, by a bulk copy) counts as a
whole; what only decides which way a branch goes does not count.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from gpu_emulator.machine.launching import run
from gpu_emulator.machine.tracing import find_owner, lane_of, value_text
from gpu_emulator.state.recording import ANOTHER, AccessSpan, Event, Recording
from gpu_emulator.types import Array
from gpu_emulator.values import Budget, Element, Launch, Schedule, Trace, TraceInput, TraceLink

_MOST_BYTES = 1 << 29
_MOST_NODES = 1_000_000
# These read what lanes of a warp hold together.
_TOGETHER = (
    *("shfl", "vote", "match", "redux", "elect", "mma", "wmma", "ldmatrix", "stmatrix"),
    *("movmatrix", "wgmma", "tcgen05"),
)
_Node = tuple[int, int | None]
"""An event by its number, and the lane whose value counts; None: all of them."""


def origins(
    launches: tuple[Launch, Launch],
    schedules: tuple[Schedule, Schedule],
    limits: Budget,
    element: Element,
) -> Trace:
    """Which bytes an element is made of in one run and not in the other, and how they get there.

    The launches have the same buffers.
    """
    slices: list[_Slice] = []
    for launch, schedule in zip(launches, schedules, strict=True):
        owner = find_owner(launch, schedule, limits, element)
        if isinstance(owner, str):
            return Trace(not_run=owner)
        recording = Recording(element, owner, _MOST_BYTES)
        done = run(launch, schedule, limits, recording=recording)
        if done.not_run:
            return Trace(not_run=done.not_run)
        found = _Slice(recording, len(launch.allocations))
        if not found.follow():
            return Trace(not_run=f"it is made of more than {_MOST_NODES:,} values")
        slices.append(found)
    mine, other = slices
    inputs = (*mine.beyond(other, 0), *other.beyond(mine, 1))
    shown = mine if any(each.run == 0 for each in inputs) else other
    apart = {(each.allocation, span) for each in inputs for span in each.spans}
    links = shown.way(apart) if inputs else ()
    return Trace(links=links, inputs=inputs, program=mine.recording.focus)


@dataclass(slots=True)
class _Slice:
    """All that one element is made of; `parents` lead from a value to one that it is part of."""

    recording: Recording
    buffers: int
    parents: dict[_Node, _Node | None] = field(default_factory=dict)
    bytes: dict[int, Array] = field(default_factory=dict)
    readers: list[tuple[_Node, int, Array, int]] = field(default_factory=list)

    def follow(self) -> bool:
        """Walk back to the end; False where there is too much."""
        start = self.recording.start
        number = self.recording.writer(start)
        if number <= 0:
            return True
        first = (number, lane_of(self.recording.events[number - 1], ("global", start)))
        self.parents[first] = None
        waiting = deque([first])
        while waiting:
            node = waiting.popleft()
            for before in self._inputs(node):
                if before not in self.parents and (before[0], None) not in self.parents:
                    self.parents[before] = node
                    waiting.append(before)
            if len(self.parents) > _MOST_NODES:
                return False
        return True

    def _inputs(self, node: _Node) -> Iterator[_Node]:
        number, lane = node
        event = self.recording.events[number - 1]
        chosen = None if lane is None or _is_together(event) else lane
        for read in event.reads.values():
            if chosen is not None:
                writer = int(read.writers[chosen])
                if writer > 0:
                    yield writer, chosen
                continue
            for each, writer in enumerate(read.writers.tolist()):
                if writer > 0:
                    yield writer, each
        for span in event.loads:
            yield from self._loaded(node, span, chosen)

    def _loaded(self, node: _Node, span: AccessSpan, lane: int | None) -> Iterator[_Node]:
        assert span.writers is not None
        mine = np.ones(len(span.offsets), np.bool_)
        if lane is not None and span.lanes is not None:
            mine = span.lanes == lane
        unwritten = mine & ((span.writers == 0) | (span.writers == ANOTHER))
        if span.space == "global" and unwritten.any():
            self._read(node, span.offsets[unwritten], span.size)
        rest = mine & (span.writers > 0)
        pairs = list(zip(span.writers[rest].tolist(), span.offsets[rest].tolist(), strict=True))
        for writer, offset in pairs if span.lanes is not None else dict(pairs).items():
            yield writer, lane_of(self.recording.events[writer - 1], (span.space, offset))

    def _read(self, node: _Node, offsets: Array, size: int) -> None:
        """Remember bytes of buffers that nothing wrote before."""
        for number, region in enumerate(self.recording.regions[: self.buffers]):
            inside = offsets[(offsets >= region.start) & (offsets < region.end)] - region.start
            if not len(inside):
                continue
            held = self.bytes.setdefault(number, np.zeros(region.end - region.start, np.bool_))
            held[(inside[:, None] + np.arange(size)).reshape(-1).clip(max=len(held) - 1)] = True
            self.readers.append((node, number, inside, size))

    def beyond(self, other: _Slice, run_number: int) -> Iterator[TraceInput]:
        """What it is made of and the other is not, buffer by buffer."""
        for number, held in sorted(self.bytes.items()):
            theirs = other.bytes.get(number)
            only = held if theirs is None else held & ~theirs
            if only.any():
                yield TraceInput(run=run_number, allocation=number, spans=_spans(only))

    def way(self, apart: set[tuple[int, tuple[int, int]]]) -> tuple[TraceLink, ...]:
        """From the first instruction that reads one of these bytes to the element."""
        found = [
            node
            for node, number, offsets, size in self.readers
            for buffer, (first, end) in apart
            if buffer == number and ((offsets + size > first) & (offsets < end)).any()
        ]
        node: _Node | None = min(found, key=lambda one: one[0], default=None)
        links = []
        while node is not None:
            links.append(self._link(node))
            node = self.parents[node]
        return tuple(links)

    def _link(self, node: _Node) -> TraceLink:
        number, lane = node
        event = self.recording.events[number - 1]
        held = next(iter(event.writes.values()), None)
        value = value_text(held[lane], event) if held is not None and lane is not None else ""
        thread = None if lane is None else event.warp * 32 + lane
        return TraceLink(place=event.place, thread=thread, warp=event.warp, values=(value, ""))


def _is_together(event: Event) -> bool:
    words = event.place.instruction.split()
    opcode = words[1] if words[0].startswith("@") and len(words) > 1 else words[0]
    return opcode.partition(".")[0] in _TOGETHER


def _spans(held: Array) -> tuple[tuple[int, int], ...]:
    """The ranges of True, each from its first to behind its last."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], held.view(np.int8), [0]))))
    return tuple((int(first), int(end)) for first, end in edges.reshape(-1, 2))
