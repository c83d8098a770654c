"""Modifiers in every order that ptxas takes, and comparisons with all of theirs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from programs import apply

from gpu_emulator.ptx.instructions.catalogue import CHAPTERS
from gpu_emulator.ptx.program.binder import find_row, in_order

assert CHAPTERS
SUBNORMAL, ONE, NAN = 0x0000_0001, 0x3F80_0000, 0x7FC0_0000


@pytest.mark.parametrize("order", list(itertools.permutations(["lt", "ftz", "and", "f32"])))
def test_setp_takes_its_modifiers_in_any_order(order: tuple[str, ...]) -> None:
    # 0 < subnormal holds, but not where subnormal operands are zero.
    a, b = np.array([0, 0, ONE], "u4"), np.array([SUBNORMAL, ONE, 0], "u4")
    other = np.array([1, 1, 1], "u4")
    found = apply(
        f"setp.{'.'.join(order)} $0, $1, $2, $3;", "pred", ("b32", a), ("b32", b), ("pred", other)
    )
    assert found.tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("name", "usual"),
    [
        ("cvt.f32.rn.s32", "cvt.rn.f32.s32"), ("cvt.sat.rzi.s32.f32", "cvt.rzi.sat.s32.f32"),
        ("add.f32.rn", "add.rn.f32"), ("atom.u32.add.global", "atom.global.add.u32"),
        ("ld.u32.v2.global", "ld.global.v2.u32"), ("lop3.b32.or", "lop3.or.b32"),
        ("shfl.bfly.sync.b32", "shfl.sync.bfly.b32"), ("prmt.f4e.b32", "prmt.b32.f4e"),
    ],
)  # fmt: skip
def test_other_opcodes_do_too(name: str, usual: str) -> None:
    assert in_order(name) == usual
    assert find_row(name) == find_row(usual) is not None


@pytest.mark.parametrize(
    "name",
    [
        "cp.async.bulk.shared::cta.global",
        "add.u32.u32",
        "add.rn.rn.f32",
        "mov.u32.x",
        "mov",
        "q.u32",
    ],
)
def test_an_order_with_a_meaning_is_not_changed(name: str) -> None:
    assert in_order(name) == name
    found = find_row(name)
    assert found is None or found[0].template.startswith("cp.async.bulk")


def test_types_keep_their_order() -> None:
    row = find_row("cvt.f64.rn.s32")
    assert row is not None
    assert (row[1]["to"], row[1]["source"]) == ("f64", "s32")


@pytest.mark.parametrize("ftz", ["", ".ftz"])
def test_set_of_two_halves(ftz: str) -> None:
    # Lower parts: 1 and 2; upper parts: the least subnormal number and 0.
    a, b = np.array([0x0001_3C00], "u4"), np.array([0x0000_4000], "u4")
    (bits,) = apply(f"set.gt{ftz}.u32.f16x2 $0, $1, $2;", "b32", ("b32", a), ("b32", b))
    (ones,) = apply(f"set.le{ftz}.f16x2.f16x2 $0, $1, $2;", "b32", ("b32", a), ("b32", b))
    assert int(bits) == (0 if ftz else 0xFFFF_0000)
    assert int(ones) == (0x3C00_3C00 if ftz else 0x0000_3C00)


def test_set_with_a_boolean_operand_of_halves() -> None:
    a, other = np.array([0x3C00, 0x3C00], "u2"), np.array([0, 1], "u4")
    found = apply("set.eq.xor.u32.bf16 $0, $1, $1, $2;", "b32", ("b16", a), ("pred", other))
    assert found.tolist() == [0xFFFF_FFFF, 0]


@pytest.mark.parametrize(
    ("result", "yes"), [("u32", 0xFFFF_FFFF), ("s32", 0xFFFF_FFFF), ("f32", ONE)]
)
def test_set_of_a_nan(result: str, yes: int) -> None:
    a = np.array([NAN, ONE], "u4")
    found = apply(f"set.nan.{result}.f32 $0, $1, $1;", "b32", ("b32", a))
    assert found.tolist() == [yes, 0]
