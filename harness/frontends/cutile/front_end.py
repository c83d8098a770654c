"""cuTile behind the door: see `harness.frontends.base`.

Launch code runs as it is in a child, up to where each kernel would be compiled; a fork of that
child lowers it to the bytecode of Tile IR, in the newest version that the tileiras at hand reads.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.frontends.bench.bench import content_key
from harness.frontends.captured_front_end import CapturedFrontEnd
from harness.frontends.captures import keep_streams
from harness.frontends.cutile.lowering import CHILD, FILES, asked_for, lowering_of
from harness.frontends.cutile.source_form import CUTILE_FORM
from harness.frontends.cutile.tileiras import TILEIRAS_BACK_END, tileiras_in
from harness.frontends.cutile.versions import KIND, TITLE, available, declared_environment
from harness.frontends.cutile.wordings import judge_cutile
from harness.frontends.readings import PtxReading
from harness.values.environment import Environment
from harness.values.kernel import Config
from harness.values.outcome import LaunchFacts, Lowering
from harness.values.toolchain import Assembler, Compiler
from harness.values.verdict import Verdict

if TYPE_CHECKING:
    from packaging.version import Version

    from harness.frontends.back_end import BackEnd
    from harness.frontends.base import FrontEnd
    from harness.frontends.bench.bench import Kept, Workbench
    from harness.frontends.captured_launch import CapturedLaunch
    from harness.frontends.sessions import JobResult
    from harness.frontends.source_form import FileForm


# After the form "Bug Report" of cuTile Python's tracker.
_ISSUE_FIELDS = (
    "Version of cuTile Python",
    "Version of the CUDA Toolkit",
    "Which installation method(s) does this occur on?",
    "Describe the bug",
    "Minimum reproducible example",
    "Relevant log output",
    "Full env printout",
    "Other/Misc.",
    "Contributing Guidelines",
)


class _CuTileFrontEnd(CapturedFrontEnd):
    kind = KIND
    title = TITLE
    child = CHILD
    needs = ("torch",)
    back_ends: tuple[BackEnd, ...] = (TILEIRAS_BACK_END,)
    modules: tuple[str, ...] = ("cuda.tile",)
    stages: tuple[str, ...] = tuple(FILES)
    levels: tuple[str, ...] = ("source",)
    source_form: FileForm | None = CUTILE_FORM
    issue_fields: tuple[str, ...] = _ISSUE_FIELDS
    options: tuple[str, ...] = ("num_ctas", "occupancy", "opt_level", "num_worker_warps")

    def environment(self, version: str) -> Environment:
        return declared_environment(version)

    def available(self, *, prereleases: bool = False) -> list[Version]:
        return available(prereleases=prereleases)

    def bundled(self, compiler: Compiler) -> Path:
        return tileiras_in(compiler)

    def asked(self, ptxas: Assembler) -> dict[str, object]:
        return asked_for(ptxas)

    async def finished(
        self,
        bench: Workbench,
        launch: CapturedLaunch,  # noqa: ARG002
        done: JobResult,
        *,
        alone: bool,  # noqa: ARG002 - the job did it all
    ) -> tuple[Lowering, dict[str, str]]:
        artifacts = {
            stage: bench.store.artifacts.put_file(done.folder / name)
            for stage, name in FILES.items()
            if (done.folder / name).is_file()
        }
        artifacts["log"] = keep_streams(bench, done)
        return lowering_of(done), artifacts

    def read(self, bench: Workbench, lowering: Kept[Lowering], ptx: str) -> Kept[PtxReading]:
        kernel = str(lowering.value.metadata["entry"])
        reading = PtxReading(facts=None, body_sha256=ptx, kernel=kernel)
        return bench.keep("ptx", content_key(tileir=ptx, kernel=kernel), reading, {})

    def config_line(self, kernel: str, config: Config, *, autotuned: bool) -> str:  # noqa: ARG002
        options = {name: value for name, value in config.items if name in self.options}
        values = [f"{name}={value!r}" for name, value in config.items if name not in options]
        hints = ", ".join(f"{name}={value!r}" for name, value in options.items())
        changed = f".replace_hints({hints})" if hints else ""
        return f"ct.launch(stream, grid, {kernel}{changed}, ({', '.join(['...', *values])}))"

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
        return judge_cutile(lowering)


CUTILE_FRONT_END: FrontEnd = _CuTileFrontEnd()
