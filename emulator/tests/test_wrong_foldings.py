"""What optimisers have folded wrongly, computed as the PTX says.

The kinds are those that fuzzing found in assemblers: each program here is our own, and its result
is worked out in Python.
"""

from __future__ import annotations

import numpy as np
from programs import apply, execute, kernel

WORDS = np.array(
    [0, 1, 2, 0x7F, 0x80, 0xFF, 0x100, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFE, 0xFFFFFFFF]
    * 3,
    dtype="u4",
)[:32]
OTHERS = np.roll(WORDS, 5)
MASK = 0xFFFFFFFF


def signed(bits: int) -> int:
    return bits - (1 << 32) if bits >> 31 else bits


def pairs() -> list[tuple[int, int]]:
    return list(zip(WORDS.tolist(), OTHERS.tolist(), strict=True))


def check(body: str, wanted: list[int]) -> None:
    found = apply(body, "b32", ("b32", WORDS), ("b32", OTHERS))
    assert found.tolist() == [each & MASK for each in wanted]


def test_a_replicated_sign_then_masked_in_a_divergent_arm() -> None:
    check(
        "setp.lt.u32 %p1, $1, $2; mov.b32 $0, 7; @!%p1 bra skip; prmt.b32 $0, $1, $2, 0x0009;"
        " and.b32 $0, $0, 255; skip:",
        [
            7 if not a < b else (255 if (a >> 8) & 0x80 else 0)
            for a, b in pairs()
        ],
    )  # fmt: skip


def test_chains_of_selection_and_lookup() -> None:
    check(
        "setp.gt.s32 %p1, $1, $2; selp.b32 %r1, $1, $2, %p1; lop3.b32 %r2, %r1, $1, $2, 0x96;"
        " xor.b32 $0, %r2, %r1;",
        [
            (m ^ a ^ b) ^ m
            for a, b in pairs()
            for m in [a if signed(a) > signed(b) else b]
        ],
    )  # fmt: skip


def test_an_arithmetic_shift_before_an_unsigned_compare() -> None:
    check(
        "shr.s32 %r1, $1, 4; setp.lt.u32 %p1, %r1, $2; selp.b32 $0, 1, 0, %p1;",
        [int(((signed(a) >> 4) & MASK) < b) for a, b in pairs()],
    )


def test_set_gives_all_ones() -> None:
    check(
        "set.eq.u32.u32 %r1, $1, $2; setp.eq.u32 %p1, %r1, 1; selp.b32 %r2, 1, 0, %p1;"
        " add.u32 $0, %r1, %r2;",
        [-int(a == b) for a, b in pairs()],
    )


def test_slct_with_an_immediate() -> None:
    check("slct.s32.s32 $0, $1, 5, $2;", [a if signed(b) >= 0 else 5 for a, b in pairs()])


def test_no_carry_from_a_shift() -> None:
    check(
        "add.cc.u32 %r1, $1, 0; shl.b32 %r2, $2, 31; addc.u32 $0, %r2, 0;",
        [b << 31 for _, b in pairs()],
    )


def test_mixed_signed_and_unsigned_extrema() -> None:
    check(
        "min.s32 %r1, $1, $2; max.u32 %r2, %r1, $1; min.u32 $0, %r2, $2;",
        [
            min(max(low & MASK, a), b)
            for a, b in pairs()
            for low in [min(signed(a), signed(b))]
        ],
    )  # fmt: skip


def test_the_negated_magnitude_compared_without_sign() -> None:
    check(
        "abs.s32 %r1, $1; sub.s32 %r2, 0, %r1; setp.ge.u32 %p1, %r2, $2; selp.b32 $0, 1, 0, %p1;",
        [int((-abs(signed(a))) & MASK >= b) for a, b in pairs()],
    )


def test_bfind_of_zero() -> None:
    check("bfind.u32 $0, $1;", [a.bit_length() - 1 for a, _ in pairs()])


def test_a_saturated_difference_added_back() -> None:
    check(
        "sub.sat.s32 %r1, $1, $2; add.s32 $0, %r1, $2;",
        [
            max(-(1 << 31), min((1 << 31) - 1, signed(a) - signed(b))) + signed(b)
            for a, b in pairs()
        ],
    )  # fmt: skip


def test_a_narrow_load_clears_the_high_bits() -> None:
    ptx = kernel(
        "mov.b32 %r1, -1; ld.const.u16 %r1, [table+2]; mad.wide.u32 %rd1, %r40, 4, %rd40;"
        " st.global.b32 [%rd1], %r1;",
        1,
        declarations=".const .align 4 .b8 table[4] = {1, 2, 3, 129};",
    )
    (found,) = execute(ptx, np.zeros(32, "u4"))
    assert set(found.tolist()) == {0x8103}


def test_a_skipped_or() -> None:
    check(
        "mov.b32 %r1, 0x3f800000; setp.eq.u32 %p1, $1, $2; @%p1 bra over; or.b32 %r1, -1, $1;"
        " over: mov.b32 $0, %r1;",
        [0x3F800000 if a == b else MASK for a, b in pairs()],
    )


def test_a_loop_around_a_divergent_branch() -> None:
    def one(a: int, b: int) -> int:
        total = 0
        for number in range(a % 7 + 1):
            total = (total + b) & MASK if (a >> number) & 1 else (total ^ number) & MASK
        return total

    check(
        "rem.u32 %r1, $1, 7; mov.u32 %r2, 0; mov.u32 $0, 0;"
        " loop: shr.u32 %r3, $1, %r2; and.b32 %r3, %r3, 1; setp.eq.u32 %p1, %r3, 0;"
        " @%p1 bra other; add.u32 $0, $0, $2; bra.uni next; other: xor.b32 $0, $0, %r2;"
        " next: add.u32 %r2, %r2, 1; setp.le.u32 %p2, %r2, %r1; @%p2 bra loop;",
        [one(a, b) for a, b in pairs()],
    )
