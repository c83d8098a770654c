"""Changes of Triton's IR: the same for a seed, each alone, and of values that are there."""

from __future__ import annotations

import re

from harness.hunt.ir_corpus import changed_ir, operation_names, sources_of
from harness.minimize.ttgir import IrModule, typed_arguments, typed_results

LOOP = """\
#loc = loc("kernel.py":1:0)
module {
  tt.func public @kernel(%x: !tt.ptr<f32> {tt.divisibility = 16 : i32} loc("x"(#loc)), %n: i32) {
    %c0 = arith.constant 0 : i32 loc(#loc)
    %c1 = arith.constant 1 : i32 loc(#loc)
    %zero = arith.constant dense<0.000000e+00> : tensor<16xf32> loc(#loc)
    %r = tt.make_range {end = 16 : i32, start = 0 : i32} : tensor<16xi32> loc(#loc)
    %p = tt.splat %x : !tt.ptr<f32> -> tensor<16x!tt.ptr<f32>> loc(#loc)
    %q = tt.addptr %p, %r : tensor<16x!tt.ptr<f32>>, tensor<16xi32> loc(#loc)
    %sum:2 = scf.for %i = %c0 to %n step %c1 iter_args(%acc = %zero, %at = %q) -> \
(tensor<16xf32>, tensor<16x!tt.ptr<f32>>)  : i32 {
      %v = tt.load %at evictionPolicy = evict_first : tensor<16x!tt.ptr<f32>> loc(#loc)
      %s = arith.addf %acc, %v : tensor<16xf32> loc(#loc)
      scf.yield %s, %at : tensor<16xf32>, tensor<16x!tt.ptr<f32>> loc(#loc)
    } loc(#loc)
    tt.store %q, %sum#0 : tensor<16x!tt.ptr<f32>> loc(#loc)
    tt.return loc(#loc)
  } loc(#loc)
} loc(#loc)
"""
OTHER = """\
module {
  tt.func public @other(%a: !tt.ptr<f32>, %b: f32) {
    %c = arith.mulf %b, %b : f32
    %d = tt.splat %c : f32 -> tensor<128xf32>
    %e = arith.subf %d, %d : tensor<128xf32>
    %f = math.exp2 %e : tensor<128xf32>
    tt.store %a, %b evictionPolicy = evict_last : !tt.ptr<f32>
    tt.return
  }
}
"""
VALUE = re.compile(r"%[\w]+(?:#\d+)?")


BOTH = sources_of([LOOP, OTHER])


def texts(count: int, *, steps: int = 0) -> list[str]:
    programs = [changed_ir(seed, BOTH[:1]) for seed in range(count)]
    return [one.text for one in programs if not steps or len(one.steps) == steps]


def test_a_seed_makes_one_module_and_seeds_make_many() -> None:
    made = texts(80)
    assert texts(80) == made
    assert len(set(made)) > 60
    source = BOTH[0]
    assert source.changed(()) == source.module.text


def test_one_step_is_one_change_most_often() -> None:
    source = BOTH[0].module.text
    made = texts(120, steps=1)
    assert sum(text == source for text in made) < len(made) // 20
    near = [text for text in made if len(set(text.splitlines()) ^ set(source.splitlines())) <= 2]
    # What goes with an operation that goes is a change of more lines.
    assert len(near) > len(made) // 2


def test_steps_do_not_depend_on_each_other() -> None:
    source = BOTH[0]
    program = next(
        one for seed in range(100) if len((one := changed_ir(seed, [source])).steps) == 2
    )
    first, second = program.steps
    assert source.changed((first, second)) != source.changed((first,))
    assert source.changed((first,)) == source.changed((first, first))


def test_a_module_takes_names_words_and_operations_of_others() -> None:
    whole = "".join(texts(300))
    assert "arith.subf %acc, %v : tensor<16xf32>" in whole  # of another size there
    assert re.search(r"%new_\d+ = arith\.mulf", whole) is None  # there is no f32 here
    assert "evictionPolicy = evict_last" not in whole  # that of a load was never another
    assert "{tt.warp_specialize}" in whole
    assert "tt.num_stages = 5" in whole
    assert "end = 256" in whole


def test_an_operation_comes_with_values_of_its_types() -> None:
    whole = "".join(changed_ir(seed, BOTH[1:]).text for seed in range(300))
    # From the loop's file: what reads a pointer and nothing else.
    assert re.search(r"%new_\d+ = tt\.splat %a : !tt\.ptr<f32> -> tensor<16x", whole)


def test_values_have_the_types_that_loops_and_functions_give_them() -> None:
    module = IrModule.read(LOOP)
    function, loop = (next(o for o in module.operations if w in o.header) for w in ("@k", "for"))
    assert dict(typed_arguments(function)) == {"%x": "!tt.ptr<f32>", "%n": "i32"}
    pointers = "tensor<16x!tt.ptr<f32>>"
    arguments = {"%i": "i32", "%acc": "tensor<16xf32>", "%at": pointers}
    assert dict(typed_arguments(loop)) == arguments
    assert dict(typed_results(loop)) == {"%sum#0": "tensor<16xf32>", "%sum#1": pointers}


def test_an_operand_becomes_another_one_of_its_type_that_is_there() -> None:
    stored = {
        VALUE.findall(line)[1]
        for text in texts(500, steps=1)
        for line in text.splitlines()
        if "tt.store" in line
    }
    assert stored >= {"%sum#0", "%zero"}
    assert not stored & {"%acc", "%v", "%s"}  # of the loop


def test_a_module_is_known_by_its_operations() -> None:
    names = {"arith.mulf", "tt.splat", "arith.subf", "math.exp2", "tt.store", "tt.return"}
    assert operation_names(IrModule.read(OTHER)) == names
