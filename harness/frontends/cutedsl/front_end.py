"""CuTe DSL behind the door: see `harness.frontends.base`.

Launch code runs as it is in a child, which traces each kernel to MLIR; a fork of that child runs
CuTe DSL's own passes, and leaves the PTX that they come to. Its wordings are those of 4.4.2 to
4.8.1.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from harness.frontends.captured_front_end import CapturedFrontEnd, FileForm
from harness.frontends.one_file import LINE, call_lines, keywords_of, must_be, spelled, spelled_node
from harness.frontends.partners import PINS, PackagedFrontEnd
from harness.frontends.sessions import CapturedLaunch, JobResult
from harness.judging.judge import failed
from harness.values.outcome import Lowering, RaisedError
from harness.values.standalone import Dialect, FileLaunch, SourceInstall
from harness.values.toolchain import Assembler
from harness.values.verdict import Stage, Verdict, VerdictKind

FILES = {"mlir": "kernel.mlir", "ptx": "kernel.ptx"}
"""What a job leaves, by stage."""
# Where its modules lie, up to 4.5 and from 4.6 on: a file of the package tells Python.
_BELOW = ("nvidia_cutlass_dsl/python_packages", "nvidia_cutlass_dsl/dsl_packages")
# The ptxas is inside.
_PTXAS_PACKAGE = "nvidia-cuda-nvcc-cu12"
_ROOTS = frozenset({"cutlass", "cute", "runtime"})
_CONSTANT = '"argument"'
# What every file asks for: PTX for this target.
_OPTIONS = "--gpu-arch {} --keep-ptx"


class CuteDslForm(FileForm):
    """See `harness.frontends.captured_front_end.FileForm`.

    `python FILE` compiles the function that launches the kernel as far as PTX, and prints that.
    """

    imports = ("import cutlass", "from cutlass import cute", "from cutlass.cute import runtime")
    roots = _ROOTS
    dialect = Dialect(always=frozenset(imports))
    past = frozenset({"mlir", "nvvm"})
    spaced = ("@", "def ", "class ")

    def launch_lines(self, launch: FileLaunch) -> Iterator[str]:
        entries = [
            line for name, kind in launch.signature.items() for line in _entry(launch, name, kind)
        ]
        yield from ["arguments = {", *entries, "}"] if entries else ["arguments = {}"]
        words = [_OPTIONS.format(launch.target[0]), *map(ast.literal_eval, launch.options.values())]
        yield f"options = {spelled(repr(' '.join(words)))}"
        yield f"compiled = cute.compile({launch.kernel}, *arguments.values(), options=options)"
        yield "print(compiled.__ptx__)"

    def read_launch(self, values: Mapping[str, ast.expr]) -> FileLaunch:
        arguments = must_be(ast.Dict, values["arguments"])
        texts = {
            str(must_be(ast.Constant, key or arguments).value): value
            for key, value in zip(arguments.keys, arguments.values, strict=True)
        }
        gpu, arch, _, *words = str(ast.literal_eval(values["options"])).split(" ", 3)
        if gpu != _OPTIONS.split(" ", maxsplit=1)[0]:
            raise ValueError(f"its options begin with {gpu}")
        compiled = must_be(ast.Call, values["compiled"])
        return FileLaunch(
            kernel=must_be(ast.Name, compiled.args[0]).id,
            signature={
                name: spelled_node(value) if _is_made(value) else _CONSTANT
                for name, value in texts.items()
            },
            constants={
                (name,): spelled_node(value) for name, value in texts.items() if not _is_made(value)
            },
            attributes={},
            options={"options": spelled(repr(words[0]))} if words else {},
            target=(arch,),
        )

    def completed(self, launch: FileLaunch, answer: Mapping[str, Any]) -> FileLaunch:
        """The launch with what stands for arguments that are no constants: a call for each."""
        calls = msgspec.convert(answer.get("arguments", {}), dict[str, str])
        signature = {**launch.signature, **{name: spelled(text) for name, text in calls.items()}}
        return replace(launch, signature=signature)

    def install(self, version: str, assembler: Assembler) -> SourceInstall:
        pins = PINS["cutedsl"]
        return SourceInstall(
            title=pins.title,
            module="cutlass",
            packages=tuple(map(str, pins.pins(version, without=_PTXAS_PACKAGE))),
            needs=("numpy", "typing_extensions"),
            has_pins=True,
            cache="CUTE_DSL_CACHE_DIR",
            below=_BELOW,
        )


def _entry(launch: FileLaunch, name: str, kind: str) -> Iterator[str]:
    value = launch.constants.get((name,), kind)
    line = f'    "{name}": {value},'
    call = ast.parse(value, mode="eval").body
    if len(line) <= LINE - 4 or not isinstance(call, ast.Call):
        yield line
        return
    yield from call_lines(name, call, keywords_of(call))


def _is_made(value: ast.expr) -> bool:
    """Whether it stands for data: that is a call of what the file's imports give."""
    root = value.func if isinstance(value, ast.Call) else None
    while isinstance(root, ast.Attribute):
        root = root.value
    return isinstance(root, ast.Name) and root.id in _ROOTS


_PTXAS = re.compile(r"ptxas application ptx input|PTXAS_ERROR_COMPILATION|(?m:^ *ptxas fatal)")
# A name, an argument or a module that another release has: the wordings of Python itself.
_OTHER_RELEASE = re.compile(
    r"module 'cutlass[\w.]*' has no attribute '\w+'"
    r"|cannot import name '\w+' from '(?:cutlass|quack)[\w.]*'"
    r"|No module named 'cutlass[\w.]*'"
    r"|(?:\w+\.)?\w+\(\) got an unexpected keyword argument '(?:loc|ip|use_tvm_ffi_env_stream)'"
)
_OTHER_TARGET = re.compile(r"the launch compiles for \S+, and \S+ was asked for")
_NOT_THERE = re.compile(
    r"^'sm_\w+'$|expects arch to be |Unsupported GPU architecture '"
    r"|libNVVM\s+extra log:\s*(?:error: *)?Error: unsupported operation",
    re.MULTILINE,
)
_LOCATION = re.compile(r"^(?:loc\(.*\): )?(?:error|note): (?:unknown: |\"[^\"]*\"\([^)]*\): )?")
# What says nothing by itself: frames around the line that does.
_FRAME = re.compile(
    r"^(?:NVVM Compilation Error:|-+|⚙️.*|- Target Architecture.*|IR Context.*|Operation creation "
    r"failed:?|Failure while executing pass pipeline:?|DSLRuntimeError: .*(?:ICE|code generation).*"
    r"|error: NVVM backend compilation failed|error: libNVVM failed while .*|note: backend log:)$"
)
# Within one message it may name its log twice, of which the second is the log.
_BACKEND = re.compile(
    r"libNVVM\s+extra log:\s*(?!Failed to generate PTX)(?:error: *)?(?:Error: *)?(\S.*)"
)
_CAUSE = re.compile(r"^(?:= note: )?Caused exception: ")


def only_its_ptxas_failed(error: RaisedError) -> bool:
    """Whether CuTe DSL generated PTX, and failed as the ptxas inside it refuses that."""
    return _PTXAS.search(error.message) is not None


class _CuteDslFrontEnd(PackagedFrontEnd, CapturedFrontEnd):
    pins = PINS["cutedsl"]
    kind = pins.kind
    title = pins.title
    needs = ("torch",)
    modules: tuple[str, ...] = ("cutlass",)
    stages: tuple[str, ...] = ("mlir", "nvvm", "ptx")
    files = FILES
    impossible = (_OTHER_TARGET, _NOT_THERE, _OTHER_RELEASE)
    levels: tuple[str, ...] = ("source",)
    form = CuteDslForm
    module = "harness.frontends.cutedsl.child"
    code = ("frontends/pretend", "frontends/cutedsl/child.py", "frontends/cutedsl/host_code.py")
    variables = ("CUTE_DSL_", "CUTE_EXPERIMENTAL_DSL_")
    never = frozenset(
        f"CUTE_DSL_{name}"
        for name in ("ARCH", "CACHE_DIR", "DRYRUN", "DUMP_DIR", "KEEP", "KEEP_CUBIN", "KEEP_PTX")
    )

    def evidence(self, launch: CapturedLaunch, job: JobResult) -> Lowering:
        """As it was left; its stage is `ptx` where there is PTX to assemble."""
        lowering = super().evidence(launch, job)
        has_ptx = (job.folder / FILES["ptx"]).is_file()
        if lowering.error and has_ptx and only_its_ptxas_failed(lowering.error):
            # What the PTX is worth is for the assembler to say, which is asked again.
            lowering = replace(lowering, error=None)
        if lowering.error or not has_ptx:
            return lowering
        own = str((job.result or {}).get("ptxas_options", "")).split()
        target = str(launch.request.settings["target"])
        return replace(lowering, stage="ptx", flags=("-v", f"--gpu-name={target}", *own))

    def essence(self, error: RaisedError) -> str:
        """The cause that is named, or the first line that is not a frame."""
        lines = [line.strip() for line in error.message.splitlines() if line.strip()]
        if backend := _BACKEND.findall(error.message):
            return f"libNVVM: {backend[-1]}"
        for line in lines:
            if _CAUSE.match(line):
                return _CAUSE.sub("", line)
        texts = [_LOCATION.sub("", line) for line in lines if not _FRAME.match(line)]
        return next((line for line in texts if line), error.type)

    def judge_raised(self, error: RaisedError, stage: Stage, line: str) -> Verdict:
        if stage.value == self.stages[0]:
            reason = f"CuTe DSL rejects the kernel: {line}"
            return failed(VerdictKind.REJECTED, stage, reason, message=line)
        reason = f"a pass of stage {stage.value} failed: {line}"
        return failed(VerdictKind.PASS_FAILURE, stage, reason, message=line)


CUTEDSL_FRONT_END = _CuteDslFrontEnd()
