"""Forms of instructions that came late to the PTX ISA, or are seldom used."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from programs import apply, execute, kernel, outcome

from gpu_emulator.values import Schedule

ONE, MINUS_TWO, NAN, THREE = 0x3F800000, 0xC0000000, 0x7FC00000, 0x40400000


@pytest.mark.parametrize(
    ("a", "b", "c", "wanted"),
    [
        # Bits 16 to 47 of the product of 24 bits, signed.
        (0x7FFFFF, 0x7FFFFF, 0x7FFFFFFF, 0x7FFFFFFF), (0x7FFFFF, 0x7FFFFF, 0, 0x3FFFFF00),
        (0x800000, 0x7FFFFF, 0x80000000, 0x80000000), (0xFF000003, 0x10000, 5, 8),
    ],
)  # fmt: skip
def test_mad24_hi_sat(a: int, b: int, c: int, wanted: int) -> None:
    operands = [("b32", np.array([each], "u4")) for each in (a, b, c)]
    assert apply("mad24.hi.sat.s32 $0, $1, $2, $3;", "b32", *operands).tolist() == [wanted]


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("max.abs.f32", THREE), ("min.abs.f32", ONE), ("max.NaN.abs.f32", THREE),
        ("max.f32", THREE), ("min.f32", MINUS_TWO), ("max.abs.ftz.f32", THREE),
    ],
)  # fmt: skip
def test_min_and_max_of_three(name: str, wanted: int) -> None:
    operands = [("b32", np.array([each], "u4")) for each in (ONE, MINUS_TWO, THREE)]
    assert apply(f"{name} $0, $1, $2, $3;", "b32", *operands).tolist() == [wanted]


def test_a_nan_among_three() -> None:
    operands = [("b32", np.array([each], "u4")) for each in (ONE, NAN, MINUS_TWO)]
    assert apply("max.abs.f32 $0, $1, $2, $3;", "b32", *operands).tolist() == [0x40000000]
    assert apply("max.NaN.abs.f32 $0, $1, $2, $3;", "b32", *operands).tolist() == [0x7FFFFFFF]


@pytest.mark.parametrize(("a", "wanted"), [(0x7FF7, 0), (0x7E00, 0x7FFF), (0x4000, 0x4500)])
def test_fma_of_what_lies_out_of_bounds(a: int, wanted: int) -> None:
    operands = [("b16", np.array([each], "u2")) for each in (a, 0x4000, 0x3C00)]
    assert apply("fma.rn.oob.f16 $0, $1, $2, $3;", "b16", *operands).tolist() == [wanted]


@pytest.mark.parametrize(
    ("random", "wanted"), [(0, 0x3C003C00), (0x1FFF0000, 0x3C013C00), (0x00001FFF, 0x3C003C01)]
)
def test_stochastic_rounding_to_two_halves(random: int, wanted: int) -> None:
    # 1 and the least bit that a half loses: only all random bits set carry it up.
    a = np.array([ONE + 1], "u4")
    operands = [("b32", a), ("b32", a), ("b32", np.array([random], "u4"))]
    assert apply("cvt.rs.f16x2.f32 $0, $1, $2, $3;", "b32", *operands).tolist() == [wanted]


@pytest.mark.parametrize("value", [0.25, 2.0, 1e300])
def test_the_inverse_of_a_root(value: float) -> None:
    found = apply("rsqrt.approx.f64 $0, $1;", "b64", ("b64", np.array([value]).view("u8")))
    np.testing.assert_allclose(found.view("f8"), value**-0.5, rtol=2.0**-50)


QUADS = np.array([0x7FF0000000000001, 0x8000000000000000, 5, 6], "u8")


def test_registers_of_128_bits_are_moved_whole() -> None:
    body = """
        .reg .b128 %q<4>;
        ld.global.b128 %q1, [%rd41];
        mov.b128 {%rd1, %rd2}, %q1;
        mov.b128 %q2, {%rd2, %rd1};
        mov.b128 %q3, %q2;
        st.global.b128 [%rd40], %q3;
    """
    found, _ = execute(kernel(body, 2), np.zeros(2, "u8"), QUADS)
    assert found.tolist() == [QUADS[1], QUADS[0]]


@pytest.mark.parametrize(("second", "swaps"), [(0x8000000000000000, True), (0, False)])
def test_128_bits_are_compared_bit_by_bit(second: int, swaps: bool) -> None:
    # As a number -0 would equal 0, and a NaN nothing.
    body = f"""
        .reg .b128 %q<4>;
        mov.b64 %rd1, 0x7ff0000000000001; mov.b64 %rd2, {second}; mov.b64 %rd3, 9;
        mov.b128 %q1, {{%rd1, %rd2}};
        mov.b128 %q2, {{%rd3, %rd3}};
        atom.global.cas.b128 %q3, [%rd41], %q1, %q2;
        st.global.b128 [%rd40], %q3;
    """
    old, left = execute(kernel(body, 2), np.zeros(2, "u8"), QUADS, block=1)
    assert old.tolist() == QUADS[:2].tolist()
    assert left[:2].tolist() == ([9, 9] if swaps else QUADS[:2].tolist())


def test_128_bits_are_exchanged() -> None:
    body = """
        .reg .b128 %q<4>;
        mov.b64 %rd1, 7; mov.b128 %q1, {%rd1, %rd1};
        atom.global.exch.b128 %q2, [%rd41], %q1;
        st.global.b128 [%rd40], %q2;
    """
    old, left = execute(kernel(body, 2), np.zeros(2, "u8"), QUADS, block=1)
    assert old.tolist() == QUADS[:2].tolist()
    assert left.tolist() == [7, 7, 5, 6]


@pytest.mark.parametrize("completion", ["early", "late"])
def test_threads_that_drop_out_are_not_waited_for_again(completion: str) -> None:
    # 64 threads; the upper warp drops out of the first phase, the lower one completes the second.
    body = """
        .shared .align 8 .b64 bar;
        setp.eq.u32 %p1, %r40, 0;
        @%p1 mbarrier.init.shared.b64 [bar], 64;
        bar.sync 0;
        setp.lt.u32 %p2, %r40, 32;
        @%p2 bra LOWER;
        mbarrier.arrive_drop.shared.b64 %rd1, [bar];
        ret;
    LOWER:
        mbarrier.arrive.shared.b64 %rd1, [bar];
    ONE: mbarrier.try_wait.shared.b64 %p3, [bar], %rd1;
        @!%p3 bra ONE;
        mbarrier.arrive.shared.b64 %rd2, [bar];
    TWO: mbarrier.try_wait.shared.b64 %p3, [bar], %rd2;
        @!%p3 bra TWO;
        mul.wide.u32 %rd3, %r40, 4; add.u64 %rd3, %rd3, %rd40;
        st.global.u32 [%rd3], 1;
    """
    assert completion in ("early", "late")
    schedule = Schedule(warps="first", completion="early" if completion == "early" else "late")
    (found,) = execute(kernel(body, 1), np.zeros(32, "u4"), block=64, schedule=schedule)
    assert found.tolist() == [1] * 32


def test_more_threads_than_expected_cannot_drop_out() -> None:
    body = """
        .shared .align 8 .b64 bar;
        setp.eq.u32 %p1, %r40, 0;
        @%p1 mbarrier.init.shared.b64 [bar], 2;
        bar.sync 0;
        mbarrier.arrive_drop.shared.b64 %rd1, [bar];
    """
    result = outcome(kernel(body, 1), np.zeros(1, "u4"))
    assert result.faults[0].kind == "memory_fault"


@pytest.mark.parametrize(
    "name", ["%reserved_smem_offset_begin", "%reserved_smem_offset_cap", "%pm0", "%envreg3"]
)
def test_special_registers_that_hold_little(name: str) -> None:
    (found,) = execute(
        kernel(f"mov.u32 %r1, {name}; st.global.u32 [%rd40], %r1;", 1), np.ones(1, "u4")
    )
    assert found[0] in (0, 1024)


SIGNALLED = """
    .shared .align 8 .b64 bar; .shared .align 16 .b32 box[64];
    mul.lo.u32 %r2, %r40, 8; mov.u32 %r3, box; add.u32 %r3, %r3, %r2;
    st.shared.v2.u32 [%r3], {%r40, %r40};
    setp.eq.u32 %p1, %r40, 0;
    @%p1 mbarrier.init.shared.b64 [bar], 1;
    bar.sync 0;
    @%p1 mbarrier.arrive.expect_tx.shared.b64 %rd1, [bar], EXPECTED;
    bar.sync 0;
    add.u32 %r4, %r40, 100;
    INSTRUCTION
WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [bar], 0;
    @!%p2 bra WAIT;
    xor.b32 %r2, %r2, 8; mov.u32 %r3, box; add.u32 %r3, %r3, %r2;
    ld.shared.u32 %r5, [%r3];
    mul.wide.u32 %rd3, %r40, 4; add.u64 %rd3, %rd3, %rd40;
    st.global.u32 [%rd3], %r5;
"""
_MARK = "shared::cluster.mbarrier::complete_tx::bytes"


@pytest.mark.parametrize("completion", ["early", "late"])
@pytest.mark.parametrize(
    ("instruction", "size", "change"),
    [
        (f"st.async.{_MARK}.b32 [%r3], %r4, [bar];", 4, lambda n: n + 100),
        (f"st.async.weak.{_MARK}.v2.u32 [%r3], {{%r4, %r4}}, [bar];", 8, lambda n: n + 100),
        (f"red.async.relaxed.cluster.{_MARK}.add.u32 [%r3], %r4, [bar];", 4, lambda n: 2 * n + 100),
        (f"red.async.relaxed.cluster.{_MARK}.max.s32 [%r3], 7, [bar];", 4, lambda n: max(n, 7)),
    ],
)  # fmt: skip
def test_stores_that_signal(instruction: str, size: int, change: object, completion: str) -> None:
    assert callable(change)
    body = SIGNALLED.replace("INSTRUCTION", instruction).replace("EXPECTED", str(32 * size))
    schedule = Schedule(completion="early" if completion == "early" else "late")
    (found,) = execute(kernel(body, 1), np.zeros(32, "u4"), schedule=schedule)
    assert found.tolist() == [change(n ^ 1) for n in range(32)]


def test_a_store_that_signals_too_few_bytes_is_waited_for_in_vain() -> None:
    instruction = f"st.async.{_MARK}.b32 [%r3], %r4, [bar];"
    body = SIGNALLED.replace("INSTRUCTION", instruction).replace("EXPECTED", "132")
    result = outcome(kernel(body, 1), np.zeros(32, "u4"))
    assert result.faults[0].kind == "hang"


BULK = f"cp.reduce.async.bulk.{_MARK.replace('.mbar', '.shared::cta.mbar')}"


@pytest.mark.parametrize("completion", ["early", "late"])
@pytest.mark.parametrize(
    ("operation", "change"),
    [
        ("add.u32", lambda old, new: old + new), ("min.s32", min), ("max.u32", max),
        ("xor.b32", lambda old, new: old ^ new),
        ("inc.u32", lambda old, new: 0 if old >= new else old + 1),
        ("dec.u32", lambda old, new: new if old in (0, *range(new + 1, 99)) else old - 1),
    ],
)  # fmt: skip
def test_bulk_reductions_in_shared_memory(
    operation: str, change: Callable[[int, int], int], completion: str
) -> None:
    """Both CTAs of a cluster reduce into that of the second one, and to 32 of 64 numbers."""
    body = f"""
        .shared .align 8 .b64 bar; .shared .align 16 .b32 origin[32];
        .shared .align 16 .b32 box[64];
        mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, origin; mov.u32 %r3, box;
        mad.lo.u32 %r2, %r40, 4, %r2; mad.lo.u32 %r3, %r40, 4, %r3;
        mul.lo.u32 %r4, %r40, 2; st.shared.u32 [%r2], 20; st.shared.u32 [%r3], %r4;
        st.shared.u32 [%r3 + 128], 99; setp.eq.u32 %p1, %r40, 0; setp.eq.u32 %p2, %r1, 1;
        @%p1 mbarrier.init.shared.b64 [bar], 1;
        @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 256;
        barrier.cluster.arrive; barrier.cluster.wait;
        mov.u32 %r6, bar; mapa.shared::cluster.u32 %r5, %r3, 1;
        mapa.shared::cluster.u32 %r6, %r6, 1;
        @%p1 {BULK}.{operation} [%r5], [origin], 128, [%r6];
        @!%p2 bra DONE;
    WAIT: mbarrier.try_wait.parity.shared.b64 %p3, [bar], 0; @!%p3 bra WAIT;
        ld.shared.u32 %r7, [%r3]; ld.shared.u32 %r8, [%r3 + 128];
        mad.wide.u32 %rd1, %r40, 8, %rd40; st.global.v2.u32 [%rd1], {{%r7, %r8}};
    DONE: barrier.cluster.arrive; barrier.cluster.wait;
    """
    schedule = Schedule(completion="early" if completion == "early" else "late")
    (found,) = execute(kernel(body, 1), np.zeros(64, "u4"), grid=2, cluster=2, schedule=schedule)
    assert found[::2].tolist() == [change(change(2 * n, 20), 20) for n in range(32)]
    assert set(found[1::2].tolist()) == {99}


def test_arrivals_that_complete_no_phase_count_those_before() -> None:
    """Lanes are odd and even; each has the arrivals that were left before its own."""
    body = """
        .shared .align 8 .b64 bars[2];
        setp.eq.u32 %p1, %r40, 0; and.b32 %r1, %r40, 1; mov.u32 %r2, bars;
        mad.lo.u32 %r2, %r1, 8, %r2;
        @%p1 mbarrier.init.shared.b64 [bars], 100; @%p1 mbarrier.init.shared.b64 [bars + 8], 200;
        bar.sync 0;
        mbarrier.arrive.noComplete.shared.b64 %rd1, [%r2], 3;
        mbarrier.pending_count.b64 %r3, %rd1;
        mad.wide.u32 %rd2, %r40, 4, %rd40; st.global.u32 [%rd2], %r3;
    """
    (found,) = execute(kernel(body, 1), np.zeros(32, "u4"))
    assert found.tolist() == [100 + 100 * (n % 2) - 3 * (n // 2) for n in range(32)]


def test_shared_memory_filled_with_zeros() -> None:
    body = """
        .shared .align 8 .b64 box[4];
        mov.u64 %rd1, 7;
        st.shared.u64 [box], %rd1; st.shared.u64 [box + 24], %rd1;
        st.bulk.weak.shared::cta.size [box], 16, 0;
        ld.shared.u64 %rd2, [box]; ld.shared.u64 %rd3, [box + 24];
        st.global.v2.u64 [%rd40], {%rd2, %rd3};
    """
    (found,) = execute(kernel(body, 1), np.zeros(2, "u8"), block=1)
    assert found.tolist() == [0, 7]
