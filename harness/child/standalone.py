"""Compiles a standalone file in one go: run it, and lower the first kernel that it compiles."""

# ruff: noqa: ANN401 - values of Triton have types that we cannot name

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from harness.child.device import pretend_cuda
from harness.child.lowering import lower
from harness.child.recording import Recorder
from harness.child.sources import run_launch, stand_aside

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["compile_standalone"]


@dataclass
class _Nothing:
    """Stands in for the record of a file that did not come to compile anything."""

    first_stage: ClassVar[str] = "capture"
    error: BaseException

    def compile(self, run: Any) -> NoReturn:  # noqa: ARG002 - as of any record
        raise self.error


def compile_standalone(ask: Mapping[str, Any], folder: Path, ptxas: str | None) -> None:
    """Run a file as `__main__` in this (forked) process; what `lower` leaves is in `folder`."""
    stand_aside(ask)
    os.environ["TRITON_CACHE_DIR"] = str(folder / "cache")
    recorder = Recorder()
    mode = pretend_cuda(ask["device"])
    record: Any = None
    with mode, recorder.active():
        try:
            run_launch(ask["file"], ask["function"], ask["overrides"])
        except (Exception, SystemExit) as raised:  # noqa: BLE001 - the file's code raises anything
            record = _Nothing(raised)
    nothing = _Nothing(RuntimeError("the file compiles no kernel"))
    record = next(iter(recorder.records.values()), record or nothing)
    with mode:
        lower(record, recorder.original_run, folder, ptxas)
