"""Warps that run step by step together leave what they leave one after the other, in any order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import kernel, outcome

from gpu_emulator.machine import launching
from gpu_emulator.values import Checks, Outcome, Schedule

ORDERS = [
    Schedule(warps=warps, completion=completion, seed=3)
    for warps in ("first", "last", "random")
    for completion in ("early", "late")
]
SHARED = ".shared .align 16 .b8 buffer[512];\n.shared .align 8 .b64 bar;"
PLACE = (
    "mov.u32 %r2, buffer; mov.u32 %r1, %r40; mov.u32 %r9, %ctaid.x; mad.lo.u32 %r8, %r9, 128, %r40;"
)
OUT = "mad.wide.u32 %rd1, %r8, 4, %rd40; st.global.u32 [%rd1], %r1;"
# `%r1` is what a thread has; another one's place is that of its number, some bits of it turned.
AT = "xor.b32 %r4, %r40, {turn}; mad.lo.u32 %r3, %r4, 4, %r2;"
IN_GLOBAL = (
    "xor.b32 %r4, %r40, {turn}; mad.lo.u32 %r5, %r9, 128, %r4; mad.wide.u32 %rd2, %r5, 4, %rd41;"
)
STEPS = {
    "store": f"{AT} st.shared.u32 [%r3], %r1;",
    "load": f"{AT} ld.shared.u32 %r6, [%r3]; mad.lo.u32 %r1, %r1, 3, %r6;",
    "store.global": f"{IN_GLOBAL} st.global.u32 [%rd2], %r1;",
    "load.global": f"{IN_GLOBAL} ld.global.u32 %r6, [%rd2]; mad.lo.u32 %r1, %r1, 3, %r6;",
    "copy": f"{AT} {IN_GLOBAL} cp.async.ca.shared.global [%r3], [%rd2], 4; cp.async.commit_group;",
    "wait": "cp.async.wait_group 0;",
    "barrier": "bar.sync 0;",
}


def executed(body: str, schedule: Schedule, *, races: bool = False) -> Outcome:
    buffers = (np.zeros(256, "u4"), np.arange(7, 263, dtype="u4"))
    ptx = kernel(PLACE + body + OUT, 2, declarations=SHARED)
    checks = Checks(races=races, validity=True)
    return outcome(ptx, *buffers, grid=2, block=128, schedule=schedule, checks=checks)


def one_after_the_other(body: str, schedule: Schedule) -> Outcome:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launching, "_FEW_CTAS", 0)
        found = executed(body, schedule, races=True)
    assert not found.is_ordered
    return found


def compared(body: str) -> bool:
    """Whether any order of warps leaves the same, as the emulator says; then it does."""
    ordered = [executed(body, each).is_ordered for each in ORDERS]
    assert len(set(ordered)) == 1
    for schedule in ORDERS:
        apart = one_after_the_other(body, schedule)
        found = executed(body, schedule, races=True)
        for each, other in zip(found.allocations, apart.allocations, strict=True):
            assert each.data.tobytes() == other.data.tobytes()
        assert replace(found, allocations=(), is_ordered=False) == replace(apart, allocations=())
        if found.is_ordered:
            assert not any(not race.formal for race in apart.races)
    return ordered[0]


@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(STEPS)), st.sampled_from((0, 1, 31, 32, 64, 97))),
        min_size=1, max_size=7,
    )
)  # fmt: skip
def test_any_program_of_accesses_and_barriers(steps: list[tuple[str, int]]) -> None:
    compared(" ".join(STEPS[name].format(turn=turn) for name, turn in steps))


@pytest.mark.parametrize("turn", [32, 97])
def test_what_barriers_order_is_ordered(turn: int) -> None:
    steps = ["store", "barrier", "load", "barrier", "copy", "wait", "barrier", "load"]
    turned = {"load": turn, "copy": 1}
    assert compared(" ".join(STEPS[name].format(turn=turned.get(name, 0)) for name in steps))
    without = [name for name in steps if name != "barrier"]
    assert not compared(" ".join(STEPS[name].format(turn=turned.get(name, 0)) for name in without))


ARRIVE = "@%p1 mbarrier.arrive.shared.b64 %rd5, [bar];"
AWAIT = "{label}: mbarrier.try_wait.parity.shared.b64 %p2, [bar], {phase}; @!%p2 bra {label};"
PHASES = (
    "setp.eq.u32 %p1, %r40, 0; @%p1 mbarrier.init.shared.b64 [bar], 1; bar.sync 0;"
    + STEPS["store"].format(turn=0)
    + "bar.sync 0;"
    + ARRIVE
    + AWAIT.format(label="one", phase=0)
    + "{between}"
    + ARRIVE
    + AWAIT.format(label="two", phase=1)
    + STEPS["load"].format(turn=32)
)


def test_a_phase_that_may_be_over_before_it_is_waited_for() -> None:
    assert compared(PHASES.format(between="bar.sync 0;"))
    body = PHASES.format(between="")
    found = [executed(body, each) for each in ORDERS[:3]]
    assert not any(each.is_ordered for each in found)
    # Thread 0 runs on to the next phase, and the other warps never see the first one complete.
    assert {each.faults[0].kind for each in found if each.faults} == {"hang"}


@pytest.mark.parametrize(
    "body",
    [
        "atom.global.add.u32 %r6, [%rd41], 1; add.u32 %r1, %r1, %r6;",
        "mov.u32 %r1, %clock;",
        "ld.volatile.global.u32 %r1, [%rd41];",
        "bar.sync 1, 128;",
    ],
)
def test_what_depends_on_more_than_memory_and_barriers_is_not_judged(body: str) -> None:
    assert not executed(body, ORDERS[0]).is_ordered


def test_a_write_of_the_bytes_that_are_there_leaves_the_order_open() -> None:
    kept = "ld.shared.u32 %r7, [%r3]; st.shared.u32 [%r3], %r7;"
    steps = (STEPS["store"].format(turn=0), "bar.sync 0;", STEPS["load"].format(turn=32))
    body = "mov.u32 %r1, 5;" + " ".join(steps) + AT.format(turn=0) + kept
    assert not any(executed(body, each).is_ordered for each in ORDERS)
    assert any(one_after_the_other(body, each).races for each in ORDERS)
