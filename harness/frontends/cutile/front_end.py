"""cuTile behind the door: see `harness.frontends.base`.

Launch code runs as it is in a child, up to where each kernel would be compiled; a fork of that
child lowers it to the bytecode of Tile IR, in the newest version that the tileiras at hand reads.
Its wordings are those of 1.3.0 to 1.7.0.
"""

from __future__ import annotations

import re
from pathlib import Path

from packaging.version import Version

from harness.frontends.back_end import BackEnd
from harness.frontends.bench import Kept, Workbench, content_key
from harness.frontends.captured_front_end import CapturedFrontEnd
from harness.frontends.cutile.source import FILES, CuTileForm
from harness.frontends.cutile.tileiras import TILEIRAS_BACK_END, tileiras_in
from harness.frontends.partners import PINS, PackagedFrontEnd
from harness.frontends.readings import PtxReading
from harness.judging.judge import failed
from harness.values.kernel import Config
from harness.values.outcome import Lowering, RaisedError
from harness.values.toolchain import Assembler, Compiler
from harness.values.verdict import Stage, Verdict, VerdictKind

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


# What a user wrote and cuTile refuses: named otherwise up to 1.4.
_REFUSALS = frozenset(
    {
        *("TileSyntaxError", "TileTypeError", "TileValueError", "TileRecursionError"),
        *("UnsupportedSyntaxError", "TypeCheckingError", "InvalidValueError"),
        *("RecursionLimitError", "UnsupportedCallError"),
        *("TileStaticEvalError", "TileStaticAssertionError"),
        *("StaticEvalError", "StaticAssertionError"),
    }
)
_CANNOT = frozenset({"TileUnsupportedFeatureError", "UnsupportedFeatureError"})
# A name or an argument that another release has: the wordings of Python and of cuTile.
_OTHER_RELEASE = re.compile(
    r"[Mm]odule 'cuda\.tile[\w.]*' has no attribute '\w+'"
    r"|cannot import name '\w+' from 'cuda\.tile[\w.]*'"
    r"|No module named 'cuda\.tile[\w.]*'"
    r"|got an unexpected keyword argument '\w+'"
)


class _CuTileFrontEnd(PackagedFrontEnd, CapturedFrontEnd):
    pins = PINS["cutile"]
    kind = pins.kind
    title = pins.title
    needs = ("torch",)
    back_ends: tuple[BackEnd, ...] = (TILEIRAS_BACK_END,)
    modules: tuple[str, ...] = ("cuda.tile",)
    stages: tuple[str, ...] = tuple(FILES)
    files = FILES
    impossible = (_OTHER_RELEASE,)
    levels: tuple[str, ...] = ("source",)
    form = CuTileForm
    issue_fields: tuple[str, ...] = _ISSUE_FIELDS
    options: tuple[str, ...] = ("num_ctas", "occupancy", "opt_level", "num_worker_warps")
    module = "harness.frontends.cutile.child"
    code = ("frontends/pretend", "frontends/cutile/child.py", "frontends/cutile/driver.py")
    variables = ("CUDA_TILE_",)
    never = frozenset(
        f"CUDA_TILE_{name}"
        for name in ("CACHE_DIR", "TEMP_DIR", "DUMP_BYTECODE", "DUMP_TILEIR", "LOGS")
    )

    def bundled(self, compiler: Compiler) -> Path:
        return tileiras_in(compiler)

    def asked(self, ptxas: Assembler) -> dict[str, object]:
        # A tileiras reads the bytecode of its release and older.
        major, minor = Version(ptxas.version).release[:2]
        return {"bytecode": f"{major}.{minor}"}

    def read(self, bench: Workbench, lowering: Kept[Lowering], ptx: str) -> Kept[PtxReading]:
        kernel = str(lowering.value.metadata["entry"])
        reading = PtxReading(body_sha256=ptx, kernel=kernel)
        return bench.keep("ptx", content_key(tileir=ptx, kernel=kernel), reading, {})

    def config_line(self, kernel: str, config: Config, *, autotuned: bool) -> str:
        options = {name: value for name, value in config.items if name in self.options}
        values = [f"{name}={value!r}" for name, value in config.items if name not in options]
        hints = ", ".join(f"{name}={value!r}" for name, value in options.items())
        changed = f".replace_hints({hints})" if hints else ""
        return f"ct.launch(stream, grid, {kernel}{changed}, ({', '.join(['...', *values])}))"

    def cannot(self, error: RaisedError) -> bool:
        return bool(_CANNOT & set(error.kinds)) or super().cannot(error)

    def judge_raised(self, error: RaisedError, stage: Stage, line: str) -> Verdict:
        if _REFUSALS & set(error.kinds):
            reason = f"cuTile rejects the kernel: {line}"
            return failed(VerdictKind.REJECTED, stage, reason, message=line)
        reason = f"cuTile failed in stage {stage.value}: {error.type}: {line}"
        return failed(VerdictKind.PASS_FAILURE, stage, reason, message=f"{error.type}: {line}")


CUTILE_FRONT_END = _CuTileFrontEnd()
