"""The child of one Triton: forks a session for each capture, and a job for each config of it.

Importing torch and Triton is paid for once. Captures and compilations happen in forks, so one that
aborts takes nothing with it, and this process never holds state that a kernel could spoil.

`python -m harness.frontends.triton.child SOCKET NAME`
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.metadata
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# All here, none later: launch code may bring a package of our name, and modules of any.
import torch  # noqa: F401 - so that every fork has it
import triton

from harness.children.captures import last_line
from harness.children.confine import settle
from harness.children.jobs import JobLimits
from harness.children.launch_code import describe_error, run_launch, stand_aside
from harness.children.reads import ReadsWatch
from harness.children.supervisor import Message, Supervisor, connect, redirect
from harness.frontends.triton.child.exporting import export_to
from harness.frontends.triton.child.ir_files import is_ir, read_ir
from harness.frontends.triton.child.lowering import lower, picked_ptxas
from harness.frontends.triton.child.postponed import postpone_torch
from harness.frontends.triton.child.pretend_driver import pretend_triton
from harness.frontends.triton.child.recording import Recorder
from harness.frontends.triton.child.whole_file import compile_standalone

# What Triton imports in the middle of its first compilation, where it has it.
_IMPORTED_LATE = (
    "triton.compiler.code_generator",
    "triton.language.semantic",
    "triton.language.extra.libdevice",
    "triton.tools.tensor_descriptor",
)


class Session:
    """One capture, kept alive so that its records can be compiled one by one."""

    def __init__(self, message: Message) -> None:
        self._message = message
        self._folder = Path(message["folder"])
        self._records: dict[str, Any] = {}
        self._run: Any = None
        self._mode: Any = None
        self._supervisor: Supervisor | None = None

    def __call__(self) -> None:
        """The body of the forked session."""
        redirect(str(self._folder / "capture.out"), str(self._folder / "capture.err"))
        channel = connect(self._message["socket"], self._message["name"])
        self._supervisor = Supervisor(channel, {"lower": self._lower, "export": self._export})
        if self._message["capture"]["confined"]:
            settle(str(self._folder))
        captured = self._capture()
        # Processes that the launch code started: from now on, all others are jobs.
        self._supervisor.clear()
        self._supervisor.send({"captured": captured})
        self._supervisor.serve()

    def _capture(self) -> Message:
        ask = self._message["capture"]
        stand_aside(ask)
        os.environ["TRITON_CACHE_DIR"] = str(self._folder / "cache")
        recorder = Recorder(injected=ask["injected"])
        self._mode = pretend_triton(ask["device"])
        self._run = recorder.original_run
        error = None
        if is_ir(ask["file"]):
            return self._read_ir(ask)
        reads = ReadsWatch([*ask["bare"], *ask["paths"], str(self._folder)], ask["file"])
        reads.start()
        with self._mode, recorder.active():
            try:
                run_launch(ask["file"], ask["function"], ask["overrides"])
            except (Exception, SystemExit) as raised:  # noqa: BLE001 - the user's code raises anything
                if not (isinstance(raised, SystemExit) and not raised.code):
                    error = describe_error(raised, ask["file"])
                if isinstance(raised, SystemExit) and error:
                    error["message"] += last_line(self._folder / "capture.err")
        self._records = {record.key: record for record in recorder.records.values()}
        # Where launch code took them away (a pipe's end that is not read, say), jobs write files.
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        return {
            "error": error,
            "records": [record.describe() for record in recorder.records.values()],
            "pruned": recorder.pruned,
            "dropped": recorder.dropped,
            "reads": reads.stop(),
            "ptxas": picked_ptxas(ask["device"]["capability"]),
            "triton": importlib.metadata.version("triton"),
        }

    def _read_ir(self, ask: Message) -> Message:
        """A file of Triton's IR in place of a launch: nothing is run."""
        capability = ask["device"]["capability"]
        record = read_ir(ask["file"], ask["overrides"], capability)
        self._records = {record.key: record}
        return {
            "error": None,
            "records": [record.describe()],
            "pruned": {},
            "dropped": 0,
            "reads": {},
            "ptxas": picked_ptxas(capability),
            "triton": importlib.metadata.version("triton"),
        }

    def _lower(self, message: Message) -> None:
        self._on_record(
            message,
            lambda record, folder: lower(
                record, self._run, folder, message["ptxas"], dump=message["dump"]
            ),
        )

    def _export(self, message: Message) -> None:
        self._on_record(message, lambda record, folder: export_to(record, self._run, folder))

    def _on_record(self, message: Message, work: Callable[[Any, Path], None]) -> None:
        """Do something with one of the records, in a fork."""
        assert self._supervisor is not None
        folder = Path(message["folder"])
        streams = (str(folder / "stdout"), str(folder / "stderr"))
        record = self._records.get(message["key"])
        if record is None:
            self._supervisor.refuse(
                message["id"], "run again, the launch code no longer makes this launch"
            )
            return

        def body() -> None:
            redirect(*streams)
            with self._mode:
                work(record, folder)

        self._supervisor.fork(message["id"], body, JobLimits(**message["limits"]), streams)


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


def main() -> None:
    """Say hello, fork sessions until the caller hangs up."""
    path, name = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    supervisor = Supervisor(connect(path, name), {})

    def open_session(message: Message) -> None:
        session = Session({**message, "socket": path})
        supervisor.fork(message["id"], session, JobLimits.of(message))

    def compile_file(message: Message) -> None:
        folder = Path(message["folder"])
        streams = (str(folder / "stdout"), str(folder / "stderr"))

        def body() -> None:
            redirect(*streams)
            if message["capture"]["confined"]:
                settle(str(folder))
            compile_standalone(message["capture"], folder, message["ptxas"], message["until"])

        supervisor.fork(message["id"], body, JobLimits.of(message), streams)

    supervisor.handle("open", open_session)
    supervisor.handle("compile", compile_file)
    _warm_up(triton.__version__)
    where = str(Path(triton.__file__).parent)
    supervisor.send({"ready": {"triton": triton.__version__, "path": where}})
    supervisor.serve()
