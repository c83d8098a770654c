"""CuTe DSL behind the door: see `harness.frontends.base`.

Launch code runs as it is in a child, which traces each kernel to MLIR; a fork of that child runs
CuTe DSL's own passes, and leaves the PTX that they come to.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.frontends.captured_front_end import CapturedFrontEnd, keep_files, keep_streams
from harness.frontends.cuda.compilers import tool_of
from harness.frontends.cutedsl.source import FILES, CuteDslForm, evidence_of
from harness.frontends.cutedsl.wordings import judge_cutedsl
from harness.frontends.pins import PINS, PackagedFrontEnd
from harness.frontends.sessions import CapturedLaunch
from harness.values.outcome import Lowering
from harness.values.toolchain import Compiler
from harness.values.verdict import Verdict

if TYPE_CHECKING:
    from harness.frontends.bench.bench import Workbench
    from harness.frontends.sessions import JobResult


class _CuteDslFrontEnd(PackagedFrontEnd, CapturedFrontEnd):
    pins = PINS["cutedsl"]
    kind = pins.kind
    title = pins.title
    needs = ("torch",)
    modules: tuple[str, ...] = ("cutlass",)
    stages: tuple[str, ...] = ("mlir", "nvvm", "ptx")
    levels: tuple[str, ...] = ("source",)
    module = "harness.frontends.cutedsl.child"
    code = ("frontends/pretend", "frontends/cutedsl/child.py", "frontends/cutedsl/host_code.py")
    variables = ("CUTE_DSL_", "CUTE_EXPERIMENTAL_DSL_")
    never = frozenset(
        f"CUTE_DSL_{name}"
        for name in ("ARCH", "CACHE_DIR", "DRYRUN", "DUMP_DIR", "KEEP", "KEEP_CUBIN", "KEEP_PTX")
    )

    def __init__(self) -> None:
        self.source_form = CuteDslForm(self)

    def bundled(self, compiler: Compiler) -> Path:
        return tool_of(compiler, "ptxas")

    async def finished(
        self, bench: Workbench, launch: CapturedLaunch, done: JobResult, *, alone: bool
    ) -> tuple[Lowering, dict[str, str]]:
        lowering = evidence_of(launch, done)
        artifacts = keep_files(bench, done, FILES)
        if lowering.error:
            artifacts.pop("ptx", None)
        artifacts["log"] = keep_streams(bench, done)
        return lowering, artifacts

    def judge(self, lowering: Lowering) -> Verdict:
        return judge_cutedsl(lowering)


CUTEDSL_FRONT_END = _CuteDslFrontEnd()
