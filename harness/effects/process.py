"""The one module that spawns processes."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.values.errors import InfrastructureError
from harness.values.outcome import ProcessEnd

__all__ = ["ToolResult", "run_tool"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """A helper tool's end and what it printed (uv, `ptxas --version`)."""

    end: ProcessEnd
    stdout: str
    stderr: str


def run_tool(
    argv: Sequence[str | Path],
    *,
    timeout: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> ToolResult:
    """Run a trusted tool to its end, in its own process group, for at most `timeout` seconds.

    For uv and version queries; compilers go through the supervisor, which also limits memory.
    A tool that fails is a result, not an exception.

    Raises:
        InfrastructureError: the executable cannot be started.
    """
    started = time.monotonic()
    words = [os.fspath(word) for word in argv]
    try:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=None if env is None else dict(env),
            cwd=cwd,
            start_new_session=True,
        )
    except OSError as error:
        raise InfrastructureError(f"cannot start {words[0]}: {error.strerror}") from error
    timed_out = False
    try:
        stdout, stderr = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        timed_out = True
        os.killpg(process.pid, signal.SIGKILL)
        stdout, stderr = process.communicate()
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    code = process.returncode
    end = ProcessEnd(
        exit_code=code if code >= 0 else None,
        signal=-code if code < 0 else None,
        timed_out=timed_out,
        wall=time.monotonic() - started,
    )
    return ToolResult(
        end=end,
        stdout=stdout.decode(errors="replace"),
        stderr=stderr.decode(errors="replace"),
    )
