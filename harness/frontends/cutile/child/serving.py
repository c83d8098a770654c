"""The child of one cuTile: a session for each capture, a job for each launch of it."""

# ruff: noqa: ANN401 - records hold values of cuTile

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

# All here, none later: launch code may bring a package of our name, and modules of any.
import cuda.tile

from harness.frontends.cutile.child.driver import set_capability
from harness.frontends.cutile.child.exporting import export_to
from harness.frontends.cutile.child.lowering import gpu_of, leave, lower
from harness.frontends.cutile.child.recording import LaunchRecorder
from harness.frontends.triton.child.passed_over import passing_over_triton, pretend_cuda
from harness.io.children.captures import CaptureSession, run_for_error, serve_captures
from harness.io.children.launch_code import stand_aside
from harness.io.children.reads import ReadsWatch

if TYPE_CHECKING:
    from harness.io.children.supervisor import Message


class _Session(CaptureSession):
    def capture(self, ask: Message) -> Message:
        stand_aside(ask)
        mode = pretend_cuda(ask["device"])
        set_capability(ask["device"]["capability"])
        gpu = gpu_of(ask["settings"]["target"])
        recorder = LaunchRecorder(gpu, self.folder, ask["injected"])
        own = [*ask["bare"], *ask["paths"], str(self.folder)]
        reads = ReadsWatch(own, ask["file"], packages=("cuda", "cutile_cache"))
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

    def lower(self, record: Any, folder: Path, asked: Message) -> None:
        lower(record, folder, self._target, asked["bytecode"])

    def export(self, record: Any, folder: Path) -> None:
        export_to(record, folder, gpu_of(self._target))

    @property
    def _target(self) -> str:
        return str(self.message["capture"]["settings"]["target"])


def _compile_file(ask: Message, folder: Path) -> None:
    """Lower the first kernel of a file in this (forked) process: `lower` says what it leaves."""
    stand_aside(ask)
    mode = pretend_cuda(ask["device"])
    set_capability(ask["device"]["capability"])
    target = str(ask["settings"]["target"])
    recorder = LaunchRecorder(gpu_of(target), None, {})
    with mode, passing_over_triton(), recorder.active():
        error = run_for_error(ask, folder / "stderr")
    if error is None and recorder.records:
        lower(recorder.records[0], folder, target, ask["settings"]["bytecode"])
        return
    nothing = {"type": "RuntimeError", "kinds": ["RuntimeError"], "message": "nothing is compiled"}
    leave({"error": error or nothing, "stage": "cutile"}, folder)


def main() -> None:
    """Say hello, and serve captures until the caller hangs up."""
    serve_captures(_Session, {"cuda.tile": cuda.tile.__version__}, _compile_file)
