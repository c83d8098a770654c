"""A kernel of CuTe DSL and its launch as the text of one Python file, and back.

`python FILE` compiles the function that launches the kernel as far as PTX, which it prints, on a
machine without a GPU.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from harness.frontends.captured_front_end import FileForm
from harness.frontends.one_file import LINE, call_lines, keywords_of, must_be, spelled, spelled_node
from harness.frontends.partners import PINS
from harness.values.standalone import Dialect, FileLaunch, SourceInstall
from harness.values.toolchain import Assembler

FILES = {"mlir": "kernel.mlir", "ptx": "kernel.ptx"}
"""What a job leaves, by stage."""
# Where its modules lie, up to 4.5 and from 4.6 on: a file of the package tells Python.
_BELOW = ("nvidia_cutlass_dsl/python_packages", "nvidia_cutlass_dsl/dsl_packages")
# The ptxas is inside.
_PTXAS = "nvidia-cuda-nvcc-cu12"
_ROOTS = frozenset({"cutlass", "cute", "runtime"})
_CONSTANT = '"argument"'
# What every file asks for: PTX for this target.
_OPTIONS = "--gpu-arch {} --keep-ptx"


class CuteDslForm(FileForm):
    """See `harness.frontends.captured_front_end.FileForm`."""

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
            packages=tuple(map(str, pins.pins(version, without=_PTXAS))),
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
