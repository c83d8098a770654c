"""Blocks that wait for others, where only some of them run at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import pytest
from programs import kernel, outcome

from gpu_emulator.values import Budget, Schedule

BLOCKS = 6
HEAD = "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %nctaid.x; setp.eq.u32 %p3, %r40, 0;"
WAIT = (
    "mul.wide.u32 %rd1, %r1, 4; add.u64 %rd2, %rd40, %rd1; setp.eq.u32 %p1, %r1, 0; @%p1 bra go;"
    " loop: ld.acquire.gpu.global.u32 %r3, [%rd2+-4]; setp.eq.u32 %p2, %r3, 0; @%p2 bra loop;"
    " go: bar.sync 0; st.release.gpu.global.u32 [%rd2], 1;"
)
"""For the block of the number before."""
TICKET = (
    "@%p3 atom.global.gpu.relaxed.add.u32 %r1, [%rd41], 1; @%p3 st.shared.u32 [number], %r1;"
    " bar.sync 0; ld.shared.u32 %r1, [number];"
)
BARRIER = (
    "@%p3 red.release.gpu.global.add.u32 [%rd41], 1;"
    " loop: ld.acquire.gpu.global.u32 %r3, [%rd41]; setp.lt.u32 %p2, %r3, %r2; @%p2 bra loop;"
)
LOCK = (
    "@!%p3 bra done; loop: atom.acquire.gpu.global.cas.b32 %r3, [%rd40], 0, 1;"
    " setp.ne.u32 %p2, %r3, 0; @%p2 bra loop; ld.volatile.global.u32 %r4, [%rd41];"
    " add.u32 %r4, %r4, 1; st.volatile.global.u32 [%rd41], %r4;"
    " st.release.gpu.global.u32 [%rd40], 0; done:"
)


@pytest.mark.parametrize("resident", [0, 1, BLOCKS - 1])
@pytest.mark.parametrize("warps", ["first", "last"])
@pytest.mark.parametrize(
    ("body", "hangs"),
    [
        (WAIT, lambda warps, resident: resident > 0 and warps == "last"),
        (BARRIER, lambda warps, resident: resident > 0),
        (TICKET + WAIT, lambda warps, resident: False),
        (LOCK, lambda warps, resident: False),
    ],
    ids=["chain", "barrier", "ticket", "lock"],
)
def test_blocks_that_wait_for_one_that_is_not_resident(
    body: str, hangs: Callable[[str, int], bool], warps: Literal["first", "last"], resident: int
) -> None:
    result = outcome(
        kernel(HEAD + body, 2, declarations=".shared .u32 number;"),
        *(np.zeros(BLOCKS, "u4") for _ in range(2)),
        grid=BLOCKS,
        block=64,
        schedule=Schedule(warps=warps, resident=resident),
    )
    assert result.not_run is None
    if not hangs(warps, resident):
        assert not result.faults
        assert result.ctas == BLOCKS
        return
    (fault,) = result.faults
    assert fault.kind == "hang"
    assert fault.what.startswith(f"with {resident} of {BLOCKS} blocks at once")
    assert fault.place is not None
    assert fault.place.instruction.startswith("ld.acquire")
    assert result.ctas == resident


def test_of_a_large_grid_those_that_fit_are_enough() -> None:
    ptx = kernel(HEAD + BARRIER, 2)
    buffers = [np.zeros(1, "u4"), np.zeros(1, "u4")]
    limits = Budget(max_ctas=4)
    hang = outcome(ptx, *buffers, grid=9000, schedule=Schedule(resident=3), limits=limits)
    assert (hang.faults[0].kind, hang.ctas, hang.is_sample) == ("hang", 3, False)
    # With more at once than are run, what waits may wait for those that are left out.
    unknown = outcome(ptx, *buffers, grid=9000, schedule=Schedule(resident=5), limits=limits)
    assert (unknown.faults[0].kind, unknown.ctas, unknown.is_sample) == ("hang", 4, True)


@pytest.mark.parametrize("warps", ["first", "last"])
@pytest.mark.parametrize("writer", [0, 1])
def test_a_warp_that_spins_lets_another_one_write(
    warps: Literal["first", "last"], writer: int
) -> None:
    ptx = kernel(
        f"shr.u32 %r2, %r40, 5; setp.eq.u32 %p1, %r2, {writer};"
        " @%p1 st.volatile.global.u32 [%rd40], 1; @%p1 bra done;"
        " loop: ld.volatile.global.u32 %r3, [%rd40]; setp.eq.u32 %p2, %r3, 0; @%p2 bra loop; done:",
        1,
    )
    limits = Budget(max_instructions=100_000)
    result = outcome(
        ptx, np.zeros(1, "u4"), block=64, schedule=Schedule(warps=warps), limits=limits
    )
    assert not result.faults
