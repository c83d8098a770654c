"""The child of one Triton: forks a session for each capture, and a job for each config of it.

Importing torch and Triton is paid for once. Captures and compilations happen in forks, so one that
aborts takes nothing with it, and this process never holds state that a kernel could spoil.

`python -m harness.frontends.triton.child SOCKET NAME`
"""

# ruff: noqa: ANN401 - records hold values of Triton

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.metadata
import os
import sys
from pathlib import Path
from typing import Any

# All here, none later: launch code may bring a package of our name, and modules of any.
import torch  # noqa: F401 - so that every fork has it
import triton

from harness.frontends.pretend import pretend_driver
from harness.frontends.triton.child.exporting import export_to
from harness.frontends.triton.child.lowering import (
    compile_standalone,
    is_ir,
    lower,
    picked_ptxas,
    read_ir,
)
from harness.frontends.triton.child.postponed import postpone_torch
from harness.frontends.triton.child.recording import Recorder
from harness.io.children.captures import CaptureSession, run_for_error, serve_captures
from harness.io.children.launch_code import stand_aside
from harness.io.children.reads import ReadsWatch
from harness.io.children.supervisor import Message

# What Triton imports in the middle of its first compilation, where it has it.
_IMPORTED_LATE = (
    "triton.compiler.code_generator",
    "triton.language.semantic",
    "triton.language.extra.libdevice",
    "triton.tools.tensor_descriptor",
)


class _Session(CaptureSession):
    """One capture: what is compiled of it later sees the same pretended GPU."""

    def __init__(self, message: Message) -> None:
        super().__init__(message)
        self._run: Any = None
        self._mode: Any = None

    def capture(self, ask: Message) -> Message:
        stand_aside(ask)
        os.environ["TRITON_CACHE_DIR"] = str(self.folder / "cache")
        recorder = Recorder(injected=ask["injected"])
        self._mode = pretend_driver.pretend_triton(ask["device"])
        self._run = recorder.original_run
        capability = ask["device"]["capability"]
        found: Any = {"error": None, "pruned": {}, "dropped": 0, "reads": {}}
        if is_ir(ask["file"]):
            record = read_ir(ask["file"], ask["overrides"], capability)
            self.records = {record.key: record}
        else:
            reads = ReadsWatch([*ask["bare"], *ask["paths"], str(self.folder)], ask["file"])
            reads.start()
            with self._mode, recorder.active():
                found["error"] = run_for_error(ask, self.folder / "capture.err")
            self.records = {record.key: record for record in recorder.records.values()}
            found |= {"pruned": recorder.pruned, "dropped": recorder.dropped, "reads": reads.stop()}
        return {
            **found,
            "records": [record.describe() for record in self.records.values()],
            "ptxas": picked_ptxas(capability),
            "triton": importlib.metadata.version("triton"),
        }

    def lower(self, record: Any, folder: Path, asked: Message) -> None:
        with self._mode:
            lower(record, self._run, folder, asked["ptxas"], dump=asked["dump"])

    def export(self, record: Any, folder: Path) -> None:
        with self._mode:
            export_to(record, self._run, folder)


def _warm_up(version: str) -> None:
    """Do once what every compilation would do for itself after its fork.

    Triton hashes its own library, a quarter of a gigabyte, into the name of a cache folder; here
    the folder is empty and private, so that any name does.
    """
    for name in _IMPORTED_LATE:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for name in ("triton.compiler.compiler", "triton.runtime.cache"):
        module = sys.modules.get(name)
        if hasattr(module, "triton_key"):
            module.triton_key = lambda: version  # type: ignore[union-attr]
    postpone_torch()
    gc.freeze()
    gc.enable()


def _alone(message: Message, folder: Path) -> None:
    """Compile a file that stands alone; or have a module work in Triton's interpreter mode.

    Triton's decorators read the mode from the environment during the import, so Triton is imported
    again; torch, which takes longer, is not. Triton's native library stays: it cannot be loaded
    twice and has no modes.
    """
    ask = message["capture"]
    if "module" not in ask:
        compile_standalone(message, folder)
        return
    os.environ["TRITON_INTERPRET"] = "1"
    ours = (f"{__name__.rpartition('.')[0]}.", f"{pretend_driver.__name__}.")
    for name in list(sys.modules):
        if f"{name}.".startswith(("triton.", *ours)) and not name.startswith("triton._C"):
            del sys.modules[name]
    os.chdir(ask["place"])
    importlib.import_module(ask["module"]).main(ask["place"])


def main() -> None:
    """Say hello, fork sessions until the caller hangs up."""
    _warm_up(triton.__version__)
    ready = {"triton": triton.__version__, "path": str(Path(triton.__file__).parent)}
    serve_captures(_Session, ready, _alone)
