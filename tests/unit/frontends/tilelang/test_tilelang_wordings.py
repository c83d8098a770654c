"""What TileLang says when it fails: texts of 0.1.8 to 0.1.15, from kernels that were tried."""

from __future__ import annotations

import pytest

from harness.frontends.tilelang.front_end import TILELANG_FRONT_END, failing_pass
from harness.judging.followed import FollowedFailure
from harness.values.outcome import Lowering, ProcessEnd, RaisedError

TMA = "Check failed: (shared_layout->InputDim() == 2) is false: Cannot detect TMA layout."
REDUCE = (
    "Check failed: (analyzer->CanProveEqual(projected_index, simplified_index)) is false: ReduceOp "
    "cannot lower a layout where a source index depends on a thread-owned reduce segment: "
    "src_index=rv % {} // 8 * 4 + i % 4 // 2 * 2 + rv % 2"
)
LAYOUT = "Get different layout for q_shared\n current layout: Layout([64, 64] -> [1, 8, 512])"
TRACEBACK = """\
  File "/x/tilelang/engine/lower.py", line 249, in lower
    mod = LowerAndLegalize(mod, target)
  File "/x/tilelang/engine/phase.py", line 178, in LowerAndLegalize
    mod = tilelang.transform.LayoutInference()(mod)
  File "/x/tvm/ir/transform.py", line 167, in __call__
    return _ffi_transform_api.RunPass(self, mod)
"""


def raised(kind: str, message: str, *, stage: str = "cuda", traceback: str = "") -> Lowering:
    error = RaisedError(type=kind, kinds=(kind, "Exception"), message=message, traceback=traceback)
    return Lowering(end=ProcessEnd(exit_code=0), stage=stage, error=error)


@pytest.mark.parametrize(
    ("lowering", "verdict", "said"),
    [
        (raised("InternalError", TMA), "pass_failure", "Cannot detect TMA layout."),
        (raised("InternalError", REDUCE.format(32)), "pass_failure", "ReduceOp cannot lower"),
        (
            raised("InternalError", LAYOUT, traceback=TRACEBACK),
            "pass_failure",
            "pass LayoutInference failed: Get different layout for q_shared",
        ),
        (
            raised("ValueError", "Check failed: (opaque.empty()) is false: "),
            "pass_failure",
            "opaque",
        ),
        (
            raised(
                "AssertionError", "T.gemm K shape check failed: K_A = 128, K_B = 64", stage="tir"
            ),
            "rejected",
            "AssertionError: T.gemm K shape check failed",
        ),
        (raised("NameError", "name 'x' is not defined", stage="tir"), "rejected", "'x'"),
        (
            raised("AttributeError", "module 'tilelang.language' has no attribute 'alloc_tmem'"),
            "unsupported",
            "alloc_tmem",
        ),
        (
            raised("NotImplementedError", "the launch compiles for hip, and CUDA was asked for"),
            "unsupported",
            "hip",
        ),
        (raised("MemoryError", ""), "out_of_memory", "memory"),
        (raised("OSError", "no space left"), "infra", "no space left"),
    ],
)
def test_what_it_raises(lowering: Lowering, verdict: str, said: str) -> None:
    judged = TILELANG_FRONT_END.judge(lowering)
    assert judged.kind.value == verdict, judged.reason
    assert said in judged.reason


@pytest.mark.parametrize(
    ("lowering", "is_own"),
    [
        (raised("InternalError", TMA), True),
        (raised("InternalError", LAYOUT, traceback=TRACEBACK), True),
        (raised("ValueError", "Check failed: (opaque.empty()) is false: "), True),
        (raised("ValueError", "M must be 16", traceback='File "src/op/gemm.cc", line 3'), False),
    ],
)
def test_a_check_of_its_own_that_fails_is_no_fault_of_a_kernel(
    lowering: Lowering, is_own: bool
) -> None:
    judged = TILELANG_FRONT_END.judge(lowering)
    assert (
        FollowedFailure(kind=judged.kind, stage=judged.stage, said=judged.reason).is_crash == is_own
    )


def test_one_bug_has_one_signature() -> None:
    keys = {
        TILELANG_FRONT_END.judge(raised("InternalError", REDUCE.format(n))).signature
        for n in (32, 64)
    }
    assert len(keys) == 1
    other = TILELANG_FRONT_END.judge(raised("InternalError", TMA)).signature
    assert other not in keys


def test_a_process_that_dies() -> None:
    log = "12:31:02 [TileLang:tilelang.env]: warning\nterminate called after throwing\n"
    died = TILELANG_FRONT_END.judge(Lowering(end=ProcessEnd(signal=6), stage="cuda", log=log))
    assert died.kind.value == "compiler_crash"
    assert "SIGABRT in stage cuda: terminate called after throwing" in died.reason
    timed = Lowering(end=ProcessEnd(signal=9, timed_out=True, wall=5), stage="cuda")
    assert TILELANG_FRONT_END.judge(timed).kind.value == "timeout"
    silent = TILELANG_FRONT_END.judge(Lowering(end=ProcessEnd(exit_code=3), stage="tir"))
    assert silent.kind.value == "infra"


def test_nvcc_is_judged_by_its_own_words() -> None:
    log = 'k.cu(1): error: "q" is undefined\n\n1 error detected in the compilation of "k".\n'
    judged = TILELANG_FRONT_END.judge(Lowering(end=ProcessEnd(exit_code=1), stage="nvcc", log=log))
    assert (judged.kind.value, judged.stage) == ("rejected", "nvcc")


def test_the_pass_is_read_off_the_traceback() -> None:
    assert failing_pass(TRACEBACK) == "LayoutInference"
    assert failing_pass("") is None
