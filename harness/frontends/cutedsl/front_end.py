"""CuTe DSL behind the door: see `harness.frontends.base`.

Launch code runs as it is in a child, which traces each kernel to MLIR; a fork of that child runs
CuTe DSL's own passes, and leaves the PTX that they come to.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.frontends.captured_front_end import CapturedFrontEnd
from harness.frontends.captures import keep_streams
from harness.frontends.cuda.nvcc import tool_of
from harness.frontends.cutedsl.lowering import CHILD, FILES, lowering_of
from harness.frontends.cutedsl.source_form import CUTEDSL_FORM
from harness.frontends.cutedsl.versions import KIND, TITLE, available, declared_environment
from harness.frontends.cutedsl.wordings import judge_cutedsl
from harness.values.environment import Environment
from harness.values.outcome import LaunchFacts, Lowering
from harness.values.toolchain import Assembler, Compiler
from harness.values.verdict import Verdict

if TYPE_CHECKING:
    from packaging.version import Version

    from harness.frontends.base import FrontEnd
    from harness.frontends.bench.bench import Workbench
    from harness.frontends.captured_launch import CapturedLaunch
    from harness.frontends.sessions import JobResult
    from harness.frontends.source_form import FileForm


class _CuteDslFrontEnd(CapturedFrontEnd):
    kind = KIND
    title = TITLE
    child = CHILD
    needs = ("torch",)
    modules: tuple[str, ...] = ("cutlass",)
    stages: tuple[str, ...] = ("mlir", "nvvm", "ptx")
    levels: tuple[str, ...] = ("source",)
    source_form: FileForm | None = CUTEDSL_FORM

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
        lowering = lowering_of(launch, done)
        artifacts = {
            stage: bench.store.artifacts.put_file(done.folder / name)
            for stage, name in FILES.items()
            if (done.folder / name).is_file()
        }
        if lowering.error:
            artifacts.pop("ptx", None)
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
