"""Two runs of one launch: where one value of them first differs, and how it came to the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gpu_emulator.machine.launching import run
from gpu_emulator.state.recording import ANOTHER, AccessSpan, Event, Recording
from gpu_emulator.steps import WARP
from gpu_emulator.types import Array
from gpu_emulator.values import Budget, Element, Launch, Schedule, Trace, TraceLink

_MOST_LINKS = 2000
_MOST_BYTES = 1 << 29
_FLOATS = {"f32": np.float32, "f64": np.float64, "f16": np.float16}


def trace(
    launches: tuple[Launch, Launch],
    schedules: tuple[Schedule, Schedule],
    limits: Budget,
    element: Element,
) -> Trace:
    """Follow an element back to where two runs first differ.

    The runs differ in their schedule, or in what the launches hold.
    """
    owner = find_owner(launches[0], schedules[0], limits, element)
    if isinstance(owner, str):
        return Trace(not_run=owner)
    runs = []
    for launch, schedule in zip(launches, schedules, strict=True):
        recording = Recording(element, owner, _MOST_BYTES)
        done = run(launch, schedule, limits, recording=recording)
        if done.not_run:
            return Trace(not_run=done.not_run)
        runs.append(recording)
    links, why = _Walk(runs[0], runs[1]).walk()
    return Trace(links=tuple(reversed(links)), why=why, program=owner)


def find_owner(
    launch: Launch, schedule: Schedule, limits: Budget, element: Element
) -> tuple[int, int, int] | str:
    """The program that writes an element last; why it is not known."""
    finding = Recording(element, None, _MOST_BYTES)
    done = run(launch, schedule, limits, recording=finding)
    return done.not_run or finding.owner or "no program writes this element"


@dataclass(slots=True)
class _Input:
    """Something that an instruction read, and that differs: who wrote it, and both values."""

    writers: tuple[int, int]
    values: tuple[str, str]
    what: str
    lane: int | None
    spot: tuple[str, int] | None = None


class _Walk:
    def __init__(self, left: Recording, right: Recording) -> None:
        self._left, self._right = left, right

    def walk(self) -> tuple[list[TraceLink], str]:
        """The links from the end backwards, and how it begins."""
        spot = self._left.start
        writers = (self._left.writer(spot), self._right.writer(spot))
        links: list[TraceLink] = []
        found = _Input(writers, ("", ""), "the element", None, ("global", spot))
        while True:
            stop = self._stop(found)
            if stop:
                return links, stop
            left = self._left.events[found.writers[0] - 1]
            right = self._right.events[found.writers[1] - 1]
            lane = found.lane if found.spot is None else lane_of(left, found.spot)
            differing = list(_differing(left, right, lane))
            link, is_all = _link(left, right, lane, found, differing)
            links.append(link)
            if not differing:
                return links, _beginning(left, is_all=is_all)
            if len(links) >= _MOST_LINKS:
                return links, f"it goes back further than {_MOST_LINKS} instructions"
            # What was written the longest ago is nearest to where it begins.
            found = min(differing, key=lambda each: each.writers[0])

    def _stop(self, found: _Input) -> str | None:
        """How it begins, where there are no two instructions that are one and the same."""
        one, other = found.writers
        if one == other == 0:
            return f"{found.what}: nothing wrote it; it is {_both(found)}"
        if ANOTHER in found.writers:
            return f"{found.what} was written by another program: {_both(found)}"
        if one and other and self._left.events[one - 1].key == self._right.events[other - 1].key:
            return None
        words = [
            _who(recording, number)
            for recording, number in ((self._left, one), (self._right, other))
        ]
        return f"{found.what} is {words[0]} in the first run, {words[1]} in the other"


def _who(recording: Recording, number: int) -> str:
    if not number:
        return "what was there before"
    event = recording.events[number - 1]
    times = f", time {event.nth}" if event.nth > 1 else ""
    line = f"PTX line {event.place.ptx_line} ({event.place.instruction.rstrip(';')})"
    return f"from {line}, warp {event.warp}{times}"


def _both(found: _Input) -> str:
    return f"{found.values[0]} in the first run, {found.values[1]} in the other"


def _beginning(event: Event, *, is_all: bool) -> str:
    line = f"PTX line {event.place.ptx_line}"
    if is_all:
        return f"{line} reads the same in both runs, and its result differs"
    return f"{line}: what it reads was not followed"


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
        found = [*_registers(left, right, chosen), *_memory(left, right, chosen)]
        if found:
            yield from found
            return
    yield from _memory(left, right, None)


def _registers(left: Event, right: Event, lanes: Sequence[int]) -> Iterator[_Input]:
    for slot in left.reads.keys() & right.reads.keys():
        mine, other = left.reads[slot], right.reads[slot]
        for lane in lanes:
            if mine.values[lane].tobytes() != other.values[lane].tobytes():
                values = (
                    value_text(mine.values[lane], left),
                    value_text(other.values[lane], right),
                )
                writers = (int(mine.writers[lane]), int(other.writers[lane]))
                yield _Input(writers, values, "a register", lane)
                break


def _memory(left: Event, right: Event, lanes: Sequence[int] | None) -> Iterator[_Input]:
    """Bytes that both read at the same place; of these lanes, or of operations as a whole."""
    for mine, other in zip(left.loads, right.loads, strict=False):
        is_one = mine.space == other.space and len(mine.offsets) == len(other.offsets)
        if not is_one or not (mine.offsets == other.offsets).all():
            continue
        if mine.data is None or other.data is None:
            continue
        bad = (mine.data != other.data).any(axis=1)
        if lanes is not None:
            bad &= np.isin(mine.lanes, lanes) if mine.lanes is not None else False
        elif mine.lanes is not None:
            continue
        for at in np.nonzero(bad)[0][:1].tolist():
            yield _piece(mine, other, at)


def _piece(mine: AccessSpan, other: AccessSpan, at: int) -> _Input:
    assert mine.data is not None
    assert other.data is not None
    assert mine.writers is not None
    assert other.writers is not None
    offset = int(mine.offsets[at])
    values = (_hex(mine.data[at]), _hex(other.data[at]))
    what = f"{mine.space} offset {hex(offset)}" if mine.space != "tensor memory" else "a cell"
    writers = (int(mine.writers[at]), int(other.writers[at]))
    return _Input(writers, values, what, None, (mine.space, offset))


def _link(
    left: Event, right: Event, lane: int | None, found: _Input, differing: Sequence[_Input]
) -> tuple[TraceLink, bool]:
    """The instruction as a link; and whether all that it reads is known."""
    values = found.values
    for slot in left.writes.keys() & right.writes.keys():
        if lane is None:
            break
        mine, other = left.writes[slot][lane], right.writes[slot][lane]
        if mine.tobytes() != other.tobytes():
            values = (value_text(mine, left), value_text(other, right))
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
    words = event.place.instruction.split()
    opcode = words[1] if words[0].startswith("@") and len(words) > 1 else words[0]
    kind = next((k for k in reversed(opcode.rstrip(";").split(".")) if k in _FLOATS), None)
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
