"""Where lanes and warps meet: convergence barriers, barriers of a CTA, fences."""

from __future__ import annotations

import numpy as np

from gpu_emulator.sass.binder import BARRIER_RESULT, NOTHING, Binder, acting, acts, bound, opcode
from gpu_emulator.state.barriers import arrive_at_barrier, thread_fence, vote_of_barrier
from gpu_emulator.state.frame import Frame, reach_trap
from gpu_emulator.state.lanes import EVERYONE, bits_of, of_leaders, spread
from gpu_emulator.steps import Array, Registers, Step

_BINARIES = "CUDA Binary Utilities"
_NONE = np.zeros((1, 1), np.uint32)

acts("NOP", "YIELD", "ENDCOLLECTIVE", evidence=f"{_BINARIES}; changes nothing")(lambda _: None)
opcode(
    "ERRBAR", "CGAERRBAR", "CCTL.E.{level:PF1|PF2|PF1.5}", "NANOSLEEP",
    evidence=f"{_BINARIES}; PTX ISA: prefetch, nanosleep; changes no value",
)(lambda _: NOTHING)  # fmt: skip
opcode("BPT.TRAP", evidence="PTX ISA: trap, of which ptxas 13.5.37 makes it")(
    lambda _: Step(reach_trap)
)
acts(
    "MEMBAR.{order:SC|ALL}.{scope:CTA|SM|GPU|SYS}", is_plain=False,
    evidence="PTX ISA: fence, membar, of which ptxas 13.5.37 makes it",
)(thread_fence)  # fmt: skip


def _lanes(registers: Registers, flags: Array) -> Array:
    """Of each warp the mask of lanes whose flag is set, for all of its lanes."""
    frame: Frame = registers[0]
    return spread(frame, bits_of(frame.by_warp(flags)))


@opcode("BSSY?{how:RECONVERGENT|RELIABLE}", evidence=f"{_BINARIES}")
def _begin(line: Binder) -> Step:
    """The label says where the lanes are to meet, which BSYNC says again."""
    line.has(2)
    line.operands = line.operands[:1]
    return acting(line, "B:b32 =", lambda rs: _lanes(rs, rs[0].active()), reads_old=True)


@opcode("BSYNC?{how:RECONVERGENT|RELIABLE}", meets=True, evidence=f"{_BINARIES}")
def _meet(line: Binder) -> Step:
    if len(line.operands) == 1:
        line.meeting = line.read(line.operands[0], "b32")
    return acting(line, "B:b32 =", lambda _: _NONE, reads_old=True)


@opcode("BREAK?{how:RELIABLE}", evidence=f"{_BINARIES}: break out of the convergence barrier")
def _break(line: Binder) -> Step:
    """A predicate says which of the active lanes do."""
    *flags, target = line.operands
    line.operands = (target, *flags, target)

    def leave(registers: Registers, flag: Array, lanes: Array) -> Array:
        leaves = registers[0].active() & flag if flags else registers[0].active()
        return lanes & ~_lanes(registers, leaves)

    return acting(line, "B:b32 = pred? B:b32", leave, reads_old=True)


@opcode(
    "WARPSYNC?{how:ALL|COLLECTIVE|EXCLUSIVE}", "WARPSYNC.{how:COLLECTIVE}.{all:ALL}", meets=True,
    evidence=f"{_BINARIES}; PTX ISA: bar.warp.sync",
)  # fmt: skip
def _meet_by_mask(line: Binder) -> Step:
    """Those of one mask then run together, and see only each other until the block ends."""
    if "ALL" in (line.parts["how"], line.parts.get("all")):
        line.meeting = lambda _: EVERYONE
    elif len(line.operands) == 1 + (line.parts["how"] == "COLLECTIVE"):
        line.meeting = line.read(line.operands[0], "b32")
    else:
        raise line.refuse()
    return NOTHING


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
    is_packed = [operand.kind for operand in operands] == ["R", "R"]
    if is_packed and operands[0].number != operands[1].number:
        raise line.refuse()
    line.is_plain = is_sync and len(operands) == 1 and operands[0].kind == "number" and not how

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        number = numbers[0](registers)
        count = numbers[1](registers) if len(numbers) > 1 else None
        if is_packed:
            number, count = number & np.uint32(15), number >> np.uint32(16)
            if not (frame.active() & (count > 0)).any():
                # So `barrier.sync` without a count is at -O0: all threads.
                count = None

        def give(votes: Array, voters: Array) -> None:
            result = vote_of_barrier(str(how).lower(), votes, voters)
            frame.write(BARRIER_RESULT, result.astype(np.uint32))

        vote = None if flag is None else flag(registers)
        arrive_at_barrier(
            registers, number, count, is_sync=is_sync, vote=vote, give=give if how else None
        )

    return Step(run, (BARRIER_RESULT,) if how else (), reads_old=True)


@opcode("B2R.RESULT", evidence="PTX ISA: bar.red, of which ptxas 13.5.37 makes it")
def _barrier_result(line: Binder) -> Step:
    line.reads.add(BARRIER_RESULT)
    more = (lambda registers: registers[BARRIER_RESULT],)
    return bound(line, "b32 pred? =", lambda result: (result, result != 0), more)


@opcode("BMOV.32?{clear:CLEAR}", evidence=f"{_BINARIES}; seen where ptxas saves a barrier register")
def _move_barrier(line: Binder) -> Step:
    """Between a barrier register and one of a thread; `.CLEAR` empties the barrier register."""
    is_to, clears = line.operands[0].kind == "B", bool(line.parts["clear"])
    if is_to:
        if clears:
            raise line.refuse()
        move = "B:b32 = b32", lambda registers, value: of_leaders(registers[0], value)
        return acting(line, *move, reads_old=True)
    if clears:
        line.operands = (*line.operands, line.operands[-1])
        return acting(line, "b32 B:b32 = B:b32", lambda _, value: (value, _NONE), reads_old=True)
    return acting(line, "b32 = B:b32", lambda _, value: value, reads_old=True)
