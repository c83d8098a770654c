"""nvcc and NVRTC: one run of each, what it means, and what of it is kept."""

from __future__ import annotations

import functools
import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from msgspec import structs

from harness.frontends.bench.assemble import read_stream
from harness.frontends.bench.bench import Kept, Workbench, content_key, has_died, still_valid
from harness.frontends.cuda import nvrtc_child
from harness.frontends.cuda.source import sources_sha256
from harness.frontends.sessions import run_program
from harness.io.files.own_code import code_sha256
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


_OUT = "kernel.ptx"


@dataclass(frozen=True, slots=True, kw_only=True)
class NvccRun:
    """How nvcc ended, what it said, and the sha256 of the PTX where it left some.

    `text` is the PTX itself where it was not to be kept.
    """

    end: ProcessEnd
    log: str
    ptx: str | None
    text: str | None = None


def _what_ran(bench: Workbench, end: ProcessEnd, log: str, left: Path, *, keeps: bool) -> NvccRun:
    is_there = end.ok and left.is_file()
    return NvccRun(
        end=end,
        log=log,
        ptx=bench.store.artifacts.put_file(left) if is_there and keeps else None,
        text=_read(left) if is_there and not keeps else None,
    )


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


async def run_nvcc(
    bench: Workbench,
    compiler: Compiler,
    source: Path,
    words: Sequence[str],
    *,
    alone: bool = False,
    keeps: bool = True,
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
        end = await bench.hub.execute(argv, folder=folder, limits=limits or bench.limits, env=env)
    bench.cpu_seconds += end.cpu
    with scratch_disk():
        log = read_stream(folder / "stderr") + read_stream(folder / "stdout")
    if (folder / _OUT).is_file() and only_its_check_failed(end, log):
        # What the PTX is worth is for the assembler to say, which is asked again.
        end = structs.replace(end, exit_code=0)
    run = _what_ran(bench, end, log, folder / _OUT, keeps=keeps)
    bench.hub.drop_folder(folder)
    return run


class CudaDriver(ABC):
    """One compiler of CUDA C++: a run of it, and what that means.

    `flags` are its own, whatever is compiled. `program` is the command that compiles a file, by its
    path where its packages are installed.
    """

    kind: str
    flags: tuple[str, ...]
    program: tuple[str, ...] = ()

    @abstractmethod
    def identity(self) -> object:
        """What of this machine and of its options decides what it generates."""

    @abstractmethod
    async def run(
        self,
        bench: Workbench,
        compiler: Compiler,
        file: Path,
        words: tuple[str, ...],
        target: Target,
        *,
        alone: bool = False,
        keeps: bool = True,
        limits: ResourceLimits | None = None,
    ) -> NvccRun:
        """Run it on a file as far as PTX; with `keeps` that is stored.

        Raises:
            InfrastructureError: it cannot be started.
        """

    def judge(self, lowering: Lowering) -> Verdict:
        """The verdict on a run that left no PTX."""
        return judge_nvcc(lowering)

    def key(self, file: Path, config: dict[str, Scalar], target: Target, compiler: Compiler) -> str:
        """By what the PTX of a config is kept."""
        return content_key(
            sources=sources_sha256(file),
            config=config,
            target=str(target),
            kind=self.kind,
            compiler=compiler.identity,
            with_=self.identity(),
        )

    async def compiled(
        self,
        bench: Workbench,
        file: Path,
        config: dict[str, Scalar],
        target: Target,
        compiler: Compiler,
    ) -> Kept[Lowering]:
        """One run as far as PTX, kept by content; one that dies is run once more, alone."""
        key = self.key(file, config, target, compiler)

        async def once(*, alone: bool) -> tuple[Lowering, dict[str, str]]:
            words = defines(config)
            run = await self.run(bench, compiler, file.resolve(), words, target, alone=alone)
            # What goes in is also the file that holds the kernel, which pages show.
            source = bench.store.artifacts.put_file(file)
            artifacts = {"source": source, "python": source}
            if run.ptx:
                artifacts["ptx"] = run.ptx
            return self.lowering(run, target), artifacts

        async with bench.once(key):
            kept = bench.find("lower", key, Lowering)
            if kept and still_valid(kept.value.end, bench.limits):
                return kept
            lowering, artifacts = await once(alone=False)
            if has_died(lowering.end):
                lowering, artifacts = await once(alone=True)
                lowering = replace(lowering, attempts=2)
            return bench.keep("lower", key, lowering, artifacts)

    def lowering(self, run: NvccRun, target: Target) -> Lowering:
        return Lowering(
            end=run.end,
            stage=self.kind if run.ptx is None and run.text is None else PTX,
            flags=("-v", f"--gpu-name={target}"),
            log=run.log,
        )


def defines(config: dict[str, Scalar]) -> tuple[str, ...]:
    """A config as options: each macro with its value."""
    return tuple(f"-D{name}={value}" for name, value in config.items())


class _Nvcc(CudaDriver):
    kind = NVCC
    # As it is called for a release build; line numbers tell where in the source PTX comes from.
    flags = ("-O3", "-std=c++17", "-lineinfo")
    # Where the wheels of 13.x put it.
    program = ("nvidia/cu13/bin/nvcc", *flags)

    def identity(self) -> object:
        return [host_compiler(), self.flags]

    async def run(
        self,
        bench: Workbench,
        compiler: Compiler,
        file: Path,
        words: tuple[str, ...],
        target: Target,
        *,
        alone: bool = False,
        keeps: bool = True,
        limits: ResourceLimits | None = None,
    ) -> NvccRun:
        words = (*self.flags, f"-arch={target}", *words, "-I", str(file.parent))
        return await run_nvcc(bench, compiler, file, words, alone=alone, keeps=keeps, limits=limits)


class _Nvrtc(CudaDriver):
    kind = "nvrtc"
    flags = ("-std=c++17", "-lineinfo")

    def identity(self) -> object:
        # It reads nothing of the host's.
        return [code_sha256("frontends/cuda/nvrtc_child.py"), self.flags]

    def judge(self, lowering: Lowering) -> Verdict:
        # Its front end is that of nvcc.
        return judge_nvcc(lowering, "NVRTC")

    async def run(
        self,
        bench: Workbench,
        compiler: Compiler,
        file: Path,
        words: tuple[str, ...],
        target: Target,
        *,
        alone: bool = False,
        keeps: bool = True,
        limits: ResourceLimits | None = None,
    ) -> NvccRun:
        architecture = f"--gpu-architecture=compute_{target.capability}{target.suffix}"
        request = {"file": str(file), "options": [*self.flags, architecture, *words]}
        program = Path(nvrtc_child.__file__)
        done = await run_program(bench, compiler, program, request, alone=alone, limits=limits)
        end, folder = done.end, done.folder
        log = _read(folder / "stderr")
        if done.answer is not None:
            log = str(done.answer["log"])
            end = structs.replace(end, exit_code=int(done.answer["code"])) if end.ok else end
        run = _what_ran(bench, end, log, folder / _OUT, keeps=keeps)
        bench.hub.drop_folder(folder)
        return run


NVCC_DRIVER, NVRTC_DRIVER = _Nvcc(), _Nvrtc()
