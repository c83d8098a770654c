"""What lanes of a warp take from each other, as arrays (CTAs, warps, 32)."""

from __future__ import annotations

import numpy as np

from gpu_emulator.state.frame import Frame, Trouble
from gpu_emulator.steps import MASK, WARP, Array, Registers
from gpu_emulator.values import Place

_LANES = np.arange(WARP, dtype=np.int64)
_ALL = 0xFFFF_FFFF
_BIT = np.uint32(1) << np.arange(WARP, dtype=np.uint32)
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


def defined(frame: Frame, taken: Array, lanes: Array, members: Array, place: Place) -> Array:
    """What lanes take from others; garbage where the other one is not among the members.

    PTX ISA, "shfl.sync": what a thread has that is inactive or not in `membermask` is undefined.
    """
    if frame.registers[MASK] is None and (members == _ALL).all():
        return taken
    live = frame.by_warp(members) & bits_of(frame.by_warp(frame.active()))
    sources = np.broadcast_to(lanes, taken.shape).astype(np.uint32)
    open_ = (live >> sources & 1 == 0) & frame.by_warp(frame.active())
    if not open_.any():
        return taken
    frame.batch.note_open(open_, sources, place)
    garbage = np.random.default_rng((frame.batch.schedule.garbage, 55))
    return np.where(open_, garbage.integers(0, 1 << 32, taken.shape, np.uint32), taken)


def source_lanes(mode: str, amount: Array, limits: Array) -> tuple[Array, Array]:
    """Which lane each lane reads, and whether that is in its segment."""
    shift = amount.astype(np.int64) & 31
    bound = limits.astype(np.int64) & 31
    segment = (limits.astype(np.int64) >> 8) & 31
    most = (_LANES & segment) | (bound & ~segment)
    move = {"up": np.subtract, "down": np.add, "bfly": np.bitwise_xor}.get(mode)
    lanes = (_LANES & segment) | (shift & ~segment) if move is None else move(_LANES, shift)
    inside = lanes >= most if mode == "up" else lanes <= most
    return np.where(inside, lanes, _LANES), inside


def matching(values: Array) -> Array:
    """For each lane the mask of those with its value."""
    same = values[..., :, None] == values[..., None, :]
    return np.asarray((same * _BIT).sum(axis=3, dtype=np.uint32))


def reduced(how: str, values: Array, chosen: Array) -> Array:
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


def write_all(frame: Frame, slots: list[int], result: Array) -> None:
    """(CTAs, warps, 32, registers) to the registers of every thread."""
    flat = result.reshape(*frame.shape, len(slots))
    for number, slot in enumerate(slots):
        frame.write(slot, np.ascontiguousarray(flat[..., number]))


def leaders(frame: Frame) -> Array:
    """The mask of the first active lane of each warp."""
    active = frame.by_warp(frame.active())
    first: Array = active & (np.cumsum(active, axis=2) == 1)
    return first.reshape(frame.shape)


def first_lanes(frame: Frame, rows: int) -> Array | None:
    """The mask of active threads in the first lanes of each warp."""
    outer: Array | None = frame.registers[MASK]
    if rows >= WARP:
        return outer
    lanes: Array = frame.threads % WARP < rows
    return lanes if outer is None else outer & lanes
