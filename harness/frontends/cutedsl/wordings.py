"""What the end of a lowering by CuTe DSL means, by its wordings (4.4.2 to 4.8.1)."""

from __future__ import annotations

import re

from harness.frontends.wordings import judge_raising
from harness.judging.judge import failed
from harness.values.outcome import Lowering, RaisedError
from harness.values.verdict import Stage, Verdict, VerdictKind

_TRACING = Stage("mlir")
_PTXAS = re.compile(r"ptxas application ptx input|PTXAS_ERROR_COMPILATION|(?m:^ *ptxas fatal)")
# A name, an argument or a module that another release has: the wordings of Python itself.
_OTHER_RELEASE = re.compile(
    r"module 'cutlass[\w.]*' has no attribute '\w+'"
    r"|cannot import name '\w+' from '(?:cutlass|quack)[\w.]*'"
    r"|No module named 'cutlass[\w.]*'"
    r"|(?:\w+\.)?\w+\(\) got an unexpected keyword argument '(?:loc|ip|use_tvm_ffi_env_stream)'"
)
_OTHER_TARGET = re.compile(r"the launch compiles for \S+, and \S+ was asked for")
_NOT_THERE = re.compile(
    r"^'sm_\w+'$|expects arch to be |Unsupported GPU architecture '"
    r"|libNVVM\s+extra log:\s*(?:error: *)?Error: unsupported operation",
    re.MULTILINE,
)
_LOCATION = re.compile(r"^(?:loc\(.*\): )?(?:error|note): (?:unknown: |\"[^\"]*\"\([^)]*\): )?")
# What says nothing by itself: frames around the line that does.
_FRAME = re.compile(
    r"^(?:NVVM Compilation Error:|-+|⚙️.*|- Target Architecture.*|IR Context.*|Operation creation "
    r"failed:?|Failure while executing pass pipeline:?|DSLRuntimeError: .*(?:ICE|code generation).*"
    r"|error: NVVM backend compilation failed|error: libNVVM failed while .*|note: backend log:)$"
)
# Within one message it may name its log twice, of which the second is the log.
_BACKEND = re.compile(
    r"libNVVM\s+extra log:\s*(?!Failed to generate PTX)(?:error: *)?(?:Error: *)?(\S.*)"
)
_CAUSE = re.compile(r"^(?:= note: )?Caused exception: ")


def only_its_ptxas_failed(error: RaisedError) -> bool:
    """Whether CuTe DSL generated PTX, and failed as the ptxas inside it refuses that."""
    return _PTXAS.search(error.message) is not None


def judge_cutedsl(lowering: Lowering) -> Verdict:
    """The verdict on a lowering that raised or did not end well."""
    return judge_raising(
        lowering,
        "CuTe DSL",
        line=_essence,
        cannot=lambda error: any(
            each.search(error.message) for each in (_OTHER_TARGET, _NOT_THERE, _OTHER_RELEASE)
        ),
        otherwise=_judge_raised,
    )


def _judge_raised(_: RaisedError, stage: Stage, line: str) -> Verdict:
    if stage == _TRACING:
        reason = f"CuTe DSL rejects the kernel: {line}"
        return failed(VerdictKind.REJECTED, stage, reason, message=line)
    reason = f"a pass of stage {stage.value} failed: {line}"
    return failed(VerdictKind.PASS_FAILURE, stage, reason, message=line)


def _essence(error: RaisedError) -> str:
    """The line that says what failed: the cause that is named, or the first that is not a frame."""
    lines = [line.strip() for line in error.message.splitlines() if line.strip()]
    if backend := _BACKEND.findall(error.message):
        return f"libNVVM: {backend[-1]}"
    for line in lines:
        if _CAUSE.match(line):
            return _CAUSE.sub("", line)
    said = [_LOCATION.sub("", line) for line in lines if not _FRAME.match(line)]
    return next((line for line in said if line), error.type)
