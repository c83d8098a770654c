"""The child of one TileLang: a session for each capture, a job for each kernel of it."""

# ruff: noqa: ANN401 - records hold values of TileLang

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

# All here, none later: launch code may bring a package of our name, and modules of any.
import tilelang

from harness.frontends.pretend.recorded import RecordedSession, Recorder
from harness.frontends.tilelang.child.exporting import export
from harness.frontends.tilelang.child.lowering import lower
from harness.frontends.tilelang.child.recording import KernelRecorder
from harness.io.children.captures import serve_captures
from harness.io.children.supervisor import Message


class _Session(RecordedSession):
    packages = ("tilelang", "tvm", "tvm_ffi", "z3")
    first = "tir"

    def settle(self, ask: Message) -> None:
        os.environ["TILELANG_CACHE_DIR"] = str(self.folder / "cache")
        os.environ["TILELANG_TMP_DIR"] = str(self.folder / "cache" / "tmp")
        # What a kernel asks of its target while it is built; until 0.1.11, and from 0.1.12 on.
        words = json.dumps({"kind": "cuda", "arch": ask["settings"]["target"]})
        os.environ["TILELANG_TARGET"] = os.environ["TILELANG_DEFAULT_TARGET"] = words

    def recorder(self, ask: Message, log: Path) -> Recorder:
        return KernelRecorder(ask["injected"])

    def lower(self, record: Any, folder: Path, asked: Message) -> None:
        lower(record, folder, self.target)

    def exported(self, record: Any) -> dict[str, Any]:
        return {"export": export(record, self.target)}


def main() -> None:
    """Say hello, and serve captures until the caller hangs up."""
    serve_captures(_Session, {"tilelang": tilelang.__version__}, _Session.compile_file)
