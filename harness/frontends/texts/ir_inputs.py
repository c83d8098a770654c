"""Kernels that a compiler left half-way: PTX, and Triton's IR, as launches to go on from."""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from gpu_emulator.ptx.text.facts import MAX_BYTES, PtxError, PtxFacts, read_ptx
from harness.io.files.reading import read_regular
from harness.values.errors import UsageError
from harness.values.kernel import LaunchParameter, LaunchSpec, Repro, Scalar
from harness.values.target import Target, exact_target

IR_SUFFIXES = (".ttir", ".ttgir")
SUFFIXES = (*IR_SUFFIXES, ".ptx")
OPTIONS_ARGUMENT = "ptx_options"
"""The option of a launch that holds options for ptxas: of Triton, where it has one, and of PTX."""
_DEFAULTS: Mapping[str, Scalar | None] = {
    "num_warps": 4,
    "num_stages": 3,
    "num_ctas": 1,
    "maxnreg": None,
}


class HalfCompiled(msgspec.Struct, frozen=True, kw_only=True):
    """A file and what it says of itself: the kernel, the target, what it fixes."""

    data: bytes
    kernel: str
    target: Target | None
    ptx: PtxFacts | None = None
    ir: IrFacts | None = None


def read_file(path: Path, entry: str | None = None, *, follow_links: bool = True) -> HalfCompiled:
    """Read `.ptx` (its entry of that name, else the first), `.ttir` or `.ttgir`; nothing is run.

    Raises:
        UsageError: it cannot be read, is too large, or is not what its name says.
    """
    data = read_regular(path, MAX_BYTES, follow_links=follow_links)
    try:
        return half_compiled(data, path.suffix, entry)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def half_compiled(data: bytes, suffix: str, entry: str | None = None) -> HalfCompiled:
    """The content of such a file.

    Raises:
        UsageError: it is not what the suffix says.
    """
    if not data.strip():
        raise UsageError("the file is empty")
    if data.startswith(codecs.BOM_UTF8):
        raise UsageError(
            "it begins with a byte order mark, which no compiler takes; save it without"
        )
    try:
        text = data.decode("utf-8")
        if suffix == ".ptx":
            ptx = read_ptx(text, entry)
            target = Target.parse(ptx.target)
            return HalfCompiled(data=data, kernel=ptx.entry, target=target, ptx=ptx)
        ir = read_triton_ir(text)
    except UnicodeDecodeError as error:
        language = "PTX" if suffix == ".ptx" else "Triton's IR"
        raise UsageError(f"not {language}: it holds binary data") from error
    except PtxError as error:
        raise UsageError(str(error)) from error
    half = HalfCompiled(data=data, kernel=ir.kernel, target=None, ir=ir)
    if ir.capability is None:
        return half
    return msgspec.structs.replace(half, target=exact_target(ir.capability))


def launch_from(path: Path, half: HalfCompiled, options: Mapping[str, Scalar]) -> LaunchSpec:
    """The launch that goes on from this file, named by its suffix.

    From PTX, `version` and `target` can be set: its `.version` and `.target`; and `ptx_options`,
    which ptxas gets besides, as in a launch of Triton. From IR, Triton's options can be; `options`
    are those that it was first compiled with, as far as they are known, and what the module itself
    fixes has precedence.
    """
    fixed: dict[str, Scalar] = {}
    if half.ptx:
        values: dict[str, Scalar | None] = {
            "version": half.ptx.version,
            "target": half.ptx.target,
            OPTIONS_ARGUMENT: "",
        }
    else:
        stated = {name: getattr(half.ir, name, None) for name in _DEFAULTS}
        fixed = {name: value for name, value in stated.items() if value is not None}
        stated_by_pipeline = half.ir.pipeline if half.ir else {}
        values = {**_DEFAULTS, **stated_by_pipeline, **options, **fixed}
    return LaunchSpec(
        name=path.suffix.removeprefix("."),
        function=None,
        file=path,
        parameters=tuple(
            LaunchParameter(name=name, default=value, settable=name not in fixed)
            for name, value in values.items()
        ),
    )


def repro_of(path: Path, kernel: str | None) -> Repro:
    """PTX, one entry of it, or Triton's IR, which holds one kernel."""
    if kernel and path.suffix in IR_SUFFIXES:
        raise UsageError(f"{path}::{kernel}: a file of Triton's IR holds one kernel; name the file")
    half = read_file(path, kernel)
    entry = f"::{half.kernel}" if kernel else ""
    return Repro(
        name=f"{spelling(path)}{entry}",
        kernel=kernel or (half.kernel if half.ir else None),
        folder=path.parent,
        file=path,
        launches=(launch_from(path, half, {}),),
        targets=(str(half.target),) if half.target else (),
    )


def spelling(path: Path) -> str:
    r"""How cells spell a file: as the user does, so that equal names in two folders stay apart.

    A name is bytes to the system. Read as UTF-8 it is the same text under every locale, and what
    is not UTF-8 in it is spelled out (`\xe9`): results and JSON are text.
    """
    return os.fsencode(os.path.normpath(path)).decode("utf-8", "backslashreplace")


# Up to Triton 3.2 the dialect of `.ttgir` was called triton_gpu.
_KERNEL = re.compile(r'tt\.func public @(?:"([^"\n]{1,500})"|([\w.$-]{1,500}))\s{0,9}\(')
_NUMBER = re.compile(
    r'"?(?:ttg|triton_gpu)\.(num-warps|num-ctas|maxnreg)"?\s{0,9}=\s{0,9}(\d{1,4})\b'
)
_TARGET = re.compile(r'"?(?:ttg|triton_gpu)\.target"?\s{0,9}=\s{0,9}"cuda:(\d{2,3})"')
# What MLIR writes behind a module when a pass fails: the pipeline, with the options of its passes.
_PIPELINE = re.compile(r'\bmlir_reproducer: \{\s{0,99}pipeline: "([^"\n]{1,100000})"')
_PASS_OPTION = re.compile(r"\b(num-warps|num-ctas|num-stages|target)=(?:cuda:)?(\d{1,4})\b")


class IrFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The kernel's name, and what the module fixes; `.ttir` fixes nothing.

    `pipeline` are the options that the pipeline of an MLIR reproducer states.
    """

    kernel: str
    pipeline: Mapping[str, Scalar] = {}
    num_warps: int | None = None
    num_ctas: int | None = None
    maxnreg: int | None = None
    capability: int | None = None


def read_triton_ir(text: str) -> IrFacts:
    """Read a module of Triton's IR.

    Raises:
        UsageError: binary data, or no public function that could be launched.
    """
    if "\0" in text:
        raise UsageError("not Triton's IR: it holds binary data")
    kernel = _KERNEL.search(text)
    if kernel is None:
        raise UsageError("not Triton's IR: no `tt.func public`, nothing that can be launched")
    # The attributes of a module stand before its first function, public or not.
    head = text[: text.index("tt.func")]
    numbers = {name.replace("-", "_"): int(value) for name, value in _NUMBER.findall(head)}
    target = _TARGET.search(head)
    pipeline = _PIPELINE.search(text, kernel.end())
    stated = {
        name.replace("-", "_"): int(value)
        for name, value in (_PASS_OPTION.findall(pipeline[1]) if pipeline else ())
    }
    capability = stated.pop("target", None)
    return IrFacts(
        kernel=kernel[1] or kernel[2],
        pipeline=stated,
        capability=int(target[1]) if target else capability,
        num_warps=numbers.get("num_warps"),
        num_ctas=numbers.get("num_ctas"),
        maxnreg=numbers.get("maxnreg"),
    )
