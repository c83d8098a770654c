"""What depends on registers that nothing wrote differs between two fills of them."""

from __future__ import annotations

import numpy as np
import pytest
from programs import kernel, outcome

from gpu_emulator.values import Schedule

STORE = "mad.wide.u32 %rd1, %r40, 4, %rd40; st.global.u32 [%rd1], %r9;"


def left(body: str, garbage: int, block: int = 64) -> list[int]:
    schedule = Schedule(garbage=garbage)
    found = outcome(kernel(body + STORE, 1), np.zeros(block, "u4"), block=block, schedule=schedule)
    assert found.not_run is None
    result: list[int] = found.allocations[0].data.view("u4").tolist()
    return result


@pytest.mark.parametrize(
    "body",
    [
        "mov.b32 %r9, %r1;",
        "sub.u32 %r9, %r1, %r2;",
        "xor.b32 %r9, %r1, %r2;",
        "setp.eq.u32 %p1, %r1, %r2; selp.u32 %r9, 1, 0, %p1;",
        "setp.lt.u32 %p1, %r1, %r2; selp.u32 %r9, 1, 0, %p1;",
        "setp.eq.s64 %p1, %rd1, %rd2; selp.u32 %r9, 1, 0, %p1;",
        "setp.eq.s16 %p1, %h1, %h2; selp.u32 %r9, 1, 0, %p1;",
        "selp.u32 %r9, 1, 0, %p1;",
        "xor.pred %p3, %p1, %p2; selp.u32 %r9, 1, 0, %p3;",
        "redux.sync.xor.b32 %r9, %r1, -1;",
        "shfl.sync.bfly.b32 %r8, %r1, 1, 31, -1; sub.u32 %r9, %r1, %r8;",
        "match.any.sync.b32 %r9, %r1, -1;",
        "vote.sync.uni.pred %p3, %p1, -1; selp.u32 %r9, 1, 0, %p3;",
        "setp.lt.u32 %p1, %r40, 7; @%p1 mov.u32 %r1, 3; sub.u32 %r9, %r1, %r2;",
    ],
)
def test_two_fills_of_registers_show_what_depends_on_them(body: str) -> None:
    assert left(body, garbage=0) != left(body, garbage=1)


@pytest.mark.parametrize("body", ["sub.u32 %r9, %r1, %r1;", "and.b32 %r9, %r1, 0;"])
def test_what_does_not_depend_on_them_is_the_same(body: str) -> None:
    assert left(body, garbage=0) == left(body, garbage=1) == [0] * 64


def test_each_register_of_each_thread_has_a_value_of_its_own() -> None:
    three = "mov.b32 %r4, %r1; mov.b32 %r5, %r2; mov.b32 %r6, %r3; mov.b32 %r9, {};"
    found = [left(three.format(name), 1, block=1024) for name in ("%r4", "%r5", "%r6")]
    assert len({value for each in found for value in each}) == 3 * 1024
