"""Copies from global to shared memory that are waited for later, and stores that are counted.

`gpu_emulator.state.copies` has them, as PTX's `cp.async` and `st.async`: they take effect early or
late, as the schedule says.
"""

from __future__ import annotations

import re

import numpy as np

from gpu_emulator.numbers.arithmetic import combine
from gpu_emulator.sass.binder import Binder, Made, immediate, opcode
from gpu_emulator.sass.instructions.memory import address_of
from gpu_emulator.state.atomics import apply_to_memory
from gpu_emulator.state.barriers import COPIES
from gpu_emulator.state.bulk import READ
from gpu_emulator.state.copies import begin_copy, begin_counted
from gpu_emulator.state.frame import Frame, MemoryOperand, scatter, semantics_of
from gpu_emulator.steps import BITS, Reader, Registers, Step
from gpu_emulator.values import NotExecutable, Place

_SIZES = {"": 4, "64": 8, "128": 16}


@opcode(
    "LDGSTS.E?{way:BYPASS}?{ltc:LTC64B|LTC128B|LTC256B}?{size:64|128}?{fill:ZFILL}",
    evidence="PTX ISA: cp.async, of which ptxas 13.5.37 makes it; .ZFILL is inferred from that",
)
def _copy(line: Binder) -> Made:
    """Where its predicate is false, zeros are copied.

    With `.ZFILL` the low bits of the global address are not of it, but say how many bytes fewer are
    copied, and zeros behind them: ptxas adds them up of the size that `cp.async` is given, and the
    predicate says whether that is zero.
    """
    size = _SIZES[line.parts["size"]]
    if len(line.operands) not in (2, 3) or (line.parts["fill"] and len(line.operands) != 3):
        raise line.refuse()
    to = address_of(line, line.operands[0], is_wide=False)
    origin = address_of(line, line.operands[1], is_wide=True)
    flag = line.read(line.operands[2], "pred") if len(line.operands) == 3 else None
    is_filled = bool(line.parts["fill"])
    line.accesses |= {("shared", size), ("global", size)}

    def make(place: Place) -> Step:
        read, write = (MemoryOperand(space, size, place) for space in ("global", "shared"))

        def run(registers: Registers) -> None:
            frame: Frame = registers[0]
            source, count = origin(registers), None
            if is_filled:
                fewer = source & (size - 1)
                source, count = source - fewer, size - fewer
            if flag is not None:
                count = np.where(flag(registers), size if count is None else count, 0)
            begin_copy(frame, read, write, to(registers), source, count)

        return Step(run)

    return make


_COUNTED = "of which ptxas 12.8 to 13.5.37 makes it; not measured"


def _place_and_barrier(line: Binder) -> Reader:
    """A pair of registers: the address in shared memory of the cluster; above it the mbarrier."""
    if len(line.operands) != 2:
        raise line.refuse()
    line.accesses |= {("shared", 4), ("shared", 8)}
    return address_of(line, line.operands[0], is_wide=True)


@opcode("STAS?{size:64|128}", evidence=f"PTX ISA: st.async, {_COUNTED}")
def _store_and_signal(line: Binder) -> Made:
    pair, size = _place_and_barrier(line), _SIZES[line.parts["size"]]
    readers = line.vector(line.operands[1], size // 4)

    def make(place: Place) -> Step:
        operand = MemoryOperand("shared", 4, place)

        def run(registers: Registers) -> None:
            both, values = pair(registers), [np.array(read(registers)) for read in readers]

            def effect() -> None:
                for number, value in enumerate(values):
                    scatter(registers, operand, (both & 0xFFFF_FFFF) + 4 * number, value)

            begin_counted(registers, both >> 32, effect, size, place)

        return Step(run)

    return make


@opcode(
    "REDAS.{op:INC|DEC|AND|OR|XOR}", "REDAS.{op:ADD|MIN|MAX}?{type:S32}",
    "REDAS.{op:ADD}.{type:64}",
    evidence=f"PTX ISA: red.async, {_COUNTED}",
)  # fmt: skip
def _reduce_and_signal(line: Binder) -> Made:
    kind = {"S32": "s32", "64": "u64"}.get(line.parts.get("type", ""), "u32")
    pair, size = _place_and_barrier(line), BITS[kind] // 8
    change = combine(line.parts["op"].lower(), kind)
    value = line.read(line.operands[1], f"b{BITS[kind]}")
    how = semantics_of({"scope": "cluster"}, is_atomic=True)

    def make(place: Place) -> Step:
        operand = MemoryOperand("shared", size, place, how)

        def run(registers: Registers) -> None:
            both, taken = pair(registers), np.array(value(registers))

            def effect() -> None:
                own = [registers[0].full(taken)]
                apply_to_memory(registers, operand, both & 0xFFFF_FFFF, change, own)

            begin_counted(registers, both >> 32, effect, size, place)

        return Step(run)

    return make


@opcode("LDGDEPBAR", evidence="PTX ISA: cp.async.commit_group, of which ptxas 13.5.37 makes it")
def _commit(line: Binder) -> Step:
    if line.operands:
        raise line.refuse()

    def run(registers: Registers) -> None:
        registers[0].batch.asynchrony.groups(registers[0], COPIES).commit()

    return Step(run)


@opcode(
    "DEPBAR.LE",
    evidence="PTX ISA: cp.async.wait_group, cp.async.bulk.wait_group.read, of which ptxas makes it",
)
def _wait(line: Binder) -> Step:
    """Until at most so many groups are under way; of bulk stores, until their source was read.

    Both kinds share the counter, and which of them it then waits for is not known. Those listed
    behind count loads, as each but SB0 does, whose results are there at once.
    """
    places = line.operands
    if len(places) not in (2, 3) or places[0].kind != "SB":
        raise line.refuse()
    if len(places) == 3 and not re.fullmatch(r"\{[1-5](,[1-5])*\}", places[2].text):
        raise line.refuse(places[2])
    pending = immediate(line.operands[1].text, "b32") if line.operands[1].kind == "number" else None
    if pending is None:
        raise line.refuse(line.operands[1])
    count = int(pending[0, 0])
    if line.operands[0].number != 0:
        # SB0 counts copies and bulk stores (`decoding.py` refuses others).
        return Step(lambda _: None, is_pure=True)

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        copies, stores = (frame.batch.asynchrony.groups(frame, kind) for kind in (COPIES, READ))
        if count and copies.is_pending and stores.is_pending:
            raise NotExecutable(f"{line.text} while copies and bulk stores are under way")
        await_groups(registers, COPIES, count)
        await_groups(registers, READ, count)

    return Step(run)


def await_groups(registers: Registers, kind: str, count: int) -> None:
    """Wait until at most so many groups of a kind are under way: of bulk stores, of a warp."""
    frame: Frame = registers[0]
    groups = frame.batch.asynchrony.groups(frame, kind)
    if kind == COPIES:
        groups.wait(count)
        return
    with frame.only(frame.whole_warps(frame.active())):
        groups.wait(count)


@opcode("DEPBAR", evidence="CUDA Binary Utilities: dependency barrier; seen where ptxas fences")
def _wait_for_all(line: Binder) -> Step:
    """Until what several scoreboards count is done. That of groups under way is not known."""
    if len(line.operands) != 1 or not re.fullmatch(r"\{[0-5](,[0-5])*\}", line.operands[0].text):
        raise line.refuse()

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        if any(frame.batch.asynchrony.groups(frame, kind).is_pending for kind in (COPIES, READ)):
            raise NotExecutable(f"{line.text} while copies or bulk stores are under way")

    return Step(run)
