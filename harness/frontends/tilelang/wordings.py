"""What the end of a lowering by TileLang means, by its wordings (0.1.8 to 0.1.15)."""

from __future__ import annotations

import re

from harness.frontends.cuda.compilers import judge_nvcc
from harness.frontends.wordings import judge_raising
from harness.judging.judge import failed
from harness.values.outcome import Lowering, RaisedError
from harness.values.verdict import Stage, Verdict, VerdictKind

NVCC_STAGE = "nvcc"
_BUILDING = Stage("tir")
# TVM's C++ raises an error of its own, or one of Python's classes, where a check of its fails.
_CHECK = re.compile(r"\bCheck failed:? *(?:\(.*?\) is false:? ?)?")
_IN_CPP = re.compile(r"File \"[^\"]*\.(?:cc|cpp|h)\"|in (?:virtual )?\w[\w:<>, *&]* tvm::")
# A name, an argument or a module that another release has: the wordings of Python itself.
_OTHER_RELEASE = re.compile(
    r"module '(?:tilelang|tvm)[\w.]*' has no attribute '\w+'"
    r"|cannot import name '\w+' from '(?:tilelang|tvm)[\w.]*'"
    r"|No module named '(?:tilelang|tvm)[\w.]*'"
    r"|(?:jit|autotune|Kernel|copy|gemm|alloc_\w+|Pipelined|Parallel|annotate_\w+|use_swizzle)\(\)"
    r" got an unexpected keyword argument '\w+'"
    r"|Invalid config option|Cannot find global var|has been removed"
)
_OTHER_TARGET = re.compile(r"the launch compiles for .+, and CUDA was asked for")
_NOT_THERE = re.compile(
    r"No CUDA architecture was specified|Unsupported (?:target|arch|architecture)\b"
    r"|[Uu]nsupported CUDA arch"
)
_PASS = re.compile(r"\btransform\.(\w+)\([^()\n]*\)\(\w+\)")
# Times and levels of a log line are not part of what it says.
_CLOCK = re.compile(r"^\s*(?:\d{4}-\d\d-\d\d )?\[?\d\d:\d\d:\d\d\]?(?:[.,]\d+)? *")


def judge_tilelang(lowering: Lowering) -> Verdict:
    """The verdict on a lowering that raised or did not end well."""
    if lowering.error is None and lowering.stage == NVCC_STAGE:
        return judge_nvcc(lowering)
    return judge_raising(
        lowering,
        "TileLang",
        line=_essence,
        cannot=lambda error: any(
            each.search(error.message) for each in (_OTHER_TARGET, _NOT_THERE, _OTHER_RELEASE)
        ),
        otherwise=_judge_raised,
        last=_last_words,
    )


def _judge_raised(error: RaisedError, stage: Stage, line: str) -> Verdict:
    if stage is _BUILDING or not _is_internal(error):
        reason = f"TileLang rejects the kernel: {error.type}: {line}"
        return failed(VerdictKind.REJECTED, stage, reason, message=f"{error.type}: {line}")
    culprit = failing_pass(error.traceback)
    where = f"pass {culprit}" if culprit else f"stage {stage.value}"
    reason = f"{where} failed: {line}"
    return failed(VerdictKind.PASS_FAILURE, stage, reason, message=f"{culprit or ''}: {line}")


def _is_internal(error: RaisedError) -> bool:
    """Whether TVM's C++ failed at its own work, by a check of its own."""
    if "InternalError" in error.kinds:
        return True
    return bool(_CHECK.search(error.message) or _IN_CPP.search(error.traceback))


def _essence(error: RaisedError) -> str:
    """The line that says what failed, without the check that found it where there is more."""
    lines = [line.strip() for line in error.message.splitlines() if line.strip()]
    line = next((each for each in lines if _CHECK.search(each)), lines[0] if lines else error.type)
    found = _CHECK.search(line)
    if found and line[found.end() :].strip():
        return line[found.end() :].strip()
    return line


def failing_pass(traceback: str) -> str | None:
    """The pass that was running, by the last line of TileLang's own pipeline in a traceback."""
    found = _PASS.findall(traceback)
    return str(found[-1]) if found else None


def _last_words(log: str) -> str:
    """The last line that says something, without the time of day."""
    lines = [_CLOCK.sub("", line).strip() for line in log.splitlines()]
    return next((line for line in reversed(lines) if line), "")[:500]
