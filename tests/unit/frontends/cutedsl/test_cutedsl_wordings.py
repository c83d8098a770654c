"""What CuTe DSL says when it fails: texts of 4.5.2 and 4.8.1, from kernels that were tried."""

from __future__ import annotations

import pytest

from harness.frontends.cutedsl.front_end import CUTEDSL_FRONT_END, only_its_ptxas_failed
from harness.frontends.cutedsl.host_code import dynamic_shared
from harness.values.outcome import Lowering, ProcessEnd, RaisedError

OLD_PTXAS = """\
Failure while executing pass pipeline:
error: unknown: NVPTX compiler invocation failed, error log: ptxas application ptx input, line 26; error   : Unknown modifier '.op'
  ptxas fatal   : Ptx assembly aborted due to errors
"""  # noqa: E501 - as it was said
NEW_PTXAS = """\
error: PTX assembly failed
  error: ptxas rejected the PTX generated for this kernel while compiling it to SASS.
  note: ptxas log:
        ptxas application ptx input, line 26; error   : Unknown modifier '.op'
"""
OLD_NAME = """\
DSLRuntimeError: 💥💥💥 Error during runtime code generation for function `h` 💥💥💥
Caused exception: name 'undefined_name' is not defined
💡 Suggestions:
 Using variables defined in dynamic control flow is not supported.
"""
NEW_NAME = """
error: NameError in `h`: name 'undefined_name' is not defined
  --> /x/err.py:12
  = note: Caused exception: name 'undefined_name' is not defined
"""
OLD_SHAPE = """\
Operation creation failed
loc("y = x[t, 0, 5]"("/x/err.py":14:12)): error: expects coordinate to be weakly congruent
"""
NEW_SHAPE = "Operation creation failed:\nerror: unknown: expects coordinate to be weakly congruent"
OLD_NVVM = """\
NVVM Compilation Error:
----------------------
"gpu.module"() <{sym_name = "kernels"}> ({
Failure while executing pass pipeline:
error: unknown: NVVM_ERROR_COMPILATION, libNVVM extra log: error:  Error: unsupported operation
"""
NEW_NVVM = """\
error: NVVM backend compilation failed
  error: libNVVM failed while compiling generated device IR.
  note: backend log:
        Failed to generate PTX from the compilation unit. (error 9: NVVM_ERROR_COMPILATION), libNVVM
        extra log:  Error: unsupported operation
"""


def raised(kind: str, message: str, *, stage: str = "nvvm") -> Lowering:
    error = RaisedError(type=kind, kinds=(kind, "Exception"), message=message)
    return Lowering(end=ProcessEnd(exit_code=0), stage=stage, error=error)


@pytest.mark.parametrize(
    ("lowering", "verdict", "said"),
    [
        (raised("DSLRuntimeError", OLD_NAME, stage="mlir"), "rejected", "name 'undefined_name'"),
        (raised("DSLUserCodeError", NEW_NAME, stage="mlir"), "rejected", "name 'undefined_name'"),
        (raised("ValueError", OLD_SHAPE, stage="mlir"), "rejected", "kernel: expects coordinate"),
        (raised("MLIRError", NEW_SHAPE, stage="mlir"), "rejected", "kernel: expects coordinate"),
        (raised("CompilationError", OLD_NVVM), "unsupported", "libNVVM: unsupported operation"),
        (raised("CompilerDiagnosticError", NEW_NVVM), "unsupported", "unsupported operation"),
        (raised("MLIRError", NEW_SHAPE), "pass_failure", "stage nvvm failed: expects coordinate"),
        (raised("KeyError", "'sm_75'", stage="mlir"), "unsupported", "sm_75"),
        (
            raised(
                "NotImplementedError", "the launch compiles for sm_80, and sm_90a was asked for"
            ),
            "unsupported",
            "sm_80",
        ),
        (
            raised("AttributeError", "module 'cutlass' has no attribute 'memory'", stage="mlir"),
            "unsupported",
            "memory",
        ),
        (raised("MemoryError", ""), "out_of_memory", "memory"),
    ],
)
def test_what_it_raises(lowering: Lowering, verdict: str, said: str) -> None:
    judged = CUTEDSL_FRONT_END.judge(lowering)
    assert judged.kind.value == verdict, judged.reason
    assert said in judged.reason


@pytest.mark.parametrize(("old", "new"), [(OLD_NAME, NEW_NAME), (OLD_NVVM, NEW_NVVM)])
def test_one_failure_has_one_signature_in_both_releases(old: str, new: str) -> None:
    stage = "mlir" if old is OLD_NAME else "nvvm"
    one, other = (
        CUTEDSL_FRONT_END.judge(raised("E", each, stage=stage)).signature for each in (old, new)
    )
    assert one == other
    assert one is not None


@pytest.mark.parametrize("text", [OLD_PTXAS, NEW_PTXAS])
def test_what_the_ptxas_inside_refuses_is_left_to_the_assembler(text: str) -> None:
    error = raised("E", text).error
    assert error is not None
    assert only_its_ptxas_failed(error)
    error = raised("E", NEW_NVVM).error
    assert error is not None
    assert not only_its_ptxas_failed(error)


def test_a_process_that_dies() -> None:
    log = "LLVM ERROR: out of registers\n"
    died = CUTEDSL_FRONT_END.judge(Lowering(end=ProcessEnd(signal=6), stage="nvvm", log=log))
    assert died.kind.value == "compiler_crash"
    assert "SIGABRT in stage nvvm: LLVM ERROR" in died.reason
    timed = Lowering(end=ProcessEnd(signal=9, timed_out=True, wall=5), stage="nvvm")
    assert CUTEDSL_FRONT_END.judge(timed).kind.value == "timeout"
    assert (
        CUTEDSL_FRONT_END.judge(Lowering(end=ProcessEnd(exit_code=3), stage="mlir")).kind.value
        == "infra"
    )


FIELD = """\
    %18 = llvm.getelementptr %12[0, 2] : (!llvm.ptr) -> !llvm.ptr, !llvm.struct<(array<3 x i32>, array<3 x i32>, i64, ptr, ptr, i32)>
    llvm.store %{size}, %18 : i64, !llvm.ptr
    %34 = llvm.getelementptr %32[0, 2] : (!llvm.ptr) -> !llvm.ptr, !llvm.struct<(i32, array<4 x i8>)>
"""  # noqa: E501 - as it is printed
CALL = """\
    %79 = llvm.mlir.addressof @kernels_kernel_{name}_0 : !llvm.ptr
    %81 = llvm.call @_cudaLaunchKernelEx(%69, %80, %72) : (!llvm.ptr, !llvm.ptr, !llvm.ptr) -> i32
"""


def host(*launches: tuple[str, str]) -> str:
    """Host code that launches kernels of these names with these sizes."""
    body = "".join(FIELD.format(size=size) + CALL.format(name=name) for size, name in launches)
    constants = "    %5 = llvm.mlir.constant(512 : i64) : i64\n"
    constants += "    %6 = llvm.mlir.constant(98304 : i64) : i64\n"
    return (
        f"  llvm.func @other() {{\n  }}\n  llvm.func @host(%arg0: i64) {{\n{constants}{body}  }}\n"
    )


def test_dynamic_shared_memory_is_read_off_the_launch() -> None:
    text = host(("5", "one"), ("6", "two"), ("6", "one"))
    assert dynamic_shared(text, "kernel_two_0") == 98304
    assert dynamic_shared(host(("5", "one"), ("6", "two")), "kernel_one_0") == 512
    # The largest of two launches; what is computed at run time is not known.
    assert dynamic_shared(text, "kernel_one_0") == 98304
    assert dynamic_shared(host(("5", "one"), ("arg0", "one")), "kernel_one_0") is None
    assert dynamic_shared(text, "kernel_absent_0") is None
