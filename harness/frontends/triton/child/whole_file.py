"""Compiles a file that stands alone in one go: Python that compiles a kernel, or Triton's IR."""

# ruff: noqa: ANN401 - values of Triton have types that we cannot name

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from triton.runtime.jit import JITFunction

from harness.frontends.pretend.pretend_driver import pretend_triton
from harness.frontends.triton.child.ir_files import is_ir, read_ir
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
