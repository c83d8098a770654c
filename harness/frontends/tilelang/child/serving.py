"""The child of one TileLang: a session for each capture, a job for each kernel of it."""

# ruff: noqa: ANN401 - records hold values of TileLang

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

# All here, none later: launch code may bring a package of our name, and modules of any.
import tilelang

from harness.frontends.tilelang.child.exporting import export_to
from harness.frontends.tilelang.child.lowering import lower
from harness.frontends.tilelang.child.recording import KernelRecord, KernelRecorder
from harness.frontends.triton.child.passed_over import passing_over_triton, pretend_cuda
from harness.io.children.captures import CaptureSession, run_for_error, serve_captures
from harness.io.children.launch_code import stand_aside
from harness.io.children.reads import ReadsWatch

if TYPE_CHECKING:
    from harness.io.children.supervisor import Message


class _Session(CaptureSession):
    def capture(self, ask: Message) -> Message:
        _settle(ask, self.folder)
        mode = pretend_cuda(ask["device"])
        recorder = KernelRecorder(ask["injected"])
        own = [*ask["bare"], *ask["paths"], str(self.folder)]
        reads = ReadsWatch(own, ask["file"], packages=("tilelang", "tvm", "tvm_ffi", "z3"))
        reads.start()
        with mode, passing_over_triton(), recorder.active():
            error = run_for_error(ask, self.folder / "capture.err")
        self.records = {record.key: record for record in recorder.records}
        return {
            "error": error,
            "records": [record.describe() for record in recorder.records],
            "pruned": {},
            "dropped": recorder.dropped,
            "reads": reads.stop(),
            "ptxas": ask["settings"]["ptxas"],
            "triton": "",
        }

    def lower(self, record: Any, folder: Path, asked: Message) -> None:  # noqa: ARG002
        lower(record, folder, self._target)

    def export(self, record: Any, folder: Path) -> None:
        export_to(record, folder, self._target)

    @property
    def _target(self) -> str:
        return str(self.message["capture"]["settings"]["target"])


def _settle(ask: Message, folder: Path) -> None:
    """Get ready to run launch code: caches of its own, and the target that was asked for."""
    stand_aside(ask)
    os.environ["TILELANG_CACHE_DIR"] = str(folder / "cache")
    os.environ["TILELANG_TMP_DIR"] = str(folder / "cache" / "tmp")
    # What a kernel asks of its target while it is built; until 0.1.11, and from 0.1.12 on.
    words = json.dumps({"kind": "cuda", "arch": ask["settings"]["target"]})
    os.environ["TILELANG_TARGET"] = os.environ["TILELANG_DEFAULT_TARGET"] = words


def _compile_file(ask: Message, folder: Path) -> None:
    """Lower the first kernel of a file in this (forked) process: `lower` says what it leaves."""
    _settle(ask, folder)
    mode = pretend_cuda(ask["device"])
    recorder = KernelRecorder({})
    with mode, passing_over_triton(), recorder.active():
        error = run_for_error(ask, folder / "stderr")
    nothing = {"type": "RuntimeError", "kinds": ["RuntimeError"], "message": "no kernel is lowered"}
    found = KernelRecord(
        kernel="", config={}, autotuned=False, file=ask["file"], error=error or nothing
    )
    lower(next(iter(recorder.records), found), folder, ask["settings"]["target"])


def main() -> None:
    """Say hello, and serve captures until the caller hangs up."""
    serve_captures(_Session, {"tilelang": tilelang.__version__}, _compile_file)
