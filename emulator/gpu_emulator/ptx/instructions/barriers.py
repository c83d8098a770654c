"""Barriers of CTAs and clusters, mbarriers, fences, what ends or delays threads.

PTX ISA, "Parallel Synchronization and Communication Instructions", "Control Flow", "Miscellaneous".
"""

from __future__ import annotations

from functools import partial

import numpy as np

from gpu_emulator.ptx.program.binder import Binder, opcode, without_effect
from gpu_emulator.state.barriers import (
    arrive_behind_copies,
    arrive_in_cluster,
    await_phase,
    begin_phases,
    hold_at,
    initialised,
    parity,
    pending_arrivals,
    signal,
    wait_in_cluster,
)
from gpu_emulator.state.frame import Frame, reach_trap
from gpu_emulator.steps import Registers, Step


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
        if is_wait:
            wait_in_cluster(registers, registers[slot])
        else:
            registers[0].write(slot, arrive_in_cluster(registers))

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


def _space(line: Binder) -> str:
    return "shared" if line.parts["space"] else "generic"


@opcode(f"mbarrier.{{what:init|inval}}?{{space:{_SHARED}}}.b64")
def _init(line: Binder) -> Step:
    address, space, place = line.address(0), _space(line), line.place
    count = line.read(1, "u32") if line.parts["what"] == "init" else None

    def run(registers: Registers) -> None:
        states = np.zeros((1, 1), np.uint64)
        if count is not None:
            states = initialised(np.where(registers[0].active(), count(registers), 1))
        begin_phases(registers, space, address(registers), states, place)

    return Step(run)


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
    return line.computed(lambda state: pending_arrivals(state).astype(np.uint32), ["b64"], "u32")


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
        value = awaited(registers)
        phase = (value & 1).astype(np.uint64) if is_parity else parity(value)
        await_phase(registers, space, address(registers), phase, slot, line.place, is_test=is_test)

    return Step(run, (slot,), reads_old=True)


@opcode(f"cp.async.mbarrier.arrive?{{noinc:noinc}}?{{space:{_SHARED}}}.b64")
def _arrive_behind_copies(line: Binder) -> Step:
    """Arrives when all `cp.async` that the thread issued before are complete."""
    address, space, adds = line.address(0), _space(line), not line.parts["noinc"]

    def run(registers: Registers) -> None:
        at = address(registers)
        if adds:
            # The pending count goes up first, so that it comes out even.
            signal(registers, space, at, -1, 0, 0)
        arrive_behind_copies(registers, space, at, line.place, 1, 0)

    return Step(run)
