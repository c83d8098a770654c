"""nvcc: one run of it, what that means, and what of it is kept."""

from __future__ import annotations

import functools
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import structs

from harness.frontends.assemble import read_stream
from harness.frontends.bench import Kept, Workbench, content_key
from harness.frontends.cuda.source import sources_sha256
from harness.io.files.writing import scratch_disk
from harness.io.processes.hub import ResourceLimits, run_tool
from harness.io.processes.machine import plain_environment
from harness.judging.judge import failed, stopped
from harness.values.errors import InfrastructureError
from harness.values.kernel import Scalar
from harness.values.outcome import Lowering, ProcessEnd
from harness.values.target import Target
from harness.values.toolchain import NVCC, PTX, Compiler
from harness.values.verdict import Stage, Verdict, VerdictKind

_SECONDS = 60.0
_SOURCE_ERROR = re.compile(r"^\d+ errors? detected in the compilation of", re.MULTILINE)
_ERROR = re.compile(
    r"(?:^|: )(?:fatal )?error(?: *#?[\w-]*)? ?: (.+)$|^nvcc (?:fatal|error) *: (.+)$"
)
_UNSUPPORTED = re.compile(r"nvcc fatal *: Unsupported gpu architecture")
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
    path = next(iter(venv.glob(f"lib/python*/site-packages/nvidia/cu*/bin/{name}")), None)
    if path is None:
        raise InfrastructureError(
            f"{compiler.name}: its environment holds no {name}; install again"
        )
    return path


@functools.cache
def host_compiler() -> str:
    """What the host's compiler says of its version: its headers are part of what is compiled.

    Raises:
        InfrastructureError: there is none.
    """
    path = shutil.which("gcc")
    if path is None:
        raise InfrastructureError("nvcc needs a host compiler; install gcc, or put it on PATH")
    process = run_tool([path, "--version"], timeout=_SECONDS, env=plain_environment())
    return process.stdout.partition("\n")[0]


def only_its_check_failed(process: ProcessEnd, log: str) -> bool:
    """Whether nvcc generated PTX, and failed as its own ptxas refuses that.

    With `-ptx` it leaves the file, then has it checked; up to 13.5 no option leaves that out.
    """
    is_refused = _CHECK.search(log) is not None and not _SOURCE_ERROR.search(log)
    return bool(process.exit_code) and is_refused


def judge_nvcc(lowering: Lowering) -> Verdict:
    """The verdict on a run of nvcc that left no PTX."""
    process, stage = lowering.end, Stage(lowering.stage)
    if verdict := stopped(process, stage, NVCC):
        return verdict
    log = _TEMPORARY.sub("(temporary file)", lowering.log)
    line = _first_error(log.splitlines())
    if died := _DIED.search(log):
        reason = f"{died[1]} died by a signal, says nvcc"
        return failed(VerdictKind.COMPILER_CRASH, stage, reason, message=f"{died[1]} died")
    if process.signal is not None:
        reason = f"nvcc {process.words}: {line}"
        return failed(VerdictKind.COMPILER_CRASH, stage, reason, message=line)
    if lacks := _INCOMPLETE.search(log):
        reason = f"this nvcc has no {lacks[1]}: its packages do not go together"
        return Verdict(kind=VerdictKind.INFRA, reason=reason, stage=stage)
    if _NO_HOST.search(log):
        reason = f"nvcc cannot use the host's compiler: {line}"
        return Verdict(kind=VerdictKind.INFRA, reason=reason, stage=stage)
    if _UNSUPPORTED.search(log):
        kind, reason = VerdictKind.UNSUPPORTED, f"this nvcc cannot do it: {line}"
    elif _SOURCE_ERROR.search(log) or " error: " in log:
        kind, reason = VerdictKind.REJECTED, f"nvcc refuses it: {line}"
    else:
        kind, reason = VerdictKind.PASS_FAILURE, f"nvcc ended with {process.words}: {line}"
    return failed(kind, stage, reason, message=line)


def _first_error(lines: Sequence[str]) -> str:
    """The first error, without the file that it is in; else the last line."""
    for line in lines:
        if match := _ERROR.search(line):
            return match[1] or match[2]
    return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")


_OUT = "kernel.ptx"


class NvccRun(msgspec.Struct, frozen=True, kw_only=True):
    """How nvcc ended, what it said, and the PTX where it left some."""

    end: ProcessEnd
    log: str
    ptx: bytes | None


async def run_nvcc(
    bench: Workbench,
    compiler: Compiler,
    source: Path,
    words: Sequence[str],
    *,
    alone: bool = False,
    limits: ResourceLimits | None = None,
) -> NvccRun:
    """Run the nvcc of a compiler's environment on a file, with these options, as far as PTX.

    Raises:
        InfrastructureError: the environment holds none, or it cannot be started.
    """
    folder = bench.hub.new_folder("nvcc")
    argv: list[str | Path] = [tool_of(compiler, "nvcc"), *words, "-ptx", source, "-o", _OUT]
    env = {**plain_environment(), "TMPDIR": str(folder), "HOME": str(folder)}
    # A toolkit of the host's is none of this compiler's.
    env = {name: value for name, value in env.items() if not name.startswith(("CUDA", "NVCC"))}
    async with bench.slot(alone=alone):
        process = await bench.hub.execute(
            argv, folder=folder, limits=limits or bench.limits, env=env
        )
    bench.cpu_seconds += process.cpu
    with scratch_disk():
        log = read_stream(folder / "stderr") + read_stream(folder / "stdout")
    if (folder / _OUT).is_file() and only_its_check_failed(process, log):
        # What the PTX is worth is for the assembler to say, which is asked again.
        process = structs.replace(process, exit_code=0)
    is_there = process.ok and (folder / _OUT).is_file()
    ptx = (folder / _OUT).read_bytes() if is_there else None
    bench.hub.drop_folder(folder)
    return NvccRun(end=process, log=log, ptx=ptx)


FLAGS = ("-O3", "-std=c++17", "-lineinfo")
"""As nvcc is called for a release build; line numbers tell where in the source PTX comes from."""


def identity() -> list[object]:
    """What of this machine and of the options decides what nvcc generates."""
    return [host_compiler(), FLAGS]


def defines(config: Mapping[str, Scalar]) -> tuple[str, ...]:
    """A config as options: each macro with its value."""
    return tuple(f"-D{name}={value}" for name, value in config.items())


class CudaJob(msgspec.Struct, frozen=True, kw_only=True):
    """One file with one config, for one target; the compiler that gets it, with `more` options."""

    file: Path
    config: Mapping[str, Scalar]
    target: Target
    compiler: Compiler
    more: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """By what the PTX is kept."""
        return content_key(
            sources=sources_sha256(self.file),
            config=dict(self.config),
            target=str(self.target),
            kind=NVCC,
            compiler=self.compiler.identity,
            with_=[*identity(), *self.more],
        )

    async def run(
        self, bench: Workbench, *, alone: bool = False, limits: ResourceLimits | None = None
    ) -> NvccRun:
        """Compile as far as PTX.

        Raises:
            InfrastructureError: nvcc cannot be started.
        """
        file = self.file.resolve()
        options = (f"-arch={self.target}", *defines(self.config), "-I", str(file.parent))
        words = (*FLAGS, *options, *self.more)
        return await run_nvcc(bench, self.compiler, file, words, alone=alone, limits=limits)

    async def compiled(self, bench: Workbench) -> Kept[Lowering]:
        """One run as far as PTX, kept by content; one that dies is run once more, alone."""

        async def attempt(number: int) -> tuple[Lowering, dict[str, str]]:
            run = await self.run(bench, alone=number > 1)
            # What goes in is also the file that holds the kernel, which pages show.
            source = bench.store.artifacts.put_file(self.file)
            artifacts = {"source": source, "python": source}
            if run.ptx is not None:
                artifacts["ptx"] = bench.store.artifacts.put(run.ptx)
            return structs.replace(self.lowering(run), attempts=number), artifacts

        return await bench.run_once("lower", self.key, Lowering, attempt)

    def lowering(self, run: NvccRun) -> Lowering:
        """The evidence of a run."""
        return Lowering(
            end=run.end,
            stage=NVCC if run.ptx is None else PTX,
            flags=("-v", f"--gpu-name={self.target}"),
            log=run.log,
        )
