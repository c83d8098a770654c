"""Modules of Triton's IR, reduced against oracles that only read them."""

# ruff: noqa: E501 - operations are as long as Triton prints them

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.minimize.reduction.reducer import FoundPass, Reduction
from harness.minimize.ttgir import IR_FORMAT, IR_PASSES, IrModule

# As Triton 3.6 prints one, with locations, aliases, a loop and a reduction.
TEXT = """\
#blocked = #ttg.blocked<{sizePerThread = [1], threadsPerWarp = [32], order = [0]}>
#loc = loc("a file (of mine).py":3:0)
#loc5 = loc("x"(#loc))
module attributes {"ttg.num-warps" = 4 : i32, ttg.target = "cuda:90"} {
  tt.func public @sums(%x: !tt.ptr<f32> {tt.divisibility = 16 : i32} loc("x"(#loc)), %n: i32 loc("n"(#loc)), %spare: i32 loc("spare"(#loc))) attributes {noinline = false} {
    %c0_i32 = arith.constant 0 : i32 loc(#loc1)
    %c1_i32 = arith.constant 1 : i32 loc(#loc1)
    %cst = arith.constant dense<0.000000e+00> : tensor<64xf32, #blocked> loc(#loc1)
    %rows = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32, #blocked> loc(#loc2)
    %at = tt.splat %x : !tt.ptr<f32> -> tensor<64x!tt.ptr<f32>, #blocked> loc(#loc2)
    %at_0 = tt.addptr %at, %rows : tensor<64x!tt.ptr<f32>, #blocked>, tensor<64xi32, #blocked> loc(#loc2)
    %total:2 = scf.for %i = %c0_i32 to %n step %c1_i32 iter_args(%sum = %cst, %where = %at_0) -> (tensor<64xf32, #blocked>, tensor<64x!tt.ptr<f32>, #blocked>)  : i32 {
      %value = tt.load %where : tensor<64x!tt.ptr<f32>, #blocked> loc(#loc3)
      %more = arith.addf %sum, %value : tensor<64xf32, #blocked> loc(#loc3)
      %next = tt.addptr %where, %rows : tensor<64x!tt.ptr<f32>, #blocked>, tensor<64xi32, #blocked> loc(#loc3)
      scf.yield %more, %next : tensor<64xf32, #blocked>, tensor<64x!tt.ptr<f32>, #blocked> loc(#loc3)
    } loc(#loc3)
    %all = "tt.reduce"(%total#0) <{axis = 0 : i32}> ({
    ^bb0(%left: f32 loc("l"), %right: f32 loc("r")):
      %both = arith.addf %left, %right : f32 loc(#loc4)
      tt.reduce.return %both : f32 loc(#loc4)
    }) : (tensor<64xf32, #blocked>) -> f32 loc(#loc4)
    tt.store %x, %all : !tt.ptr<f32> loc(#loc4)
    tt.return loc(#loc)
  } loc(#loc)
} loc(#loc)
#loc1 = loc(unknown)
"""

MODULE = IrModule.read(TEXT)


def reduced(holds: Callable[[IrModule], bool], **options: object) -> Reduction[IrModule]:
    async def is_interesting(candidate: IrModule) -> bool:
        return holds(candidate)

    return asyncio.run(IR_FORMAT.reduce(MODULE, is_interesting, **options))  # type: ignore[arg-type]


def named(name: str) -> FoundPass[IrModule]:
    return next(each for each in IR_PASSES if each.name == name)


def index_of(start: str, module: IrModule = MODULE) -> int:
    return next(n for n, o in enumerate(module.operations) if o.header.strip().startswith(start))


def words(module: IrModule) -> list[str]:
    """What is within the function."""
    return [each.header.strip() for each in module.operations if each.depth == 2]


def test_locations_go() -> None:
    assert "loc(" not in MODULE.text
    assert "#loc" not in MODULE.text
    assert "(%x: !tt.ptr<f32> {tt.divisibility = 16 : i32}, %n: i32, %spare: i32)" in MODULE.text
    assert "^bb0(%left: f32, %right: f32):" in MODULE.text


def test_operations_and_what_is_within_them() -> None:
    loop = MODULE.operations[index_of("%total")]
    assert loop.has_region
    assert loop.results == ("%total:2",)
    inside = [each for each in MODULE.operations if each.parent == index_of("%total")]
    assert [each.is_last for each in inside] == [False, False, False, True]
    assert MODULE.count() == 16


def test_types_of_results() -> None:
    kinds = {each.results[0]: each.type for each in MODULE.operations if each.results}
    assert kinds["%c0_i32"] == "i32"
    assert kinds["%at"] == "tensor<64x!tt.ptr<f32>, #blocked>"
    assert kinds["%at_0"] == "tensor<64x!tt.ptr<f32>, #blocked>"
    assert kinds["%total:2"] is None


def test_an_operation_goes_with_what_needs_it() -> None:
    left = named("operations").apply(MODULE, [index_of("%rows")])
    assert left is not None
    assert words(left) == [
        "%c0_i32 = arith.constant 0 : i32",
        "%c1_i32 = arith.constant 1 : i32",
        "%cst = arith.constant dense<0.000000e+00> : tensor<64xf32, #blocked>",
        "%at = tt.splat %x : !tt.ptr<f32> -> tensor<64x!tt.ptr<f32>, #blocked>",
        "tt.return",
    ]


def test_what_is_unused_goes_with_what_reads_it() -> None:
    # Once the loop is gone, %at is read by %at_0 alone, which nobody reads.
    alone = named("operations").apply(MODULE, [index_of("%total")])
    assert alone is not None
    unused = named("unused")
    at = index_of("%at =", alone)
    assert {at, index_of("%at_0", alone)} <= set(unused.opportunities(alone))
    left = unused.apply(alone, [at])
    assert left is not None
    assert "%at" not in left.text
    assert "%rows" in left.text


def test_what_ends_a_region_takes_it_along() -> None:
    left = named("operations").apply(MODULE, [index_of("%more")])
    assert left is not None
    assert "scf.for" not in left.text


def test_a_constant_of_the_same_type() -> None:
    left = named("constants").apply(MODULE, [index_of("%value")])
    assert left is not None
    assert "%value = arith.constant dense<0.000000e+00> : tensor<64xf32, #blocked>" in left.text


def test_a_loop_once() -> None:
    left = named("loops").apply(MODULE, [index_of("%total")])
    assert left is not None
    assert "%value = tt.load %at_0" in left.text
    assert '"tt.reduce"(%more)' in left.text
    assert "scf" not in left.text


def test_arguments_that_nobody_reads() -> None:
    module = named("arguments")
    left = module.apply(MODULE, module.opportunities(MODULE))
    assert left is not None
    assert "@sums(%x: !tt.ptr<f32> {tt.divisibility = 16 : i32}, %n: i32) attributes" in left.text


def test_nothing_is_left_but_what_is_needed() -> None:
    found = reduced(lambda module: "tt.store" in module.text)
    assert found.is_minimal
    assert "#blocked" not in found.document.text
    assert "%spare" not in found.document.text
    assert words(found.document) == [
        "%all = arith.constant 0.000000e+00 : f32",
        "tt.store %x, %all : !tt.ptr<f32>",
        "tt.return",
    ]


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_whatever_is_applied_can_be_read_again(data: st.DataObject) -> None:
    module = MODULE
    for _ in range(data.draw(st.integers(1, 5))):
        change = data.draw(st.sampled_from(IR_PASSES))
        chosen = [edit for edit in change.opportunities(module) if data.draw(st.booleans())]
        left = change.apply(module, chosen) if chosen else None
        if left is None:
            continue
        assert IrModule.read(left.text).text == left.text
        assert left.text.count("{") == left.text.count("}")
        assert left.operations
        defined = {name.partition(":")[0] for each in left.operations for name in each.results}
        for each in left.operations:
            inner = {"%x", "%n", "%spare", "%i", "%sum", "%where", "%left", "%right"}
            assert each.reads <= defined | inner
        module = left


@given(st.text(max_size=300))
def test_any_text_can_be_read(text: str) -> None:
    module = IrModule.read(text)
    for change in IR_PASSES:
        offered = change.opportunities(module)
        if offered:
            change.apply(module, offered)
