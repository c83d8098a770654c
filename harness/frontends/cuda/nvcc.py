"""nvcc in a compiler's environment, and what a run of it means."""

from __future__ import annotations

import functools
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from harness.io.processes.hub import run_tool
from harness.io.processes.machine import plain_environment
from harness.judging.judge import failed, stopped
from harness.values.errors import InfrastructureError
from harness.values.outcome import Lowering, ProcessEnd
from harness.values.toolchain import Compiler
from harness.values.verdict import Stage, Verdict, VerdictKind

_SECONDS = 60.0
_SOURCE_ERROR = re.compile(r"^\d+ errors? detected in the compilation of", re.MULTILINE)
_ERROR = re.compile(
    r"(?:^|: )(?:fatal )?error(?: *#?[\w-]*)? ?: (.+)$|^nvcc (?:fatal|error) *: (.+)$"
)
_UNSUPPORTED = re.compile(
    r"nvcc fatal *: Unsupported gpu architecture|nvrtc: error: invalid value for --gpu-architecture"
)
_NO_HOST = re.compile(r"nvcc fatal *: Failed to preprocess host compiler properties")
_INCOMPLETE = re.compile(r"^sh: \d+: \S*?(\w+[+]*): not found", re.MULTILINE)
_DIED = re.compile(r"nvcc (?:error|fatal) *: *'(\w+[+]*)' died due to signal")
_CHECK = re.compile(r"^ptxas (?:fatal|\S+, line \d+; (?:error|fatal))", re.MULTILINE)
_TEMPORARY = re.compile(r"\S*tmpxft_\w+-\w+[\w.-]*")


def tool_of(compiler: Compiler, name: str) -> Path:
    """An executable of the toolkit in a compiler's environment.

    Raises:
        InfrastructureError: it is not there.
    """
    assert compiler.python is not None, "nvcc has an environment of its own"
    venv = compiler.python.parent.parent
    found = next(iter(venv.glob(f"lib/python*/site-packages/nvidia/cu*/bin/{name}")), None)
    if found is None:
        raise InfrastructureError(
            f"{compiler.name}: its environment holds no {name}; install again"
        )
    return found


@functools.cache
def host_compiler() -> str:
    """What the host's compiler says of its version: its headers are part of what is compiled.

    Raises:
        InfrastructureError: there is none.
    """
    path = shutil.which("gcc")
    if path is None:
        raise InfrastructureError("nvcc needs a host compiler; install gcc, or put it on PATH")
    done = run_tool([path, "--version"], timeout=_SECONDS, env=plain_environment())
    return done.stdout.partition("\n")[0]


def only_its_check_failed(end: ProcessEnd, log: str) -> bool:
    """Whether nvcc generated PTX, and failed as its own ptxas refuses that.

    With `-ptx` it leaves the file, then has it checked; up to 13.5 no option leaves that out.
    """
    return bool(end.exit_code) and _CHECK.search(log) is not None and not _SOURCE_ERROR.search(log)


def judge_nvcc(lowering: Lowering, name: str = "nvcc") -> Verdict:
    """The verdict on a run of nvcc, or of another compiler with its front end, without PTX."""
    end, stage = lowering.end, Stage(lowering.stage)
    if verdict := stopped(end, stage, name):
        return verdict
    said = _TEMPORARY.sub("(temporary file)", lowering.log)
    last = _words(said.splitlines())
    if died := _DIED.search(said):
        reason = f"{died[1]} died by a signal, says {name}"
        return failed(VerdictKind.COMPILER_CRASH, stage, reason, message=f"{died[1]} died")
    if end.signal is not None:
        reason = f"{name} {end.words}: {last}"
        return failed(VerdictKind.COMPILER_CRASH, stage, reason, message=last)
    if lacks := _INCOMPLETE.search(said):
        reason = f"this {name} has no {lacks[1]}: its packages do not go together"
        return Verdict(kind=VerdictKind.INFRA, reason=reason, stage=stage)
    if _NO_HOST.search(said):
        reason = f"{name} cannot use the host's compiler: {last}"
        return Verdict(kind=VerdictKind.INFRA, reason=reason, stage=stage)
    if _UNSUPPORTED.search(said):
        return failed(
            VerdictKind.UNSUPPORTED, stage, f"this {name} cannot do it: {last}", message=last
        )
    if _SOURCE_ERROR.search(said) or " error: " in said:
        return failed(VerdictKind.REJECTED, stage, f"{name} refuses it: {last}", message=last)
    return failed(
        VerdictKind.PASS_FAILURE, stage, f"{name} ended with {end.words}: {last}", message=last
    )


def _words(lines: Sequence[str]) -> str:
    """The first error, without the file that it is in; else the last line."""
    for line in lines:
        if found := _ERROR.search(line):
            return found[1] or found[2]
    return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
