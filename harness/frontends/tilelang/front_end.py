"""TileLang behind the door: see `harness.frontends.base`.

Launch code runs as it is in a child; each kernel that it has compiled is lowered to CUDA C++ by a
fork of that child, and by nvcc to PTX with the options that this TileLang would give it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.frontends.captured_front_end import (
    CapturedFrontEnd,
    keep_files,
    keep_streams,
    read_lowering,
)
from harness.frontends.cuda.compilers import host_compiler, tool_of
from harness.frontends.pins import PINS, PackagedFrontEnd
from harness.frontends.sessions import CapturedLaunch
from harness.frontends.tilelang.source import FILES, FLAGS, TileLangForm, compile_code, with_nvcc
from harness.frontends.tilelang.wordings import NVCC_STAGE, failing_pass, judge_tilelang
from harness.values.outcome import LaunchFacts, Lowering
from harness.values.toolchain import Assembler, Compiler
from harness.values.verdict import Verdict

if TYPE_CHECKING:
    from harness.frontends.bench.bench import Workbench
    from harness.frontends.sessions import JobResult

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


class _TileLangFrontEnd(PackagedFrontEnd, CapturedFrontEnd):
    pins = PINS["tilelang"]
    kind = pins.kind
    title = pins.title
    needs = ("torch",)
    modules: tuple[str, ...] = ("tilelang",)
    stages: tuple[str, ...] = ("tir", "device", "cuda", NVCC_STAGE, "ptx")
    levels: tuple[str, ...] = ("source",)
    issue_fields: tuple[str, ...] = _ISSUE_FIELDS
    module = "harness.frontends.tilelang.child"
    code = ("frontends/pretend", "frontends/tilelang/child.py")
    variables = ("TILELANG_", "TL_", "TVM_")
    never = frozenset({"TILELANG_CACHE_DIR", "TILELANG_TARGET", "TILELANG_DEFAULT_TARGET"})

    def __init__(self) -> None:
        self.source_form = TileLangForm(self)

    def bundled(self, compiler: Compiler) -> Path:
        return tool_of(compiler, "ptxas")

    def lowered_with(self) -> dict[str, object]:
        return {"host": host_compiler(), "flags": FLAGS}

    async def finished(
        self, bench: Workbench, launch: CapturedLaunch, done: JobResult, *, alone: bool
    ) -> tuple[Lowering, dict[str, str]]:
        lowering = read_lowering(done, "tir")
        artifacts = keep_files(bench, done, FILES)
        if not lowering.end.ok or lowering.error or "cuda" not in artifacts:
            artifacts["log"] = keep_streams(bench, done)
            return lowering, artifacts
        run = await compile_code(bench, launch, done, alone=alone)
        if run.ptx:
            artifacts["ptx"] = run.ptx
        artifacts["log"] = keep_streams(bench, done, run.log)
        return with_nvcc(launch, done, lowering, run), artifacts

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


TILELANG_FRONT_END = _TileLangFrontEnd()
