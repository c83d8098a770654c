"""What lanes of a warp give each other, as PTX's `shfl`, `vote`, `match`, `redux` and `elect`.

PTX ISA, "Data Movement: shfl.sync", "Parallel Synchronization and Communication: vote, match,
redux, elect". `members` are masks of the lanes that take part, of each thread; those of SASS, where
lanes have met before, are all that are active. Within, arrays are (CTAs, warps, 32).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from gpu_emulator.state.frame import Frame, Trouble
from gpu_emulator.steps import FRAME, MASK, WARP, Array, Registers

_LANES = np.arange(WARP, dtype=np.int64)
_ALL = 0xFFFF_FFFF
_BIT = np.uint32(1) << np.arange(WARP, dtype=np.uint32)
EVERYONE = np.full((1, 1), _ALL, np.uint32)
"""The mask of a whole warp."""
_REDUCTIONS: dict[str, np.ufunc] = {
    "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and,
    "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip


def bits_of(flags: Array) -> Array:
    """(CTAs, warps, 32) flags as (CTAs, warps, 1) masks."""
    return (flags * _BIT).sum(axis=2, dtype=np.uint32)[..., None]


def spread(frame: Frame, value: Array) -> Array:
    """(CTAs, warps, 1) or (CTAs, warps, 32) back to (CTAs, threads)."""
    shape = (frame.ctas, frame.lanes // WARP, WARP)
    return np.broadcast_to(value, shape).reshape(frame.shape)


def _live(frame: Frame, members: Array) -> Array:
    """Of each warp the mask of members that are active, (CTAs, warps, 1) or (CTAs, warps, 32)."""
    live = bits_of(frame.by_warp(frame.active()))
    return live & (members if members.size == 1 else frame.by_warp(members))


def _defined(frame: Frame, taken: Array, lanes: Array, members: Array) -> Array:
    """What lanes take from others; garbage where the other one is not among the members.

    PTX ISA, "shfl.sync": what a thread has that is inactive or not in `membermask` is undefined.
    """
    if frame.registers[MASK] is None and (members == _ALL).all():
        return taken
    live = _live(frame, members)
    sources = np.broadcast_to(lanes, taken.shape).astype(np.uint32)
    open_ = (live >> sources & 1 == 0) & frame.by_warp(frame.active())
    if not open_.any():
        return taken
    frame.batch.note_open(open_, sources, frame.place)
    garbage = np.random.default_rng((frame.batch.schedule.garbage, 55))
    return np.where(open_, garbage.integers(0, 1 << 32, taken.shape, np.uint32), taken)


def shuffled(
    registers: Registers,
    mode: str,
    value: Array,
    amount: Array,
    limits: Array,
    members: Array = EVERYONE,
) -> tuple[Array, Array]:
    """What each lane takes (`mode`: up, down, bfly, idx), and whether it is of its segment."""
    frame: Frame = registers[FRAME]
    values = frame.by_warp(value)
    if amount.size == limits.size == 1:
        lanes, inside = _same_lanes(mode, int(amount[0, 0]), int(limits[0, 0]))
        taken = values[..., lanes]
    else:
        lanes, inside = _source_lanes(mode, frame.by_warp(amount), frame.by_warp(limits))
        taken = np.take_along_axis(values, np.broadcast_to(lanes, values.shape), axis=2)
    taken = _defined(frame, taken, lanes, members)
    return taken.reshape(frame.shape), spread(frame, inside)


@lru_cache(maxsize=256)
def _same_lanes(mode: str, amount: int, limits: int) -> tuple[Array, Array]:
    return _source_lanes(mode, np.array(amount), np.array(limits))


def _source_lanes(mode: str, amount: Array, limits: Array) -> tuple[Array, Array]:
    """Which lane each lane reads, and whether that is in its segment."""
    shift = amount.astype(np.int64) & 31
    bound = limits.astype(np.int64) & 31
    segment = (limits.astype(np.int64) >> 8) & 31
    most = (_LANES & segment) | (bound & ~segment)
    move = {"up": np.subtract, "down": np.add, "bfly": np.bitwise_xor}.get(mode)
    lanes = (_LANES & segment) | (shift & ~segment) if move is None else move(_LANES, shift)
    inside = lanes >= most if mode == "up" else lanes <= most
    return np.where(inside, lanes, _LANES), inside


def voted(
    registers: Registers, how: str, flag: Array, members: Array = EVERYONE
) -> tuple[Array, Array]:
    """The mask of the members that say yes, and whether `all`, `any` or all alike (`uni`) do."""
    frame: Frame = registers[FRAME]
    live = _live(frame, members)
    yes = bits_of(frame.by_warp(flag) & frame.by_warp(frame.active())) & live
    holds = {"all": yes == live, "any": yes != 0, "uni": (yes == live) | (yes == 0)}[how]
    return spread(frame, yes), spread(frame, holds)


def matched(
    registers: Registers, how: str, value: Array, members: Array = EVERYONE
) -> tuple[Array, Array]:
    """The mask of members with the same value, and whether that is all; of `all` none if not."""
    frame: Frame = registers[FRAME]
    live = _live(frame, members)
    matches = matching(frame.by_warp(value)) & live
    agrees = matches == live
    if how == "all":
        matches = np.where(agrees, live, np.uint32(0))
    return spread(frame, matches), spread(frame, agrees)


def redux(
    registers: Registers,
    how: str,
    value: Array,
    members: Array = EVERYONE,
    *,
    of_magnitudes: bool = False,
    keeps_nan: bool = False,
) -> Array:
    """The reduction over the members: of integers, or the `min` or `max` of floats."""
    frame: Frame = registers[FRAME]
    # Whose mask names the same lanes gets the same result.
    chosen = (_live(frame, members)[..., :, None] & _BIT) != 0
    values = frame.by_warp(value)[..., None, :]
    if values.dtype.kind == "f":
        numbers = np.abs(values) if of_magnitudes else values
        result = _of_floats(how, numbers, chosen, keeps_nan=keeps_nan)
    else:
        result = _reduced(how, values, chosen)
    return np.ascontiguousarray(spread(frame, result))


def _of_floats(how: str, values: Array, chosen: Array, *, keeps_nan: bool) -> Array:
    neutral = np.float32(np.inf if how == "min" else -np.inf)
    lost = chosen & np.isnan(values)
    filled = np.where(chosen & ~lost, values, neutral)
    result = filled.min(axis=3) if how == "min" else filled.max(axis=3)
    is_nan = lost.any(axis=3) if keeps_nan else ~(chosen & ~lost).any(axis=3)
    return np.where(is_nan, np.array(0x7FFF_FFFF, np.uint32).view(np.float32), result)


def elected(registers: Registers, members: Array = EVERYONE) -> tuple[Array, Array]:
    """The lane that is elected, and whether it is this one: any may be, the first one is."""
    frame: Frame = registers[FRAME]
    live = _live(frame, members)
    leader = live & (~live + np.uint32(1))
    lane = np.log2(np.maximum(leader, 1).astype(np.float64)).astype(np.uint32)
    return spread(frame, lane), spread(frame, leader == _BIT)


def matching(values: Array) -> Array:
    """For each lane the mask of those with its value."""
    same = values[..., :, None] == values[..., None, :]
    return np.asarray((same * _BIT).sum(axis=3, dtype=np.uint32))


def _reduced(how: str, values: Array, chosen: Array) -> Array:
    """Add, min, max, and, or, xor of the last dimension of values, of those that are chosen."""
    function = _REDUCTIONS[how]
    info = np.iinfo(values.dtype)
    neutral = {"min": info.max, "max": info.min, "and": info.max}.get(how, 0)
    filled = np.where(chosen, values, values.dtype.type(neutral))
    return function.reduce(filled, axis=3, dtype=values.dtype)


def whole_warps(registers: Registers) -> None:
    """Trouble where only part of a warp is here: `.aligned` asks for all of it."""
    if registers[MASK] is None:
        return
    frame: Frame = registers[0]
    here = frame.by_warp(frame.active())
    alive = frame.by_warp(frame.alive())
    if (here.any(axis=2) & (alive & ~here).any(axis=2)).any():
        raise Trouble("part of a warp executes an instruction of the whole warp")


def side_by_side(frame: Frame, values: list[Array]) -> Array:
    """Registers of every thread as (CTAs, warps, 32, registers)."""
    joined = np.empty((*frame.shape, len(values)), dtype=values[0].dtype)
    for number, value in enumerate(values):
        joined[..., number] = value
    return joined.reshape(frame.ctas, -1, WARP, len(values))


def write_all(frame: Frame, slots: Sequence[int], result: Array) -> None:
    """(CTAs, warps, 32, registers) to the registers of every thread."""
    flat = result.reshape(*frame.shape, len(slots))
    for number, slot in enumerate(slots):
        frame.write(slot, np.ascontiguousarray(flat[..., number]))


def leaders(frame: Frame) -> Array:
    """The mask of the first active lane of each warp."""
    active = frame.by_warp(frame.active())
    first: Array = active & (np.cumsum(active, axis=2) == 1)
    return first.reshape(frame.shape)


def of_leaders(frame: Frame, value: Array) -> Array:
    """Of each warp the value of its first active lane, for all of its lanes."""
    if value.shape[1] == 1:
        return value
    values, first = frame.by_warp(value), frame.by_warp(leaders(frame)).argmax(axis=2)
    return spread(frame, np.take_along_axis(values, first[..., None], axis=2))


def first_lanes(frame: Frame, rows: int) -> Array | None:
    """The mask of active threads in the first lanes of each warp."""
    outer: Array | None = frame.registers[MASK]
    if rows >= WARP:
        return outer
    lanes: Array = frame.threads % WARP < rows
    return lanes if outer is None else outer & lanes
