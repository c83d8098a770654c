"""Shuffles, votes, barriers, atomic operations, copies under way: under every schedule."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from programs import SCHEDULES, execute, kernel, outcome

from gpu_emulator.values import Checks, Schedule

PLACE = "mad.wide.u32 %rd1, %r40, 4, %rd40;"
STORE = f"{PLACE} st.global.u32 [%rd1], %r1;"


@pytest.mark.parametrize(
    ("mode", "amount", "clamp", "source"),
    [
        ("bfly", 5, 31, lambda t: t ^ 5),
        ("up", 3, 0, lambda t: t - 3 if t >= 3 else t),
        ("down", 7, 31, lambda t: t + 7 if t + 7 < 32 else t),
        ("idx", 9, 31, lambda t: 9),
        ("bfly", 4, 0x181F, lambda t: t ^ 4),
        ("down", 2, 0x181F, lambda t: t + 2 if t % 8 + 2 < 8 else t),
        ("idx", 11, 0x181F, lambda t: t // 8 * 8 + 3),
    ],
)
def test_shuffles(mode: str, amount: int, clamp: int, source: Callable[[int], int]) -> None:
    ptx = kernel(
        f"mad.lo.u32 %r2, %r40, %r40, 3; shfl.sync.{mode}.b32 %r1, %r2, {amount}, {clamp}, -1;"
        f" {STORE}",
        1,
    )
    (found,) = execute(ptx, np.zeros(64, "u4"), block=64)
    wanted = [32 * (t // 32) + source(t % 32) for t in range(64)]
    assert found.tolist() == [each * each + 3 for each in wanted]


def test_votes_matches_reductions() -> None:
    body = (
        "setp.gt.u32 %p1, %r40, 12; vote.sync.ballot.b32 %r2, %p1, -1;"
        " vote.sync.any.pred %p2, %p1, -1; vote.sync.all.pred %p3, %p1, -1;"
        " and.b32 %r3, %r40, 3; match.any.sync.b32 %r4, %r3, -1; redux.sync.add.u32 %r5, %r40, -1;"
        " redux.sync.max.s32 %r6, %r40, 0xff; elect.sync %r7|%p4, -1; selp.u32 %r8, 1, 0, %p4;"
        " selp.u32 %r9, 1, 0, %p2; selp.u32 %r10, 1, 0, %p3; activemask.b32 %r11;"
    )
    store = "".join(
        f"mad.lo.u32 %r20, %r40, 8, {number}; mad.wide.u32 %rd1, %r20, 4, %rd40;"
        f" st.global.u32 [%rd1], %r{name};"
        for number, name in enumerate((2, 4, 5, 6, 8, 9, 10, 11))
    )
    (found,) = execute(kernel(body + store, 1), np.zeros(256, "u4"))
    for thread, row in enumerate(found.reshape(32, 8).tolist()):
        assert row[0] == 0xFFFFFFFF & ~((1 << 13) - 1)
        assert row[1] == 0x11111111 << (thread & 3)
        assert row[2] == 31 * 16
        assert thread >= 8 or row[3] == 7
        assert row[4:7] == [int(thread == 0), 1, 0]
        assert row[7] == 0xFFFFFFFF


def test_lanes_that_parted_meet_for_a_shuffle() -> None:
    ptx = kernel(
        "setp.lt.u32 %p1, %r40, 10; mov.u32 %r2, 1; @%p1 bra few; mul.lo.u32 %r2, %r40, 3;"
        " few: shfl.sync.bfly.b32 %r1, %r2, 16, 31, -1;" + STORE,
        1,
    )
    (found,) = execute(ptx, np.zeros(32, "u4"))
    wanted = [1 if t < 10 else 3 * t for t in range(32)]
    assert found.tolist() == [wanted[t ^ 16] for t in range(32)]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_a_reduction_through_shared_memory(schedule: Schedule) -> None:
    ptx = kernel(
        "mov.u32 %r2, buffer; mad.lo.u32 %r3, %r40, 4, %r2; mad.lo.u32 %r4, %r40, 7, 1;"
        " st.shared.u32 [%r3], %r4; mov.u32 %r5, 64; loop: bar.sync 0; setp.ge.u32 %p1, %r40, %r5;"
        " @%p1 bra skip; mad.lo.u32 %r6, %r5, 4, %r3; ld.shared.u32 %r7, [%r6];"
        " ld.shared.u32 %r8, [%r3]; add.u32 %r8, %r8, %r7; st.shared.u32 [%r3], %r8;"
        " skip: shr.u32 %r5, %r5, 1; setp.ne.u32 %p2, %r5, 0; @%p2 bra loop; bar.sync 0;"
        f" ld.shared.u32 %r1, [buffer]; {STORE}",
        1,
        declarations=".shared .align 16 .b8 buffer[512];",
    )
    (found,) = execute(ptx, np.zeros(128, "u4"), block=128, schedule=schedule)
    assert set(found.tolist()) == {sum(7 * t + 1 for t in range(128))}


EXCHANGE = (
    "mov.u32 %r2, buffer; mad.lo.u32 %r3, %r40, 4, %r2; st.shared.u32 [%r3], %r40; BARRIER"
    " xor.b32 %r4, %r40, 32; mad.lo.u32 %r5, %r4, 4, %r2; ld.shared.u32 %r1, [%r5];" + STORE
)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_a_missing_barrier_shows_in_skewed_warps(schedule: Schedule) -> None:
    declarations = ".shared .align 16 .b8 buffer[256];"
    wanted = [t ^ 32 for t in range(64)]
    right = kernel(EXCHANGE.replace("BARRIER", "bar.sync 0;"), 1, declarations=declarations)
    (found,) = execute(right, np.zeros(64, "u4"), block=64, schedule=schedule)
    assert found.tolist() == wanted
    wrong = kernel(EXCHANGE.replace("BARRIER", ""), 1, declarations=declarations)
    (found,) = execute(wrong, np.zeros(64, "u4"), block=64, schedule=schedule)
    assert (found.tolist() == wanted) == (schedule.warps == "lockstep")


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_partial_barriers_between_producers_and_consumers(schedule: Schedule) -> None:
    ptx = kernel(
        "setp.ge.u32 %p1, %r40, 64; @%p1 bra consumer; mad.lo.u32 %r2, %r40, 5, 2;"
        " mov.u32 %r3, buffer; mad.lo.u32 %r3, %r40, 4, %r3; st.shared.u32 [%r3], %r2;"
        " bar.arrive 3, 96; mov.u32 %r1, 0; bra end;"
        " consumer: bar.sync 3, 96; mov.u32 %r3, buffer; sub.u32 %r4, %r40, 64;"
        " mad.lo.u32 %r3, %r4, 4, %r3; ld.shared.u32 %r1, [%r3]; ld.shared.u32 %r5, [%r3+128];"
        f" add.u32 %r1, %r1, %r5; end: {STORE}",
        1,
        declarations=".shared .align 16 .b8 buffer[256];",
    )
    (found,) = execute(ptx, np.zeros(96, "u4"), block=96, schedule=schedule)
    assert found.tolist() == [0] * 64 + [5 * t + 2 + 5 * (t + 32) + 2 for t in range(32)]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_barriers_that_count(schedule: Schedule) -> None:
    ptx = kernel(
        "setp.lt.u32 %p1, %r40, 21; barrier.red.popc.u32 %r1, 0, %p1; bar.red.and.pred %p2, 1, %p1;"
        " bar.red.or.pred %p3, 1, %p1; @%p2 add.u32 %r1, %r1, 100; @%p3 add.u32 %r1, %r1, 1000;"
        f" {STORE}",
        1,
    )
    (found,) = execute(ptx, np.zeros(64, "u4"), block=64, schedule=schedule)
    assert set(found.tolist()) == {1021}


def test_a_barrier_that_some_never_reach_is_a_hang_that_says_who_waits() -> None:
    ptx = kernel(
        "setp.lt.u32 %p1, %r40, 32; @%p1 bra one; two: bar.sync 1, 64; bra end;"
        " one: bar.sync 2, 64; end:",
        1,
    )
    result = outcome(ptx, np.zeros(1, "u4"), block=64)
    (fault,) = result.faults
    assert fault.kind == "hang"
    assert (
        "warp 0 of CTA (0, 0, 0) waits for barrier 2, where 32 threads have arrived" in fault.what
    )
    assert "warp 1 of CTA (0, 0, 0) waits for barrier 1" in fault.what


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@pytest.mark.parametrize(
    ("operation", "kind", "start", "function"),
    [
        ("add", "u32", 7, lambda values: 7 + sum(values)),
        ("max", "s32", 3, lambda values: max(3, *values)),
        ("min", "u32", 50, lambda values: min(50, *values)),
        ("or", "b32", 0, lambda values: 127),
        ("xor", "b32", 1, lambda values: 1),
        ("inc", "u32", 0, lambda values: None),
    ],
)
def test_atomics_on_one_place(
    schedule: Schedule, operation: str, kind: str, start: int, function: Callable[[range], int]
) -> None:
    operand = "200" if operation == "inc" else "%r2"
    ptx = kernel(
        "mov.u32 %r3, %ctaid.x; mad.lo.u32 %r2, %r3, 64, %r40;"
        f" atom.global.gpu.relaxed.{operation}.{kind} %r1, [%rd41], {operand};"
        " mad.wide.u32 %rd1, %r2, 4, %rd40; st.global.u32 [%rd1], %r1;",
        2,
    )
    olds, (result,) = execute(
        ptx, np.zeros(128, "u4"), np.array([start], "u4"), grid=2, block=64, schedule=schedule
    )
    if operation == "inc":
        assert sorted(olds.tolist()) == list(range(128))
        assert result == 128
    else:
        assert result == function(range(128))


def test_compare_and_swap_takes_turns() -> None:
    ptx = kernel(
        "again: atom.global.cas.b32 %r2, [%rd41], 0, 1; setp.ne.u32 %p1, %r2, 0; @%p1 bra again;"
        " ld.global.u32 %r3, [%rd41+4]; add.u32 %r3, %r3, 1; st.global.u32 [%rd41+4], %r3;"
        " atom.global.exch.b32 %r2, [%rd41], 0;",
        2,
    )
    _, state = execute(ptx, np.zeros(1, "u4"), np.zeros(2, "u4"), grid=2, block=32)
    assert state.tolist() == [0, 64]


def copied(waits: str) -> str:
    return kernel(
        "mov.u32 %r2, buffer; mad.lo.u32 %r3, %r40, 16, %r2; mad.wide.u32 %rd2, %r40, 16, %rd41;"
        " cp.async.cg.shared.global [%r3], [%rd2], 16; cp.async.commit_group;"
        " add.u64 %rd3, %rd2, 512; cp.async.ca.shared.global [%r3+512], [%rd3], 16, 8;"
        f" cp.async.commit_group; {waits} ld.shared.u32 %r1, [%r3+4]; ld.shared.u32 %r4, [%r3+520];"
        f" add.u32 %r1, %r1, %r4; ld.shared.u32 %r4, [%r3+516]; add.u32 %r1, %r1, %r4; {STORE}",
        2,
        declarations=".shared .align 16 .b8 buffer[1024];",
    )


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_copies_of_threads(schedule: Schedule) -> None:
    source = np.arange(1, 257, dtype="u4")
    found, _ = execute(copied("cp.async.wait_all;"), np.zeros(32, "u4"), source, schedule=schedule)
    # The second copy reads 8 of 16 bytes: zeros follow.
    wanted = [int(source[4 * t + 1] + source[128 + 4 * t + 1]) for t in range(32)]
    assert found.tolist() == wanted


@pytest.mark.parametrize(
    "waits",
    ["cp.async.wait_group 1;", "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;", ""],
)
def test_a_wait_for_other_copies_is_no_wait_for_these(waits: str) -> None:
    source = np.arange(1, 257, dtype="u4")
    late, _ = execute(
        copied(waits), np.zeros(32, "u4"), source, schedule=Schedule(completion="late")
    )
    right, _ = execute(copied("cp.async.wait_all;"), np.zeros(32, "u4"), source)
    assert late.tolist() != right.tolist()
    early, _ = execute(copied(waits), np.zeros(32, "u4"), source)
    assert early.tolist() == right.tolist()


def test_a_hang_names_lines_and_lanes() -> None:
    # What duplicating a shuffle into two arms leads to: each half of the warp has one of its own.
    body = (
        "setp.lt.u32 %p1, %r40, 16; @%p1 bra one;"
        "\nshfl.sync.bfly.b32 %r1, %r40, 1, 31, -1; bra end;"
        "\none: shfl.sync.bfly.b32 %r1, %r40, 1, 31, -1;"
        "\nend: mad.wide.u32 %rd1, %r40, 4, %rd40; st.global.u32 [%rd1], %r1;"
    )
    ptx = kernel(body, 1)
    (fault,) = outcome(ptx, np.zeros(32, "u4")).faults
    lines = [n for n, line in enumerate(ptx.splitlines(), 1) if "shfl" in line]
    assert fault.kind == "hang"
    assert fault.place is not None
    assert fault.place.ptx_line in lines
    for lanes, line in (("16-31", lines[0]), ("0-15", lines[1])):
        assert f"{lanes} at PTX line {line} (shfl.sync.bfly.b32)" in fault.what
    assert "of warp 0 of CTA (0, 0, 0) wait for each other" in fault.what


def test_a_hang_at_an_mbarrier_says_what_is_still_to_come() -> None:
    body = (
        "setp.eq.u32 %p1, %r40, 0; @%p1 mbarrier.init.shared::cta.b64 [bar], 2; bar.sync 0;"
        " @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 %rd5, [bar], 64;"
        " again: mbarrier.try_wait.parity.shared::cta.b64 %p2, [bar], 0; @!%p2 bra again;"
    )
    ptx = kernel(body, 1, declarations=".shared .align 8 .b64 bar;")
    (fault,) = outcome(ptx, np.zeros(1, "u4")).faults
    assert "to which 1 arrivals and 64 bytes are still to come" in fault.what
    assert "(mbarrier.try_wait.parity.shared::cta.b64)" in fault.what


def test_warps_that_wait_for_the_same_are_named_together() -> None:
    body = (
        "setp.eq.u32 %p1, %r40, 0; @%p1 mbarrier.init.shared::cta.b64 [bar], 1; bar.sync 0;"
        " again: mbarrier.try_wait.parity.shared::cta.b64 %p2, [bar], 0; @!%p2 bra again;"
    )
    ptx = kernel(body, 1, declarations=".shared .align 8 .b64 bar;")
    for schedule in (Schedule(), Schedule(warps="first")):
        (fault,) = outcome(ptx, np.zeros(1, "u4"), block=96, schedule=schedule).faults
        assert fault.what.startswith("warps 0-2 of CTA (0, 0, 0) wait for the mbarrier at ")
        assert fault.what.count("wait for") == 1


# Two ways into a tail with an instruction of the whole warp, and a third one past it.
CONVERGENCE = (
    "setp.lt.u32 %p1, %r40, 16; setp.gt.u32 %p2, %r40, 99; @%p1 bra one; add.u32 %r2, %r40, 1;"
    " {other} bra tail; one: add.u32 %r2, %r40, 2;"
    " tail: bar.warp.sync -1; {whole} away: mad.wide.u32 %rd1, %r40, 4, %rd40;"
    " st.global.u32 [%rd1], %r2;"
)
WHOLE = "bar.sync 0;"


@pytest.mark.parametrize(
    ("other", "whole", "lines"),
    [("", WHOLE, 0), ("@%p2 bra away;", WHOLE, 1), ("@%p2 bra away;", "", 0)],
)
def test_threads_that_need_not_have_met_before_an_aligned_instruction(
    other: str, whole: str, lines: int
) -> None:
    ptx = kernel(CONVERGENCE.format(other=other, whole=whole), 1)
    result = outcome(ptx, np.zeros(32, "u4"), checks=Checks(races=True))
    assert not result.faults, result.faults
    assert result.allocations[0].data.view("u4")[[0, 31]].tolist() == [2, 32]
    found = [(each.kind, each.formal, each.second.instruction) for each in result.races]
    assert found == [("parted", True, "bar.sync 0;")] * lines


@pytest.mark.parametrize(
    ("body", "is_open"),
    [
        # Lanes 0 to 15 alone are members, and read among themselves, or those that are none.
        ("setp.lt.u32 %p1, %r40, 16; @%p1 shfl.sync.bfly.b32 %r9, %r40, 8, 31, 0xffff;", False),
        ("setp.lt.u32 %p1, %r40, 16; @%p1 shfl.sync.bfly.b32 %r9, %r40, 16, 31, 0xffff;", True),
        ("setp.lt.u32 %p1, %r40, 16; @%p1 shfl.sync.down.b32 %r9, %r40, 4, 31, 0xffff;", True),
        # Lane 20 has left.
        ("setp.eq.u32 %p1, %r40, 20; @%p1 exit; shfl.sync.idx.b32 %r9, %r40, 20, 31, -1;", True),
        ("setp.eq.u32 %p1, %r40, 20; @%p1 exit; shfl.sync.idx.b32 %r9, %r40, 19, 31, -1;", False),
        # A lane beyond the segment is not a lane: each takes its own value.
        ("shfl.sync.down.b32 %r9, %r40, 4, 31, -1;", False),
    ],
)
def test_the_value_of_a_lane_that_takes_no_part_is_open(body: str, is_open: bool) -> None:
    store = "mad.wide.u32 %rd1, %r40, 4, %rd40; st.global.u32 [%rd1], %r9;"
    ptx = kernel(f"mov.u32 %r9, 7; {body} {store}", 1)
    found = [
        outcome(ptx, np.zeros(32, "u4"), schedule=Schedule(garbage=garbage)) for garbage in (0, 1)
    ]
    left = [each.allocations[0].data.tobytes() for each in found]
    assert (left[0] != left[1]) == is_open
    assert bool(found[0].uninitialised) == is_open
    if is_open:
        assert "the PTX ISA leaves it open" in found[0].uninitialised[0].what
