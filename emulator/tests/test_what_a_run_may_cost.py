"""Right programs that need a little more than a limit allows: none of them is accused."""

from __future__ import annotations

import numpy as np
import pytest
from programs import SCHEDULES, kernel, outcome

from gpu_emulator.values import Budget, Checks, Outcome, Schedule

TURNS, BLOCKS = 50, 600
COUNTS = (
    "mov.u32 %r1, 0; mov.u32 %r2, %ctaid.x; mul.wide.u32 %rd1, %r2, 4; add.u64 %rd2, %rd40, %rd1;"
    f" again: add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, {TURNS}; @%p1 bra again;"
    " setp.eq.u32 %p2, %r40, 0; @%p2 st.global.u32 [%rd2], %r1;"
)
"""Each block counts to `TURNS`."""
TESTS = (
    "setp.ne.u32 %p3, %r40, 0; @%p3 bra done; mbarrier.init.shared::cta.b64 [bar], 1;"
    " mov.u32 %r1, 0; again: mbarrier.test_wait.parity.shared::cta.b64 %p2, [bar], 0;"
    " add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 12000; @%p1 bra again;"
    " st.global.u32 [%rd40], %r1; done:"
)
"""A thread gives up after 12,000 looks at a barrier that nobody arrives at."""


def counted(blocks: int, most: int, schedule: Schedule | None = None) -> Outcome:
    found = outcome(
        kernel(COUNTS, 1),
        np.zeros(blocks, "u4"),
        grid=blocks,
        block=64,
        schedule=schedule,
        limits=Budget(max_instructions=most),
    )
    assert not found.faults
    return found


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda own: f"{own.warps}-{own.completion}")
@pytest.mark.parametrize("blocks", [1, BLOCKS])
def test_a_budget_of_instructions_that_is_used_up_is_no_hang(
    schedule: Schedule, blocks: int
) -> None:
    whole = counted(blocks, 10**9, schedule)
    assert whole.not_run is None
    assert whole.allocations[0].data.view("u4").tolist() == [TURNS] * blocks
    # Just enough, and a little less.
    assert counted(blocks, whole.executed, schedule).not_run is None
    found = counted(blocks, whole.executed - 200, schedule)
    assert found.is_out_of_budget
    assert found.not_run is not None
    assert f"{whole.executed - 200:,} instructions of threads are used up" in found.not_run
    assert f" of {blocks:,} blocks" in found.not_run


def test_how_far_it_came_and_how_many_instructions_are_enough() -> None:
    needed = counted(BLOCKS, 10**9).executed
    found = counted(BLOCKS, needed * 2 // 3)
    assert found.not_run is not None
    assert "256 of 600 blocks came to their end" in found.not_run
    assert found.needs is not None
    assert needed <= found.needs <= 2 * needed
    assert counted(BLOCKS, found.needs).not_run is None
    # Where no block ended, nothing says how many there will be.
    first = counted(1, needed // BLOCKS // 2)
    assert first.needs is None
    assert "turns of the loop at PTX line" in str(first.not_run)


def test_looks_at_a_barrier_that_a_program_gives_up_are_no_hang() -> None:
    ptx = kernel(TESTS, 1, declarations=".shared .align 8 .b64 bar;")
    schedule = Schedule(warps="last")
    found = outcome(ptx, np.zeros(1, "u4"), schedule=schedule)
    assert (found.faults, found.not_run) == ((), None)
    assert found.allocations[0].data.view("u4").tolist() == [12000]
    # Without an end to the looks nothing changes from one to the next.
    endless = ptx.replace("add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 12000;", "not.pred %p1, %p2;")
    [fault] = outcome(endless, np.zeros(1, "u4"), schedule=schedule).faults
    assert fault.kind == "hang"


def test_memory_that_is_not_enough_is_no_fault() -> None:
    few = Budget(max_memory=1000)
    found = outcome(kernel(COUNTS, 1), np.zeros(1, "u4"), limits=few, checks=Checks(validity=True))
    assert found.faults == ()
    assert "the limit is 1,000" in str(found.not_run)
