"""Where lanes and warps meet: convergence barriers, barriers of a CTA, fences."""

from __future__ import annotations

from functools import partial

import numpy as np

from gpu_emulator.sass.binder import BARRIER_RESULT, Binder, bound, opcode
from gpu_emulator.sass.instructions.moves import first_lanes, write_for_warps
from gpu_emulator.state.barriers import hold_at
from gpu_emulator.state.frame import Frame, reach_trap
from gpu_emulator.state.lanes import bits_of, spread
from gpu_emulator.steps import Array, Registers, Step

_BINARIES = "CUDA Binary Utilities"
_EVERYONE = np.full((1, 1), 0xFFFF_FFFF, np.uint32)
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


@opcode("BSSY?{how:RECONVERGENT|RELIABLE}", evidence=f"{_BINARIES}")
def _begin(line: Binder) -> Step:
    """The label says where the lanes are to meet, which BSYNC says again."""
    if len(line.operands) != 2 or line.operands[0].kind != "B":
        raise line.refuse()
    ((slot,),) = line.results(line.operands[:1], ["b32"])

    def run(registers: Registers) -> None:
        write_for_warps(registers, slot, _active(registers))

    return Step(run, (slot,), reads_old=True)


@opcode("BSYNC?{how:RECONVERGENT|RELIABLE}", meets=True, evidence=f"{_BINARIES}")
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
    """A predicate says which of the active lanes do."""
    *flags, target = line.operands
    if len(flags) > 1 or target.kind != "B":
        raise line.refuse()
    leaves = line.read(flags[0], "pred") if flags else None
    read = line.read(target, "b32")
    ((slot,),) = line.results([target], ["b32"])

    def run(registers: Registers) -> None:
        lanes = _active(registers)
        if leaves is not None:
            frame: Frame = registers[0]
            lanes = spread(frame, bits_of(frame.by_warp(frame.active() & leaves(registers))))
        write_for_warps(registers, slot, read(registers) & ~lanes)

    return Step(run, (slot,), reads_old=True)


@opcode(
    "WARPSYNC?{how:ALL|COLLECTIVE|EXCLUSIVE}", "WARPSYNC.{how:COLLECTIVE}.{all:ALL}", meets=True,
    evidence=f"{_BINARIES}; PTX ISA: bar.warp.sync",
)  # fmt: skip
def _meet_by_mask(line: Binder) -> Step:
    """Those of one mask then run together, and see only each other until the block ends."""
    if "ALL" in (line.parts["how"], line.parts.get("all")):
        line.meeting = lambda _: _EVERYONE
        return _NOTHING
    if len(line.operands) != 1 + (line.parts["how"] == "COLLECTIVE"):
        raise line.refuse()
    line.meeting = line.read(line.operands[0], "b32")
    return _NOTHING


_FORMS = "?{defer:DEFER_BLOCKING}"


@opcode(
    f"BAR.{{what:SYNC|ARV}}{_FORMS}", f"BAR.{{what:RED}}.{{how:POPC|AND|OR}}{_FORMS}", waits=True,
    evidence="PTX ISA: bar, of which ptxas 13.5.37 makes it",
)  # fmt: skip
def _barrier(line: Binder) -> Step:
    """One register has the barrier's number in its low bits and a count of threads above them.

    What RED gives goes to where B2R.RESULT reads it.
    """
    how, is_sync = line.parts.get("how"), line.parts["what"] != "ARV"
    operands = line.operands[:-1] if how else line.operands
    if not 1 <= len(operands) <= 2:
        raise line.refuse()
    flag = line.read(line.operands[-1], "pred") if how else None
    numbers = [line.read(operand, "b32") for operand in operands]
    is_packed = len(operands) == 2 and operands[0].kind == "R"
    if is_packed and operands[1].kind == "R" and operands[0].number != operands[1].number:
        raise line.refuse()
    is_packed = is_packed and operands[1].kind == "R"
    line.is_plain = is_sync and len(operands) == 1 and operands[0].kind == "number" and not how

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        barriers = frame.batch.barriers
        number = numbers[0](registers)
        count = numbers[1](registers) if len(numbers) > 1 else None
        if is_packed:
            number, count = number & np.uint32(15), number >> np.uint32(16)
            if not (frame.active() & (count > 0)).any():
                # So `barrier.sync` without a count is at -O0: all threads.
                count = None
        if is_sync and flag is None and barriers.is_trivial(frame, count):
            if frame.batch.watch is not None:
                frame.batch.watch.meet()
            return
        own = None if flag is None else flag(registers)
        for name, here, phase in barriers.arrive(frame, number, count, own):
            if is_sync:
                then = partial(after, frame, name) if how else None
                hold_at(frame, name, here, phase, then)

    def after(frame: Frame, name: int) -> None:
        results = frame.batch.barriers.results
        votes, voters = results[:, name, 0], results[:, name, 1]
        answers = {"POPC": votes, "OR": votes > 0, "AND": votes == voters}
        frame.write(BARRIER_RESULT, answers[str(how)].astype(np.uint32)[:, None])

    return Step(run, (BARRIER_RESULT,) if how else (), reads_old=True)


@opcode("B2R.RESULT", evidence="PTX ISA: bar.red, of which ptxas 13.5.37 makes it")
def _barrier_result(line: Binder) -> Step:
    line.reads.add(BARRIER_RESULT)
    form = "b32 pred? ="

    def function(result: Array) -> tuple[Array, Array]:
        return result, result != 0

    return bound(line, form, function, (lambda registers: registers[BARRIER_RESULT],))


@opcode(
    "MEMBAR.{order:SC|ALL}.{scope:CTA|SM|GPU|SYS}", is_plain=False,
    evidence="PTX ISA: fence, membar, of which ptxas 13.5.37 makes it",
)  # fmt: skip
def _fence(line: Binder) -> Step:
    """Memory here is coherent at once; the race check takes releases and acquires from it."""
    if line.operands:
        raise line.refuse()

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        if frame.batch.watch is not None:
            frame.batch.watch.thread_fence(frame, frame.active())

    return Step(run)


@opcode(
    "ERRBAR", "CGAERRBAR", "CCTL.E.{level:PF1|PF2|PF1.5}", "NANOSLEEP",
    evidence=f"{_BINARIES}; PTX ISA: prefetch, nanosleep; changes no value",
)  # fmt: skip
def _no_value(line: Binder) -> Step:
    del line
    return _NOTHING


@opcode("BPT.TRAP", evidence="PTX ISA: trap, of which ptxas 13.5.37 makes it")
def _trap(line: Binder) -> Step:
    del line
    return Step(reach_trap)


@opcode("BMOV.32?{clear:CLEAR}", evidence=f"{_BINARIES}; seen where ptxas saves a barrier register")
def _move_barrier(line: Binder) -> Step:
    """Between a barrier register and one of a thread; `.CLEAR` empties the barrier register."""
    if len(line.operands) != 2 or "B" not in (line.operands[0].kind, line.operands[1].kind):
        raise line.refuse()
    ((slot,),) = line.results(line.operands[:1], ["b32"])
    read = line.read(line.operands[1], "b32")
    if line.operands[0].kind == "B":
        if line.parts["clear"]:
            raise line.refuse()

        def to_barrier(registers: Registers) -> None:
            write_for_warps(registers, slot, first_lanes(registers, read(registers)))

        return Step(to_barrier, (slot,), reads_old=True)
    cleared = line.results(line.operands[1:], ["b32"])[0][0] if line.parts["clear"] else None

    def from_barrier(registers: Registers) -> None:
        registers[0].write(slot, read(registers))
        if cleared is not None:
            write_for_warps(registers, cleared, np.zeros((1, 1), np.uint32))

    return Step(from_barrier, (slot,) if cleared is None else (slot, cleared), reads_old=True)
