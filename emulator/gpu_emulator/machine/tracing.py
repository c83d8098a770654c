"""Two runs of one launch: where one value of them first differs, and how it came to the end.

What one value is made of, in two programs: the bytes of global memory that either run reads. Two
PTX have no instructions in common, but they are given the same buffers. So what a value comes from
can be compared: it is followed back through registers and memory to the bytes that nothing wrote
during the run. What is read together (by a matrix instruction, by a bulk copy) counts as a whole;
what only decides which way a branch goes does not count.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

import numpy as np

from gpu_emulator.machine.launching import Read, run
from gpu_emulator.state.recording import ANOTHER, AccessSpan, Event, Recording
from gpu_emulator.steps import WARP, Array
from gpu_emulator.values import (
    Budget,
    Element,
    Launch,
    NotExecutable,
    Schedule,
    Trace,
    TraceInput,
    TraceLink,
)

_MOST_LINKS = 2000
_MOST_BYTES = 1 << 29
_FLOATS = {"f32": np.float32, "f64": np.float64, "f16": np.float16}


_Launches = tuple[Launch, Launch]
_Schedules = tuple[Schedule, Schedule]
_Follow = Callable[[Read, _Launches, _Schedules, Budget, Element], Trace]


def _answering(follow: _Follow) -> _Follow:
    """The same, where what ends it otherwise is an answer too: `not_run`."""

    @wraps(follow)
    def answer(*arguments: Any) -> Trace:  # noqa: ANN401
        try:
            return follow(*arguments)
        except NotExecutable as reason:
            return Trace(not_run=str(reason))
        except Exception as error:  # noqa: BLE001 - as `run` has it
            return Trace(not_run=f"the emulator cannot trace this: {error!r}")

    return answer


@_answering
def trace(
    read: Read, launches: _Launches, schedules: _Schedules, limits: Budget, element: Element
) -> Trace:
    owner = _owner(read, launches[0], schedules[0], limits, element)
    left, right = (
        _recorded(read, launch, schedule, limits, element, owner)
        for launch, schedule in zip(launches, schedules, strict=True)
    )
    links, why = _walk(left, right)
    return Trace(links=tuple(reversed(links)), why=why, program=owner)


def _recorded(
    read: Read,
    launch: Launch,
    schedule: Schedule,
    limits: Budget,
    element: Element,
    focus: tuple[int, int, int] | None,
) -> Recording:
    recording = Recording(element, focus, _MOST_BYTES)
    outcome = run(read, launch, schedule, limits, recording=recording)
    if outcome.not_run:
        raise NotExecutable(outcome.not_run)
    return recording


def _owner(
    read: Read, launch: Launch, schedule: Schedule, limits: Budget, element: Element
) -> tuple[int, int, int]:
    """The program that writes an element last."""
    number, stop = element.allocation, element.offset + element.size
    if not 0 <= number < len(launch.allocations):
        raise NotExecutable(f"the launch has no allocation {number}")
    if not 0 <= element.offset < stop <= launch.allocations[number].data.nbytes:
        raise NotExecutable(f"allocation {number} has no bytes {element.offset} to {stop}")
    owner = _recorded(read, launch, schedule, limits, element, None).owner
    if owner is None:
        raise NotExecutable("no program writes this element")
    return owner


@dataclass(slots=True)
class _Input:
    """Something that an instruction read, and that differs: who wrote it, and both values."""

    writers: tuple[int, int]
    values: tuple[str, str]
    name: str
    lane: int | None
    spot: tuple[str, int] | None = None


def _walk(mine: Recording, theirs: Recording) -> tuple[list[TraceLink], str]:
    spot = mine.start
    writers = (mine.writer(spot), theirs.writer(spot))
    links: list[TraceLink] = []
    value = _Input(writers, ("", ""), "the element", None, ("global", spot))
    while True:
        stop = _stop(mine, theirs, value)
        if stop:
            return links, stop
        left, right = mine.events[value.writers[0] - 1], theirs.events[value.writers[1] - 1]
        lane = value.lane if value.spot is None else lane_of(left, value.spot)
        differing = list(_differing(left, right, lane))
        link, is_all = _link(left, right, lane, value, differing)
        links.append(link)
        if not differing:
            same = " reads the same in both runs, and its result differs"
            why = same if is_all else ": what it reads was not followed"
            return links, f"{left.place.words}{why}"
        if len(links) >= _MOST_LINKS:
            return links, f"it goes back further than {_MOST_LINKS} instructions"
        # What was written the longest ago is nearest to where it begins.
        value = min(differing, key=lambda part: part.writers[0])


def _stop(mine: Recording, theirs: Recording, value: _Input) -> str | None:
    """How it begins, where there are no two instructions that are one and the same."""
    left, right = value.writers
    if left == right == 0:
        return f"{value.name}: nothing wrote it; it is {_both(value)}"
    if ANOTHER in value.writers:
        return f"{value.name} was written by another program: {_both(value)}"
    if left and right and mine.events[left - 1].key == theirs.events[right - 1].key:
        return None
    words = _who(mine, left), _who(theirs, right)
    return f"{value.name} is {words[0]} in the first run, {words[1]} in the other"


def _who(recording: Recording, number: int) -> str:
    if not number:
        return "what was there before"
    event = recording.events[number - 1]
    times = f", time {event.nth}" if event.nth > 1 else ""
    line = f"{event.place.words} ({event.place.instruction.rstrip(';')})"
    return f"from {line}, warp {event.warp}{times}"


def _both(value: _Input) -> str:
    return f"{value.values[0]} in the first run, {value.values[1]} in the other"


def lane_of(event: Event, spot: tuple[str, int]) -> int | None:
    """The lane that wrote a byte."""
    space, offset = spot
    for span in event.stores:
        if span.space != space or span.lanes is None:
            continue
        hit = np.nonzero((span.offsets <= offset) & (offset < span.offsets + span.size))[0]
        if len(hit):
            return int(span.lanes[hit[-1]])
    return None


def _differing(left: Event, right: Event, lane: int | None) -> Iterator[_Input]:
    """What two executions of an instruction read that differs; of the lane alone if it does."""
    lanes = [[lane]] if lane is not None else []
    for chosen in [*lanes, list(range(WARP))]:
        inputs = [*_registers(left, right, chosen), *_memory(left, right, chosen)]
        if inputs:
            yield from inputs
            return
    yield from _memory(left, right, None)


def _registers(left: Event, right: Event, lanes: Sequence[int]) -> Iterator[_Input]:
    for slot in left.reads.keys() & right.reads.keys():
        (mine_by_lane, by), (theirs_by_lane, by_there) = left.reads[slot], right.reads[slot]
        for lane in lanes:
            mine, theirs = mine_by_lane[lane], theirs_by_lane[lane]
            if mine.tobytes() != theirs.tobytes():
                writers = int(by[lane]), int(by_there[lane])
                values = value_text(mine, left), value_text(theirs, right)
                yield _Input(writers, values, "a register", lane)
                break


def _memory(left: Event, right: Event, lanes: Sequence[int] | None) -> Iterator[_Input]:
    """Bytes that both read at the same place; of these lanes, or of operations as a whole."""
    for mine, theirs in zip(left.loads, right.loads, strict=False):
        is_same = mine.space == theirs.space and np.array_equal(mine.offsets, theirs.offsets)
        if not is_same or mine.data is None or theirs.data is None:
            continue
        differs = (mine.data != theirs.data).any(axis=1)
        if lanes is not None:
            differs &= np.isin(mine.lanes, lanes) if mine.lanes is not None else False
        elif mine.lanes is not None:
            continue
        for at in np.nonzero(differs)[0][:1].tolist():
            yield _piece(mine, theirs, at)


def _piece(mine: AccessSpan, theirs: AccessSpan, at: int) -> _Input:
    offset = int(mine.offsets[at])
    words = f"{mine.space} offset {hex(offset)}" if mine.space != "tensor memory" else "a cell"
    (writer, value), (writer_there, value_there) = mine.read_at(at), theirs.read_at(at)
    values = (_hex(value), _hex(value_there))
    return _Input((writer, writer_there), values, words, None, (mine.space, offset))


def _link(
    left: Event, right: Event, lane: int | None, value: _Input, differing: Sequence[_Input]
) -> tuple[TraceLink, bool]:
    """The instruction as a link; and whether all that it reads is known."""
    values = value.values
    for slot in left.writes.keys() & right.writes.keys():
        if lane is None:
            break
        mine, theirs = left.writes[slot][lane], right.writes[slot][lane]
        if mine.tobytes() != theirs.tobytes():
            values = (value_text(mine, left), value_text(theirs, right))
            break
    else:
        if left.stores and differing:
            values = differing[0].values
    thread = None if lane is None else left.warp * WARP + lane
    link = TraceLink(place=left.place, thread=thread, warp=left.warp, values=values)
    return link, bool(left.reads or left.loads)


def value_text(value: Array, event: Event) -> str:
    """A register's value, as a number where the instruction is of such a type."""
    raw = np.asarray(value)
    kind = next((k for k in reversed(_opcode(event).split(".")) if k in _FLOATS), None)
    if raw.dtype == np.bool_:
        return str(bool(raw)).lower()
    if raw.dtype.kind == "c":
        return raw.tobytes()[::-1].hex()
    bits = hex(int(raw.view(f"u{raw.itemsize}")))
    if kind and np.dtype(_FLOATS[kind]).itemsize == raw.itemsize:
        return f"{float(raw.view(_FLOATS[kind])):.6g} ({bits})"
    return bits


def _hex(data: Array) -> str:
    return "0x" + data.tobytes()[::-1].hex()


_MOST_NODES = 1_000_000
# These read what lanes of a warp hold together.
_TOGETHER = (
    *("shfl", "vote", "match", "redux", "elect", "mma", "wmma", "ldmatrix", "stmatrix"),
    *("movmatrix", "wgmma", "tcgen05"),
)
_Node = tuple[int, int | None]
"""An event by its number, and the lane whose value counts; None: all of them."""


@_answering
def origins(
    read: Read, launches: _Launches, schedules: _Schedules, limits: Budget, element: Element
) -> Trace:
    slices: list[_Slice] = []
    for launch, schedule in zip(launches, schedules, strict=True):
        owner = _owner(read, launch, schedule, limits, element)
        recording = _recorded(read, launch, schedule, limits, element, owner)
        slices.append(_Slice(recording, len(launch.allocations)))
        if not slices[-1].follow():
            raise NotExecutable(f"it is made of more than {_MOST_NODES:,} values")
    first, second = slices
    inputs = (*first.beyond(second, 0), *second.beyond(first, 1))
    shown = first if any(source.run == 0 for source in inputs) else second
    apart = {(source.allocation, span) for source in inputs for span in source.spans}
    links = shown.way(apart) if inputs else ()
    return Trace(links=links, inputs=inputs, program=first.recording.focus)


@dataclass(slots=True)
class _Slice:
    """All that one element is made of; `parents` lead from a value to one that it is part of."""

    recording: Recording
    buffers: int
    parents: dict[_Node, _Node | None] = field(default_factory=dict)
    bytes: dict[int, Array] = field(default_factory=dict)
    readers: list[tuple[_Node, int, Array, int]] = field(default_factory=list)

    def follow(self) -> bool:
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
        chosen = None if _opcode(event).partition(".")[0] in _TOGETHER else lane
        for _, writers in event.reads.values():
            for at in range(WARP) if chosen is None else (chosen,):
                if writers[at] > 0:
                    yield int(writers[at]), at
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
        written = mine & (span.writers > 0)
        pairs = list(
            zip(span.writers[written].tolist(), span.offsets[written].tolist(), strict=True)
        )
        for writer, offset in pairs if span.lanes is not None else dict(pairs).items():
            yield writer, lane_of(self.recording.events[writer - 1], (span.space, offset))

    def _read(self, node: _Node, offsets: Array, size: int) -> None:
        for number, region in enumerate(self.recording.regions[: self.buffers]):
            inside = offsets[(offsets >= region.start) & (offsets < region.end)] - region.start
            if not len(inside):
                continue
            read = self.bytes.setdefault(number, np.zeros(region.end - region.start, np.bool_))
            read[(inside[:, None] + np.arange(size)).reshape(-1).clip(max=len(read) - 1)] = True
            self.readers.append((node, number, inside, size))

    def beyond(self, other: _Slice, run_number: int) -> Iterator[TraceInput]:
        for number, read in sorted(self.bytes.items()):
            theirs = other.bytes.get(number)
            only = read if theirs is None else read & ~theirs
            if only.any():
                yield TraceInput(run=run_number, allocation=number, spans=_spans(only))

    def way(self, apart: set[tuple[int, tuple[int, int]]]) -> tuple[TraceLink, ...]:
        """From the first instruction that reads one of these bytes to the element."""
        readers = [
            node
            for node, number, offsets, size in self.readers
            for buffer, (first, stop) in apart
            if buffer == number and ((offsets + size > first) & (offsets < stop)).any()
        ]
        node: _Node | None = min(readers, key=lambda reader: reader[0], default=None)
        links = []
        while node is not None:
            links.append(self._link(node))
            node = self.parents[node]
        return tuple(links)

    def _link(self, node: _Node) -> TraceLink:
        number, lane = node
        event = self.recording.events[number - 1]
        result = next(iter(event.writes.values()), None)
        value = value_text(result[lane], event) if result is not None and lane is not None else ""
        thread = None if lane is None else event.warp * WARP + lane
        return TraceLink(place=event.place, thread=thread, warp=event.warp, values=(value, ""))


def _opcode(event: Event) -> str:
    words = event.place.instruction.split()
    return (words[1] if words[0].startswith("@") and len(words) > 1 else words[0]).rstrip(";")


def _spans(flags: Array) -> tuple[tuple[int, int], ...]:
    """The ranges of True, each from its first to behind its last."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], flags.view(np.int8), [0]))))
    return tuple((first, stop) for first, stop in edges.reshape(-1, 2).tolist())
