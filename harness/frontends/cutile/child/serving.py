"""The child of one cuTile: a session for each capture, a job for each launch of it."""

# ruff: noqa: ANN401 - records hold values of cuTile

from __future__ import annotations

from pathlib import Path
from typing import Any

# All here, none later: launch code may bring a package of our name, and modules of any.
import cuda.tile

from harness.frontends.cutile.child.driver import set_capability
from harness.frontends.cutile.child.exporting import export
from harness.frontends.cutile.child.lowering import gpu_of, lower
from harness.frontends.cutile.child.recording import LaunchRecorder
from harness.frontends.pretend.recorded import RecordedSession, Recorder
from harness.io.children.captures import serve_captures
from harness.io.children.supervisor import Message


class _Session(RecordedSession):
    packages = ("cuda", "cutile_cache")
    first = "cutile"

    def settle(self, ask: Message) -> None:
        set_capability(ask["device"]["capability"])

    def recorder(self, ask: Message, log: Path) -> Recorder:
        # A file that stands alone is lowered anyway.
        folder = self.folder if self.message["op"] == "open" else None
        return LaunchRecorder(gpu_of(self.target), folder, ask["injected"])

    def lower(self, record: Any, folder: Path, asked: Message) -> None:
        lower(record, folder, self.target, asked["bytecode"])

    def exported(self, record: Any) -> dict[str, Any]:
        return export(record, gpu_of(self.target))


def main() -> None:
    """Say hello, and serve captures until the caller hangs up."""
    serve_captures(_Session, {"cuda.tile": cuda.tile.__version__}, _Session.compile_file)
