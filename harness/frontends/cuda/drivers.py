"""What compiles CUDA C++ as far as PTX, nvcc or NVRTC: one run for each config, kept by content."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from harness.frontends.bench.bench import content_key, has_died, still_valid
from harness.frontends.cuda import nvcc, nvrtc
from harness.frontends.cuda.running import NvccRun, run_nvcc
from harness.frontends.cuda.source import sources_sha256
from harness.values.kernel import Scalar
from harness.values.outcome import Lowering
from harness.values.target import Target
from harness.values.toolchain import NVCC, Compiler
from harness.values.verdict import Verdict

if TYPE_CHECKING:
    from harness.frontends.bench.bench import Kept, Workbench
    from harness.io.processes.hub import ResourceLimits


# As nvcc is called for a release build; line numbers tell where in the source PTX comes from.
_NVCC_FLAGS = ("-O3", "-std=c++17", "-lineinfo")


class _Run(Protocol):
    async def __call__(
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
    ) -> NvccRun: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaDriver:
    """One compiler of CUDA C++: a run of it, and what that means.

    `identity` is what of this machine and of its options decides what it generates. `program` is
    the command that compiles a file, by its path where its packages are installed.
    """

    kind: str
    identity: Callable[[], object]
    run: _Run
    judge: Callable[[Lowering], Verdict]
    program: tuple[str, ...] = ()

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
        async with bench.once(key):
            kept = bench.find("lower", key, Lowering)
            if kept and still_valid(kept.value.end, bench.limits):
                return kept
            lowering, artifacts = await self._once(bench, file, config, target, compiler)
            if has_died(lowering.end):
                lowering, artifacts = await self._once(
                    bench, file, config, target, compiler, alone=True
                )
                lowering = replace(lowering, attempts=2)
            return bench.keep("lower", key, lowering, artifacts)

    async def _once(
        self,
        bench: Workbench,
        file: Path,
        config: dict[str, Scalar],
        target: Target,
        compiler: Compiler,
        *,
        alone: bool = False,
    ) -> tuple[Lowering, dict[str, str]]:
        words = defines(config)
        done = await self.run(bench, compiler, file.resolve(), words, target, alone=alone)
        # What goes in is also the file that holds the kernel, which pages show.
        source = bench.store.artifacts.put_file(file)
        artifacts = {"source": source, "python": source}
        if done.ptx:
            artifacts["ptx"] = done.ptx
        lowering = Lowering(
            end=done.end,
            stage="ptx" if done.ptx else self.kind,
            flags=("-v", f"--gpu-name={target}"),
            log=done.log,
        )
        return lowering, artifacts


def defines(config: dict[str, Scalar]) -> tuple[str, ...]:
    """A config as options: each macro with its value."""
    return tuple(f"-D{name}={value}" for name, value in config.items())


async def _nvcc(
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
    words = (*_NVCC_FLAGS, f"-arch={target}", *words, "-I", str(file.parent))
    return await run_nvcc(bench, compiler, file, words, alone=alone, keeps=keeps, limits=limits)


NVCC_DRIVER = CudaDriver(
    kind=NVCC,
    identity=lambda: [nvcc.host_compiler(), _NVCC_FLAGS],
    run=_nvcc,
    judge=nvcc.judge_nvcc,
    # Where the wheels of 13.x put it.
    program=("nvidia/cu13/bin/nvcc", *_NVCC_FLAGS),
)
NVRTC_DRIVER = CudaDriver(
    kind="nvrtc", identity=nvrtc.child_identity, run=nvrtc.run_nvrtc, judge=nvrtc.judge_nvrtc
)
