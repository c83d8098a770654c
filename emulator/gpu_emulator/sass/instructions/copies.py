"""Copies from global to shared memory that are waited for later, and stores that are counted.

`gpu_emulator.state.copies` has them, as PTX's `cp.async` and `st.async`: they take effect early or
late, as the schedule says.
"""

from __future__ import annotations

import re

import numpy as np

from gpu_emulator.numbers.arithmetic import combine
from gpu_emulator.sass.binder import NOTHING, Binder, acting, acts, immediate, opcode
from gpu_emulator.state.barriers import COPIES, await_groups, commit_groups
from gpu_emulator.state.bulk import READ
from gpu_emulator.state.copies import begin_copy, begin_reduction, begin_stores
from gpu_emulator.state.frame import Frame
from gpu_emulator.steps import BITS, Array, Registers, Step
from gpu_emulator.values import NotExecutable

_SIZES = {"": 4, "64": 8, "128": 16}


@opcode(
    "LDGSTS.E?{way:BYPASS}?{ltc:LTC64B|LTC128B|LTC256B}?{size:64|128}?{fill:ZFILL}",
    evidence="PTX ISA: cp.async, of which ptxas 13.5.37 makes it; .ZFILL is inferred from that",
)
def _copy(line: Binder) -> Step:
    """Where its predicate is false, zeros are copied.

    With `.ZFILL` the low bits of the global address are not of it, but say how many bytes fewer are
    copied, and zeros behind them: ptxas adds them up of the size that `cp.async` is given, and the
    predicate says whether that is zero.
    """
    size, is_filled = _SIZES[line.parts["size"]], bool(line.parts["fill"])
    has_flag = len(line.operands) == 3
    if is_filled and not has_flag:
        raise line.refuse()
    line.accesses |= {("shared", size), ("global", size)}

    def copy(registers: Registers, to: Array, source: Array, flag: Array) -> None:
        count = None
        if is_filled:
            fewer = source & (size - 1)
            source, count = source - fewer, size - fewer
        if has_flag:
            count = np.where(flag, size if count is None else count, 0)
        begin_copy(registers, size, to, source, count)

    return acting(line, "= a32 a64 pred?", copy)


_COUNTED = "of which ptxas 12.8 to 13.5.37 makes it; not measured"
_SHARED = {("shared", 4), ("shared", 8)}


@opcode("STAS?{size:64|128}", evidence=f"PTX ISA: st.async, {_COUNTED}")
def _store_and_signal(line: Binder) -> Step:
    """A pair of registers: the address in shared memory of the cluster; above it the mbarrier."""
    line.has(2)
    readers = line.vector(line.operands[1], _SIZES[line.parts["size"]] // 4)
    line.operands = line.operands[:1]
    line.accesses |= _SHARED

    def store(registers: Registers, pair: Array, *values: Array) -> None:
        begin_stores(registers, pair & 0xFFFF_FFFF, values, pair >> 32)

    return acting(line, "= a64", store, readers)


@opcode(
    "REDAS.{op:INC|DEC|AND|OR|XOR}", "REDAS.{op:ADD|MIN|MAX}?{type:S32}",
    "REDAS.{op:ADD}.{type:64}",
    evidence=f"PTX ISA: red.async, {_COUNTED}",
)  # fmt: skip
def _reduce_and_signal(line: Binder) -> Step:
    kind = {"S32": "s32", "64": "u64"}.get(line.parts.get("type", ""), "u32")
    change = combine(line.parts["op"].lower(), kind)
    line.accesses |= _SHARED

    def reduce(registers: Registers, pair: Array, value: Array) -> None:
        begin_reduction(registers, pair & 0xFFFF_FFFF, change, value, pair >> 32)

    return acting(line, f"= a64 b{BITS[kind]}", reduce)


acts("LDGDEPBAR", evidence="PTX ISA: cp.async.commit_group, of which ptxas 13.5.37 makes it")(
    lambda registers: commit_groups(registers, COPIES)
)


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
    pending = immediate(places[1].text, "b32") if places[1].kind == "number" else None
    if pending is None:
        raise line.refuse(places[1])
    count = int(pending[0, 0])
    if places[0].number != 0:
        # SB0 counts copies and bulk stores (`decoding.py` refuses others).
        return NOTHING

    def run(registers: Registers) -> None:
        if count and all(_pending(registers)):
            raise NotExecutable(f"{line.text} while copies and bulk stores are under way")
        await_groups(registers, count, COPIES)
        await_reads(registers, count)

    return Step(run)


def await_reads(registers: Registers, count: int) -> None:
    """Wait until the sources of all bulk stores of a warp but so many groups have been read."""
    frame: Frame = registers[0]
    with frame.only(frame.whole_warps(frame.active())):
        await_groups(registers, count, READ)


def _pending(registers: Registers) -> list[bool]:
    frame: Frame = registers[0]
    return [frame.batch.asynchrony.groups(frame, kind).is_pending for kind in (COPIES, READ)]


@opcode("DEPBAR", evidence="CUDA Binary Utilities: dependency barrier; seen where ptxas fences")
def _wait_for_all(line: Binder) -> Step:
    """Until what several scoreboards count is done. That of groups under way is not known."""
    if len(line.operands) != 1 or not re.fullmatch(r"\{[0-5](,[0-5])*\}", line.operands[0].text):
        raise line.refuse()

    def run(registers: Registers) -> None:
        if any(_pending(registers)):
            raise NotExecutable(f"{line.text} while copies or bulk stores are under way")

    return Step(run)
