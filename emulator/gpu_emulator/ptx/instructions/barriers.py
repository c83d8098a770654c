"""Barriers of CTAs and clusters, fences, what ends or delays threads.

PTX ISA, "Parallel Synchronization and Communication Instructions", "Control Flow", "Miscellaneous".
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from gpu_emulator.ptx.program.binder import Binder
from gpu_emulator.ptx.program.table import opcode
from gpu_emulator.state.frame import Frame
from gpu_emulator.state.memory import Trouble
from gpu_emulator.steps import Registers, Step
from gpu_emulator.types import Array

__all__: list[str] = []

_TITLE = "Parallel Synchronization and Communication Instructions"


@opcode(
    "bar?{cta:cta}.{what:sync|arrive}", "barrier?{cta:cta}.{what:sync|arrive}?{aligned:aligned}",
    section=f"{_TITLE}: bar, barrier", waits=True,
)  # fmt: skip
def _barrier(line: Binder) -> Step:
    number = line.read(0, "u32")
    count = line.read(1, "u32") if line.count > 1 else None
    is_sync = line.parts["what"] == "sync"

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        barriers = frame.batch.barriers
        which = number(registers)
        wanted = None if count is None else count(registers)
        if is_sync and barriers.is_trivial(frame, wanted):
            if frame.batch.watch is not None:
                frame.batch.watch.meet()
            return
        for name, here, phase in barriers.arrive(frame, which, wanted):
            if is_sync:
                _hold(frame, name, here, phase)

    return Step(run, (), is_pure=False)


def _hold(
    frame: Frame, name: int, here: Array, phase: Array, then: Callable[[], None] | None = None
) -> None:
    barriers, watch = frame.batch.barriers, frame.batch.watch

    def onwards() -> None:
        watch.leave(frame, frame.active(), name)
        if then is not None:
            then()

    def why() -> str:
        row = int(np.nonzero(here)[0][0])
        wanted = int(barriers.wanted[row, name])
        of = f" of {wanted}" if wanted > 0 else ""
        return f"barrier {name}, where {int(barriers.arrived[row, name])} threads have arrived{of}"

    frame.hold(
        here,
        lambda: (barriers.phase[:, name] != phase)[:, None],
        why,
        then if watch is None else onwards,
    )


@opcode(
    "bar?{cta:cta}.red.{how:popc}.{type:u32}", "bar?{cta:cta}.red.{how:and|or}.{type:pred}",
    "barrier?{cta:cta}.red.{how:popc}?{aligned:aligned}.{type:u32}",
    "barrier?{cta:cta}.red.{how:and|or}?{aligned:aligned}.{type:pred}",
    section=f"{_TITLE}: bar.red", waits=True,
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
        wanted = None if count is None else count(registers)
        for name, here, phase in barriers.arrive(frame, number(registers), wanted, vote(registers)):
            _hold(frame, name, here, phase, partial(after, frame, name))

    def after(frame: Frame, name: int) -> None:
        results = frame.batch.barriers.results
        votes, voters = results[:, name, 0], results[:, name, 1]
        answers = {"popc": votes.astype(np.uint32), "or": votes > 0, "and": votes == voters}
        frame.write(slot, answers[how][:, None])

    return Step(run, (slot,), is_pure=False, reads_old=True)


@opcode(
    "barrier.cluster.{what:arrive}?{sem:release|relaxed}?{aligned:aligned}",
    "barrier.cluster.{what:wait}?{sem:acquire}?{aligned:aligned}",
    section=f"{_TITLE}: barrier.cluster", waits=True,
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
            barriers.arrive_cluster(frame)
            return
        arrived_in = registers[slot]
        frame.hold(
            frame.active(),
            lambda: barriers.cluster_phase[:, None].astype(np.uint64) > arrived_in,
            lambda: "the barrier of its cluster",
        )

    return Step(run, (slot,), is_pure=False, reads_old=True)


_SCOPE = "cta|cluster|gpu|sys"


@opcode(
    f"fence?{{sem:sc|acq_rel|acquire|release}}.{{scope:{_SCOPE}}}",
    "membar.{scope:cta|gl|sys|cluster|gpu}",
    section=f"{_TITLE}: membar, fence",
)  # fmt: skip
def _thread_fence(line: Binder) -> Step:
    """Memory here is coherent at once; the race check takes releases and acquires from it."""
    del line

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        if frame.batch.watch is not None:
            frame.batch.watch.thread_fence(frame, frame.active())

    return Step(run, (), is_pure=False)


@opcode(
    "fence?{proxy:proxy.async::generic}.acquire.sync_restrict::shared::cluster.cluster",
    "fence?{proxy:proxy.async::generic}.release.sync_restrict::shared::cta.cluster",
    "fence.mbarrier_init.release.cluster", "fence.proxy.alias", "membar.proxy.alias",
    f"fence.proxy.tensormap::generic.{{sem:release}}.{{scope:{_SCOPE}}}",
    f"fence.proxy.tensormap::generic.{{sem:acquire}}.{{scope:{_SCOPE}}}",
    section=f"{_TITLE}: membar, fence", pure=True,
)  # fmt: skip
def _fence(line: Binder) -> Step:
    """Memory here is coherent at once."""
    del line
    return Step(lambda _: None, (), is_pure=True)


@opcode(
    "fence.proxy.async", "membar.proxy.async",
    "fence.proxy.async.{space:global|shared::cta|shared::cluster}",
    "membar.proxy.async.{space:global|shared::cta|shared::cluster}",
    section=f"{_TITLE}: membar, fence",
)  # fmt: skip
def _proxy_fence(line: Binder) -> Step:
    """Memory here has no proxies; the race check does."""
    counts = line.parts.get("space") != "global"

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        if counts and frame.batch.watch is not None:
            frame.batch.watch.fence(frame, frame.active())

    return Step(run, (), is_pure=False)


@opcode(
    "griddepcontrol.{what:launch_dependents|wait}", "nanosleep.u32", "pmevent?{mask:mask}", "brkpt",
    "setmaxnreg.{what:inc|dec}.sync.aligned.u32",
    section="Miscellaneous Instructions", pure=True,
)  # fmt: skip
def _nothing(line: Binder) -> Step:
    del line
    return Step(lambda _: None, (), is_pure=True)


@opcode("trap", section="Miscellaneous Instructions: trap")
def _trap(line: Binder) -> Step:
    del line

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        active = frame.active()
        if active.any():
            row, column = (int(each[0]) for each in np.nonzero(active))
            where = tuple(frame.batch.coordinates[row].tolist())
            raise Trouble("trap", f"thread {column + frame.first} of CTA {where} reaches a trap")

    return Step(run, (), is_pure=False)
