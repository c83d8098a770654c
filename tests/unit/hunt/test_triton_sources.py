"""What generated kernels are made of, which have what a cause needs, and how one shrinks."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from msgspec.structs import replace

from harness.hunt.causes import Cause
from harness.hunt.gluon_sources import gluon_program
from harness.hunt.oracles import HuntCase
from harness.hunt.plan import HuntPlan
from harness.hunt.triton_hunt import has_all, is_closed, least_kernel, tidy
from harness.hunt.triton_sources import KERNEL, program, words_of
from harness.hunt.voting import HuntAnswer, Vote
from harness.values.target import Target
from harness.values.toolchain import Compiler

SEEDS = range(200)


@pytest.fixture
def plan() -> HuntPlan:
    triton = Compiler(version="3.9.0", origin="triton", path=Path("triton"))
    gpus = (Target.parse("80"), Target.parse("90a"))
    return HuntPlan(tool=triton, targets=gpus, seed=0, seconds=1.0)


def kernel_of(text: str) -> ast.FunctionDef:
    tree = ast.parse(text)
    [kernel] = [
        node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == KERNEL
    ]
    return kernel


def test_a_seed_makes_the_same_program_and_another_one_another() -> None:
    assert program(7).text == program(7).text
    assert len({program(seed).text for seed in SEEDS}) == len(SEEDS)


def test_gluon_kernels_follow_from_their_seeds_and_have_every_kind_of_statement() -> None:
    programs = [gluon_program(seed) for seed in SEEDS]
    assert [one.text for one in programs] == [gluon_program(seed).text for seed in SEEDS]
    assert len({one.text for one in programs}) == len(SEEDS)
    words = {word for one in programs for word in one.opcodes}
    kinds = "load store sum max associative_scan gather dot_fma allocate_shared_memory async_load"
    assert words >= {f"loop {kind}" for kind in kinds.split()} | {"branch", "async_load"}
    assert {one.text.count("L1: gl.constexpr") for one in programs} == {1}


def test_each_copy_of_a_gluon_kernel_is_waited_for() -> None:
    texts = [gluon_program(seed).text for seed in SEEDS]
    assert all(map(is_closed, texts))
    text = next(text for text in texts if "wait_group(1)" in text)
    assert not is_closed(text.replace("async_copy.wait_group(1)", "pass", 1))
    assert not is_closed(text.replace("async_copy.commit_group()", "pass", 1))


def test_every_kind_of_statement_comes_up() -> None:
    words = {word for seed in SEEDS for word in program(seed).opcodes}
    assert words >= {
        "loop load",
        "loop descriptor load",
        "loop dot",
        "loop store",
        "loop descriptor store",
        "loop sum",
        "loop max",
        "loop cumsum",
        "loop debug_barrier",
        "branch",
        "flatten",
        "warp_specialize",
        "loop_unroll_factor",
        "num_stages",
    }


def test_a_generated_kernel_reads_nothing_that_is_not_set_before() -> None:
    for seed in SEEDS:
        kernel = kernel_of(program(seed).text)
        names = {arg.arg for arg in kernel.args.args} | {"tl", "range", "step", "turn"}
        lines = [node for node in ast.walk(kernel) if isinstance(node, ast.stmt)]
        for line in sorted(lines, key=lambda node: node.lineno)[1:]:
            if isinstance(line, ast.For | ast.If):
                continue
            value = line.value if isinstance(line, ast.Assign) else line
            read = {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}
            assert read <= names, (seed, ast.unparse(line))
            if isinstance(line, ast.Assign):
                names.add(ast.unparse(line.targets[0]))


def test_what_goes_through_memory_lies_between_barriers() -> None:
    texts = [program(seed).text for seed in SEEDS]
    assert all(map(is_closed, texts))
    text = next(text for text in texts if "debug_barrier" in text)
    assert not is_closed(text.replace("tl.debug_barrier()", "pass", 1))
    described = next(text for text in texts if "make_tensor_descriptor" in text)
    assert not is_closed(described.replace("set_allocator(", "print("))


def test_a_kernel_has_what_a_cause_needs_on_gpus_where_that_fails(plan: HuntPlan) -> None:
    words = "num_warps=4: 3 of 4 differ"
    answer = HuntAnswer(vote=Vote.WRONG, words=words, signature="wrong_result")
    least = least_kernel(plan, HuntCase(program(1).text, 1), answer)
    cause = Cause(programs=[least])
    assert cause.name.startswith("wrong result on sm_90a (")
    assert has_all(plan, cause, HuntCase(least.text, 3))
    assert not has_all(plan, cause, HuntCase(least.text, 2))
    failing = Cause(programs=[replace(least, targets={str(plan.target_of(2)): "wrong"})])
    assert has_all(plan, failing, HuntCase(least.text, 2))
    elsewhere = {str(plan.target_of(2)): "wrong in another way"}
    assert not has_all(
        plan, Cause(programs=[replace(least, targets=elsewhere)]), HuntCase(least.text, 2)
    )
    smaller = least.text.replace("tl.dot", "tl.trans")
    assert words_of(smaller)["loop dot"] == 0
    assert not has_all(plan, cause, HuntCase(smaller, 3))
    assert has_all(plan, Cause(programs=[replace(least, text=smaller)]), HuntCase(smaller, 3))


def test_a_failing_pass_names_a_cause(plan: HuntPlan) -> None:
    answer = HuntAnswer(
        vote=Vote.FAILS, words="num_warps=4: pass TritonGPUPipeline failed", signature="abc"
    )
    assert (
        least_kernel(plan, HuntCase(program(1).text, 1), answer).name
        == "pass TritonGPUPipeline failed"
    )


def test_arguments_that_nothing_reads_go_with_what_was_made_for_them() -> None:
    text = program(2).text
    kernel = kernel_of(text)
    first = kernel.args.args[0].arg
    lines = [line for line in text.splitlines() if f"{first}_d" not in line]
    less = "\n".join(line for line in lines if f" {first}[" not in line)
    names = {node.id for node in ast.walk(kernel_of(less)) if isinstance(node, ast.Name)}
    assert first not in names
    left = tidy(less)
    assert first not in {
        node.id for node in ast.walk(ast.parse(left)) if isinstance(node, ast.Name)
    }
    assert first not in [arg.arg for arg in kernel_of(left).args.args]
    call = next(line for line in left.splitlines() if f"{KERNEL}[" in line)
    assert call.count(",") == len(kernel_of(left).args.args)
