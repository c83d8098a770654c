"""What the lanes of a warp do together: shuffles, votes, matches, reductions.

PTX ISA, "Data Movement: shfl.sync" and "Parallel Synchronization and Communication: vote, match,
redux, activemask, elect, bar.warp".
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from gpu_emulator.ptx.program.binder import Binder, opcode
from gpu_emulator.state.frame import Frame
from gpu_emulator.steps import DTYPES, MASK, WARP, Array, Registers, Step
from gpu_emulator.values import Place

_LANES = np.arange(WARP, dtype=np.int64)
_ALL = 0xFFFF_FFFF
_BIT = np.uint32(1) << np.arange(WARP, dtype=np.uint32)


def _bits(flags: Array) -> Array:
    """(CTAs, warps, 32) flags as (CTAs, warps, 1) masks."""
    return (flags * _BIT).sum(axis=2, dtype=np.uint32)[..., None]


def _spread(frame: Frame, value: Array) -> Array:
    """(CTAs, warps, 1) or (CTAs, warps, 32) back to (CTAs, threads)."""
    shape = (frame.ctas, frame.lanes // WARP, WARP)
    return np.broadcast_to(value, shape).reshape(frame.shape)


@opcode("shfl.sync.{mode:up|down|bfly|idx}.b32", meets=True)
def _shuffle(line: Binder) -> Step:
    mode = line.parts["mode"]
    slot, *flags = writes = line.results("b32", "pred")
    value, amount, limits = (line.read(number, "b32") for number in (1, 2, 3))
    line.meeting = members = line.read(4, "b32")
    fixed = [line.constant(number) for number in (2, 3)]
    simple = None
    if fixed[0] is not None and fixed[1] is not None:
        simple = _source_lanes(mode, np.array(fixed[0]), np.array(fixed[1]))

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        values = frame.by_warp(value(registers))
        if simple is not None:
            lanes, inside = simple
            taken = values[..., lanes]
        else:
            lanes, inside = _source_lanes(
                mode, frame.by_warp(amount(registers)), frame.by_warp(limits(registers))
            )
            taken = np.take_along_axis(values, np.broadcast_to(lanes, values.shape), axis=2)
        taken = _defined(frame, taken, lanes, members(registers), line.place)
        frame.write(slot, taken.reshape(frame.shape))
        for flag in flags:
            frame.write(flag, _spread(frame, inside))

    return Step(run, tuple(writes))


def _defined(frame: Frame, taken: Array, lanes: Array, members: Array, place: Place) -> Array:
    """What lanes take from others; garbage where the other one is not among the members.

    PTX ISA, "shfl.sync": what a thread has that is inactive or not in `membermask` is undefined.
    """
    if frame.registers[MASK] is None and (members == _ALL).all():
        return taken
    live = frame.by_warp(members) & _bits(frame.by_warp(frame.active()))
    sources = np.broadcast_to(lanes, taken.shape).astype(np.uint32)
    open_ = (live >> sources & 1 == 0) & frame.by_warp(frame.active())
    if not open_.any():
        return taken
    frame.batch.note_open(open_, sources, place)
    garbage = np.random.default_rng((frame.batch.schedule.garbage, 55))
    return np.where(open_, garbage.integers(0, 1 << 32, taken.shape, np.uint32), taken)


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


@opcode("vote.sync.{how:all|any|uni}.{type:pred}", "vote.sync.{how:ballot}.{type:b32}", meets=True)
def _vote(line: Binder) -> Step:
    how = line.parts["how"]
    slot, _ = line.target(line.operand(0), line.parts["type"])
    flag = line.read(1, "pred")
    line.meeting = members = line.read(2, "b32")

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        yes = _bits(frame.by_warp(flag(registers)) & frame.by_warp(frame.active()))
        mask = frame.by_warp(members(registers))
        live = mask & _bits(frame.by_warp(frame.active()))
        ballot = yes & mask
        results = {
            "all": ballot == live, "any": ballot != 0, "uni": (ballot == live) | (ballot == 0),
            "ballot": ballot,
        }  # fmt: skip
        frame.write(slot, _spread(frame, results[how]))

    return Step(run, (slot,))


@opcode("match.{how:any}.sync.{type:b32|b64}", "match.{how:all}.sync.{type:b32|b64}", meets=True)
def _match(line: Binder) -> Step:
    is_all = line.parts["how"] == "all"
    slot, *flags = writes = line.results("b32", "pred")
    value = line.read(1, line.parts["type"])
    line.meeting = members = line.read(2, "b32")

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        values = frame.by_warp(value(registers))
        mask = frame.by_warp(members(registers))
        live = mask & _bits(frame.by_warp(frame.active()))
        same = values[..., :, None] == values[..., None, :]
        matches = (same * _BIT).sum(axis=3, dtype=np.uint32) & live
        if is_all:
            agrees = matches == live
            matches = np.where(agrees, live, np.uint32(0))
            for flag in flags:
                frame.write(flag, _spread(frame, agrees))
        frame.write(slot, _spread(frame, matches))

    return Step(run, tuple(writes))


_REDUCTIONS: dict[str, np.ufunc] = {
    "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and,
    "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip


@opcode(
    "redux.sync.{how:add|min|max}.{type:u32|s32}", "redux.sync.{how:and|or|xor}.{type:b32}",
    "redux.sync.{how:min|max}?{abs:abs}?{nan:NaN}.{type:f32}", meets=True,
)  # fmt: skip
def _redux(line: Binder) -> Step:
    kind, how = line.parts["type"], line.parts["how"]
    slot, convert = line.target(line.operand(0), kind)
    value = line.read(1, kind)
    line.meeting = members = line.read(2, "b32")
    reduce = _float_reduction(how, line.parts) if kind == "f32" else partial(_reduced, how)

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        values = frame.by_warp(value(registers))
        mask = frame.by_warp(members(registers)) & _bits(frame.by_warp(frame.active()))
        # Whose mask names the same lanes gets the same result.
        chosen = (mask[..., :, None] & _BIT) != 0
        result = reduce(values[..., None, :], chosen).astype(DTYPES[kind])
        result = _spread(frame, result)
        frame.write(slot, result if convert is None else convert(np.ascontiguousarray(result)))

    return Step(run, (slot,))


def _reduced(how: str, values: Array, chosen: Array) -> Array:
    function = _REDUCTIONS[how]
    info = np.iinfo(values.dtype)
    neutral = {"min": info.max, "max": info.min, "and": info.max}.get(how, 0)
    filled = np.where(chosen, values, values.dtype.type(neutral))
    return function.reduce(filled, axis=3, dtype=values.dtype)


def _float_reduction(how: str, parts: dict[str, str]) -> Callable[[Array, Array], Array]:
    def reduce(values: Array, chosen: Array) -> Array:
        numbers = np.abs(values) if parts["abs"] else values
        neutral = np.float32(np.inf if how == "min" else -np.inf)
        lost = chosen & np.isnan(numbers)
        filled = np.where(chosen & ~lost, numbers, neutral)
        result = filled.min(axis=3) if how == "min" else filled.max(axis=3)
        is_nan = lost.any(axis=3) if parts["nan"] else ~(chosen & ~lost).any(axis=3)
        nan = np.array(0x7FFF_FFFF, dtype=np.uint32).view(np.float32)
        return np.where(is_nan, nan, result)

    return reduce


@opcode("activemask.b32")
def _active_mask(line: Binder) -> Step:
    slot, _ = line.target(line.operand(0), "b32")

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        frame.write(slot, _spread(frame, _bits(frame.by_warp(frame.active()))))

    return Step(run, (slot,))


@opcode("elect.sync", meets=True)
def _elect(line: Binder) -> Step:
    slot, flag = line.results("b32", "pred")
    line.meeting = members = line.read(1, "b32")

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        live = frame.by_warp(members(registers)) & _bits(frame.by_warp(frame.active()))
        # Any lane may be elected; the lowest is.
        leader = live & (~live + np.uint32(1))
        frame.write(flag, _spread(frame, leader == _BIT))
        place = np.log2(np.maximum(leader, 1).astype(np.float64)).astype(np.uint32)
        frame.write(slot, _spread(frame, place))

    return Step(run, (slot, flag))


@opcode("bar.warp.sync", meets=True)
def _warp_barrier(line: Binder) -> Step:
    line.meeting = line.read(0, "b32")
    return Step(lambda _: None, (), is_pure=True)
