"""CuTe DSL behind the door: see `harness.frontends.base`.

Launch code runs as it is in a child, which traces each kernel to MLIR; a fork of that child runs
CuTe DSL's own passes, and leaves the PTX that they come to.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from harness.frontends.captured_front_end import CapturedFrontEnd
from harness.frontends.captures import CapturingChild, keep_streams, read_lowering
from harness.frontends.cuda.nvcc import tool_of
from harness.frontends.cutedsl.versions import KIND, TITLE, available, declared_environment
from harness.frontends.cutedsl.wordings import judge_cutedsl, only_its_ptxas_failed
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

__all__ = ["CHILD", "CUTEDSL_FRONT_END"]

_FILES = {"mlir": "kernel.mlir", "ptx": "kernel.ptx"}
CHILD = CapturingChild(
    kind=KIND,
    module="harness.frontends.cutedsl.child",
    code=("frontends/pretend", "frontends/triton/child", "frontends/cutedsl/child"),
    settings=("CUTE_DSL_", "CUTE_EXPERIMENTAL_DSL_"),
    never=frozenset(
        f"CUTE_DSL_{name}"
        for name in ("ARCH", "CACHE_DIR", "DRYRUN", "DUMP_DIR", "KEEP", "KEEP_CUBIN", "KEEP_PTX")
    ),
)


class _CuteDslFrontEnd(CapturedFrontEnd):
    kind = KIND
    title = TITLE
    child = CHILD
    needs = ("torch",)
    modules: tuple[str, ...] = ("cutlass",)
    stages: tuple[str, ...] = ("mlir", "nvvm", "ptx")

    def environment(self, version: str) -> Environment:
        return declared_environment(version)

    def available(self, *, prereleases: bool = False) -> list[Version]:
        return available(prereleases=prereleases)

    def bundled(self, compiler: Compiler) -> Path:
        return tool_of(compiler, "ptxas")

    async def finished(
        self,
        bench: Workbench,
        launch: CapturedLaunch,
        done: JobResult,
        *,
        alone: bool,  # noqa: ARG002 - the job did it all
    ) -> tuple[Lowering, dict[str, str]]:
        lowering = read_lowering(done, "mlir")
        artifacts = {
            stage: bench.store.artifacts.put_file(done.folder / name)
            for stage, name in _FILES.items()
            if (done.folder / name).is_file()
        }
        if lowering.error and "ptx" in artifacts and only_its_ptxas_failed(lowering.error):
            # What the PTX is worth is for the assembler to say, which is asked again.
            lowering = replace(lowering, error=None)
        if lowering.error:
            artifacts.pop("ptx", None)
        elif "ptx" in artifacts:
            own = str((done.result or {}).get("ptxas_options", "")).split()
            target = str(launch.request.settings["target"])
            flags = ("-v", f"--gpu-name={target}", *own)
            lowering = replace(lowering, stage="ptx", flags=flags)
        artifacts["log"] = keep_streams(bench, done)
        return lowering, artifacts

    async def failing_pass(
        self,
        bench: Workbench,  # noqa: ARG002
        launch: CapturedLaunch,  # noqa: ARG002
        record: LaunchFacts,  # noqa: ARG002
        *,
        ptxas: Assembler,  # noqa: ARG002
        traps: bool,  # noqa: ARG002
    ) -> str | None:
        return None

    def judge(self, lowering: Lowering) -> Verdict:
        return judge_cutedsl(lowering)


CUTEDSL_FRONT_END: FrontEnd = _CuteDslFrontEnd()
