"""TileLang behind the door: see `harness.frontends.base`.

Launch code runs as it is in a child; each kernel that it has compiled is lowered to CUDA C++ by a
fork of that child, and by nvcc to PTX with the options that this TileLang would give it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.frontends.captured_front_end import CapturedFrontEnd
from harness.frontends.cuda.nvcc import host_compiler, tool_of
from harness.frontends.tilelang.lowering import CHILD, FLAGS, kept_lowering
from harness.frontends.tilelang.source_form import TILELANG_FORM
from harness.frontends.tilelang.versions import KIND, TITLE, available, declared_environment
from harness.frontends.tilelang.wordings import NVCC_STAGE, failing_pass, judge_tilelang
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


# Of the form "Bug report" of TileLang's tracker.
_ISSUE_FIELDS = (
    "Required prerequisites",
    "What version of TileLang are you using?",
    "System information",
    "Problem description",
    "Reproducible example code",
    "Traceback",
    "Expected behavior",
    "Additional context",
)


class _TileLangFrontEnd(CapturedFrontEnd):
    kind = KIND
    title = TITLE
    child = CHILD
    needs = ("torch",)
    modules: tuple[str, ...] = ("tilelang",)
    stages: tuple[str, ...] = ("tir", "device", "cuda", NVCC_STAGE, "ptx")
    levels: tuple[str, ...] = ("source",)
    source_form: FileForm | None = TILELANG_FORM
    issue_fields: tuple[str, ...] = _ISSUE_FIELDS

    def environment(self, version: str) -> Environment:
        return declared_environment(version)

    def available(self, *, prereleases: bool = False) -> list[Version]:
        return available(prereleases=prereleases)

    def bundled(self, compiler: Compiler) -> Path:
        return tool_of(compiler, "ptxas")

    def lowered_with(self) -> dict[str, object]:
        return {"host": host_compiler(), "flags": FLAGS}

    async def finished(
        self, bench: Workbench, launch: CapturedLaunch, done: JobResult, *, alone: bool
    ) -> tuple[Lowering, dict[str, str]]:
        return await kept_lowering(bench, launch, done, alone=alone)

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


TILELANG_FRONT_END: FrontEnd = _TileLangFrontEnd()
