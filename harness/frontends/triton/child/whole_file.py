"""Compiles a file that stands alone in one go: Python that compiles a kernel, or Triton's IR."""

# ruff: noqa: ANN401 - values of Triton have types that we cannot name

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from json import dumps
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

from harness.frontends.pretend.pretend_driver import pretend_triton
from harness.frontends.triton.child.lowering import lower
from harness.frontends.triton.child.recording import Recorder
from harness.io.children.launch_code import run_launch, stand_aside


@dataclass
class _Nothing:
    """Stands in for the record of a file that did not come to compile anything."""

    first_stage: ClassVar[str] = "capture"
    error: BaseException

    def compile(self, run: Any) -> NoReturn:
        raise self.error


def compile_standalone(message: Mapping[str, Any], folder: Path) -> None:
    """Lower the first kernel of a file in this (forked) process: `lower` says what it leaves."""
    ask = message["capture"]
    mode = pretend_triton(ask["device"])
    if is_ir(ask["file"]):
        record: Any = read_ir(ask["file"], ask["overrides"], ask["device"]["capability"])
        run = JITFunction.run
    else:
        stand_aside(ask)
        os.environ["TRITON_CACHE_DIR"] = str(folder / "cache")
        recorder = Recorder()
        run = recorder.original_run
        with mode, recorder.active():
            record = _first_record(recorder, ask)
    with mode:
        lower(record, run, folder, message["ptxas"], until=message["until"])


def _first_record(recorder: Recorder, ask: Mapping[str, Any]) -> Any:
    error: BaseException = RuntimeError("the file compiles no kernel")
    try:
        run_launch(ask["file"], ask["function"], ask["overrides"])
    except (Exception, SystemExit) as raised:  # noqa: BLE001 - the file's code raises anything
        error = raised
    return next(iter(recorder.records.values()), _Nothing(error))


_SUFFIXES = (".ttir", ".ttgir")
_KERNEL = re.compile(r'tt\.func public @(?:"([^"\n]{1,500})"|([\w.$-]{1,500}))\s{0,9}\(')


@dataclass
class IrRecord:
    """A file of IR, the options to compile it with, and the target."""

    # Triton reads it before any stage begins.
    first_stage: ClassVar[str] = "capture"
    path: str
    kernel: str
    key: str
    options: dict[str, Any]
    capability: int

    def describe(self) -> dict[str, Any]:
        """As a capture tells of a launch; a file has no arguments and no grid."""
        default = {"num_ctas": 1}
        return {
            "key": self.key,
            "kernel": self.kernel,
            "config": {n: v for n, v in self.options.items() if default.get(n) != v},
            "autotuned": False,
            "arguments": [],
            "grid": None,
            "file": self.path,
        }

    def compile(self, run: Any) -> Any:
        """Go on from the file to the end."""
        target = GPUTarget("cuda", self.capability, 32)
        return triton.compile(self.path, target=target, options=dict(self.options))


def is_ir(file: str) -> bool:
    """Whether this is a file of Triton's IR, by its name."""
    return file.endswith(_SUFFIXES)


def read_ir(file: str, options: dict[str, Any], capability: int) -> IrRecord:
    """The record of a file; what it is good for, Triton will say."""
    data = Path(file).read_bytes()
    named = _KERNEL.search(data.decode(errors="replace"))
    body = [hashlib.sha256(data).hexdigest(), Path(file).suffix, sorted(options.items())]
    return IrRecord(
        path=file,
        kernel=(named[1] or named[2]) if named else "",
        key=hashlib.sha256(dumps(body).encode()).hexdigest(),
        options=options,
        capability=capability,
    )
