"""Accesses to global memory that nothing orders: within a CTA, and of several CTAs."""

from __future__ import annotations

import numpy as np
import pytest
from programs import SCHEDULES, kernel, outcome

from gpu_emulator.values import Checks, Outcome, Schedule

PLACE = (
    "mov.u32 %r41, %ctaid.x; mad.wide.u32 %rd1, %r40, 4, %rd40; mad.wide.u32 %rd2, %r41, 4, %rd41;"
)
OUT = "mad.lo.u32 %r9, %r41, 64, %r40; mad.wide.u32 %rd9, %r9, 4, %rd42; st.global.u32 [%rd9], %r8;"


def races(
    body: str, *, grid: int = 1, block: int = 64, schedule: Schedule | None = None
) -> Outcome:
    buffers = [np.zeros(64, "u4"), np.zeros(8, "u4"), np.zeros(64 * grid, "u4")]
    result = outcome(
        kernel(PLACE + body, 3), *buffers, grid=grid, block=block, schedule=schedule,
        checks=Checks(races=True),
    )  # fmt: skip
    assert result.not_run is None, result.not_run
    assert not result.faults, result.faults
    return result


EXCHANGE = (
    "st.global.u32 [%rd1], %r40; {between} xor.b32 %r4, %r40, 32;"
    " mad.wide.u32 %rd3, %r4, 4, %rd40; ld.global.u32 %r8, [%rd3];" + OUT
)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_a_barrier_orders_global_memory_within_a_cta(schedule: Schedule) -> None:
    assert not races(EXCHANGE.format(between="bar.sync 0;"), schedule=schedule).races
    (race,) = races(EXCHANGE.format(between=""), schedule=schedule).races
    assert (race.space, race.formal, race.within_cta) == ("global", False, True)
    assert "warp 0" in race.what
    assert "warp 1" in race.what
    assert "p0" in race.what


@pytest.mark.parametrize("schedule", SCHEDULES[::3], ids=str)
def test_a_read_before_a_write_needs_a_barrier_too(schedule: Schedule) -> None:
    body = (
        "xor.b32 %r4, %r40, 32; mad.wide.u32 %rd3, %r4, 4, %rd40; ld.global.u32 %r8, [%rd3];"
        " {between} add.u32 %r5, %r40, 1; st.global.u32 [%rd1], %r5;" + OUT
    )
    assert not races(body.format(between="bar.sync 0;"), schedule=schedule).races
    assert len(races(body.format(between=""), schedule=schedule).races) == 1


def test_no_barrier_orders_several_ctas() -> None:
    body = "add.u32 %r5, %r41, 1; st.global.u32 [%rd41], %r5; bar.sync 0; mov.u32 %r8, 0;" + OUT
    assert not races(body).races
    (race,) = races(body, grid=3).races
    assert (race.kind, race.within_cta) == ("write-write", False)
    assert "of CTA 0" in race.what


def test_what_several_ctas_write_alike_is_no_race() -> None:
    body = "st.global.u32 [%rd41], 7; bar.sync 0; ld.global.u32 %r8, [%rd41];" + OUT
    assert not races(body, grid=3).races


@pytest.mark.parametrize("value", ["%r41", "%r5"])
def test_the_first_write_counts_whether_it_changes_memory_or_not(value: str) -> None:
    """CTA 0 writes 0, which is there; or CTA 1 does, and CTA 0 writes 1."""
    body = f"xor.b32 %r5, %r41, 1; st.global.u32 [%rd41], {value};"
    for schedule in SCHEDULES:
        (race,) = races(body, grid=2, block=1, schedule=schedule).races
        assert race.kind == "write-write"
        assert "of CTA 0" in race.what
        assert "of CTA 1" in race.what


def test_a_write_of_what_is_there_is_a_race_with_a_read_that_nothing_orders() -> None:
    body = (
        "setp.eq.u32 %p1, %r41, 0; @%p1 st.global.u32 [%rd41], 0;"
        " @!%p1 ld.global.u32 %r8, [%rd41];" + OUT
    )
    assert {race.space for race in races(body, grid=2, block=32).races} == {"global"}


def test_one_of_several_that_write_the_same_writes_something_else_after_it() -> None:
    for last in range(3):
        body = (
            "mov.u32 %r8, 0; st.global.u32 [%rd41], 7;"
            f" setp.eq.u32 %p1, %r41, {last}; @%p1 st.global.u32 [%rd41], 8;" + OUT
        )
        assert races(body, grid=3, block=32).races


def test_lanes_of_one_store_to_global_memory() -> None:
    body = "and.b32 %r5, %r40, 1; {store} mov.u32 %r8, 0;" + OUT
    weak = races(body.format(store="st.global.u32 [%rd2], %r5;"), grid=2, block=32)
    (race,) = weak.races
    assert race.kind == "lanes"
    assert "lanes 0 and 31 of a warp write 0x00000000 and 0x00000001" in race.what
    # Strong operations are not a data race, whichever comes last.
    strong = "st.relaxed.gpu.global.u32 [%rd2], %r5;"
    assert not races(body.format(store=strong), grid=2, block=32).races


def test_ctas_that_keep_to_themselves() -> None:
    body = "st.global.u32 [%rd2], %r41; bar.sync 0; ld.global.u32 %r8, [%rd2];" + OUT
    assert not races(body, grid=4).races


@pytest.mark.parametrize(
    ("operation", "is_race"),
    [
        ("red.global.add.u32 [%rd41], 1;", False),
        ("atom.global.gpu.acq_rel.add.u32 %r5, [%rd41], 1;", False),
        ("st.relaxed.gpu.global.u32 [%rd41], %r41;", False),
        ("st.volatile.global.u32 [%rd41], %r41;", False),
        ("red.relaxed.cta.global.add.u32 [%rd41], 1;", True),
        ("st.relaxed.cta.global.u32 [%rd41], %r41;", True),
        ("st.global.u32 [%rd41], %r41;", True),
    ],
)
def test_strong_operations_are_no_race_where_their_scope_reaches(
    operation: str, is_race: bool
) -> None:
    body = "setp.eq.u32 %p1, %r40, 0; @%p1 " + operation + " mov.u32 %r8, 0;" + OUT
    assert bool(races(body, grid=3).races) == is_race


# CTA 0 writes and raises a flag, CTA 1 waits for it and reads.
MESSAGE = (
    "setp.eq.u32 %p1, %r40, 0; setp.eq.u32 %p2, %r41, 0; @!%p2 bra other;"
    " add.u32 %r5, %r40, 5; st.global.u32 [%rd1], %r5; bar.sync 0; {raised} bra.uni done;"
    " other: {seen} setp.eq.u32 %p3, %r6, 0; @%p3 bra other; {after} bar.sync 0;"
    " done: @%p2 bra end; ld.global.u32 %r8, [%rd1];" + OUT + " end:"
)
RELEASE, ACQUIRE = (
    "@%p1 st.release.gpu.global.u32 [%rd41], 1;",
    "ld.acquire.gpu.global.u32 %r6, [%rd41];",
)
RELAXED, LOOK = (
    "@%p1 st.relaxed.gpu.global.u32 [%rd41], 1;",
    "ld.relaxed.gpu.global.u32 %r6, [%rd41];",
)
FENCE = "fence.acq_rel.gpu;"


@pytest.mark.parametrize(
    ("raised", "seen", "after", "is_right"),
    [
        (RELEASE, ACQUIRE, "", True),
        (FENCE + RELAXED, LOOK, FENCE, True),
        ("membar.gl;" + RELAXED, LOOK, "membar.gl;", True),
        (FENCE + RELAXED, ACQUIRE, "", True),
        ("@%p1 atom.global.gpu.acq_rel.exch.b32 %r7, [%rd41], 1;", ACQUIRE, "", True),
        (RELAXED, LOOK, FENCE, False),
        (FENCE + RELAXED, LOOK, "", False),
        (RELEASE, LOOK, "", False),
        (RELEASE.replace("gpu", "cta"), ACQUIRE, "", False),
    ],
)
def test_releases_and_acquires_order_ctas(
    raised: str, seen: str, after: str, is_right: bool
) -> None:
    result = races(MESSAGE.format(raised=raised, seen=seen, after=after), grid=2)
    assert result.allocations[2].data.view("u4")[64:].tolist() == list(range(5, 69))
    found = {each.space for each in result.races}
    assert found == (set() if is_right else {"global"})


@pytest.mark.parametrize("wait", ["", ".read"])
def test_what_a_bulk_store_wrote_is_read_behind_its_whole_wait(wait: str) -> None:
    body = (
        "mov.u32 %r2, buffer; mad.lo.u32 %r3, %r40, 4, %r2; st.shared.u32 [%r3], 5;"
        " fence.proxy.async; bar.sync 0; setp.eq.u32 %p1, %r40, 0;"
        " @%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd40], [%r2], 256;"
        f" @%p1 cp.async.bulk.commit_group; @%p1 cp.async.bulk.wait_group{wait} 0; bar.sync 0;"
        " ld.global.u32 %r8, [%rd1];" + OUT
    )
    ptx = kernel(PLACE + body, 3, declarations=".shared .align 16 .b8 buffer[256];")
    buffers = [np.zeros(64, "u4"), np.zeros(8, "u4"), np.zeros(64, "u4")]
    result = outcome(ptx, *buffers, block=64, checks=Checks(races=True))
    assert not result.faults, result.faults
    assert [each.space for each in result.races] == (["global"] if wait else [])
