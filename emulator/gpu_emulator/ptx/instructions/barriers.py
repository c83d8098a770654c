"""Barriers of CTAs and clusters, mbarriers, fences, what ends or delays threads.

PTX ISA, "Parallel Synchronization and Communication Instructions", "Control Flow", "Miscellaneous".
"""

from __future__ import annotations

from functools import partial

import numpy as np

from gpu_emulator.ptx.program.binder import Binder, opcode, without_effect
from gpu_emulator.state.barriers import arrive, hold_at, initialised, parity, still_to_come
from gpu_emulator.state.frame import Frame, Hold, Memory, Touch, Trouble, locate, reach_trap
from gpu_emulator.state.happens_before import HappensBefore
from gpu_emulator.steps import MASK, WARP, Array, Registers, Step


@opcode(
    "bar?{cta:cta}.{what:sync|arrive}", "barrier?{cta:cta}.{what:sync|arrive}?{aligned:aligned}",
    waits=True,
)  # fmt: skip
def _barrier(line: Binder) -> Step:
    number = line.read(0, "u32")
    count = line.read(1, "u32") if line.count > 1 else None
    is_sync = line.parts["what"] == "sync"

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        barriers = frame.batch.barriers
        barrier = number(registers)
        threads = None if count is None else count(registers)
        if is_sync and barriers.is_trivial(frame, threads):
            if frame.batch.watch is not None:
                frame.batch.watch.meet()
            return
        for name, here, phase in barriers.arrive(frame, barrier, threads):
            if is_sync:
                hold_at(frame, name, here, phase)

    return Step(run)


@opcode(
    "bar?{cta:cta}.red.{how:popc}.{type:u32}", "bar?{cta:cta}.red.{how:and|or}.{type:pred}",
    "barrier?{cta:cta}.red.{how:popc}?{aligned:aligned}.{type:u32}",
    "barrier?{cta:cta}.red.{how:and|or}?{aligned:aligned}.{type:pred}", waits=True,
)  # fmt: skip
def _reduce(line: Binder) -> Step:
    slot, _ = line.target(line.operand(0), line.parts["type"])
    number = line.read(1, "u32")
    count = line.read(2, "u32") if line.count > 3 else None
    vote = line.read(line.count - 1, "pred")
    how = line.parts["how"]

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        barriers = frame.batch.barriers
        threads = None if count is None else count(registers)
        arrivals = barriers.arrive(frame, number(registers), threads, vote(registers))
        for name, here, phase in arrivals:
            hold_at(frame, name, here, phase, partial(after, frame, name))

    def after(frame: Frame, name: int) -> None:
        results = frame.batch.barriers.results
        votes, voters = results[:, name, 0], results[:, name, 1]
        answers = {"popc": votes.astype(np.uint32), "or": votes > 0, "and": votes == voters}
        frame.write(slot, answers[how][:, None])

    return Step(run, (slot,), reads_old=True)


@opcode(
    "barrier.cluster.{what:arrive}?{sem:release|relaxed}?{aligned:aligned}",
    "barrier.cluster.{what:wait}?{sem:acquire}?{aligned:aligned}", waits=True,
)  # fmt: skip
def _cluster_barrier(line: Binder) -> Step:
    is_wait = line.parts["what"] == "wait"
    slot = line.slots.hidden("%cluster_phase", 64)

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        barriers = frame.batch.barriers
        if not is_wait:
            phase = barriers.cluster_phase[:, None].astype(np.uint64)
            frame.write(slot, phase)
            barriers.cluster_arrived += frame.active().sum(axis=1)
            barriers.complete_cluster()
            return
        arrived_in = registers[slot]

        def over() -> Array:
            return barriers.cluster_phase[:, None].astype(np.uint64) > arrived_in

        frame.holds.append(Hold(frame.active(), over, lambda: "the barrier of its cluster"))

    return Step(run, (slot,), reads_old=True)


_SCOPE = "cta|cluster|gpu|sys"


@opcode(
    f"fence?{{sem:sc|acq_rel|acquire|release}}.{{scope:{_SCOPE}}}",
    "membar.{scope:cta|gl|sys|cluster|gpu}",
)  # fmt: skip
def _thread_fence(line: Binder) -> Step:
    """Memory here is coherent at once; the race check takes releases and acquires from it."""
    del line

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        if frame.batch.watch is not None:
            frame.batch.watch.thread_fence(frame, frame.active())

    return Step(run)


without_effect(
    "fence?{proxy:proxy.async::generic}.acquire.sync_restrict::shared::cluster.cluster",
    "fence?{proxy:proxy.async::generic}.release.sync_restrict::shared::cta.cluster",
    "fence.mbarrier_init.release.cluster", "fence.proxy.alias", "membar.proxy.alias",
    f"fence.proxy.tensormap::generic.{{sem:release}}.{{scope:{_SCOPE}}}",
    f"fence.proxy.tensormap::generic.{{sem:acquire}}.{{scope:{_SCOPE}}}",
    "griddepcontrol.{what:launch_dependents|wait}", "nanosleep.u32", "pmevent?{mask:mask}", "brkpt",
    "setmaxnreg.{what:inc|dec}.sync.aligned.u32",
)  # fmt: skip


@opcode(
    "fence.proxy.async", "membar.proxy.async",
    "fence.proxy.async.{space:global|shared::cta|shared::cluster}",
    "membar.proxy.async.{space:global|shared::cta|shared::cluster}",
)  # fmt: skip
def _proxy_fence(line: Binder) -> Step:
    """Memory here has no proxies; the race check does."""
    counts = line.parts.get("space") != "global"

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        if counts and frame.batch.watch is not None:
            frame.batch.watch.fence(frame, frame.active())

    return Step(run)


@opcode("trap")
def _trap(line: Binder) -> Step:
    del line
    return Step(reach_trap)


_SHARED = "shared|shared::cta|shared::cluster"
_SEM = "?{sem:release|relaxed}?{scope:cta|cluster}"
_WAIT_SEM = "?{sem:acquire|relaxed}?{scope:cta|cluster}"


def _objects(registers: Registers, space: str, address: Array) -> tuple[Memory, Array, Array]:
    """Shared memory, offsets of the objects for every thread, and which threads are active."""
    frame: Frame = registers[0]
    places = locate(frame, space, address, 8, "an mbarrier operation", registers[MASK])
    if [memory.name for memory, _, _ in places] != ["shared"]:
        raise Trouble("an mbarrier lies outside of shared memory")
    [(memory, index, active)] = places
    mask = frame.active() if active is None else np.broadcast_to(active, frame.shape)
    return memory, np.broadcast_to(index, frame.shape), mask


def _space(line: Binder) -> str:
    return "shared" if line.parts["space"] else "generic"


@opcode(f"mbarrier.{{what:init|inval}}?{{space:{_SHARED}}}.b64")
def _init(line: Binder) -> Step:
    address, space, place = line.address(0), _space(line), line.place
    count = line.read(1, "u32") if line.parts["what"] == "init" else None

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        memory, index, mask = _objects(registers, space, address(registers))
        states = np.zeros(int(mask.sum()), dtype=np.uint64)
        if count is not None:
            states = initialised(frame.full(count(registers))[mask])
        if frame.batch.watch is not None:
            frame.batch.watch.write(Touch(frame, memory, index, 8, mask, place), None)
        memory.store(index[mask], states, 8)

    return Step(run)


def signal(
    registers: Registers,
    space: str,
    address: Array,
    arrivals: Array | int,
    expected: Array | int,
    completed: Array | int,
    drops: Array | int | None = None,
) -> Array:
    """Let each active thread change its object; states before, for every thread."""
    frame: Frame = registers[0]
    memory, index, mask = _objects(registers, space, address)
    chosen = index[mask]
    amounts = [
        np.broadcast_to(np.asarray(amount, dtype=np.int64), frame.shape)[mask]
        for amount in (arrivals, expected, completed, *(() if drops is None else (drops,)))
    ]
    states = np.zeros(frame.shape, dtype=np.uint64)
    states[mask] = arrive(memory, chosen, *amounts)
    watch = frame.batch.watch
    if watch is not None:
        if np.any(arrivals) or np.any(completed):
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

    return Step(run, () if slot is None else (slot,))


@opcode(
    "mbarrier.{what:expect_tx|complete_tx}?{sem:relaxed}?{scope:cta|cluster}"
    f"?{{space:{_SHARED}}}.b64"
)
def _count_bytes(line: Binder) -> Step:
    address, amount, space = line.address(0), line.read(1, "u32"), _space(line)
    expects = line.parts["what"] == "expect_tx"

    def run(registers: Registers) -> None:
        count = amount(registers).astype(np.int64)
        signal(registers, space, address(registers), 0, *((count, 0) if expects else (0, count)))

    return Step(run)


@opcode("mbarrier.pending_count.b64")
def _pending(line: Binder) -> Step:
    return line.computed(
        lambda state: (state & np.uint64(0xF_FFFF)).astype(np.uint32), ["b64"], "u32"
    )


@opcode(
    f"mbarrier.{{what:try_wait|test_wait}}?{{parity:parity}}{_WAIT_SEM}?{{space:{_SHARED}}}.b64",
    waits=True,
)  # fmt: skip
def _wait(line: Binder) -> Step:
    slot, _ = line.target(line.operand(0), "pred")
    address, space = line.address(1), _space(line)
    is_parity, is_test = bool(line.parts["parity"]), line.parts["what"] == "test_wait"
    awaited = line.read(2, "u32" if is_parity else "b64")

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        memory, index, mask = _objects(registers, space, address(registers))
        if frame.batch.watch is not None:
            frame.batch.watch.read(Touch(frame, memory, index, 8, mask, line.place))
        value = awaited(registers)
        phase = (value & 1).astype(np.uint64) if is_parity else parity(value)
        view, places = memory.views[8], index >> 3

        def over() -> Array:
            return parity(view[places]) != phase

        complete = over()
        frame.write(slot, complete)
        waiting = mask & ~complete
        if frame.batch.watch is not None and (mask & complete).any():
            frame.batch.watch.waited(frame, index, mask & complete)
        if not waiting.any():
            return
        batch, spot = frame.batch, index[waiting][:1]
        patience = batch.patience
        batch.is_tested |= is_test

        def may_go() -> Array:
            """Who only tests is let go, with the answer no, where nothing else can go on."""
            complete = over()
            return np.ones_like(complete) if is_test and batch.patience != patience else complete

        def after() -> None:
            complete = over()
            frame.write(slot, complete)
            if batch.watch is not None:
                batch.watch.waited(frame, index, frame.active() & complete)

        def why() -> str:
            place = int(spot[0]) % max(memory.stride, 1)
            missing = still_to_come(memory.load(spot, 8))
            return f"the mbarrier at shared address {hex(place)}, to which {missing}"

        frame.holds.append(Hold(waiting, may_go, why, after))

    return Step(run, (slot,), reads_old=True)


@opcode(f"cp.async.mbarrier.arrive?{{noinc:noinc}}?{{space:{_SHARED}}}.b64")
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

        asynchrony.launch(frame, effect, line.place, queue="cp.async")

    return Step(run)
