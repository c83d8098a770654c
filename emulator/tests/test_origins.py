"""What one value is made of in two programs: each a program of a few lines."""

from __future__ import annotations

import numpy as np

from gpu_emulator.api import origins
from gpu_emulator.values import (
    Allocation,
    Budget,
    Element,
    Launch,
    Pointer,
    Schedule,
    Trace,
    TraceInput,
)

# Each thread adds what it loads to what its neighbour has loaded, and stores the sum.
PTX = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry sums(.param .u64 out, .param .u64 x)
{
  .reg .pred %p<2>;
  .reg .b32 %r<12>;
  .reg .b64 %rd<8>;
  .shared .align 4 .b8 tile[256];
  ld.param.u64 %rd1, [out];
  ld.param.u64 %rd2, [x];
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, tile;
  mad.lo.u32 %r3, %r1, 4, %r2;
  mul.wide.u32 %rd3, %r1, 4;
  add.s64 %rd4, %rd2, %rd3;
  LOAD
  st.shared.u32 [%r3], %r4;
  bar.sync 0;
  xor.b32 %r5, %r3, 4;
  ld.shared.u32 %r6, [%r5];
  SUM
  add.s64 %rd5, %rd1, %rd3;
  st.global.u32 [%rd5], %r7;
  ret;
}
"""
PLAIN = PTX.replace("LOAD", "ld.global.u32 %r4, [%rd4];").replace("SUM", "add.u32 %r7, %r6, %r4;")
AHEAD = PLAIN.replace("[%rd4]", "[%rd4+128]")
COPIED = PTX.replace(
    "LOAD",
    "cp.async.ca.shared.global [%r3], [%rd4], 4; cp.async.wait_all; ld.shared.u32 %r4, [%r3];",
).replace("SUM", "sub.u32 %r7, %r6, %r4;")


def followed(one: str, other: str, element: int) -> Trace:
    launches = [
        Launch(
            ptx=ptx,
            grid=(1, 1, 1),
            block=(32, 1, 1),
            allocations=(
                Allocation(name="out", data=np.zeros(128, np.uint8)),
                Allocation(name="x", data=np.arange(256, dtype=np.uint8)),
            ),
            arguments=(Pointer(allocation=0), Pointer(allocation=1)),
        )
        for ptx in (one, other)
    ]
    schedule = Schedule(warps="first")
    place = Element(allocation=0, offset=4 * element, size=4)
    return origins((launches[0], launches[1]), (schedule, schedule), Budget(), place)


def test_other_inputs_are_named_with_the_way_that_they_take() -> None:
    found = followed(AHEAD, PLAIN, 3)
    # Element 3 is made of x[2] and x[3]; ahead by 32 of x[34] and x[35].
    assert found.inputs == (
        TraceInput(run=0, allocation=1, spans=((136, 144),)),
        TraceInput(run=1, allocation=1, spans=((8, 16),)),
    )
    text = AHEAD.splitlines()
    way = [text[each.place.ptx_line - 1].split()[0] for each in found.links]
    assert way[0] == "ld.global.u32"
    assert way[-2:] == ["add.u32", "st.global.u32"]
    assert found.program == (0, 0, 0)


def test_another_way_of_the_same_inputs_is_no_difference() -> None:
    """Copied by an asynchronous engine, and subtracted: other instructions, the same bytes."""
    found = followed(COPIED, PLAIN, 3)
    assert (found.inputs, found.links, found.not_run) == ((), (), None)


def test_what_lanes_hand_to_each_other_counts() -> None:
    ptx = PLAIN.replace("add.u32 %r7, %r6, %r4;", "shfl.sync.idx.b32 %r7, %r4, 5, 31, -1;")
    found = followed(ptx, PLAIN, 3)
    assert [each.run for each in found.inputs] == [0]
    [(first, end)] = found.inputs[0].spans[-1:]
    # A warp's exchange is one input as a whole.
    assert (first, end) == (16, 128)


def test_what_is_not_written_is_not_followed() -> None:
    nowhere = PLAIN.replace("st.global.u32 [%rd5], %r7;", "")
    assert followed(nowhere, PLAIN, 3).not_run == "no program writes this element"
