"""The real Triton 3.9.0 and modules of its IR: what it refuses, and what it fails on by itself."""

from __future__ import annotations

import asyncio
import itertools
import json
from pathlib import Path

import pytest
from conftest import Triage

from harness.cells.places import CompileOptions, at_bench
from harness.frontends.registry import front_end
from harness.minimize.hunt.ir_corpus import changed_ir, sources_of
from harness.minimize.hunt.ir_hunt import IrOracles
from harness.minimize.hunt.oracles import Asked
from harness.minimize.hunt.voting import Answer, Vote
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


def test_a_refusal_in_words_is_no_failure_and_broken_ir_is_one(
    toolchain_cache: Path, tmp_path: Path
) -> None:
    assert toolchain_cache.parent
    modules = (RIGHT, UNREAD, DESCRIPTOR, CRASHING, DEAD_BLOCK)

    async def ask(store: Store) -> list[Answer]:
        async with at_bench(store, CompileOptions(jobs=2)) as bench:
            triton = front_end("triton").install("3.9.0")
            oracles = IrOracles(bench=bench, compiler=triton, targets=[Target.parse("80")])
            return await oracles.ask([Asked(text, 0) for text in modules])

    with Store.open(tmp_path / "home") as store:
        right, unread, descriptor, crashing, dead = asyncio.run(ask(store))
    assert right == Answer(vote=Vote.ASSEMBLED)
    assert unread.vote is Vote.REFUSED
    assert "use of undeclared SSA value name" in unread.words
    assert descriptor.vote is Vote.REFUSED
    assert "failed to legalize operation 'tt.make_tensor_descriptor'" in descriptor.words
    assert crashing.vote is Vote.FAILS
    assert "does not match number of parameters" in crashing.words
    assert dead.vote is Vote.FAILS
    assert "ConvertTritonToTritonGPU failed: type of return operand 0" in dead.words


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
