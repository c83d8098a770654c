"""The child of one CuTe DSL: a session for each capture, a job for each GPU function of it."""

# ruff: noqa: ANN401 - records hold values of CuTe DSL

from __future__ import annotations

import os
import re
import tempfile
import time
from json import dumps
from pathlib import Path
from typing import Any

import cutlass
import cutlass.cute
from cutlass.base_dsl.dsl import DSLSingletonMeta

from harness.frontends.cutedsl.child.exporting import export
from harness.frontends.cutedsl.child.host_code import dynamic_shared
from harness.frontends.cutedsl.child.recording import DUMP, FunctionRecorder
from harness.frontends.pretend.recorded import RecordedSession, Recorder
from harness.io.children.captures import leave, serve_captures
from harness.io.children.launch_code import describe_error
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


_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def lower(record: Any, folder: Path, target: str) -> None:
    """Lower `record` for `target` in this (forked) process; everything is left in `folder`.

    `result.json`: error or None, the stage, metadata. `kernel.mlir` and `kernel.ptx` hold what each
    stage gave; PTX that the ptxas inside CuTe DSL refuses is left, too.
    """
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    (folder / "progress.json").write_text(dumps({"stage": "mlir" if record.error else "nvvm"}))
    result: dict[str, Any] = {"error": record.error, "stage": "mlir", "metadata": {}}
    started = time.perf_counter()
    if record.error is None:
        result["stage"] = "nvvm"
        (folder / "kernel.mlir").write_text(record.text)
        result["ptxas_options"] = record.ptxas_options
        result["metadata"] = {"entry": record.symbol}
        try:
            result["metadata"] |= _lowered(record, folder, target)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever is raised is the evidence
            result["error"] = describe_error(error, record.file)
            if error.__cause__ is not None:
                result["error"]["message"] += f"\n{error.__cause__}"[:10_000]
        for found in sorted(folder.glob("dump*.ptx")):
            # As a string of C, with its end.
            (folder / "kernel.ptx").write_bytes(found.read_bytes().removesuffix(b"\0"))
    if result["error"]:
        result["error"]["message"] = _COLOURS.sub("", result["error"]["message"])
    result["seconds"] = {result["stage"]: time.perf_counter() - started}
    leave(result, folder)


def _lowered(record: Any, folder: Path, target: str) -> dict[str, Any]:
    if record.arch != target:
        message = f"the launch compiles for {record.arch}, and {target} was asked for"
        raise NotImplementedError(message)
    pipeline = record.pipeline.replace(DUMP, str(folder / "dump"))
    module = record.module
    with module.context, module.operation.location:
        compiled = record.provider.compile(module, pipeline)
    text = (compiled if compiled is not None else module).operation.get_asm()
    shared = dynamic_shared(text, record.symbol)
    return {} if shared is None else {"shared": shared}
