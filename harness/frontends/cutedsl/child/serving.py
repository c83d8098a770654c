"""The child of one CuTe DSL: a session for each capture, a job for each GPU function of it."""

# ruff: noqa: ANN401 - records hold values of CuTe DSL

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

# All here, none later: launch code may bring a package of our name, and modules of any.
import cutlass
from cutlass.base_dsl.dsl import DSLSingletonMeta

from harness.frontends.cutedsl.child.exporting import export_to
from harness.frontends.cutedsl.child.lowering import lower
from harness.frontends.cutedsl.child.recording import FunctionRecord, FunctionRecorder
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
        log = self.folder / "capture.err"
        recorder = FunctionRecorder(ask["device"], log)
        own = [*ask["bare"], *ask["paths"], str(self.folder)]
        packages = ("cutlass", "cuda", "tvm_ffi", "google")
        reads = ReadsWatch(own, ask["file"], packages=packages)
        reads.start()
        with mode, passing_over_triton(), recorder.active():
            error = run_for_error(ask, log)
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
    """Get ready to run launch code: a cache of its own, and the target that was asked for."""
    stand_aside(ask)
    _aim(ask["settings"]["target"])
    os.environ["CUTE_DSL_CACHE_DIR"] = str(folder / "cache")


def _aim(target: str) -> None:
    """Set the target of what is compiled from now on, which would be asked of a driver."""
    os.environ["CUTE_DSL_ARCH"] = target
    for dsl in DSLSingletonMeta._instances.values():  # noqa: SLF001 - there is no public name
        dsl.envar.arch = target


def _compile_file(ask: Message, folder: Path) -> None:
    """Lower the first kernel of a file in this (forked) process: `lower` says what it leaves."""
    _settle(ask, folder)
    mode = pretend_cuda(ask["device"])
    log = folder / "stderr"
    recorder = FunctionRecorder(ask["device"], log)
    with mode, passing_over_triton(), recorder.active():
        error = run_for_error(ask, log)
    nothing = {"type": "RuntimeError", "kinds": ["RuntimeError"], "message": "nothing is compiled"}
    found = FunctionRecord(kernel="", file=ask["file"], error=error or nothing)
    lower(next(iter(recorder.records), found), folder, ask["settings"]["target"])


def main() -> None:
    """Say hello, and serve captures until the caller hangs up."""
    serve_captures(_Session, {"cutlass": cutlass.__version__}, _compile_file)
