from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scaling import assert_linear

from harness.judging.signature import failing_pass, make_signature, template
from harness.values.verdict import Signature, Stage, VerdictKind

ASSERTION = (
    "python: {folder}/lib/Analysis/Utility.cpp:{line}: bool mlir::triton::{function}(): "
    "Assertion `{expression}' failed."
)

PIECES = [
    "/tmp/tmpab12cd34/kernel.ptx",
    "~/x/y.py:3:4",
    "../a.cpp:7",
    "tensor<64x128xbf16>",
    "t12: f32",
    "0x7f00",
    "%12#3",
    "%arg0",
    "%llvm.nvvm.mma",
    "#blocked12",
    "#mma",
    "line 4",
    "t7:1",
    "12",
    "9.1",
    "16-bit",
    ":1:2",
    "\x1b[31m",
    "file.cpp:3: void f(): Assertion `a == 2' failed.",
    "Assertion `",
    "C7907",
    "sm_100a",
    "' failed",
    "ValueError: ",
    "['16']",
    "tmpxft_00000abc_00000000-6",
    "SHAPEx",
    "?x4xf32",
    " ",
    "\n",
    "x",
    "/",
    ".",
    ":",
    "%",
    "#",
    "t",
    "0",
    "é",
    "٣",
]


def signature(message: str, **changes: str) -> Signature:
    words = {"code": None, "log": "", **changes}
    return make_signature(
        stage=Stage.LLIR,
        kind=VerdictKind.PASS_FAILURE,
        message=message,
        code=words["code"],
        log=words["log"] or "",
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/tmp/tmpab12cd34/k.ttir:3:7: bad layout", "/home/me/.cache/k.ttir:30:70: bad layout"),
        ("cannot read /tmp/tmpab12cd34.ptx", "cannot read /var/tmp/tmpzz99_x1y.ptx"),
        ("src/lib/Foo.cpp:12: bad", "build/deep/Foo.cpp:99: bad"),
        ("'tt.dot' op on tensor<64x128xbf16>", "'tt.dot' op on tensor<32x32xbf16>"),
        ("tensor<?x128xf32, #blocked>", "tensor<16xf32, #blocked7>"),
        ("uses %12 and %arg0", "uses %3#1 and %acc_4"),
        ("\x1b[1;31merror:\x1b[0m size 12", "error: size 4096"),
        (
            "Cannot select: 0x55d0: f32 = fadd t12, t7:1",
            "Cannot select: 0x7f1a9c: f32 = fadd t1, t2",
        ),
        ("LLVM ERROR: out of line 12 column 3", "LLVM ERROR: out of line 7 column 99"),
        ("UNREACHABLE executed at /a/b/X.cpp:12!", "UNREACHABLE executed at /c/X.cpp:999!"),
        ("sizePerThread = [1, 4], order = [1, 0]", "sizePerThread = [2, 8], order = [0, 1]"),
        ("ended after 12.", "ended after 13."),
        (
            "AssertionError: cannot cast int32[constexpr[16]] to <[16], fp8e5>",
            "cannot cast int32[constexpr[16]] to <['16'], fp8e5>",
        ),
        (
            "CompilationError: ValueError: Shape element 1 must be a power of 2",
            "triton.compiler.errors.CompilationError: Shape element 1 must be a power of 2",
        ),
        ("CompilationError: KeyError: 'width'", "KeyError: 'width'"),
        (
            ASSERTION.format(folder="/src", line=12, function="foo", expression="InputDim() == 2"),
            ASSERTION.format(
                folder="/b/c", line=99, function="g<int>", expression="InputDim() == 2"
            ),
        ),
    ],
)
def test_the_same_bug_merges(one: str, other: str) -> None:
    assert one != other
    assert signature(one).key == signature(other).key


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("tensor<64x128xbf16>", "tensor<64x128xf16>"),
        ("tensor<64x128xf8E4M3FN>", "tensor<64x128xf8E5M2>"),
        ("tensor<4x!tt.ptr<f32>>", "tensor<4x!tt.ptr<f16>>"),
        ("'tt.dot' op failed", "'tt.dot_scaled' op failed"),
        ("Cannot select: f32 = fadd", "Cannot select: f64 = fadd"),
        ("intrinsic %llvm.nvvm.ldmatrix", "intrinsic %llvm.nvvm.stmatrix"),
        ("requires .target sm_90", "requires .target sm_100a"),
        ("mma.m16n8k16", "mma.m16n8k8"),
        ("a 16-bit value", "a 32-bit value"),
        ("Feature '%cluster_ctarank' requires x", "Feature '%is_explicit_cluster' requires x"),
        ("#blocked1", "#mma1"),
        ("A.cpp:1: bad", "B.cpp:1: bad"),
        ("KeyError: 'width'", "AttributeError: 'width'"),
        ("cannot cast to <['16'], fp8e5>", "cannot cast to <['16'], fp8e4nv>"),
        ("ValueError: 'tt.dot' is bad", "ValueError: 'tt.load' is bad"),
        (
            ASSERTION.format(folder="/s", line=1, function="f", expression="getRank() == 2"),
            ASSERTION.format(folder="/s", line=1, function="f", expression="getRank() == 3"),
        ),
    ],
)
def test_different_bugs_split(one: str, other: str) -> None:
    assert signature(one).key != signature(other).key


def test_code_pass_stage_and_kind_split() -> None:
    log = "note: Pipeline failed while executing [`{}` on 'builtin.module' operation]"
    keys = {
        signature("x").key,
        signature("x", code="C7907").key,
        signature("x", code="C7600").key,
        signature("x", log=log.format("TritonGPUPipeline")).key,
        signature("x", log=log.format("ConvertTritonGPUToLLVM")).key,
        make_signature(stage=Stage.TTGIR, kind=VerdictKind.PASS_FAILURE, message="x").key,
        make_signature(stage=Stage.LLIR, kind=VerdictKind.COMPILER_CRASH, message="x").key,
    }
    assert len(keys) == 7


def test_an_assertion_is_one_bug_however_the_compiler_ended() -> None:
    """By SIGABRT, or recovered from, which alone names a pass."""
    said = "SparseAnalysis.h: Assertion `lhs == rhs' failed"
    caught = "x.py:3:4: error: Pipeline failed while executing [`TritonGPUCoalesce` on 'f']"
    recovered = make_signature(
        stage=Stage.TTGIR,
        kind=VerdictKind.PASS_FAILURE,
        message=f"{said} after: layout is invalid",
        log=caught,
    )
    died = make_signature(
        stage=Stage.TTGIR, kind=VerdictKind.COMPILER_CRASH, message=f"SIGABRT: {said}", log="..."
    )
    assert recovered.key == died.key
    for other in (
        make_signature(
            stage=Stage.LLIR, kind=VerdictKind.COMPILER_CRASH, message=f"SIGABRT: {said}"
        ),
        make_signature(
            stage=Stage.TTGIR,
            kind=VerdictKind.COMPILER_CRASH,
            message="SIGABRT: SparseAnalysis.h: Assertion `lhs != rhs' failed",
        ),
        # What crashed without an assertion differs by its signal and its pass.
        make_signature(stage=Stage.TTGIR, kind=VerdictKind.COMPILER_CRASH, message="SIGSEGV: "),
        make_signature(
            stage=Stage.TTGIR, kind=VerdictKind.PASS_FAILURE, message="SIGSEGV: ", log=caught
        ),
    ):
        assert other.key != died.key


def test_an_assertion_keeps_its_file_and_expression_only() -> None:
    text = ASSERTION.format(folder="/root/x", line=123, function="f(int)", expression="n % 4 == 0")
    assert template(text) == "Utility.cpp: Assertion `n % 4 == 0"
    assert template(text.replace("python:", "python3.12:")) == template(text)


def test_the_pass_is_the_one_that_mlir_names() -> None:
    log = (
        "k.ttgir:2:3: error: Failures have been detected\nk.ttgir:2:3: note: Pipeline failed while "
        "executing [`TritonGPUAccelerateMatmul` on 'builtin.module' operation]: reproducer"
    )
    assert failing_pass(log) == "TritonGPUAccelerateMatmul"
    assert failing_pass("note: `SomePass` on something else") is None
    # A pass that runs a pipeline of its own is no more than the frame of what failed.
    both = (
        "note: Pipeline failed while executing [`TritonGPUAutomaticWarpSpecialization` on "
        "'builtin.module' operation, `NVWSInsertAref` on 'builtin.module' operation]: reproducer "
        "generated at `std::errs, please share the reproducer above with Triton project.`"
    )
    assert failing_pass(both) == "NVWSInsertAref"
    assert failing_pass("Pipeline failed while executing [" * 1000) is None


@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_folding_twice_changes_nothing(text: str) -> None:
    once = template(text)
    assert template(once) == once


@given(st.text(max_size=200), st.integers(0, 590))
def test_folding_twice_changes_nothing_at_the_cap(text: str, filler: int) -> None:
    once = template("x" * filler + " 12" + text)
    assert template(once) == once
    assert len(once) <= 600


@given(st.sampled_from(PIECES), st.sampled_from(PIECES))
@settings(max_examples=30, deadline=None)
def test_long_messages_stay_under_the_cap_and_are_fast(one: str, other: str) -> None:
    assert len(template((one + other) * 100_000)) <= 600
    assert_linear(lambda times: template((one + other) * times), 12_500)


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(1, 10**9))
def test_numbers_of_a_launch_never_split(rows: int, columns: int, address: int) -> None:
    message = "op on tensor<{}x{}xf16> at {:#x}, %{} = {} B"
    here = message.format(rows, columns, address, rows, columns)
    assert template(here) == template(message.format(1, 1, 1, 1, 1))
