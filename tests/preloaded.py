"""`triage` as a process of its own whose Python has started, and imported, already.

To start Python and to import what all commands import takes 0.4 s of each of a thousand commands.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["PreloadedTriage", "preloaded_triage"]

HERE = Path(__file__).parent


class PreloadedTriage:
    """Imports everything once and forks for each command; what is written goes to `folder`."""

    def __init__(self, folder: Path, python_path: str) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._env = {**os.environ, "PYTHONPATH": python_path}
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "triage_worker.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=self._env,
            # A Ctrl-C is for the tests; they end it.
            start_new_session=True,
        )

    def is_as_with(self, env: Mapping[str, str]) -> bool:
        """Whether Python, started with `env`, would have started as this one did."""
        read = [name for name in env if name.startswith(("PYTHON", "LANG", "LC_"))]
        return all(env[name] == self._env.get(name) for name in read)

    def ask(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """What the worker answers to a case (see `triage_worker`)."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin
        assert stdout
        where = {"out": str(self._folder / "out"), "err": str(self._folder / "err")}
        with self._lock:
            stdin.write(json.dumps({**where, **wanted}) + "\n")
            stdin.flush()
            answer: dict[str, Any] = json.loads(stdout.readline())
        return answer

    def run(
        self, words: Sequence[str], *, folder: Path, env: Mapping[str, str], timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """As `subprocess.run([python, "-m", "harness", *words], ...)` with captured output.

        Raises:
            subprocess.TimeoutExpired: it took longer than `timeout` seconds, and was killed.
        """
        with tempfile.TemporaryDirectory(dir=self._folder) as scratch:
            out, err = Path(scratch, "out"), Path(scratch, "err")
            answer = self.ask(
                {
                    "words": list(words),
                    "folder": str(folder),
                    "folder_is_gone": False,
                    "env": dict(env),
                    "only_this_env": True,
                    "out": str(out),
                    "err": str(err),
                    "seconds": timeout,
                    "stdin": "null",
                    "stdout": "file",
                    "stderr": "file",
                    "encoding": "utf-8",
                    "memory": resource.RLIM_INFINITY,
                    "plain": False,
                    "leaves_nobody": False,
                }
            )
            output, errors = out.read_text(), err.read_text()
        command = ["triage", *words]
        if answer["how"] == "hung":
            raise subprocess.TimeoutExpired(command, timeout, output, errors)
        return subprocess.CompletedProcess(command, answer["code"], output, errors)

    def close(self) -> None:
        """End it."""
        self._process.communicate(timeout=60)


@functools.cache
def preloaded_triage(python_path: str = str(HERE.parent)) -> PreloadedTriage:
    """The one of these tests that has this module path."""
    folder = tempfile.TemporaryDirectory(prefix="preloaded-")
    process = PreloadedTriage(Path(folder.name), python_path)
    atexit.register(folder.cleanup)
    atexit.register(process.close)
    return process
