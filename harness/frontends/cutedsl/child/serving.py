"""The child of one CuTe DSL: a session for each capture, a job for each GPU function of it."""

# ruff: noqa: ANN401 - records hold values of CuTe DSL

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

# All here, none later: launch code may bring a package of our name, and modules of any.
import cutlass
import cutlass.cute
from cutlass.base_dsl.dsl import DSLSingletonMeta

from harness.frontends.cutedsl.child.exporting import export
from harness.frontends.cutedsl.child.lowering import lower
from harness.frontends.cutedsl.child.recording import FunctionRecorder
from harness.frontends.pretend.recorded import RecordedSession, Recorder
from harness.io.children.captures import serve_captures
from harness.io.children.supervisor import Message


class _Session(RecordedSession):
    packages = ("cutlass", "cuda", "tvm_ffi", "google")
    first = "mlir"

    def settle(self, ask: Message) -> None:
        # What is compiled from now on has a target; else a driver would be asked.
        os.environ["CUTE_DSL_ARCH"] = target = ask["settings"]["target"]
        for dsl in DSLSingletonMeta._instances.values():  # noqa: SLF001 - there is no public name
            dsl.envar.arch = target
        os.environ["CUTE_DSL_CACHE_DIR"] = str(self.folder / "cache")

    def recorder(self, ask: Message, log: Path) -> Recorder:
        return FunctionRecorder(ask["device"], log)

    def lower(self, record: Any, folder: Path, asked: Message) -> None:
        lower(record, folder, self.target)

    def exported(self, record: Any) -> dict[str, Any]:
        return export(record, self.target)


def main() -> None:
    """Say hello, and serve captures until the caller hangs up."""
    serve_captures(_Session, {"cutlass": cutlass.__version__}, _Session.compile_file)
