"""The child of one Triton: forks a session for each capture, and a job for each config of it.

Importing torch and Triton is paid for once. Captures and compilations happen in forks, so one that
aborts takes nothing with it, and this process never holds state that a kernel could spoil.

`python -m harness.child.serve SOCKET NAME`
"""

from __future__ import annotations

import importlib.metadata
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from harness.child.supervisor import Limits, Message, Supervisor, connect, redirect

__all__ = ["main"]


class Session:
    """One capture, kept alive so that its records can be compiled one by one."""

    def __init__(self, message: Message):
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
        self._supervisor = Supervisor(channel, {"lower": self._lower})
        self._supervisor.send({"captured": self._capture()})
        self._supervisor.serve()

    def _capture(self) -> Message:
        from harness.child.device import pretend_cuda
        from harness.child.lowering import picked_ptxas
        from harness.child.recording import Recorder
        from harness.child.sources import BareParents, imported_files, run_launch

        ask = self._message["capture"]
        sys.path[:0] = ask["paths"]
        if ask["bare"]:
            sys.meta_path.insert(0, BareParents(ask["bare"]))
        recorder = Recorder()
        self._mode = pretend_cuda(ask["device"])
        self._run = recorder.original_run
        error = None
        with self._mode, recorder.active():
            try:
                run_launch(ask["file"], ask["function"], ask["overrides"])
            except (Exception, SystemExit) as raised:  # noqa: BLE001 - the user's code may raise anything
                if not (isinstance(raised, SystemExit) and not raised.code):
                    error = _raised(raised, ask["file"])
        self._records = recorder.records
        return {
            "error": error,
            "records": [
                {
                    "key": record.key,
                    "kernel": record.kernel,
                    "config": record.config,
                    "autotuned": record.autotuned,
                    "arguments": record.arguments,
                    "grid": record.grid,
                    "file": record.function.fn.__code__.co_filename,
                }
                for record in recorder.records.values()
            ],
            "pruned": recorder.pruned,
            "files": imported_files([*ask["bare"], *ask["paths"]]),
            "ptxas": picked_ptxas(ask["device"]["capability"]),
            "triton": importlib.metadata.version("triton"),
        }

    def _lower(self, message: Message) -> None:
        from harness.child.lowering import lower

        folder = Path(message["folder"])
        record = self._records[message["key"]]

        def body() -> None:
            redirect(str(folder / "stdout"), str(folder / "stderr"))
            with self._mode:
                lower(record, self._run, folder, message["ptxas"])

        assert self._supervisor is not None
        self._supervisor.fork(message["id"], body, Limits(**message["limits"]))


def _raised(error: BaseException, file: str) -> Message:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return {
        "type": type(error).__name__,
        "kinds": [kind.__name__ for kind in type(error).__mro__],
        "message": str(error)[:10_000],
        "line": frames[-1].lineno if frames else None,
        "traceback": "".join(traceback.format_exception(error))[-20_000:],
    }


def main() -> None:
    """Import the heavy modules, say hello, fork sessions until the caller hangs up."""
    path, name = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import torch  # noqa: F401 - imported here so that every fork has it
    import triton
    import triton.backends.nvidia.compiler  # noqa: F401

    supervisor = Supervisor(connect(path, name), {})

    def open_session(message: Message) -> None:
        supervisor.fork(message["id"], Session({**message, "socket": path}), Limits())

    supervisor.handle("open", open_session)
    supervisor.send({"ready": {"triton": triton.__version__, "path": str(Path(triton.__file__).parent)}})
    supervisor.serve()


if __name__ == "__main__":
    main()
