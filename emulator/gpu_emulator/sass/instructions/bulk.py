"""mbarriers, bulk copies and those of tensor maps, barriers of clusters.

`gpu_emulator.state.barriers` and `.bulk` have them, as PTX's `mbarrier` and `cp.async.bulk`. What
each opcode means is what PTX says of the instruction that ptxas 12.8.93, 13.0.88 and 13.5.37 make
of it, for sm_90a, sm_100a and sm_120a; none of it was measured on a GPU.

A uniform instruction (`U...`) is executed once by a warp: for the first of its active lanes. The
groups of bulk stores belong to the warp.
"""

from __future__ import annotations

import numpy as np

from gpu_emulator.numbers.arithmetic import combine
from gpu_emulator.sass.binder import CLUSTER_PHASE, NOTHING, Binder, acting, acts, bound, opcode
from gpu_emulator.sass.listing import Operand
from gpu_emulator.state.barriers import (
    arrive_behind_copies,
    arrive_in_cluster,
    await_phase,
    begin_phases,
    commit_groups,
    signal,
    wait_in_cluster,
)
from gpu_emulator.state.bulk import (
    READ,
    SEEN,
    begin_load,
    begin_store,
    begin_tile_load,
    begin_tile_store,
)
from gpu_emulator.state.frame import Frame
from gpu_emulator.state.lanes import bits_of, leaders, matching
from gpu_emulator.steps import BITS, WARP, Array, Reader, Registers, Step

_SEEN = "of which ptxas 12.8 to 13.5.37 makes it; not measured"
_OBJECT = (("shared", 8),)
_BOTH = (("shared", 4), ("global", 4))


@acts(
    "SYNCS.EXCH.64", signature="RZ = a32 b64", accesses=_OBJECT,
    evidence=f"PTX ISA: mbarrier.init, {_SEEN}",
)  # fmt: skip
def _begin_phases(registers: Registers, address: Array, state: Array) -> None:
    """The state of an mbarrier is written, in the layout that `gpu_emulator.state.barriers` has."""
    with registers[0].only(leaders(registers[0])):
        begin_phases(registers, "shared", address, state)


@acts(
    "SYNCS.CCTL.IV", signature="= a32", accesses=_OBJECT,
    evidence=f"PTX ISA: mbarrier.inval, {_SEEN}",
)  # fmt: skip
def _end_phases(registers: Registers, address: Array) -> None:
    begin_phases(registers, "shared", address, np.zeros((1, 1), np.uint64))


# Of each word how many arrive (None: as the register says), and what the register counts: bytes
# that are expected, bytes that have come, or nothing. A0T1 expects one byte, which goes with
# ARRIVES.LDGSTSBAR.64.TRANSCNT.
_ARRIVALS: dict[str, tuple[int | None, str]] = {
    "": (1, "expected"), "A1T0": (1, ""), "ART0": (None, ""), "A0TR": (0, "expected"),
    "A0TX": (0, "completed"), "A0T1": (0, "one"),
}  # fmt: skip


@opcode(
    "SYNCS.ARRIVE.TRANS64?{red:RED}?{drop:OPTOUT}?{how:A1T0|ART0|A0TR|A0TX|A0T1}",
    "SYNCS.ARRIVE.TRANS64.{lanes:TMASK}?{drop:OPTOUT}.{how:ART0}",
    evidence=f"PTX ISA: mbarrier.arrive, .arrive_drop, .expect_tx, .complete_tx, {_SEEN};"
    " TMASK: of .noComplete, inferred from the code behind it",
)
def _arrive(line: Binder) -> Step:
    """Each active lane arrives. RED gives no state; OPTOUT drops out.

    TMASK gives, in place of the low word of the state, the lanes of the warp that arrive at the
    same object, and with it the high word as it was before the first of them: ptxas then takes off
    the arrivals of the lanes before, each as many as its own.
    """
    parts, (arrivals, counts) = line.parts, _ARRIVALS[line.parts["how"]]
    if parts["drop"] and arrivals == 0:
        raise line.refuse()
    line.accesses.update(_OBJECT)

    def arrive(registers: Registers, address: Array, amount: Array) -> Array:
        number = amount.astype(np.int64)
        arriving: Array | int = number if arrivals is None else arrivals
        expected: Array | int = number if counts == "expected" else int(counts == "one")
        completed: Array | int = number if counts == "completed" else 0
        drops = arriving if parts["drop"] else None
        states = signal(registers, "shared", address, arriving, expected, completed, drops)
        return _with_lanes(registers[0], address, states) if parts.get("lanes") else states

    return acting(line, f"{'RZ' if parts.get('red') else 'b64'} = a32 b32", arrive, reads_old=True)


def _with_lanes(frame: Frame, address: Array, states: Array) -> Array:
    """The lanes with the same address below the high word of what the first of them found there."""
    own = matching(frame.by_warp(address)) & bits_of(frame.by_warp(frame.active()))
    first = (own[..., None] >> np.arange(WARP, dtype=np.uint32) & 1).argmax(axis=3)
    high = np.take_along_axis(frame.by_warp(states), first, axis=2) >> np.uint64(32)
    return (high << np.uint64(32) | own).reshape(frame.shape)


@acts(
    "ARRIVES.LDGSTSBAR.64.{how:TRANSCNT|ARVCNT}", signature="= a32", accesses=_OBJECT,
    by_parts=True, evidence=f"PTX ISA: cp.async.mbarrier.arrive, .noinc, {_SEEN}",
)  # fmt: skip
def _arrive_behind_copies(registers: Registers, parts: dict[str, str], address: Array) -> None:
    """Behind all LDGSTS of a lane one byte has come, or the lane arrives."""
    counts = (1, 0) if parts["how"] == "ARVCNT" else (0, 1)
    arrive_behind_copies(registers, "shared", address, *counts)


@opcode(
    "SYNCS.PHASECHK.TRANS64?{how:TRYWAIT}", waits=True,
    evidence=f"PTX ISA: mbarrier.try_wait, .test_wait, {_SEEN}",
)  # fmt: skip
def _await_phase(line: Binder) -> Step:
    """Bit 31 of the register is the parity of the phase: of a state its high word has it there."""
    ((slot,),) = line.results(line.operands[:1], ["pred"])
    if line.is_of_warps(line.operands[:1]):
        raise line.refuse(line.operands[0])
    line.operands = line.operands[1:]
    is_test = not line.parts["how"]
    line.accesses.update(_OBJECT)

    def wait(registers: Registers, address: Array, awaited: Array) -> None:
        phase = (awaited >> np.uint32(31)).astype(np.uint64)
        await_phase(registers, "shared", address, phase, slot, is_test=is_test)

    step = acting(line, "= a32 b32", wait)
    return Step(step.run, (slot,), reads_old=True)


def _uniform(line: Binder, operand: Operand, count: int, *, first_is_wide: bool) -> list[Reader]:
    """What so many uniform registers in brackets hold; the first may be an address of 64 bits."""
    number = operand.text.removeprefix("[UR").removesuffix("]")
    if not number.isdecimal():
        raise line.refuse(operand)
    kinds = ["b64" if first_is_wide and not at else "b32" for at in range(count)]
    return [
        line.read(Operand(operand.text, "UR", int(number) + at), kind)
        for at, kind in enumerate(kinds)
    ]


def _without_hint(line: Binder) -> list[Operand]:
    """The operands without the description at the end, of a cache hint, which changes no value."""
    operands = list(line.operands)
    if operands and operands[-1].text.startswith("desc[UR"):
        operands.pop()
    return operands


_KINDS = {
    "": "u32", "U64": "u64", "S32": "s32", "S64": "s64", "F32": "f32", "F64": "f64", "F16": "f16",
    "BF16": "bf16",
}  # fmt: skip


@opcode(
    "UBLKCP.{to:S}.{origin:G}?{ranks:MULTICAST}", "UBLKCP.{to:S}.{origin:S}",
    "UBLKCP.{to:G}.{origin:S}", "UBLKRED.{to:G}.{origin:S}.{op:AND|OR|XOR}?{type:U64}",
    "UBLKRED.{to:G}.{origin:S}.{op:ADD|MIN|MAX}?{type:S32|U64}",
    "UBLKRED.{to:G}.{origin:S}.{op:MIN|MAX}.{type:S64}",
    "UBLKRED.{to:G}.{origin:S}.{op:INC|DEC}",
    "UBLKRED.{to:G}.{origin:S}.{op:ADD}.{type:F32|F64}.RN",
    "UBLKRED.{to:G}.{origin:S}.{op:ADD|MIN|MAX}.{type:F16|BF16}.RN",
    "UBLKRED.{to:S}.{origin:S}.{op:AND|OR|XOR|INC|DEC}",
    "UBLKRED.{to:S}.{origin:S}.{op:ADD|MIN|MAX}?{type:S32}",
    "UBLKRED.{to:S}.{origin:S}.{op:ADD}.{type:U64}",
    evidence=f"PTX ISA: cp.async.bulk, cp.reduce.async.bulk, {_SEEN}",
)  # fmt: skip
def _copy(line: Binder) -> Step:
    """A register has the size, in units of 16 bytes, and above it the CTAs that get the bytes.

    The mbarrier is in the register behind the address in shared memory.
    """
    operands, parts = _without_hint(line), line.parts
    if len(operands) != 3 or operands[2].kind != "UR":
        raise line.refuse()
    is_load, space = parts["to"] == "S", "global" if parts["origin"] == "G" else "shared"
    readers = [
        line.read(operands[2], "b32"),
        *_uniform(line, operands[1], 1, first_is_wide=parts["origin"] == "G"),
        *_uniform(line, operands[0], 2 if is_load else 1, first_is_wide=not is_load),
    ]
    kind = _KINDS[parts.get("type", "")] if parts.get("op") else ""
    change = combine(parts["op"].lower(), kind) if kind else None
    unit, has_ranks = BITS[kind] // 8 if kind else 1, bool(parts.get("ranks"))
    line.accesses.update(_BOTH)

    def begin(registers: Registers) -> None:
        word, source, target, *barrier = (read(registers).astype(np.int64) for read in readers)
        values = [target, source, (word & 0xFFFF) * 16, *barrier]
        with registers[0].only(leaders(registers[0])):
            if is_load:
                ranks = word >> 16 if has_ranks else None
                begin_load(registers, values, ranks, space, unit, change)
            else:
                begin_store(registers, values, unit, change)

    return Step(begin)


_DIM = "{dim:1D|2D|3D|4D|5D}"


@opcode(
    f"UTMALDG.{_DIM}?{{ranks:MULTICAST}}",
    evidence=f"PTX ISA: cp.async.bulk.tensor, to shared memory, {_SEEN}",
)
@opcode(
    f"UTMASTG.{_DIM}", f"UTMAREDG.{_DIM}.{{op:ADD|MIN|MAX|INC|DEC|AND|OR|XOR}}",
    evidence=f"PTX ISA: cp.async.bulk.tensor, cp.reduce.async.bulk.tensor, {_SEEN}",
)  # fmt: skip
def _copy_tile(line: Binder) -> Step:
    """Registers have the address in shared memory, (of a load) the mbarrier, and coordinates.

    Then comes the address of the tensor map. With MULTICAST another register has, above 16 bits,
    the CTAs that get the tile.
    """
    operands, has_ranks = _without_hint(line), bool(line.parts.get("ranks"))
    if len(operands) != 2 + has_ranks:
        raise line.refuse()
    fixed, operation = 1 + (line.base == "UTMALDG"), line.parts.get("op", "").lower()
    count = fixed + int(line.parts["dim"][0])
    own = _uniform(line, operands[0], count, first_is_wide=False)
    addresses = [*own[:fixed], *_uniform(line, operands[1], 1, first_is_wide=True)]
    ranks = line.read(operands[2], "b32") if has_ranks else None
    line.accesses.update(_BOTH)

    def begin(registers: Registers) -> None:
        values = [read(registers).astype(np.int64) for read in addresses]
        values += [read(registers).view(np.int32) for read in own[fixed:]]
        mask = None if ranks is None else ranks(registers).astype(np.int64) >> 16
        with registers[0].only(leaders(registers[0])):
            if fixed == 1:
                begin_tile_store(registers, values, operation)
            else:
                begin_tile_load(registers, values, mask)

    return Step(begin)


@acts("UTMACMDFLUSH", evidence=f"PTX ISA: cp.async.bulk.commit_group, {_SEEN}")
def _commit(registers: Registers) -> None:
    frame: Frame = registers[0]
    with frame.only(frame.whole_warps(frame.active())):
        commit_groups(registers, READ, SEEN)


@acts("CCTL.IVALL", evidence=f"PTX ISA: cp.async.bulk.wait_group without .read, {_SEEN}")
def _see_stores(registers: Registers) -> None:
    """What bulk stores wrote that were waited for can be seen.

    DEPBAR.LE alone is what ptxas makes of `.read`. The caches that this empties are not here.
    """
    frame: Frame = registers[0]
    stores, seen = (frame.batch.asynchrony.groups(frame, kind) for kind in (READ, SEEN))
    with frame.only(frame.whole_warps(frame.active())):
        seen.catch_up(stores)


opcode(
    "UBLKPF.L2", f"UTMAPF.L2.{_DIM}", "UTMACCTL.PF", "UTMACCTL.IV", "ACQBULK",
    "PREEXIT", "CCTL.E.C.LDCU.IV.DEEP",
    "USETMAXREG.DEALLOC.CTAPOOL", "NANOSLEEP.SYNCS", "CCTL.E.{level:PML2|DML2|RML2}",
    "CCTLL.{level:PF1|PF2}", "FENCE.VIEW.ASYNC.G", "PMTRIG",
    evidence=f"PTX ISA: prefetches, discard, applypriority, fences, griddepcontrol, setmaxnreg,"
    f" pmevent, {_SEEN}; changes no value",
)(lambda _: NOTHING)  # fmt: skip


@opcode("USETMAXREG.TRY_ALLOC.CTAPOOL", evidence=f"PTX ISA: setmaxnreg.inc, {_SEEN}")
def _more_registers(line: Binder) -> Step:
    """It succeeds: a loop asks again until it does. Registers of others are not counted here."""
    line.has(2)
    line.operands = line.operands[:1]
    return bound(line, "UP:pred =", lambda: np.ones((1, 1), np.bool_))


@opcode("UCGABAR_ARV", is_plain=False, evidence=f"PTX ISA: barrier.cluster.arrive, {_SEEN}")
def _arrive_in_cluster(line: Binder) -> Step:
    def arrive(registers: Registers) -> None:
        registers[0].write(CLUSTER_PHASE, arrive_in_cluster(registers).astype(np.uint32))

    return Step(acting(line, "=", arrive).run, (CLUSTER_PHASE,), reads_old=True)


@opcode(
    "UCGABAR_WAIT", waits=True, is_plain=False, evidence=f"PTX ISA: barrier.cluster.wait, {_SEEN}"
)
def _wait_in_cluster(line: Binder) -> Step:
    line.reads.add(CLUSTER_PHASE)
    return acting(line, "=", lambda registers: wait_in_cluster(registers, registers[CLUSTER_PHASE]))
