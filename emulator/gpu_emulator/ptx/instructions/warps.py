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
from gpu_emulator.state.lanes import bits_of, defined, matching, reduced, source_lanes, spread
from gpu_emulator.steps import DTYPES, WARP, Array, Registers, Step

_BIT = np.uint32(1) << np.arange(WARP, dtype=np.uint32)


@opcode("shfl.sync.{mode:up|down|bfly|idx}.b32", meets=True)
def _shuffle(line: Binder) -> Step:
    mode = line.parts["mode"]
    slot, *flags = writes = line.results("b32", "pred")
    value, amount, limits = (line.read(number, "b32") for number in (1, 2, 3))
    line.meeting = members = line.read(4, "b32")
    fixed = [line.constant(number) for number in (2, 3)]
    simple = None
    if fixed[0] is not None and fixed[1] is not None:
        simple = source_lanes(mode, np.array(fixed[0]), np.array(fixed[1]))

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        values = frame.by_warp(value(registers))
        if simple is not None:
            lanes, inside = simple
            taken = values[..., lanes]
        else:
            lanes, inside = source_lanes(
                mode, frame.by_warp(amount(registers)), frame.by_warp(limits(registers))
            )
            taken = np.take_along_axis(values, np.broadcast_to(lanes, values.shape), axis=2)
        taken = defined(frame, taken, lanes, members(registers), line.place)
        frame.write(slot, taken.reshape(frame.shape))
        for flag in flags:
            frame.write(flag, spread(frame, inside))

    return Step(run, tuple(writes))


@opcode("vote.sync.{how:all|any|uni}.{type:pred}", "vote.sync.{how:ballot}.{type:b32}", meets=True)
def _vote(line: Binder) -> Step:
    how = line.parts["how"]
    slot, _ = line.target(line.operand(0), line.parts["type"])
    flag = line.read(1, "pred")
    line.meeting = members = line.read(2, "b32")

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        yes = bits_of(frame.by_warp(flag(registers)) & frame.by_warp(frame.active()))
        mask = frame.by_warp(members(registers))
        live = mask & bits_of(frame.by_warp(frame.active()))
        ballot = yes & mask
        results = {
            "all": ballot == live, "any": ballot != 0, "uni": (ballot == live) | (ballot == 0),
            "ballot": ballot,
        }  # fmt: skip
        frame.write(slot, spread(frame, results[how]))

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
        live = mask & bits_of(frame.by_warp(frame.active()))
        matches = matching(values) & live
        if is_all:
            agrees = matches == live
            matches = np.where(agrees, live, np.uint32(0))
            for flag in flags:
                frame.write(flag, spread(frame, agrees))
        frame.write(slot, spread(frame, matches))

    return Step(run, tuple(writes))


@opcode(
    "redux.sync.{how:add|min|max}.{type:u32|s32}", "redux.sync.{how:and|or|xor}.{type:b32}",
    "redux.sync.{how:min|max}?{abs:abs}?{nan:NaN}.{type:f32}", meets=True,
)  # fmt: skip
def _redux(line: Binder) -> Step:
    kind, how = line.parts["type"], line.parts["how"]
    slot, convert = line.target(line.operand(0), kind)
    value = line.read(1, kind)
    line.meeting = members = line.read(2, "b32")
    reduce = _float_reduction(how, line.parts) if kind == "f32" else partial(reduced, how)

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        values = frame.by_warp(value(registers))
        mask = frame.by_warp(members(registers)) & bits_of(frame.by_warp(frame.active()))
        # Whose mask names the same lanes gets the same result.
        chosen = (mask[..., :, None] & _BIT) != 0
        result = reduce(values[..., None, :], chosen).astype(DTYPES[kind])
        result = spread(frame, result)
        frame.write(slot, result if convert is None else convert(np.ascontiguousarray(result)))

    return Step(run, (slot,))


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
        frame.write(slot, spread(frame, bits_of(frame.by_warp(frame.active()))))

    return Step(run, (slot,))


@opcode("elect.sync", meets=True)
def _elect(line: Binder) -> Step:
    slot, flag = line.results("b32", "pred")
    line.meeting = members = line.read(1, "b32")

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        live = frame.by_warp(members(registers)) & bits_of(frame.by_warp(frame.active()))
        # Any lane may be elected; the lowest is.
        leader = live & (~live + np.uint32(1))
        frame.write(flag, spread(frame, leader == _BIT))
        place = np.log2(np.maximum(leader, 1).astype(np.float64)).astype(np.uint32)
        frame.write(slot, spread(frame, place))

    return Step(run, (slot, flag))


@opcode("bar.warp.sync", meets=True)
def _warp_barrier(line: Binder) -> Step:
    line.meeting = line.read(0, "b32")
    return Step(lambda _: None, (), is_pure=True)
