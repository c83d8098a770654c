"""What of Triton's IR leaves open what it computes: of what a front end writes, nothing."""

from __future__ import annotations

import re

import pytest

from harness.hunt.ir_defined import left_open
from harness.minimize.ttgir import IrModule

MODULE = """\
module {
  tt.func public @kernel(%x: !tt.ptr<f32> {tt.divisibility = 16 : i32}, %out: !tt.ptr<f32>, \
%n: i32) attributes {noinline = false} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c4 = arith.constant dense<4> : tensor<16xi32>
    %zero = arith.constant dense<0.000000e+00> : tensor<16xf32>
    %r = tt.make_range {end = 16 : i32, start = 0 : i32} : tensor<16xi32>
    %s = tt.splat %n : i32 -> tensor<16xi32>
    %d = arith.divsi %r, %s : tensor<16xi32>
    %h = arith.shrsi %r, %c4 : tensor<16xi32>
    %m = arith.cmpi slt, %r, %s : tensor<16xi32>
    %p = tt.splat %x : !tt.ptr<f32> -> tensor<16x!tt.ptr<f32>>
    %q = tt.addptr %p, %d : tensor<16x!tt.ptr<f32>>, tensor<16xi32>
    %o = tt.splat %out : !tt.ptr<f32> -> tensor<16x!tt.ptr<f32>>
    %w = tt.addptr %o, %r : tensor<16x!tt.ptr<f32>>, tensor<16xi32>
    %sum:2 = scf.for %i = %c0 to %n step %c1 iter_args(%acc = %zero, %at = %q) -> \
(tensor<16xf32>, tensor<16x!tt.ptr<f32>>)  : i32 {
      %v = tt.load %at, %m, %zero : tensor<16x!tt.ptr<f32>>
      %a = arith.addf %acc, %v : tensor<16xf32>
      %next = tt.addptr %at, %h : tensor<16x!tt.ptr<f32>>, tensor<16xi32>
      scf.yield %a, %next : tensor<16xf32>, tensor<16x!tt.ptr<f32>>
    } {tt.num_stages = 3 : i32}
    %total = "tt.reduce"(%sum#0) <{axis = 0 : i32}> ({
    ^bb0(%one: f32, %two: f32):
      %both = arith.addf %one, %two : f32
      tt.reduce.return %both : f32
    }) : (tensor<16xf32>) -> f32
    %all = tt.splat %total : f32 -> tensor<16xf32>
    ttg.barrier all
    tt.store %w, %all : tensor<16x!tt.ptr<f32>>
    ttg.barrier all
    tt.return
  }
}
"""
ROUND_TRIP = ("%p = tt.splat %x", "%p = tt.splat %out")  # what is stored is loaded, too


def why(*changes: tuple[str, str]) -> str:
    text = MODULE
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return left_open(IrModule.read(text))


def test_what_a_front_end_writes_leaves_nothing_open() -> None:
    assert why() == ""
    # Sums in any order, numbers of the launch, and what lies between barriers.
    assert why(("arith.addf %one, %two", "arith.maxnumf %two, %one")) == ""
    assert why(ROUND_TRIP) == ""


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ([("%s = tt.splat %n : i32", "%s = tt.splat %c0 : i32")], "arith.divsi by zero"),
        ([("arith.divsi %r, %s", "arith.divsi %r, %r")], "arith.divsi by what is not known"),
        ([("dense<4>", "dense<32>")], "arith.shrsi by more than there are bits"),
        (
            [("arith.shrsi %r, %c4", "arith.shrsi %r, %s")],
            "arith.shrsi by more than there are bits",
        ),
        ([("dense<4>", "dense<-1>")], "arith.shrsi by what is not known"),
        ([("%at, %m, %zero", "%at, %m")], "does not say what is masked"),
        ([("arith.addf %one, %two", "arith.subf %one, %two")], "tt.reduce depends on its order"),
        ([("arith.addf %one, %two", "arith.addf %one, %one")], "tt.reduce depends on its order"),
        ([("return %both", "return %one")], "tt.reduce depends on its order"),
        ([("step %c1", "step %c0")], "the step of a loop is not a positive number"),
        ([("divisibility = 16", "divisibility = 128")], "a hint about an argument"),
        ([("start = 0 : i32}", "start = 0 : i32, tt.contiguity = 16 : i32}")], "a hint about a"),
        ([("arith.divsi %r, %s :", "arith.muli %r, %s overflow<nsw> :")], "overflow"),
        ([("%h = arith.shrsi %r, %c4", "%h = ub.poison")], "ub.poison may leave something open"),
        ([ROUND_TRIP, ("    ttg.barrier all\n    tt.return", "    tt.return")], "no barrier"),
        (
            [ROUND_TRIP, ("barrier all\n    tt.return", "barrier local\n    tt.return")],
            "no barrier",
        ),
        ([("%o = tt.splat %out", "%o = tt.splat %x"), ("    ttg.barrier all\n", "")], "no barrier"),
    ],
)
def test_a_change_that_leaves_something_open_is_named(
    changes: list[tuple[str, str]], words: str
) -> None:
    assert re.search(re.escape(words), why(*changes))


def test_what_goes_through_a_loop_is_followed_to_its_argument() -> None:
    # The address that is stored to comes out of a loop that began with both arguments.
    to_result = ("tt.store %w, %all", "tt.store %sum#1, %all")
    assert why(to_result) == ""
    assert "no barrier" in why(to_result, ("    ttg.barrier all\n", ""))
    assert "comes from nowhere" in why(("tt.store %w", "tt.store %zero"))
