"""What lanes of a warp give each other, of those that are active: the callers have met before."""

from __future__ import annotations

from functools import partial

import numpy as np

from gpu_emulator.sass.binder import Binder, Made, opcode
from gpu_emulator.sass.instructions.moves import write_for_warps
from gpu_emulator.state.frame import Frame
from gpu_emulator.state.lanes import bits_of, defined, matching, reduced, source_lanes, spread
from gpu_emulator.steps import WARP, Array, Registers, Step
from gpu_emulator.values import Place

_BIT = np.uint32(1) << np.arange(WARP, dtype=np.uint32)


def _active(frame: Frame) -> Array:
    """Of each warp the mask of active lanes, (CTAs, warps, 1)."""
    return bits_of(frame.by_warp(frame.active()))


@opcode("SHFL.{mode:IDX|UP|DOWN|BFLY}", evidence="PTX ISA: shfl")
def _shuffle(line: Binder) -> Made:
    if len(line.operands) != 5:
        raise line.refuse()
    (inside_slot,), (slot,) = line.results(line.operands[:2], ["pred", "b32"])
    value, amount, limits = (line.read(operand, "b32") for operand in line.operands[2:])
    mode = line.parts["mode"].lower()

    def make(place: Place) -> Step:
        def run(registers: Registers) -> None:
            frame: Frame = registers[0]
            values = frame.by_warp(value(registers))
            lanes, inside = source_lanes(
                mode, frame.by_warp(amount(registers)), frame.by_warp(limits(registers))
            )
            taken = np.take_along_axis(values, np.broadcast_to(lanes, values.shape), axis=2)
            everyone = np.full((1, 1), 0xFFFF_FFFF, np.uint32)
            taken = defined(frame, taken, lanes, everyone, place)
            frame.write(slot, taken.reshape(frame.shape))
            frame.write(inside_slot, spread(frame, inside))

        return Step(run, (slot, inside_slot))

    return make


@opcode(
    "VOTE|VOTEU.{how:ALL|ANY|EQ}", evidence="PTX ISA: vote, activemask, of which ptxas makes it"
)
def _vote(line: Binder) -> Step:
    """A register gets the mask of lanes that say yes, a predicate whether all, any or all alike."""
    operands = line.operands
    has_mask = operands[0].kind in ("R", "UR")
    if len(operands) != 2 + has_mask:
        raise line.refuse()
    kinds = ["b32", "pred"] if has_mask else ["pred"]
    *masks, (flag_slot,) = (slots for slots in line.results(operands[:-1], kinds))
    flag, how = line.read(operands[-1], "pred"), line.parts["how"]
    for_warps = line.is_of_warps(operands[:-1])

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        live = _active(frame)
        yes = bits_of(frame.by_warp(flag(registers)) & frame.by_warp(frame.active()))
        holds = {"ALL": yes == live, "ANY": yes != 0, "EQ": (yes == live) | (yes == 0)}[how]
        write = partial(write_for_warps, registers) if for_warps else frame.write
        for (slot,) in masks:
            write(slot, spread(frame, yes))
        write(flag_slot, spread(frame, holds))

    return Step(run, (*(slot for (slot,) in masks), flag_slot), reads_old=True)


@opcode("MATCH.{how:ANY|ALL}?{type:U64}", evidence="PTX ISA: match.sync, of which ptxas makes it")
def _match(line: Binder) -> Step:
    """The mask of lanes with the same value; of ALL it is empty unless all of them have it."""
    is_all = line.parts["how"] == "ALL"
    if len(line.operands) != 2 + is_all:
        raise line.refuse()
    slots = line.results(line.operands[:-1], ["pred", "b32"] if is_all else ["b32"])
    value = line.read(line.operands[-1], "b64" if line.parts["type"] else "b32")

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        live = _active(frame)
        matches = matching(frame.by_warp(value(registers))) & live
        if is_all:
            agrees = matches == live
            matches = np.where(agrees, live, np.uint32(0))
            frame.write(slots[0][0], spread(frame, agrees))
        frame.write(slots[-1][0], spread(frame, matches))

    return Step(run, tuple(slot for (slot,) in slots), reads_old=True)


@opcode(
    "REDUX|CREDUX?{how:OR|XOR}", "REDUX|CREDUX.{how:SUM|MIN|MAX}?{type:S32}",
    evidence="PTX ISA: redux.sync, of which ptxas makes it; without a modifier it is `and`",
)  # fmt: skip
def _redux(line: Binder) -> Step:
    if len(line.operands) != 2:
        raise line.refuse()
    ((slot,),) = line.results(line.operands[:1], ["b32"])
    value = line.read(line.operands[1], "s32" if line.parts.get("type") else "u32")
    how = {"": "and", "SUM": "add"}.get(line.parts["how"], line.parts["how"].lower())
    for_warps = line.is_of_warps(line.operands[:1])

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        values = frame.by_warp(value(registers))
        chosen = (_active(frame)[..., None] & _BIT) != 0
        result = spread(frame, reduced(how, values[..., None, :], chosen))
        result = np.ascontiguousarray(result).view(np.uint32)
        if for_warps:
            write_for_warps(registers, slot, result)
        else:
            frame.write(slot, result)

    return Step(run, (slot,), reads_old=True)
