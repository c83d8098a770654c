"""Where lanes and warps meet: barriers, fences, what lanes of a warp give each other."""

from __future__ import annotations

import numpy as np

from gpu_emulator.sass.binder import Binder, Made, opcode
from gpu_emulator.sass.instructions.moves import write_for_warps
from gpu_emulator.state.frame import Frame
from gpu_emulator.state.lanes import bits_of, defined, source_lanes, spread
from gpu_emulator.steps import Array, Registers, Step
from gpu_emulator.values import Place

_BINARIES = "CUDA Binary Utilities"
_NOTHING = Step(lambda _: None, is_pure=True)


@opcode("NOP", "YIELD", "ENDCOLLECTIVE", evidence=f"{_BINARIES}; changes nothing")
def _nothing(line: Binder) -> Step:
    if line.operands:
        raise line.refuse()
    return _NOTHING


def _active(registers: Registers) -> Array:
    """Of each warp the active lanes, for all of its lanes."""
    frame: Frame = registers[0]
    return spread(frame, bits_of(frame.by_warp(frame.active())))


@opcode("BSSY?{how:RECONVERGENT|RELIABLE}", evidence=f"{_BINARIES}; H200: truth programs")
def _begin(line: Binder) -> Step:
    """The label says where the lanes are to meet, which BSYNC says again."""
    if len(line.operands) != 2 or line.operands[0].kind != "B":
        raise line.refuse()
    ((slot,),) = line.results(line.operands[:1], ["b32"])

    def run(registers: Registers) -> None:
        write_for_warps(registers, slot, _active(registers))

    return Step(run, (slot,), reads_old=True)


@opcode(
    "BSYNC?{how:RECONVERGENT|RELIABLE}", meets=True, evidence=f"{_BINARIES}; H200: truth programs"
)
def _meet(line: Binder) -> Step:
    if len(line.operands) != 1 or line.operands[0].kind != "B":
        raise line.refuse()
    line.meeting = line.read(line.operands[0], "b32")
    ((slot,),) = line.results(line.operands, ["b32"])

    def run(registers: Registers) -> None:
        write_for_warps(registers, slot, np.zeros((1, 1), np.uint32))

    return Step(run, (slot,), reads_old=True)


@opcode("BREAK?{how:RELIABLE}", evidence=f"{_BINARIES}: break out of the convergence barrier")
def _break(line: Binder) -> Step:
    if len(line.operands) != 1 or line.operands[0].kind != "B":
        raise line.refuse()
    read = line.read(line.operands[0], "b32")
    ((slot,),) = line.results(line.operands, ["b32"])

    def run(registers: Registers) -> None:
        write_for_warps(registers, slot, read(registers) & ~_active(registers))

    return Step(run, (slot,), reads_old=True)


@opcode(
    "WARPSYNC?{how:ALL|COLLECTIVE}", meets=True, evidence=f"{_BINARIES}; PTX ISA: bar.warp.sync"
)
def _meet_by_mask(line: Binder) -> Step:
    if line.parts["how"] == "ALL":
        return _NOTHING
    if len(line.operands) != 1 + (line.parts["how"] == "COLLECTIVE"):
        raise line.refuse()
    line.meeting = line.read(line.operands[0], "b32")
    return _NOTHING


@opcode("SHFL.{mode:IDX|UP|DOWN|BFLY}", evidence="PTX ISA: shfl; H200: truth programs")
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
