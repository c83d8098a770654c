"""Branches, loops, calls, scopes: threads part and meet again."""

from __future__ import annotations

import numpy as np
import pytest
from programs import HEAD, SCHEDULES, execute, kernel, outcome

from gpu_emulator.values import Budget, Schedule

PLACE = "mad.wide.u32 %rd1, %r40, 4, %rd40;"


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_nested_loops_whose_ends_differ_by_thread_and_cta(schedule: Schedule) -> None:
    ptx = kernel(
        "mov.u32 %r1, %ctaid.x; add.u32 %r2, %r40, %r1; and.b32 %r3, %r2, 7; mov.u32 %r4, 0;"
        " mov.u32 %r5, 0; outer: setp.ge.u32 %p1, %r4, %r3; @%p1 bra done; mov.u32 %r6, 0;"
        " inner: setp.ge.u32 %p2, %r6, %r4; @%p2 bra next; mad.lo.u32 %r5, %r6, %r40, %r5;"
        " add.u32 %r6, %r6, 1; bra inner; next: add.u32 %r4, %r4, 1; add.u32 %r5, %r5, 1;"
        " bra.uni outer; done: mov.u32 %r7, %ntid.x; mad.lo.u32 %r8, %r1, %r7, %r40;"
        " mad.wide.u32 %rd1, %r8, 4, %rd40; st.global.u32 [%rd1], %r5;",
        1,
    )
    (found,) = execute(ptx, np.zeros(5 * 96, "u4"), grid=5, block=96, schedule=schedule)
    wanted = []
    for cta in range(5):
        for thread in range(96):
            total = 0
            for row in range((thread + cta) & 7):
                total += sum(column * thread for column in range(row)) + 1
            wanted.append(total)
    assert found.tolist() == wanted


def test_labels_and_registers_of_inner_scopes_are_their_own() -> None:
    scope = (
        "{ .reg .pred p; .reg .b32 t; mov.u32 t, 3; setp.gt.u32 p, %r40, {N}; @p bra skip;"
        " add.u32 %r1, %r1, t; skip: add.u32 %r1, %r1, 1; }"
    )
    ptx = kernel(
        "mov.u32 %r1, 0;" + scope.replace("{N}", "9") + scope.replace("{N}", "19")
        + PLACE + "st.global.u32 [%rd1], %r1;",
        1,
    )  # fmt: skip
    (found,) = execute(ptx, np.zeros(32, "u4"))
    assert found.tolist() == [2 + 3 * (t <= 9) + 3 * (t <= 19) for t in range(32)]


def test_a_branch_table() -> None:
    ptx = kernel(
        "and.b32 %r1, %r40, 3; ts: .branchtargets A, B, C, A; brx.idx %r1, ts;"
        " A: mov.u32 %r2, 10; bra end; B: mov.u32 %r2, 20; bra end; C: mov.u32 %r2, 30;"
        f" end: {PLACE} st.global.u32 [%rd1], %r2;",
        1,
    )
    (found,) = execute(ptx, np.zeros(32, "u4"))
    assert found.tolist() == [(10, 20, 30, 10)[t & 3] for t in range(32)]


def test_calls_with_parameters_and_results() -> None:
    functions = """
.func (.param .b32 out) square_plus(.param .b32 a, .param .b32 b)
{ .reg .b32 %r<4>; .reg .pred %p<2>;
  ld.param.b32 %r1, [a]; ld.param.b32 %r2, [b]; setp.gt.u32 %p1, %r1, 20;
  @%p1 bra big; mad.lo.u32 %r3, %r1, %r1, %r2; st.param.b32 [out], %r3; ret;
big: st.param.b32 [out], %r2; ret; }
"""
    body = """
{ .param .b32 p0; .param .b32 p1; .param .b32 r0;
  st.param.b32 [p0], %r40; st.param.b32 [p1], 5; call.uni (r0), square_plus, (p0, p1);
  ld.param.b32 %r1, [r0]; }
{ .param .b32 p0; .param .b32 p1; .param .b32 r0;
  st.param.b32 [p0], %r1; st.param.b32 [p1], %r40; call (r0), square_plus, (p0, p1);
  ld.param.b32 %r1, [r0]; }
"""
    ptx = kernel(f"{body}{PLACE} st.global.u32 [%rd1], %r1;", 1, functions=functions)
    (found,) = execute(ptx, np.zeros(32, "u4"))

    def square_plus(a: int, b: int) -> int:
        return b if a > 20 else a * a + b

    assert found.tolist() == [square_plus(square_plus(t, 5), t) for t in range(32)]


def test_threads_that_leave_early_and_a_block_that_is_no_multiple_of_a_warp() -> None:
    ptx = kernel(
        f"{PLACE} setp.gt.u32 %p1, %r40, 30; @%p1 exit; bar.sync 0; st.global.u32 [%rd1], %r40;", 1
    )
    (found,) = execute(ptx, np.full(64, 77, "u4"), block=40)
    assert found.tolist() == list(range(31)) + [77] * 33


def test_a_loop_without_end_is_a_hang_with_its_place() -> None:
    ptx = kernel("again: add.u32 %r1, %r1, 1; bra again;", 1)
    result = outcome(ptx, np.zeros(1, "u4"), limits=Budget(max_instructions=10_000))
    assert result.faults[0].kind == "hang"
    assert "10,000" in result.faults[0].what
    assert result.faults[0].place is not None


def test_unknown_instructions_are_named_as_a_whole_before_anything_runs() -> None:
    ptx = kernel("st.global.u32 [%rd40], 1; add.rn.f32.q7 %r1, %r2, %r3; foo.bar %r1;", 1)
    result = outcome(ptx, np.zeros(1, "u4"))
    assert result.unknown == ("add.rn.f32.q7", "foo.bar")
    assert "add.rn.f32.q7" in str(result.not_run)
    assert not result.allocations


def test_unknown_instructions_that_nothing_reaches_do_not_matter() -> None:
    ptx = kernel("st.global.u32 [%rd40], 1; ret; foo.bar %r1;", 1)
    (found,) = execute(ptx, np.zeros(1, "u4"))
    assert found.tolist() == [1]


def test_mixed_precision_addition_is_no_addition_of_bf16() -> None:
    # The operand is bf16, the sum f32: 1 + 2^-20 is lost in bf16.
    ptx = kernel(
        f"mov.b32 %r1, 0x35800000; mov.b16 %h1, 0x3f80; add.rn.f32.bf16 %r2, %h1, %r1;"
        f" {PLACE} st.global.u32 [%rd1], %r2;",
        1,
    )
    (found,) = execute(ptx, np.zeros(32, "u4"))
    assert found.view("f4")[0] == np.float32(1 + 2.0**-20)


@pytest.mark.parametrize(("entry", "words"), [("other", "no entry other"), (None, "2 entries")])
def test_the_entry_that_is_meant(entry: str | None, words: str) -> None:
    from gpu_emulator.api import run
    from gpu_emulator.values import Launch

    two = f"{HEAD}.visible .entry a() {{ ret; }}\n.visible .entry b() {{ ret; }}\n"
    result = run(Launch(ptx=two, entry=entry, grid=(1, 1, 1), block=(1, 1, 1)))
    assert words in str(result.not_run)


def test_what_would_not_fit_is_one_clear_line() -> None:
    huge = outcome(kernel("", 1), np.zeros(1, "u4"), shared=1 << 40)
    assert "shared memory" in str(huge.not_run)
    local = kernel(".local .align 4 .b8 much[1073741824]; st.local.u32 [much], 1;", 1)
    assert "one CTA needs" in str(outcome(local, np.zeros(1, "u4")).not_run)
    wide = outcome(kernel("", 1), np.zeros(1, "u4"), block=2048)
    assert "the driver refuses a block of 2048,1,1" in str(wide.not_run)


def test_a_copy_that_faults_late_is_told_of_the_line_that_issued_it() -> None:
    ptx = kernel(
        "cp.async.ca.shared.global [buffer], [%rd40+4096], 4; add.u32 %r1, %r1, 1;"
        " cp.async.wait_all;",
        1,
        declarations=".shared .align 16 .b8 buffer[64];",
    )
    for schedule in (Schedule(completion="early"), Schedule(completion="late")):
        (fault,) = outcome(ptx, np.zeros(1, "u4"), schedule=schedule).faults
        assert fault.place is not None
        assert fault.place.instruction.startswith("cp.async.ca")
