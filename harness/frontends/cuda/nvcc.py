"""nvcc: its versions and their partners, one run of it, and what that means.

Its wheel brings neither cicc (nvidia-nvvm) nor headers (nvidia-cuda-crt, -runtime, -cccl), and asks
for them without a version: mixed versions fail in headers or in ptxas. So each is pinned here.
"""

from __future__ import annotations

import functools
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from packaging.version import Version

from harness.io.packages.index import wheels
from harness.io.processes.environment import plain_environment
from harness.io.processes.hub import run_tool
from harness.judging.failures import failed, stopped
from harness.values.environment import Environment, PackagePin
from harness.values.errors import InfrastructureError, UsageError
from harness.values.outcome import Lowering, ProcessEnd
from harness.values.toolchain import NVCC, Compiler
from harness.values.verdict import Stage, Verdict, VerdictKind

KIND = NVCC
_NVCC, _NVVM, _CRT = "nvidia-cuda-nvcc", "nvidia-nvvm", "nvidia-cuda-crt"
_RUNTIME, _CCCL = "nvidia-cuda-runtime", "nvidia-cuda-cccl"
# Wheels of 12.x hold ptxas and no nvcc; those of 13.0.48 put cicc where its nvcc does not look.
_OLDEST = Version("13.0.88")
# From 13.3 on cccl counts otherwise: 13.3.4.2.1 is that of 13.4.
_CCCL_MINOR_AT = 2

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


def available_nvcc(*, prereleases: bool = False) -> list[Version]:
    """The versions of which nvcc, its compiler and its headers are all there, oldest first.

    Raises:
        UsageError, OfflineError, InfrastructureError: as `harness.io.packages.index.wheels`.
    """
    there = [
        {each.version for each in wheels(name, prereleases=prereleases) if each.version >= _OLDEST}
        for name in (_NVCC, _NVVM, _CRT)
    ]
    return sorted(set.intersection(*there))


def environment_of(version: str) -> Environment:
    """The packages of one nvcc: nvvm and crt of its version, runtime and cccl of its release.

    Raises:
        UsageError: there is no such version.
        OfflineError, InfrastructureError: the index cannot be asked.
    """
    wanted = Version(version)
    if wanted not in available_nvcc(prereleases=True):
        near = ", ".join(map(str, available_nvcc()))
        raise UsageError(f"there is no nvcc {version}; there are {near}")
    partners = [(_NVVM, wanted), (_CRT, wanted)]
    partners += [(name, partner_of(name, wanted)) for name in (_RUNTIME, _CCCL)]
    pins = [PackagePin(name=_NVCC, version=version)]
    pins += [PackagePin(name=name, version=str(each)) for name, each in partners]
    return Environment(kind=KIND, version=version, pins=tuple(pins))


def partner_of(name: str, nvcc: Version) -> Version:
    """The newest version of the same minor release that is no newer, or else the oldest of it."""
    known = [each.version for each in wheels(name)]
    same = sorted(each for each in known if _release_of(each) == nvcc.release[:2])
    if not same:
        raise InfrastructureError(f"the package index has no {name} for nvcc {nvcc}")
    older = [each for each in same if each <= nvcc or len(each.release) > len(nvcc.release)]
    return older[-1] if older else same[0]


def _release_of(version: Version) -> tuple[int, ...]:
    """The release of CUDA that a package belongs to, as (major, minor)."""
    numbers = version.release
    if len(numbers) <= _CCCL_MINOR_AT + 1:
        return numbers[:2]
    return numbers[0], numbers[_CCCL_MINOR_AT]


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
