"""Barriers of CTAs and clusters, mbarriers, fences, what ends or delays threads.

PTX ISA, "Parallel Synchronization and Communication Instructions", "Control Flow", "Miscellaneous".
"""

from __future__ import annotations

import numpy as np

from gpu_emulator.ptx.program.binder import Binder, Parts, acts, opcode, without_effect
from gpu_emulator.state.barriers import (
    arrive_at_barrier,
    arrive_behind_copies,
    arrive_in_cluster,
    await_phase,
    begin_phases,
    initialised,
    parity,
    pending_arrivals,
    proxy_fence,
    signal,
    thread_fence,
    vote_of_barrier,
    wait_in_cluster,
)
from gpu_emulator.state.frame import reach_trap
from gpu_emulator.steps import Array, Registers, Step


@opcode(
    "bar?{cta:cta}.{what:sync|arrive}", "barrier?{cta:cta}.{what:sync|arrive}?{aligned:aligned}",
    waits=True,
)  # fmt: skip
def _barrier(line: Binder) -> Step:
    number = line.read(0, "u32")
    count = line.read(1, "u32") if line.count > 1 else None
    is_sync = line.parts["what"] == "sync"

    def run(registers: Registers) -> None:
        threads = None if count is None else count(registers)
        arrive_at_barrier(registers, number(registers), threads, is_sync=is_sync)

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
        def give(votes: Array, voters: Array) -> None:
            registers[0].write(slot, vote_of_barrier(how, votes, voters))

        threads = None if count is None else count(registers)
        arrive_at_barrier(
            registers, number(registers), threads, is_sync=True, vote=vote(registers), give=give
        )

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

opcode(
    f"fence?{{sem:sc|acq_rel|acquire|release}}.{{scope:{_SCOPE}}}",
    "membar.{scope:cta|gl|sys|cluster|gpu}",
)(lambda _: Step(thread_fence))  # fmt: skip
opcode(
    "fence.proxy.async", "membar.proxy.async",
    "fence.proxy.async.{space:shared::cta|shared::cluster}",
    "membar.proxy.async.{space:shared::cta|shared::cluster}",
)(lambda _: Step(proxy_fence))  # fmt: skip
without_effect(
    "fence?{proxy:proxy.async::generic}.acquire.sync_restrict::shared::cluster.cluster",
    "fence?{proxy:proxy.async::generic}.release.sync_restrict::shared::cta.cluster",
    "fence.mbarrier_init.release.cluster", "fence.proxy.alias", "membar.proxy.alias",
    "fence.proxy.async.{space:global}", "membar.proxy.async.{space:global}",
    f"fence.proxy.tensormap::generic.{{sem:release}}.{{scope:{_SCOPE}}}",
    f"fence.proxy.tensormap::generic.{{sem:acquire}}.{{scope:{_SCOPE}}}",
    "griddepcontrol.{what:launch_dependents|wait}", "nanosleep.u32", "pmevent?{mask:mask}", "brkpt",
    "setmaxnreg.{what:inc|dec}.sync.aligned.u32",
)  # fmt: skip
opcode("trap")(lambda _: Step(reach_trap))

_SHARED = "shared|shared::cta|shared::cluster"
_SEM = "?{sem:release|relaxed}?{scope:cta|cluster}"
_WAIT_SEM = "?{sem:acquire|relaxed}?{scope:cta|cluster}"


def _space(parts: Parts) -> str:
    return "shared" if parts["space"] else "generic"


@acts(f"mbarrier.{{what:init}}?{{space:{_SHARED}}}.b64", takes="address u32")
def _init(registers: Registers, parts: Parts, address: Array, count: Array) -> None:
    states = initialised(np.where(registers[0].active(), count, 1))
    begin_phases(registers, _space(parts), address, states)


@acts(f"mbarrier.{{what:inval}}?{{space:{_SHARED}}}.b64", takes="address")
def _end(registers: Registers, parts: Parts, address: Array) -> None:
    begin_phases(registers, _space(parts), address, np.zeros((1, 1), np.uint64))


@opcode(
    f"mbarrier.{{what:arrive|arrive_drop}}?{{tx:expect_tx}}{_SEM}?{{space:{_SHARED}}}.b64",
    f"mbarrier.{{what:arrive|arrive_drop}}.{{tx:noComplete}}{_SEM}?{{space:{_SHARED}}}.b64",
)  # fmt: skip
def _arrive(line: Binder) -> Step:
    leaves, has_bytes = line.parts["what"] == "arrive_drop", line.parts["tx"] == "expect_tx"
    # The state comes first, unless the object is in another CTA's memory.
    first, space = 0 if line.operand(0).startswith("[") else 1, _space(line.parts)

    def arrive(registers: Registers, address: Array, amount: Array | None = None) -> Array:
        number = 1 if amount is None else amount.astype(np.int64)
        arrivals, expected = (1, number) if has_bytes else (number, 0)
        drops = arrivals if leaves else None
        return signal(registers, space, address, arrivals, expected, 0, drops)

    kinds = ["address", "u32"][: line.count - first]
    return line.acting(arrive, kinds, ["b64"] if first else [])


@acts(
    "mbarrier.{what:expect_tx|complete_tx}?{sem:relaxed}?{scope:cta|cluster}"
    f"?{{space:{_SHARED}}}.b64",
    takes="address u32",
)
def _count_bytes(registers: Registers, parts: Parts, address: Array, amount: Array) -> None:
    count = amount.astype(np.int64)
    bytes_of = (count, 0) if parts["what"] == "expect_tx" else (0, count)
    signal(registers, _space(parts), address, 0, *bytes_of)


@opcode("mbarrier.pending_count.b64")
def _pending(line: Binder) -> Step:
    return line.computed(lambda state: pending_arrivals(state).astype(np.uint32), ["b64"], "u32")


@opcode(
    f"mbarrier.{{what:try_wait|test_wait}}?{{parity:parity}}{_WAIT_SEM}?{{space:{_SHARED}}}.b64",
    waits=True,
)  # fmt: skip
def _wait(line: Binder) -> Step:
    slot, _ = line.target(line.operand(0), "pred")
    address, space = line.address(1), _space(line.parts)
    is_parity, is_test = bool(line.parts["parity"]), line.parts["what"] == "test_wait"
    awaited = line.read(2, "u32" if is_parity else "b64")

    def run(registers: Registers) -> None:
        value = awaited(registers)
        phase = (value & 1).astype(np.uint64) if is_parity else parity(value)
        await_phase(registers, space, address(registers), phase, slot, is_test=is_test)

    return Step(run, (slot,), reads_old=True)


@acts(f"cp.async.mbarrier.arrive?{{noinc:noinc}}?{{space:{_SHARED}}}.b64", takes="address")
def _arrive_behind_copies(registers: Registers, parts: Parts, address: Array) -> None:
    """Arrives when all `cp.async` that the thread issued before are complete."""
    if not parts["noinc"]:
        # The pending count goes up first, so that it comes out even.
        signal(registers, _space(parts), address, -1, 0, 0)
    arrive_behind_copies(registers, _space(parts), address, 1, 0)
