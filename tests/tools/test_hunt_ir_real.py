"""The real Triton 3.9.0 and modules of its IR: what it refuses, and what it fails on by itself."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import shlex
from pathlib import Path

import pytest
from conftest import Triage

from harness.cells.places import CompileOptions, at_bench
from harness.frontends.registry import front_end
from harness.hunt import growth
from harness.hunt.ir_corpus import changed_ir, sources_of
from harness.hunt.ir_oracles import IrOracles
from harness.hunt.oracles import HuntCase
from harness.hunt.voting import HuntAnswer, Vote
from harness.store.store import Store
from harness.values.target import Target

pytestmark = pytest.mark.tools

MODULE = """\
module {
  tt.func public @kernel(%x: !tt.ptr<f32>) {
    %v = arith.constant dense<0.000000e+00> : tensor<128xf32>
    %p = tt.splat %x : !tt.ptr<f32> -> tensor<128x!tt.ptr<f32>>
BODY
    tt.store %p, %v : tensor<128x!tt.ptr<f32>>
    tt.return
  }
}
"""
ASSEMBLY = """\
    %w = tt.elementwise_inline_asm "mov.b32 $0, $1;" {constraints = "ONE", packed_element = 1 : \
i32, pure = true} %v : tensor<128xf32> -> tensor<128xf32>
    tt.store %p, %w : tensor<128x!tt.ptr<f32>>
    %y = tt.elementwise_inline_asm "add.f32 $0, $1, $2;" {constraints = "=r,r,r", packed_element = \
1 : i32, pure = true} %v, %v : tensor<128xf32>, tensor<128xf32> -> tensor<128xf32>
    tt.store %p, %y : tensor<128x!tt.ptr<f32>>"""
RIGHT = MODULE.replace("BODY", ASSEMBLY.replace("ONE", "=r,r"))
# One operand, and constraints of two: LLVM reaches code that is said to be unreachable.
CRASHING = RIGHT.replace('"=r,r"', '"=r,r,r"')
UNREAD = MODULE.replace("BODY", "    tt.store %p, %nothing : tensor<128x!tt.ptr<f32>>")
# What no pass behind TTIR lowers on this GPU: one says so.
DESCRIPTOR = MODULE.replace(
    "BODY",
    """\
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i64
    %d = tt.make_tensor_descriptor %x, [%c0], [%c1] : !tt.ptr<f32>, !tt.tensordesc<128xf32>
    %l = tt.descriptor_load %d[%c0] : !tt.tensordesc<128xf32> -> tensor<128xf32>
    tt.store %p, %l : tensor<128x!tt.ptr<f32>>""",
)
# A block that nothing reaches keeps the types without layouts, and the function has the others.
DEAD_BLOCK = """\
module {
  tt.func public @kernel(%x: !tt.ptr<f32>) {
    tt.return
  }
  tt.func private @zeros() -> tensor<128xf32> {
    %zero = arith.constant dense<0.000000e+00> : tensor<128xf32>
    tt.return %zero : tensor<128xf32>
  ^bb1:
    %none = ub.poison : tensor<128xf32>
    tt.return %none : tensor<128xf32>
  }
}
"""

# A product in a branch of a loop. With stages of its own the next copy goes into the buffer before
# the product reads it: `repros/triton_product_in_branch`.
PRODUCT = """\
module {
  tt.func public @kernel(%x: !tt.ptr<f16> {tt.divisibility = 16 : i32}, %out: !tt.ptr<f32> \
{tt.divisibility = 16 : i32}, %n: i32, %limit: i32) attributes {noinline = false} {
    %total = arith.constant dense<0.000000e+00> : tensor<32x32xf32>
    %cst = arith.constant dense<0.000000e+00> : tensor<32x64xf16>
    %c1 = arith.constant 1 : i32
    %c0 = arith.constant 0 : i32
    %cst_1 = arith.constant dense<0.000000e+00> : tensor<64x32xf32>
    %cst_2 = arith.constant dense<1.562500e-02> : tensor<32x32xf32>
    %c64 = arith.constant 64 : i32
    %cst_4 = arith.constant dense<256> : tensor<32x1xi32>
    %r64 = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32>
    %result:2 = scf.for %step = %c0 to %n step %c1 iter_args(%total_6 = %total, %result_7 = \
%cst_1) -> (tensor<32x32xf32>, tensor<64x32xf32>)  : i32 {
      %tile = arith.constant dense<0> : tensor<32x1xi32>
      %tile_8 = arith.cmpi slt, %tile, %cst_4 : tensor<32x1xi32>
      %tile_10 = tt.splat %x : !tt.ptr<f16> -> tensor<32x1x!tt.ptr<f16>>
      %tile_12 = arith.muli %step, %c64 : i32
      %tile_13 = tt.splat %tile_12 : i32 -> tensor<64xi32>
      %tile_14 = arith.addi %tile_13, %r64 : tensor<64xi32>
      %tile_15 = tt.expand_dims %tile_14 {axis = 0 : i32} : tensor<64xi32> -> tensor<1x64xi32>
      %tile_16 = tt.broadcast %tile_10 : tensor<32x1x!tt.ptr<f16>> -> tensor<32x64x!tt.ptr<f16>>
      %tile_17 = tt.broadcast %tile_15 : tensor<1x64xi32> -> tensor<32x64xi32>
      %tile_18 = tt.addptr %tile_16, %tile_17 : tensor<32x64x!tt.ptr<f16>>, tensor<32x64xi32>
      %tile_19 = tt.broadcast %tile_8 : tensor<32x1xi1> -> tensor<32x64xi1>
      %tile_20 = tt.load %tile_18, %tile_19, %cst : tensor<32x64x!tt.ptr<f16>>
      %total_21 = tt.trans %tile_20 {order = array<i32: 1, 0>} : tensor<32x64xf16> -> \
tensor<64x32xf16>
      %total_22 = tt.dot %tile_20, %total_21, %total_6, inputPrecision = tf32 : \
tensor<32x64xf16> * tensor<64x32xf16> -> tensor<32x32xf32>
      %8 = arith.cmpi slt, %step, %limit : i32
      %9 = scf.if %8 -> (tensor<64x32xf32>) {
        %result_24 = arith.mulf %total_22, %cst_2 : tensor<32x32xf32>
        %result_25 = arith.truncf %result_24 : tensor<32x32xf32> to tensor<32x32xf16>
        %result_26 = tt.dot %total_21, %result_25, %cst_1, inputPrecision = tf32 : \
tensor<64x32xf16> * tensor<32x32xf16> -> tensor<64x32xf32>
        scf.yield %result_26 : tensor<64x32xf32>
      } else {
        scf.yield %result_7 : tensor<64x32xf32>
      }
      scf.yield %total_22, %9 : tensor<32x32xf32>, tensor<64x32xf32>
    } {tt.num_stages = 1 : i32}
    %0 = tt.expand_dims %r64 {axis = 1 : i32} : tensor<64xi32> -> tensor<64x1xi32>
    %2 = tt.splat %out : !tt.ptr<f32> -> tensor<64x1x!tt.ptr<f32>>
    %3 = tt.addptr %2, %0 : tensor<64x1x!tt.ptr<f32>>, tensor<64x1xi32>
    %5 = tt.broadcast %3 : tensor<64x1x!tt.ptr<f32>> -> tensor<64x32x!tt.ptr<f32>>
    tt.store %5, %result#1 : tensor<64x32x!tt.ptr<f32>>
    tt.return
  }
}
"""
STAGED = PRODUCT.replace("num_stages = 1", "num_stages = 3")
# 4 steps of 64 numbers, and memory for 65,536.
OUTSIDE = PRODUCT.replace("%c64 = arith.constant 64", "%c64 = arith.constant 65536")
UNDEFINED = PRODUCT.replace("%tile_18, %tile_19, %cst :", "%tile_18, %tile_19 :")
MODULES = (STAGED, OUTSIDE, UNDEFINED)


def test_a_refusal_in_words_is_no_failure_and_broken_ir_is_one(
    toolchain_cache: Path, tmp_path: Path
) -> None:
    assert toolchain_cache.parent
    modules = (RIGHT, UNREAD, DESCRIPTOR, CRASHING, DEAD_BLOCK)

    async def ask(store: Store) -> list[HuntAnswer]:
        async with at_bench(store, CompileOptions(jobs=2)) as bench:
            triton = front_end("triton").install("3.9.0")
            oracles = IrOracles(bench=bench, compiler=triton, targets=[Target.parse("80")])
            return await oracles.ask([HuntCase(text, 0) for text in modules])

    with Store.open(tmp_path / "home") as store:
        right, unread, descriptor, crashing, dead = asyncio.run(ask(store))
    # Two pieces of assembly: what these compute is not known.
    assert right.vote is Vote.LEFT_OUT
    assert "tt.elementwise_inline_asm may leave something open" in right.words
    assert unread.vote is Vote.REFUSED
    assert "use of undeclared SSA value name" in unread.words
    assert descriptor.vote is Vote.REFUSED
    assert "failed to legalize operation 'tt.make_tensor_descriptor'" in descriptor.words
    assert crashing.vote is Vote.FAILS
    assert "does not match number of parameters" in crashing.words
    assert dead.vote is Vote.FAILS
    assert "ConvertTritonToTritonGPU failed: type of return operand 0" in dead.words


def test_the_slowest_pass_of_a_module_is_named(
    toolchain_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert toolchain_cache.parent
    # What is beyond the limit itself takes minutes.
    monkeypatch.setattr(growth, "_TRITON_SECONDS", 0.0)
    monkeypatch.setattr(growth, "_TRITON_SECONDS_EACH", 0.0)

    async def ask(store: Store) -> list[HuntAnswer]:
        async with at_bench(store, CompileOptions(jobs=2)) as bench:
            triton = front_end("triton").install("3.9.0")
            oracles = IrOracles(bench=bench, compiler=triton, targets=[Target.parse("80")])
            return await oracles.ask([HuntCase(RIGHT, 0), HuntCase(UNREAD, 0)])

    with Store.open(tmp_path / "home") as store:
        grown, unread = asyncio.run(ask(store))
    assert unread.vote is Vote.REFUSED
    assert grown.vote is Vote.GROWS
    assert grown.words.startswith("sm_80: Triton takes ")
    # A pass of MLIR: LLVM's are not reached.
    assert re.fullmatch(r"compile time out of proportion \([A-Z]\w+\)", str(grown.signature))


def test_a_module_is_held_to_itself_without_stages(toolchain_cache: Path, tmp_path: Path) -> None:
    assert toolchain_cache.parent

    async def ask(store: Store) -> list[HuntAnswer]:
        async with at_bench(store, CompileOptions(jobs=2)) as bench:
            triton = front_end("triton").install("3.9.0")
            oracles = IrOracles(bench=bench, compiler=triton, targets=[Target.parse("90a")])
            return await oracles.ask([HuntCase(text, 0) for text in (*MODULES, PRODUCT)])

    with Store.open(tmp_path / "home") as store:
        staged, outside, undefined, right = asyncio.run(ask(store))
    assert right.vote is Vote.RIGHT
    assert "agrees with what it computes without stages" in right.words
    assert staged.vote is Vote.WRONG
    assert staged.race == "write-read shared: cp.async and wgmma.mma_async"
    # An order of copies in which it is right, too: a GPU may keep it.
    assert staged.is_latent
    assert outside.vote is Vote.LEFT_OUT
    assert "without stages it is memory_fault" in outside.words
    assert undefined.vote is Vote.LEFT_OUT
    assert undefined.words == "a load does not say what is masked"


def test_a_file_of_ir_is_run_on_what_its_arguments_say(triage: Triage) -> None:
    for name, text, code, verdict in (
        ("right", PRODUCT, 0, "consistent"),
        ("wrong", STAGED, 1, "wrong_result"),
    ):
        (triage.folder / f"{name}.ttir").write_text(text)
        done = triage(
            "run", "--kernel", f"{name}.ttir", "--sm", "90a", "--triton", "3.9.0", "--json"
        )
        assert done.returncode == code, done.stderr
        document = json.loads(done.stdout)
        [row] = document["runs"]
        assert row["run"] == verdict
        assert "num_stages=1 on sm_80" in row["run_reason"]
        assert any("guessed" in note for note in document["summary"]["notes"])


@pytest.mark.long
def test_a_hunt_finds_wrong_code_in_a_file_that_is_right(triage: Triage) -> None:
    corpus = triage.folder / "corpus"
    corpus.mkdir()
    (corpus / "kernel.ttir").write_text(PRODUCT)
    sources = sources_of([PRODUCT])
    changed = ((seed, changed_ir(seed * 1_000_000_000, sources)) for seed in itertools.count())
    seed = next(n for n, one in changed if one.text == STAGED)
    words = ["hunt", "triton", "--corpus", "corpus", "--sm", "90a", "--triton", "3.9.0", "--json"]
    done = triage(*words, "--seed", str(seed), "--max-tries", "1", "--for", "9m", "--jobs", "2")
    assert done.returncode == 1, done.stderr
    [cause] = json.loads(done.stdout)["causes"]
    assert cause["vote"] == "wrong"
    assert cause["name"].startswith("write-read shared: cp.async and wgmma.mma_async (")
    assert {"tt.load", "tt.dot", "scf.for", "scf.if"} <= set(cause["opcodes"])
    assert cause["command"].startswith("triage run --kernel ")
    again = triage(*shlex.split(cause["command"])[1:])
    assert again.returncode == 1
    assert "wrong_result" in again.stdout


def test_a_hunt_changes_a_file_until_triton_dies_and_writes_what_is_left(triage: Triage) -> None:
    corpus = triage.folder / "corpus"
    corpus.mkdir()
    (corpus / "kernel.ttir").write_text(RIGHT)
    sources = sources_of([RIGHT])
    # The first change gives the one piece of assembly the constraints of the other.
    mismatched = '"mov.b32 $0, $1;" {constraints = "=r,r,r"'
    first = ((seed, changed_ir(seed * 1_000_000_000, sources)) for seed in itertools.count())
    seed = next(n for n, one in first if len(one.steps) == 1 and mismatched in one.text)
    words = ["hunt", "triton", "--corpus", "corpus", "--sm", "80", "--triton", "3.9.0", "--json"]
    done = triage(*words, "--seed", str(seed), "--max-tries", "1", "--for", "5m", "--jobs", "2")
    document = json.loads(done.stdout)
    assert done.returncode == 1, done.stderr
    assert document["hunt"]["tried"] == 1
    [cause] = document["causes"]
    assert "does not match number of parameters" in cause["name"]
    # A value, the assembly that reads it, a pointer, the store, without which nothing is needed,
    # and the end.
    assert cause["instructions"] == 5
    [file] = Path(cause["path"]).glob("*.ttir")
    row = triage.compile("--kernel", str(file), "--sm", "80", "--triton", "3.9.0", code=1)
    [cell] = row["cells"] if "cells" in row else row["rows"]
    assert cell["verdict"] == "compiler_crash"


def test_a_folder_without_ir_is_said_in_a_line(triage: Triage) -> None:
    (triage.folder / "empty").mkdir()
    done = triage("hunt", "triton", "--corpus", "empty", "--triton", "3.9.0")
    assert done.returncode == 2
    assert "there is no .ttir or .ttgir file" in done.stderr
