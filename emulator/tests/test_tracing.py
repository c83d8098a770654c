"""One value of two runs, back to where they first differ: each a program of a few lines."""

from __future__ import annotations

import numpy as np

from gpu_emulator.api import trace
from gpu_emulator.values import Allocation, Budget, Element, Launch, Pointer, Schedule, Trace

PTX = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry pair(.param .u64 out)
{
  .reg .b32 %r<12>;
  .reg .b64 %rd<4>;
  .shared .align 4 .b8 tile[256];
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, tile;
  shl.b32 %r3, %r1, 2;
  add.s32 %r4, %r2, %r3;
  FIRST
  xor.b32 %r5, %r3, 128;
  add.s32 %r6, %r2, %r5;
  st.shared.u32 [%r4], %r1;
  ld.shared.u32 %r7, [%r6];
  add.u32 %r8, %r7, 5;
  mul.wide.u32 %rd2, %r1, 4;
  add.s64 %rd3, %rd1, %rd2;
  st.global.u32 [%rd3], %r8;
  ret;
}
"""
ZEROED = PTX.replace("FIRST", "st.shared.u32 [%r4], 0;\n  bar.sync 0;")
UNWRITTEN = PTX.replace("FIRST", "")


def followed(ptx: str, one: Schedule, other: Schedule, element: int) -> Trace:
    launch = Launch(
        ptx=ptx,
        grid=(1, 1, 1),
        block=(64, 1, 1),
        allocations=(Allocation(name="out", data=np.zeros(256, np.uint8)),),
        arguments=(Pointer(allocation=0),),
    )
    place = Element(allocation=0, offset=4 * element, size=4)
    return trace((launch, launch), (one, other), Budget(), place)


def lines(ptx: str, found: Trace) -> list[str]:
    text = ptx.splitlines()
    return [text[each.place.ptx_line - 1].split()[0] for each in found.links]


def test_what_nothing_wrote_is_where_it_begins() -> None:
    first = Schedule(warps="first")
    found = followed(UNWRITTEN, first, Schedule(warps="first", garbage=1), 3)
    assert "nothing wrote it" in found.why
    assert lines(UNWRITTEN, found) == ["ld.shared.u32", "add.u32", "st.global.u32"]
    assert {each.thread for each in found.links} == {3}
    assert all(one != other for one, other in (each.values for each in found.links))


def test_a_store_that_one_run_has_not_seen_is_where_it_begins() -> None:
    schedules = (Schedule(warps="first"), Schedule(warps="last"))
    ways = [followed(ZEROED, *schedules, element) for element in (3, 35)]
    torn = [way for way in ways if len(way.links) == 3]
    assert torn, "one half of the block is early in one of the orders"
    for found in torn:
        assert lines(ZEROED, found) == ["ld.shared.u32", "add.u32", "st.global.u32"]
        assert "in the first run" in found.why
        assert "st.shared.u32 [%r4], 0)" in found.why
        assert "st.shared.u32 [%r4], %r1)" in found.why
        assert found.program == (0, 0, 0)


def test_lockstep_is_no_order_of_warps() -> None:
    found = followed(ZEROED, Schedule(), Schedule(garbage=1), 3)
    assert found.not_run is not None
    assert "lockstep" in found.not_run
