"""cuTile behind the door: see `harness.frontends.base`.

Launch code runs as it is in a child, up to where each kernel would be compiled; a fork of that
child lowers it to the bytecode of Tile IR, in the newest version that the tileiras at hand reads.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import Version

from harness.frontends.bench.bench import content_key
from harness.frontends.captured_front_end import CapturedFrontEnd, keep_files, keep_streams
from harness.frontends.cutile.source import FILES, CuTileForm, evidence_of
from harness.frontends.cutile.tileiras import TILEIRAS_BACK_END, tileiras_in
from harness.frontends.cutile.wordings import judge_cutile
from harness.frontends.pins import PINS, PackagedFrontEnd
from harness.frontends.readings import PtxReading
from harness.frontends.sessions import CapturedLaunch
from harness.values.kernel import Config
from harness.values.outcome import Lowering
from harness.values.toolchain import Assembler, Compiler
from harness.values.verdict import Verdict

if TYPE_CHECKING:
    from harness.frontends.back_end import BackEnd
    from harness.frontends.bench.bench import Kept, Workbench
    from harness.frontends.sessions import JobResult

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


class _CuTileFrontEnd(PackagedFrontEnd, CapturedFrontEnd):
    pins = PINS["cutile"]
    kind = pins.kind
    title = pins.title
    needs = ("torch",)
    back_ends: tuple[BackEnd, ...] = (TILEIRAS_BACK_END,)
    modules: tuple[str, ...] = ("cuda.tile",)
    stages: tuple[str, ...] = tuple(FILES)
    levels: tuple[str, ...] = ("source",)
    issue_fields: tuple[str, ...] = _ISSUE_FIELDS
    options: tuple[str, ...] = ("num_ctas", "occupancy", "opt_level", "num_worker_warps")
    module = "harness.frontends.cutile.child"
    code = ("frontends/pretend", "frontends/cutile/child.py", "frontends/cutile/driver.py")
    variables = ("CUDA_TILE_",)
    never = frozenset(
        f"CUDA_TILE_{name}"
        for name in ("CACHE_DIR", "TEMP_DIR", "DUMP_BYTECODE", "DUMP_TILEIR", "LOGS")
    )

    def __init__(self) -> None:
        self.source_form = CuTileForm(self)

    def bundled(self, compiler: Compiler) -> Path:
        return tileiras_in(compiler)

    def asked(self, ptxas: Assembler) -> dict[str, object]:
        # A tileiras reads the bytecode of its release and older.
        major, minor = Version(ptxas.version).release[:2]
        return {"bytecode": f"{major}.{minor}"}

    async def finished(
        self, bench: Workbench, launch: CapturedLaunch, done: JobResult, *, alone: bool
    ) -> tuple[Lowering, dict[str, str]]:
        artifacts = keep_files(bench, done, FILES)
        artifacts["log"] = keep_streams(bench, done)
        return evidence_of(done), artifacts

    def read(self, bench: Workbench, lowering: Kept[Lowering], ptx: str) -> Kept[PtxReading]:
        kernel = str(lowering.value.metadata["entry"])
        reading = PtxReading(facts=None, body_sha256=ptx, kernel=kernel)
        return bench.keep("ptx", content_key(tileir=ptx, kernel=kernel), reading, {})

    def config_line(self, kernel: str, config: Config, *, autotuned: bool) -> str:
        options = {name: value for name, value in config.items if name in self.options}
        values = [f"{name}={value!r}" for name, value in config.items if name not in options]
        hints = ", ".join(f"{name}={value!r}" for name, value in options.items())
        changed = f".replace_hints({hints})" if hints else ""
        return f"ct.launch(stream, grid, {kernel}{changed}, ({', '.join(['...', *values])}))"

    def judge(self, lowering: Lowering) -> Verdict:
        return judge_cutile(lowering)


CUTILE_FRONT_END = _CuTileFrontEnd()
