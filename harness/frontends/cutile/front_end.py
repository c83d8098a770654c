"""cuTile behind the door: see `harness.frontends.base`.

Launch code runs as it is in a child, up to where each kernel would be compiled; a fork of that
child lowers it to the bytecode of Tile IR, in the newest version that the tileiras at hand reads.
Its wordings are those of 1.3.0 to 1.7.0.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path as FilePath
from typing import Any

import msgspec
from msgspec.structs import replace
from packaging.version import Version

from harness.frontends.back_end import BackEnd
from harness.frontends.base import CompileRequest
from harness.frontends.bench import Kept, Workbench, content_key
from harness.frontends.captured_front_end import CapturedFrontEnd, FileForm
from harness.frontends.cutile.tileiras import TILEIRAS_BACK_END, tileiras_in
from harness.frontends.one_file import call_lines, keywords_of, must_be, spelled, spelled_node
from harness.frontends.partners import PINS, PackagedFrontEnd, partner_of
from harness.frontends.readings import PtxReading
from harness.frontends.sessions import CapturedLaunch, JobResult
from harness.judging.judge import failed
from harness.values.kernel import Config
from harness.values.outcome import Lowering, RaisedError
from harness.values.standalone import Dialect, FileLaunch, Path, SourceInstall
from harness.values.toolchain import Assembler, Compiler, PackagePin
from harness.values.verdict import Stage, Verdict, VerdictKind

FILES = {"cutile": "kernel.cutile", "tileir": "kernel.tileir"}
"""What a job leaves, by stage."""
# Brings the ptxas that tileiras calls: in an environment of ours a script stands in its place.
_NVCC = "nvidia-cuda-nvcc"
# What each constraint must say, as it is for tensors that do not overlap.
_REQUIRED = {
    "ArrayConstraint": {
        "index_dtype": "ct.int32",
        "stride_lower_bound_incl": "0",
        "alias_groups": "()",
        "may_alias_internally": "False",
    },
    "ListConstraint": {"alias_groups": "()", "elements_may_alias": "False"},
}
_CONSTANT = '"argument"'


class CuTileForm(FileForm):
    """See `harness.frontends.captured_front_end.FileForm`.

    `python FILE` compiles the kernel as far as a cubin, with the tileiras beside that cuTile.
    """

    imports = ("import os", "import cuda.tile as ct", "from cuda.tile import compilation")
    roots = frozenset({"os", "ct", "compilation"})
    dialect = Dialect(always=frozenset(imports))
    past = frozenset(FILES)
    spaced = ("@", "def ")

    def launch_lines(self, launch: FileLaunch) -> Iterator[str]:
        entries = [
            line for name, kind in launch.signature.items() for line in _entry(launch, name, kind)
        ]
        yield from ["parameters = {", *entries, "}"] if entries else ["parameters = {}"]
        yield f"convention = compilation.CallingConvention.{launch.source_class}()"
        yield "signature = compilation.KernelSignature(parameters.values(), convention)"
        hints = ", ".join(f"{name}={value}" for name, value in launch.options.items())
        yield f"kernel = {launch.kernel}" + (f".replace_hints({hints})" if hints else "")
        yield f'gpu_code = "{launch.target[0]}"'
        yield "compilation.export_kernel("
        yield '    kernel, [signature], os.devnull, gpu_code=gpu_code, output_format="cubin"'
        yield ")"

    def read_launch(self, values: Mapping[str, ast.expr]) -> FileLaunch:
        signature: dict[str, str] = {}
        constants: dict[Path, str] = {}
        attributes: dict[Path, str] = {}
        parameters = must_be(ast.Dict, values["parameters"])
        for key, value in zip(parameters.keys, parameters.values, strict=True):
            name = str(must_be(ast.Constant, key or parameters).value)
            if not isinstance(value, ast.Call):
                signature[name], constants[(name,)] = _CONSTANT, spelled_node(value)
                continue
            required = _required(value)
            words = keywords_of(value)
            attributes |= {(name, k): v for k, v in words.items() if required.get(k) != v}
            signature[name] = spelled_node(ast.Call(func=value.func, args=value.args, keywords=[]))
        kernel = values["kernel"]
        options = {}
        if isinstance(kernel, ast.Call):
            options = keywords_of(kernel)
            kernel = must_be(ast.Attribute, kernel.func).value
        convention = must_be(ast.Call, values["convention"]).func
        return FileLaunch(
            kernel=must_be(ast.Name, kernel).id,
            signature=signature,
            constants=constants,
            attributes=attributes,
            options=options,
            target=(str(ast.literal_eval(values["gpu_code"])),),
            source_class=must_be(ast.Attribute, convention).attr,
        )

    def completed(self, launch: FileLaunch, answer: Mapping[str, Any]) -> FileLaunch:
        """The launch with what is assumed of its arguments: for each a call, and its keywords."""
        calls = msgspec.convert(answer.get("parameters", {}), dict[str, str])
        keywords = msgspec.convert(answer.get("keywords", {}), dict[str, dict[str, str]])
        attributes: dict[Path, str] = {}
        for name, text in calls.items():
            required = _required(must_be(ast.Call, ast.parse(text, mode="eval").body))
            words = {key: spelled(value) for key, value in keywords[name].items()}
            attributes |= {(name, k): v for k, v in words.items() if required.get(k) != v}
        signature = {**launch.signature, **{name: spelled(text) for name, text in calls.items()}}
        return replace(launch, signature=signature, attributes=attributes)

    def install(self, version: str, assembler: Assembler) -> SourceInstall:
        pins = [
            PackagePin(name=PINS["cutile"].package, version=version),
            # All that it needs to come to a cubin with this tileiras.
            *PINS["tileiras"].pins(assembler.version),
            PackagePin(name=_NVCC, version=str(partner_of(_NVCC, Version(assembler.version)))),
        ]
        return SourceInstall(
            title=PINS["cutile"].title,
            module="cuda.tile",
            packages=tuple(map(str, pins)),
            needs=("typing_extensions",),
            has_pins=True,
            cache="CUDA_TILE_CACHE_DIR",
            died="Return code -{}",
        )

    def asked(self, launch: CapturedLaunch, request: CompileRequest) -> dict[str, object]:
        own = TILEIRAS_BACK_END.brought_along(tileiras_in(launch.compiler))
        return self.front_end.asked(request.ptxas or own)

    def picked(self, launch: CapturedLaunch, job: JobResult) -> str:
        return str(tileiras_in(launch.compiler))

    def reading(
        self, lowering: Lowering, program: bytes, left: Mapping[str, FilePath]
    ) -> PtxReading:
        return PtxReading(kernel=str(lowering.metadata["entry"]))


def _entry(launch: FileLaunch, name: str, kind: str) -> Iterator[str]:
    value = launch.constants.get((name,))
    if value is not None:
        yield f'    "{name}": {value},'
        return
    call = must_be(ast.Call, ast.parse(kind, mode="eval").body)
    own = {str(path[1]): text for path, text in launch.attributes.items() if path[0] == name}
    yield from call_lines(name, call, {**_required(call), **own})


def _required(call: ast.Call) -> dict[str, str]:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    return _REQUIRED.get(name, {})


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

    def bundled(self, compiler: Compiler) -> FilePath:
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
