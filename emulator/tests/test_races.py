"""Accesses that nothing orders are found, those that something orders are not."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from programs import SCHEDULES, kernel, outcome

from gpu_emulator.values import Checks, Outcome, Schedule

STORE = "mad.wide.u32 %rd1, %r40, 4, %rd40; st.global.u32 [%rd1], %r1;"
BUFFER = ".shared .align 16 .b8 buffer[2048];\n.shared .align 8 .b64 bar[2];"
# Each warp writes its part and reads that of the other.
EXCHANGE = (
    "mov.u32 %r2, buffer; mad.lo.u32 %r3, %r40, 4, %r2; st.shared.u32 [%r3], %r40; {one}"
    " xor.b32 %r4, %r40, 32; mad.lo.u32 %r5, %r4, 4, %r2; ld.shared.u32 %r1, [%r5]; {two}"
    " st.shared.u32 [%r3], %r4;" + STORE
)


def races(body: str, *, block: int = 64, schedule: Schedule | None = None) -> Outcome:
    buffers = (np.zeros(block, "u4"), np.arange(1, 1025, dtype="u4"))
    ptx = kernel(body, 2, declarations=BUFFER)
    result = outcome(ptx, *buffers, block=block, schedule=schedule, checks=Checks(races=True))
    assert result.not_run is None, result.not_run
    assert not result.faults, result.faults
    return result


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_barriers_order(schedule: Schedule) -> None:
    barrier = "bar.sync 0;"
    assert not races(EXCHANGE.format(one=barrier, two=barrier), schedule=schedule).races
    (after_write,) = races(EXCHANGE.format(one="", two=barrier), schedule=schedule).races
    # In whichever order they ran.
    assert {after_write.first.instruction[:2], after_write.second.instruction[:2]} == {"st", "ld"}
    (after_read,) = races(EXCHANGE.format(one=barrier, two=""), schedule=schedule).races
    assert not after_read.formal
    assert after_read.space == "shared"
    assert "warp 0" in after_read.what
    assert "warp 1" in after_read.what


def test_half_of_a_word_each_is_no_race() -> None:
    body = (
        "mov.u32 %r2, buffer; shr.u32 %r3, %r40, 5; and.b32 %r4, %r40, 31;"
        " mad.lo.u32 %r5, %r4, 4, %r2; mad.lo.u32 %r5, %r3, 2, %r5; cvt.u16.u32 %h1, %r40;"
        " st.shared.u16 [%r5], %h1;"
    )
    assert not races(body).races


def test_the_same_bytes_written_again_disturb_nobody() -> None:
    body = "st.shared.u32 [buffer], {value}; bar.sync 0; ld.shared.u32 %r1, [buffer];" + STORE
    assert not races(body.format(value=7)).races
    assert races(body.format(value="%r40")).races


def among_lanes(found: Outcome) -> list[str]:
    """What is said of lanes of one instruction."""
    return [race.what for race in found.races if race.kind == "lanes"]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
def test_lanes_of_one_store_that_write_other_bits_to_one_place(
    schedule: Schedule, size: int
) -> None:
    store = {
        1: "cvt.u16.u32 %h1, %r3; st.shared.u8 [%r2], %h1;",
        2: "cvt.u16.u32 %h1, %r3; st.shared.u16 [%r2], %h1;",
        4: "st.shared.u32 [%r2], %r3;",
        8: "st.shared.v2.u32 [%r2], {%r5, %r3};",
        16: "st.shared.v4.u32 [%r2], {%r5, %r5, %r5, %r3};",
    }[size]
    place = "mov.u32 %r2, buffer; shr.u32 %r4, %r40, 5; mad.lo.u32 %r2, %r4, 16, %r2;"
    place += " mov.u32 %r5, 7;"
    equal = races(f"{place} mov.u32 %r3, %r4; {store}", schedule=schedule)
    assert not equal.races
    # Which lane of a group writes what does not matter: all write what the other warps' lanes do.
    lanes = f"{place} and.b32 %r3, %r40, 16; {store}"
    found = races(lanes, schedule=schedule)
    (what,) = among_lanes(found)
    assert len(found.races) == 1
    assert f"({2 * size} bytes)" in what or f"({size} bytes)" in what
    assert "lanes 0 and 31" in what
    assert "0x" + "10".rjust(2 * min(size, 4), "0") in what


@pytest.mark.parametrize("checks", [Checks(), Checks(races=True)], ids=str)
@pytest.mark.parametrize(("warps", "kept"), [("lockstep", 9), ("first", 9), ("last", 1000)])
def test_an_order_of_warps_is_one_of_lanes_that_store_to_one_place(
    checks: Checks, warps: Literal["lockstep", "first", "last"], kept: int
) -> None:
    """Lanes 3 and 31 agree, and lane 5 is the farthest from them: either order shows it."""
    body = (
        "mov.u32 %r1, 10; and.b32 %r2, %r40, 31; setp.eq.u32 %p1, %r2, 31; @%p1 mov.u32 %r1, 9;"
        " setp.eq.u32 %p1, %r2, 3; @%p1 mov.u32 %r1, 9; setp.eq.u32 %p1, %r2, 5;"
        " @%p1 mov.u32 %r1, 1000; st.shared.u32 [buffer], %r1; bar.sync 0;"
        " ld.shared.u32 %r1, [buffer];" + STORE
    )
    buffers = (np.zeros(64, "u4"), np.zeros(64, "u4"))
    ptx = kernel(body, 2, declarations=BUFFER)
    for block in (32, 64):
        result = outcome(ptx, *buffers, block=block, schedule=Schedule(warps=warps), checks=checks)
        assert not result.is_ordered
        assert set(result.allocations[0].data.view("u4")[:block]) == {kept}


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_warps_that_store_the_same_lane_for_lane(schedule: Schedule) -> None:
    copies = "mov.u32 %r2, buffer; and.b32 %r3, %r40, 31; and.b32 %r4, %r40, 16;"
    apart = "mad.lo.u32 %r2, %r3, 4, %r2; st.shared.u32 [%r2], %r4;"
    reads = " bar.sync 0; ld.shared.u32 %r1, [%r2];" + STORE
    assert not races(copies + apart + reads, schedule=schedule).races
    # All lanes to one place: what the last lanes of both warps leave is the same.
    found = races(copies + "st.shared.u32 [%r2], %r4;" + reads, schedule=schedule)
    assert len(found.races) == len(among_lanes(found)) == 1


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@pytest.mark.parametrize("there", [0, 7])
def test_the_first_write_counts_whether_it_changes_memory_or_not(
    schedule: Schedule, there: int
) -> None:
    """A barrier of its own orders what is there before; then both warps write."""
    body = (
        f"mov.u32 %r2, buffer; shr.u32 %r6, %r40, 5; st.shared.u32 [%r2], {there}; bar.sync 0;"
        " st.shared.u32 [%r2], {value};"
    )
    assert not races(body.replace("{value}", str(there)), schedule=schedule).races
    assert races(body.replace("{value}", "%r6"), schedule=schedule).races


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_a_write_of_what_is_there_is_no_race_with_a_write_and_one_with_a_read(
    schedule: Schedule,
) -> None:
    body = (
        "mov.u32 %r2, buffer; setp.lt.u32 %p1, %r40, 32; st.shared.u32 [%r2], 7; bar.sync 0;"
        " @%p1 ld.shared.u32 %r1, [%r2]; {between} @!%p1 st.shared.u32 [%r2], 7;"
    )
    assert races(body.format(between=""), schedule=schedule).races
    assert not races(body.format(between="bar.sync 0;"), schedule=schedule).races


def test_who_writes_the_same_beside_others_is_not_forgotten() -> None:
    """Warps 0 and 1 write 7; a barrier of warps 1 and 2 orders one of them before what follows."""
    body = (
        "mov.u32 %r2, buffer; shr.u32 %r6, %r40, 5; setp.lt.u32 %p1, %r6, 2;"
        " setp.ge.u32 %p2, %r6, 1; setp.eq.u32 %p3, %r6, 2; @%p1 st.shared.u32 [%r2], 7;"
        " @%p2 bar.sync 1, 64; @%p3 {then}"
    )
    for schedule in SCHEDULES:
        reads = races(body.format(then="ld.shared.u32 %r1, [%r2];"), block=96, schedule=schedule)
        assert not reads.races
        again = races(body.format(then="st.shared.u32 [%r2], 8;"), block=96, schedule=schedule)
        (race,) = again.races
        assert race.kind == "write-write"


def test_other_barriers_and_parts_of_a_block_order_only_who_takes_part() -> None:
    body = (
        "mov.u32 %r2, buffer; shr.u32 %r6, %r40, 5; setp.eq.u32 %p1, %r6, 0;"
        " setp.eq.u32 %p2, %r6, 1; setp.eq.u32 %p3, %r6, 2; @%p1 st.shared.u32 [%r2], %r6;"
        " @%p1 bar.arrive 1, 64; @%p2 bar.sync 1, 64; @{reader} ld.shared.u32 %r1, [%r2];"
    )
    assert not races(body.format(reader="%p2"), block=96).races
    assert races(body.format(reader="%p3"), block=96).races


COPY = (
    "mov.u32 %r2, buffer; mad.lo.u32 %r3, %r40, 16, %r2; mad.wide.u32 %rd2, %r40, 16, %rd41;"
    " cp.async.cg.shared.global [%r3], [%rd2], 16; cp.async.commit_group; {wait} {barrier}"
    " xor.b32 %r4, %r40, 32; mad.lo.u32 %r5, %r4, 16, %r2; ld.shared.u32 %r1, [%r5];" + STORE
)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@pytest.mark.parametrize(
    ("wait", "barrier", "is_right"),
    [
        ("cp.async.wait_group 0;", "bar.sync 0;", True),
        ("cp.async.wait_group 1;", "bar.sync 0;", False),
        ("cp.async.wait_all;", "", False),
        ("", "bar.sync 0;", False),
        ("cp.async.bulk.wait_group 0;", "bar.sync 0;", False),
    ],
)
def test_copies_of_threads(schedule: Schedule, wait: str, barrier: str, is_right: bool) -> None:
    found = races(COPY.format(wait=wait, barrier=barrier), schedule=schedule).races
    assert (not found) == is_right


BULK = (
    "setp.eq.u32 %p1, %r40, 0; @%p1 mbarrier.init.shared::cta.b64 [bar], 1; {init}"
    " @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 %rd5, [bar], 256;"
    " mov.u32 %r2, buffer; mov.u32 %r6, bar; @%p1 cp.async.bulk.shared::cluster.global"
    ".mbarrier::complete_tx::bytes [%r2], [%rd41], 256, [%r6];"
    " {wait} mad.lo.u32 %r3, %r40, 4, %r2; ld.shared.u32 %r1, [%r3];" + STORE
)
WAIT = "again: mbarrier.try_wait.parity.shared::cta.b64 %p2, [bar], 0; @!%p2 bra again;"


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_bulk_loads_are_waited_for_at_their_mbarrier(schedule: Schedule) -> None:
    right = races(BULK.format(init="bar.sync 0;", wait=WAIT), schedule=schedule)
    assert not right.races
    assert right.allocations[0].data.view("u4").tolist() == list(range(1, 65))
    wrong = races(BULK.format(init="bar.sync 0;", wait=""), schedule=schedule)
    (race,) = wrong.races
    assert "a bulk load" in race.what
    if schedule.completion == "late":
        assert wrong.allocations[0].data.view("u4").tolist() != list(range(1, 65))


STORES = (
    "mov.u32 %r2, buffer; mad.lo.u32 %r3, %r40, 4, %r2; st.shared.u32 [%r3], %r40; {fence}"
    " bar.sync 0; setp.eq.u32 %p1, %r40, 0; @%p1 cp.async.bulk.global.shared::cta.bulk_group"
    " [%rd40], [%r2], 256; @%p1 cp.async.bulk.commit_group; {wait} bar.sync 0;"
    " st.shared.u32 [%r3], 0;"
)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@pytest.mark.parametrize(
    ("fence", "wait", "kinds"),
    [
        ("fence.proxy.async.shared::cta;", "cp.async.bulk.wait_group.read 0;", set()),
        ("", "cp.async.bulk.wait_group.read 0;", {True}),
        ("fence.proxy.async.shared::cta;", "", {False}),
        ("fence.proxy.async.global;", "cp.async.bulk.wait_group.read 0;", {True}),
    ],
)
def test_bulk_stores_read_behind_a_proxy_fence(
    schedule: Schedule, fence: str, wait: str, kinds: set[bool]
) -> None:
    result = races(STORES.format(fence=fence, wait=wait), schedule=schedule)
    assert {each.formal for each in result.races} == kinds


def test_a_bulk_store_is_not_visible_before_the_whole_wait() -> None:
    body = (
        "mov.u32 %r2, buffer; mad.lo.u32 %r3, %r40, 4, %r2; st.shared.u32 [%r3], 5;"
        " fence.proxy.async; bar.sync 0; setp.eq.u32 %p1, %r40, 0;"
        " @%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd41], [%r2], 256;"
        " @%p1 cp.async.bulk.commit_group; @%p1 cp.async.bulk.wait_group{read} 0; bar.sync 0;"
        " ld.global.u32 %r1, [%rd41];" + STORE
    )
    late = Schedule(completion="late")
    whole = races(body.replace("{read}", ""), schedule=late)
    assert set(whole.allocations[0].data.view("u4").tolist()) == {5}
    half = races(body.replace("{read}", ".read"), schedule=late)
    assert set(half.allocations[0].data.view("u4").tolist()) == {1}
