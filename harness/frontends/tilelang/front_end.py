"""TileLang behind the door: see `harness.frontends.base`.

Launch code runs as it is in a child; each kernel that it has compiled is lowered to CUDA C++ by a
fork of that child, and by nvcc to PTX with the options that this TileLang would give it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from harness.frontends.captured_front_end import CapturedFrontEnd
from harness.frontends.captures import CapturingChild, keep_streams, read_lowering
from harness.frontends.cuda.nvcc import host_compiler, tool_of
from harness.frontends.cuda.running import run_nvcc
from harness.frontends.tilelang.versions import KIND, TITLE, available, declared_environment
from harness.frontends.tilelang.wordings import NVCC_STAGE, failing_pass, judge_tilelang
from harness.values.outcome import Lowering

if TYPE_CHECKING:
    from pathlib import Path

    from packaging.version import Version

    from harness.bench.bench import Workbench
    from harness.frontends.base import CapturedLaunch, FrontEnd
    from harness.frontends.sessions import JobResult
    from harness.values.environment import Environment
    from harness.values.outcome import LaunchFacts
    from harness.values.toolchain import Assembler, Compiler
    from harness.values.verdict import Verdict

__all__ = ["CHILD", "TILELANG_FRONT_END"]

# As TileLang 0.1.8 to 0.1.15 call nvcc, besides the options that they choose.
_FLAGS = ("-O3", "-lineinfo")
_FILES = {"tir": "kernel.tir", "device": "kernel.device", "cuda": "kernel.cu"}
CHILD = CapturingChild(
    kind=KIND,
    module="harness.frontends.tilelang.child",
    code=("frontends/pretend", "frontends/triton/child", "frontends/tilelang/child"),
    settings=("TILELANG_", "TL_", "TVM_"),
    never=frozenset({"TILELANG_CACHE_DIR", "TILELANG_TARGET", "TILELANG_DEFAULT_TARGET"}),
)


class _TileLangFrontEnd(CapturedFrontEnd):
    kind = KIND
    title = TITLE
    child = CHILD
    needs = ("torch",)
    modules: tuple[str, ...] = ("tilelang",)
    stages: tuple[str, ...] = ("tir", "device", "cuda", NVCC_STAGE, "ptx")

    def environment(self, version: str) -> Environment:
        return declared_environment(version)

    def available(self, *, prereleases: bool = False) -> list[Version]:
        return available(prereleases=prereleases)

    def bundled(self, compiler: Compiler) -> Path:
        return tool_of(compiler, "ptxas")

    def lowered_with(self) -> dict[str, object]:
        return {"host": host_compiler(), "flags": _FLAGS}

    async def finished(
        self, bench: Workbench, launch: CapturedLaunch, done: JobResult, *, alone: bool
    ) -> tuple[Lowering, dict[str, str]]:
        return await _finished(bench, launch, done, alone=alone)

    async def failing_pass(
        self,
        bench: Workbench,
        launch: CapturedLaunch,
        record: LaunchFacts,
        *,
        ptxas: Assembler,
        traps: bool,
    ) -> str | None:
        if traps:
            return None
        error = (await self.lower(bench, launch, record, ptxas=ptxas)).value.error
        return failing_pass(error.traceback) if error else None

    def judge(self, lowering: Lowering) -> Verdict:
        return judge_tilelang(lowering)


async def _finished(
    bench: Workbench, launch: CapturedLaunch, done: JobResult, *, alone: bool
) -> tuple[Lowering, dict[str, str]]:
    """What a job left, and what nvcc makes of it."""
    target = str(launch.request.settings["target"])
    lowering = read_lowering(done, "tir")
    found = {stage: done.folder / name for stage, name in _FILES.items()}
    artifacts = {
        stage: bench.store.artifacts.put_file(file)
        for stage, file in found.items()
        if file.is_file()
    }
    if not lowering.end.ok or lowering.error or "cuda" not in artifacts:
        artifacts["log"] = keep_streams(bench, done)
        return lowering, artifacts
    options = (done.result or {}).get("options", [])
    words = [*_FLAGS, *(each for each in options if not each.startswith("--ptxas-options"))]
    run = await run_nvcc(bench, launch.compiler, found["cuda"], words, alone=alone)
    if run.ptx:
        artifacts["ptx"] = run.ptx
    artifacts["log"] = keep_streams(bench, done, run.log)
    flags = tuple(_flags_for_ptxas(options, target))
    lowering = replace(
        lowering,
        end=replace(run.end, wall=run.end.wall + done.end.wall, cpu=run.end.cpu + done.end.cpu),
        stage="ptx" if run.ptx else NVCC_STAGE,
        flags=flags,
        log=run.log,
    )
    return lowering, artifacts


def _flags_for_ptxas(options: list[str], target: str) -> list[str]:
    """What nvcc would hand to ptxas: the target, and what is meant for ptxas alone."""
    named = (each.partition("=")[2] for each in options if each.startswith("-arch="))
    arch = next(named, target)
    own = [each.partition("=")[2] for each in options if each.startswith("--ptxas-options=")]
    return ["-v", f"--gpu-name={arch}", *own]


TILELANG_FRONT_END: FrontEnd = _TileLangFrontEnd()
