"""`mbarrier.*`: barriers in shared memory that count arrivals and bytes.

PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier".
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gpu_emulator.ptx.program.binder import Binder
from gpu_emulator.ptx.program.table import opcode
from gpu_emulator.state.accesses import locate
from gpu_emulator.state.frame import Frame
from gpu_emulator.state.happens_before import HappensBefore
from gpu_emulator.state.mbarriers import arrive, initialised, parity, still_to_come
from gpu_emulator.state.memory import Memory, Trouble
from gpu_emulator.steps import MASK, WARP, Registers, Step
from gpu_emulator.types import Array

_TITLE = "Parallel Synchronization and Communication Instructions: mbarrier"
_SHARED = "shared|shared::cta|shared::cluster"
_SEM = "?{sem:release|relaxed}?{scope:cta|cluster}"
_WAIT_SEM = "?{sem:acquire|relaxed}?{scope:cta|cluster}"


def _objects(registers: Registers, space: str, address: Array) -> tuple[Memory, Array, Array]:
    """Shared memory, offsets of the objects for every thread, and which threads are active."""
    frame: Frame = registers[0]
    found = locate(frame, space, address, 8, "an mbarrier operation", registers[MASK])
    memories = [each for each in found if each[0].name == "shared"]
    if len(memories) != len(found) or len(found) != 1:
        raise Trouble("memory_fault", "an mbarrier lies outside of shared memory")
    memory, index, active = found[0]
    mask = frame.active() if active is None else np.broadcast_to(active, frame.shape)
    return memory, np.broadcast_to(index, frame.shape), mask


def _space(line: Binder) -> str:
    return "shared" if line.parts["space"] else "generic"


@opcode(f"mbarrier.init?{{space:{_SHARED}}}.b64", section=f"{_TITLE}.init")
def _init(line: Binder) -> Step:
    address, count, space = line.address(0), line.read(1, "u32"), _space(line)
    place = line.line.place

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        memory, index, mask = _objects(registers, space, address(registers))
        counts = frame.full(count(registers))[mask]
        if frame.batch.watch is not None:
            frame.batch.watch.write(frame, memory, index, 8, mask, place, None)
        memory.store(index[mask], initialised(counts), 8)

    return Step(run, (), is_pure=False)


@opcode(f"mbarrier.inval?{{space:{_SHARED}}}.b64", section=f"{_TITLE}.inval")
def _invalidate(line: Binder) -> Step:
    address, space, place = line.address(0), _space(line), line.line.place

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        memory, index, mask = _objects(registers, space, address(registers))
        if frame.batch.watch is not None:
            frame.batch.watch.write(frame, memory, index, 8, mask, place, None)
        memory.store(index[mask], np.zeros(int(mask.sum()), dtype=np.uint64), 8)

    return Step(run, (), is_pure=False)


def signal(
    registers: Registers, space: str, address: Array, arrivals: Array | int, expected: Array | int,
    done: Array | int, drops: Array | int | None = None,
) -> Array:  # fmt: skip
    """Let each active thread change its object; states before, for every thread."""
    frame: Frame = registers[0]
    memory, index, mask = _objects(registers, space, address)
    chosen = index[mask]
    amounts = [
        np.broadcast_to(np.asarray(each, dtype=np.int64), frame.shape)[mask]
        for each in (arrivals, expected, done, *(() if drops is None else (drops,)))
    ]
    states = np.zeros(frame.shape, dtype=np.uint64)
    states[mask] = arrive(memory, chosen, *amounts)
    watch = frame.batch.watch
    if watch is not None:
        if np.any(arrivals) or np.any(done):
            watch.signal(frame, index, mask)
        _tell_of_phases(watch, memory, chosen, states[mask])
    return states


def _tell_of_phases(watch: HappensBefore, memory: Memory, index: Array, before: Array) -> None:
    over = parity(memory.load(index, 8)) != parity(before)
    if over.any():
        watch.phase_complete(index[over])


def complete_bytes(frame: Frame, rows: Array, index: Array, count: int, column: int) -> None:
    """Take bytes from what objects at offsets wait for; the thread in a column asked for them."""
    memory: Memory = frame.batch.memories["shared"]
    zero = np.zeros(len(index), dtype=np.int64)
    before = arrive(memory, index, zero, zero, np.full(len(index), count))
    watch = frame.batch.watch
    if watch is not None:
        watch.signal_by_task((frame.first + column) // WARP, rows, index)
        _tell_of_phases(watch, memory, index, before)


@opcode(
    f"mbarrier.{{what:arrive|arrive_drop}}?{{tx:expect_tx}}{_SEM}?{{space:{_SHARED}}}.b64",
    f"mbarrier.{{what:arrive|arrive_drop}}.{{tx:noComplete}}{_SEM}?{{space:{_SHARED}}}.b64",
    section=f"{_TITLE}.arrive",
)  # fmt: skip
def _arrive(line: Binder) -> Step:
    leaves = line.parts["what"] == "arrive_drop"
    # The state comes first, unless the object is in another CTA's memory.
    first = 0 if line.operand(0).startswith("[") else 1
    slot = line.target(line.operand(0), "b64")[0] if first else None
    address, space = line.address(first), _space(line)
    has_bytes = line.parts["tx"] == "expect_tx"
    amount = line.read(first + 1, "u32") if line.count > first + 1 else None

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        number = 1 if amount is None else amount(registers).astype(np.int64)
        arrivals, expected = (1, number) if has_bytes else (number, 0)
        drops = arrivals if leaves else None
        states = signal(registers, space, address(registers), arrivals, expected, 0, drops)
        if slot is not None:
            frame.write(slot, states)

    return Step(run, () if slot is None else (slot,), is_pure=False)


@opcode(
    f"mbarrier.expect_tx?{{sem:relaxed}}?{{scope:cta|cluster}}?{{space:{_SHARED}}}.b64",
    section=f"{_TITLE}.expect_tx",
)  # fmt: skip
def _expect(line: Binder) -> Step:
    address, amount, space = line.address(0), line.read(1, "u32"), _space(line)

    def run(registers: Registers) -> None:
        count = amount(registers).astype(np.int64)
        signal(registers, space, address(registers), 0, count, 0)

    return Step(run, (), is_pure=False)


@opcode(
    f"mbarrier.complete_tx?{{sem:relaxed}}?{{scope:cta|cluster}}?{{space:{_SHARED}}}.b64",
    section=f"{_TITLE}.complete_tx",
)  # fmt: skip
def _complete(line: Binder) -> Step:
    address, amount, space = line.address(0), line.read(1, "u32"), _space(line)

    def run(registers: Registers) -> None:
        count = amount(registers).astype(np.int64)
        signal(registers, space, address(registers), 0, 0, count)

    return Step(run, (), is_pure=False)


@opcode("mbarrier.pending_count.b64", section=f"{_TITLE}.pending_count", pure=True)
def _pending(line: Binder) -> Step:
    return line.computed(
        lambda state: (state & np.uint64(0xF_FFFF)).astype(np.uint32), ["b64"], "u32"
    )


@opcode(
    f"mbarrier.{{what:try_wait|test_wait}}?{{parity:parity}}{_WAIT_SEM}?{{space:{_SHARED}}}.b64",
    section=f"{_TITLE}.test_wait, try_wait", waits=True,
)  # fmt: skip
def _wait(line: Binder) -> Step:
    slot, _ = line.target(line.operand(0), "pred")
    address, space = line.address(1), _space(line)
    is_parity, is_test = bool(line.parts["parity"]), line.parts["what"] == "test_wait"
    wanted, at = line.read(2, "u32" if is_parity else "b64"), line.line.place

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        memory, index, mask = _objects(registers, space, address(registers))
        if frame.batch.watch is not None:
            frame.batch.watch.read(frame, memory, index, 8, mask, at)
        value = wanted(registers)
        phase = (value & 1).astype(np.uint64) if is_parity else parity(value)
        over = _over(memory, index, phase)
        done = over()
        frame.write(slot, done)
        waiting = mask & ~done
        if frame.batch.watch is not None and (mask & done).any():
            frame.batch.watch.waited(frame, index, mask & done)
        if waiting.any():
            _hold(frame, slot, waiting, over, index, is_test=is_test)

    return Step(run, (slot,), is_pure=False, reads_old=True)


def _over(memory: Memory, index: Array, phase: Array) -> Callable[[], Array]:
    view, places = memory.views[8], index >> 3

    def over() -> Array:
        different: Array = parity(view[places]) != phase
        return different

    return over


def _hold(
    frame: Frame,
    slot: int,
    waiting: Array,
    over: Callable[[], Array],
    index: Array,
    *,
    is_test: bool,
) -> None:
    """Wait; who only tests is let go, with the answer no, where nothing else can go on."""
    batch = frame.batch
    patience = batch.patience
    batch.is_tested |= is_test

    def may_go() -> Array:
        done = over()
        return np.ones_like(done) if is_test and batch.patience != patience else done

    stride = max(batch.memories["shared"].stride, 1)
    place = int(index[waiting].flat[0]) % stride

    def after() -> None:
        done = over()
        frame.write(slot, done)
        if batch.watch is not None:
            batch.watch.waited(frame, index, frame.active() & done)

    memory, spot = batch.memories["shared"], int(index[waiting].flat[0])

    def why() -> str:
        [missing] = still_to_come(memory.load(np.array([spot]), 8))
        return f"the mbarrier at shared address {hex(place)}, to which {missing}"

    frame.hold(waiting, may_go, why, after)


@opcode(
    f"cp.async.mbarrier.arrive?{{noinc:noinc}}?{{space:{_SHARED}}}.b64",
    section="Data Movement and Conversion Instructions: cp.async.mbarrier.arrive",
)  # fmt: skip
def _arrive_behind_copies(line: Binder) -> Step:
    """Arrives when all `cp.async` that the thread issued before are complete."""
    address, space, adds = line.address(0), _space(line), not line.parts["noinc"]

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        at = address(registers)
        if adds:
            # The pending count goes up first, so that it comes out even.
            signal(registers, space, at, -1, 0, 0)
        asynchrony = frame.batch.asynchrony
        groups = asynchrony.groups(frame, "cp.async")

        def effect(_: Array | None) -> None:
            groups.wait(-1)
            signal(registers, space, at, 1, 0, 0)

        asynchrony.launch(frame, effect, line.line.place, queue="cp.async")

    return Step(run, (), is_pure=False)
