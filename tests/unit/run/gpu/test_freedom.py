"""What PTX leaves open, and the same programs with other choices, as the emulator executes them."""

from __future__ import annotations

import numpy as np
import pytest

from gpu_emulator.api import run
from gpu_emulator.values import Allocation, Budget, Checks, Launch, Pointer, Schedule
from harness.run.gpu.cubin_judging import filled_variants, moved_variants, read_freedom

HEAD = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 x)
{
  .reg .pred %p<4>;
  .reg .b32 %r<9>;
  .reg .f32 %f<9>;
  .reg .f64 %g<9>;
  .reg .b64 %d<5>;
  ld.param.u64 %d1, [out];
  ld.param.u64 %d2, [x];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %d3, %r1, 4;
  add.s64 %d1, %d1, %d3;
  add.s64 %d2, %d2, %d3;
  ld.global.u32 %r2, [%d2];
  mov.b32 %f1, %r2;
"""
TAIL = """
  st.global.u32 [%d1], %r3;
  ret;
}
"""
X = np.linspace(1.5, 9.0, 32, dtype=np.float32)


def program(*lines: str) -> str:
    return HEAD + "\n".join(f"  {line}" for line in lines) + TAIL


def result(ptx: str) -> list[int]:
    launch = Launch(
        ptx=ptx,
        grid=(1, 1, 1),
        block=(32, 1, 1),
        allocations=tuple(
            Allocation(name=name, data=data.view(np.uint8))
            for name, data in (("out", np.zeros(32, np.uint32)), ("x", X))
        ),
        arguments=(Pointer(allocation=0), Pointer(allocation=1)),
    )
    outcome = run(launch, Schedule(), Budget(), Checks())
    assert not outcome.not_run, outcome.not_run
    found: list[int] = outcome.allocations[0].data.view(np.uint32).tolist()
    return found


EXACT = program("add.rn.f32 %f2, %f1, %f1;", "mul.rn.f32 %f3, %f2, %f1;", "mov.b32 %r3, %f3;")


@pytest.mark.parametrize(
    ("lines", "moved", "unmoved"),
    [
        (["add.u32 %r3, %r2, 1;"], [], []),
        (["mul.rn.f32 %f2, %f1, %f1;", "add.rn.f32 %f3, %f2, %f1;"], [], []),
        (["mul.f32 %f2, %f1, %f1;"], [], []),
        (["mul.f32 %f2, %f1, %f1;", "add.f32 %f3, %f2, %f1;"], ["mul.f32"], []),
        (["mul.ftz.f32 %f2, %f1, %f1;", "sub.ftz.f32 %f3, %f2, %f1;"], ["mul.ftz.f32"], []),
        (["ex2.approx.f32 %f2, %f1;"], ["ex2.approx.f32"], []),
        (["div.full.f32 %f2, %f1, %f1;"], ["div.full.f32"], []),
        (["div.rn.f32 %f2, %f1, %f1;"], [], []),
        (["rcp.approx.ftz.f64 %g2, %g1;"], ["rcp.approx.ftz.f64"], []),
        (["red.global.add.f32 [%d1], %f1;"], [], ["red.global.add.f32"]),
        (["red.global.add.u32 [%d1], %r1;"], [], []),
    ],
)
def test_what_is_left_open(lines: list[str], moved: list[str], unmoved: list[str]) -> None:
    found = read_freedom(program(*lines))
    assert (list(found.moved), list(found.unmoved)) == (moved, unmoved)
    assert found.is_exact == (not moved and not unmoved)


def test_what_is_specified_to_the_bit_has_no_variants() -> None:
    assert moved_variants(EXACT) == []
    assert filled_variants(EXACT) == []
    assert read_freedom(EXACT).undefined == ()


def test_an_approximation_is_moved_by_more_than_it_may_be_off() -> None:
    ptx = program("ex2.approx.f32 %f2, %f1;", "mov.b32 %r3, %f2;")
    plain = np.array(result(ptx), np.int64)
    apart = [np.array(result(variant), np.int64) - plain for variant in moved_variants(ptx)]
    assert len(apart) == 4
    # `ex2.approx` is within two units in the last place (PTX ISA); up in some, down in others.
    assert all((np.abs(each) >= 2).all() and (np.abs(each) <= 8).all() for each in apart)
    assert (apart[0] > 0).all()
    assert (apart[1] < 0).all()


def test_an_integer_that_hangs_on_an_approximation_changes_in_some_variant() -> None:
    """6 / 2 rounded down is 3 or 2; 7 / 2 is 3 whatever the approximation."""
    lines = ["cvt.rni.f32.f32 %f1, %f1;", "div.full.f32 %f2, %f1, 0f40000000;"]
    ptx = program(*lines, "cvt.rzi.u32.f32 %r3, %f2;")
    plain = result(ptx)
    variants = [result(variant) for variant in moved_variants(ptx)]
    even = [n for n, x in enumerate(np.rint(X)) if x % 2 == 0]
    odd = [n for n, x in enumerate(np.rint(X)) if x % 2 == 1]
    assert even
    assert odd
    assert all(any(each[n] != plain[n] for each in variants) for n in even)
    assert all(each[n] == plain[n] for each in variants for n in odd)


def test_a_guarded_instruction_is_moved_under_its_guard() -> None:
    ptx = program(
        "setp.lt.u32 %p1, %r1, 16;", "mov.f32 %f2, 0f3F800000;",
        "@%p1 ex2.approx.f32 %f2, %f1;", "mov.b32 %r3, %f2;",
    )  # fmt: skip
    plain = result(ptx)
    for variant in moved_variants(ptx):
        found = result(variant)
        assert found[16:] == plain[16:]
        assert all(a != b for a, b in zip(found[:16], plain[:16], strict=True))


def test_registers_that_nothing_wrote_are_filled() -> None:
    ptx = program("add.u32 %r3, %r7, 1;")
    assert read_freedom(ptx).undefined == ("%r7",)
    found = [result(variant)[0] for variant in filled_variants(ptx)]
    assert found == [1, 2, 0, 0x5A82799A]


def test_a_predicate_that_nothing_wrote_is_filled() -> None:
    ptx = program("selp.u32 %r3, 5, 6, %p3;")
    assert [result(variant)[0] for variant in filled_variants(ptx)] == [6, 5, 5, 5]


def test_a_register_that_is_written_on_every_way_is_left_alone() -> None:
    lines = ["setp.lt.u32 %p1, %r1, 16;", "@%p1 mov.u32 %r3, 1;", "@!%p1 mov.u32 %r3, 2;"]
    ptx = program(*lines)
    plain = result(ptx)
    # The analysis may not see it; filling it changes nothing then.
    assert all(result(variant) == plain for variant in filled_variants(ptx))
