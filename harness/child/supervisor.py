"""Runs jobs as children of this small process, each under limits, and tells how each one ended.

One thread, one select loop: forking is safe here, in the caller with its threads and its event
loop it is not. Messages are JSON lines over a Unix socket. When the socket closes (the caller
died, `kill -9` included) every job's process group is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["Job", "Limits", "Message", "Supervisor", "connect", "redirect"]

Message = dict[str, Any]

_POLL_SECONDS = 0.03
_PR_SET_PDEATHSIG = 1
_PAGE = os.sysconf("SC_PAGE_SIZE")
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Limits:
    """Wall clock in seconds; resident memory and size of any written file in bytes."""

    timeout: float | None = None
    memory: int | None = None
    file_size: int | None = None


@dataclass
class Job:
    """One running child."""

    job_id: int
    pid: int
    pidfd: int
    started: float
    limits: Limits
    start_error: int
    timed_out: bool = False
    over_memory: bool = False
    peak_rss: int = 0


def connect(path: str, name: str) -> socket.socket:
    """Connect to the caller's socket and say who we are."""
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    channel.connect(path)
    channel.sendall(json.dumps({"hello": name}).encode() + b"\n")
    return channel


def redirect(stdout: str, stderr: str) -> None:
    """Send this process's standard streams to files, below Python as well (LLVM writes to fd 2)."""
    sys.stdout.flush()
    sys.stderr.flush()
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    for number, path in ((1, stdout), (2, stderr)):
        fd = os.open(path, flags, 0o644)
        os.dup2(fd, number)
        os.close(fd)


class Supervisor:
    """Starts jobs, enforces their limits, reports their ends."""

    def __init__(self, channel: socket.socket, handlers: dict[str, Callable[[Message], None]]):
        self._channel = channel
        self._handlers = {**handlers, "kill": self._kill_asked, "exec": self._exec_asked}
        self._jobs: dict[int, Job] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(channel, selectors.EVENT_READ, None)
        self._pending = b""

    def handle(self, operation: str, handler: Callable[[Message], None]) -> None:
        """Answer messages of one more kind."""
        self._handlers[operation] = handler

    def send(self, message: Message) -> None:
        """Tell the caller something; a caller that is gone is noticed by the loop."""
        with contextlib.suppress(OSError):
            self._channel.sendall(json.dumps(message).encode() + b"\n")

    def serve(self) -> None:
        """Handle messages and jobs until the caller hangs up."""
        while True:
            timeout = _POLL_SECONDS if self._jobs else None
            for key, _ in self._selector.select(timeout):
                if key.data is not None:
                    self._reap(key.data)
                elif not self._read():
                    self._kill_all()
                    return
            self._enforce_limits()

    def fork(self, job_id: int, body: Callable[[], None], limits: Limits) -> None:
        """Run `body` in a forked child with its own process group."""
        error_read, error_write = os.pipe2(os.O_CLOEXEC)
        caller = os.getpid()
        pid = os.fork()
        if pid == 0:
            os.close(error_read)
            self._run_child(body, limits, caller, error_write)
        os.close(error_write)
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)
        job = Job(
            job_id=job_id,
            pid=pid,
            pidfd=os.pidfd_open(pid),
            started=time.monotonic(),
            limits=limits,
            start_error=error_read,
        )
        self._jobs[job_id] = job
        self._selector.register(job.pidfd, selectors.EVENT_READ, job)

    def _run_child(
        self, body: Callable[[], None], limits: Limits, caller: int, error_write: int
    ) -> None:
        """The child's side of the fork; never returns."""
        code = 70
        try:
            with contextlib.suppress(OSError):
                os.setpgid(0, 0)
            _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != caller:
                os._exit(code)
            self._selector.close()
            self._channel.close()
            # Python ignores these two; a compiler must meet them as it would in a shell.
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            if limits.file_size is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limits.file_size, limits.file_size))
            body()
            code = 0
        except OSError as error:
            with contextlib.suppress(OSError):
                os.write(error_write, f"{error.strerror}: {error.filename}".encode()[:500])
        except BaseException:  # noqa: BLE001 - the last frame of a forked child: report, then leave
            traceback.print_exc()
        finally:
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def _exec_asked(self, message: Message) -> None:
        argv: list[str] = message["argv"]
        env = message.get("env") or dict(os.environ)

        def body() -> None:
            redirect(message["stdout"], message["stderr"])
            os.chdir(message["cwd"])
            os.execve(argv[0], argv, env)  # noqa: S606

        self.fork(message["id"], body, Limits(**message["limits"]))

    def _kill_asked(self, message: Message) -> None:
        job = self._jobs.get(message["id"])
        if job:
            job.timed_out = bool(message.get("timed_out"))
            self._kill(job)

    def _kill(self, job: Job) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(job.pid, signal.SIGKILL)

    def _kill_all(self) -> None:
        for job in self._jobs.values():
            self._kill(job)

    def _read(self) -> bool:
        try:
            data = self._channel.recv(1 << 16)
        except ConnectionError:
            return False
        if not data:
            return False
        *lines, self._pending = (self._pending + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            self._handlers[message["op"]](message)
        return True

    def _enforce_limits(self) -> None:
        now = time.monotonic()
        for job in self._jobs.values():
            limits = job.limits
            if limits.timeout is not None and now - job.started > limits.timeout:
                job.timed_out = True
                self._kill(job)
            if limits.memory is not None and _resident(job.pid) > limits.memory:
                job.over_memory = True
                self._kill(job)

    def _reap(self, job: Job) -> None:
        _, status, usage = os.wait4(job.pid, 0)
        wall = time.monotonic() - job.started
        # Grandchildren that outlive the job (a hung tool behind a wrapper) go with it.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(job.pid, signal.SIGKILL)
        self._selector.unregister(job.pidfd)
        os.close(job.pidfd)
        start_error = os.read(job.start_error, 500).decode(errors="replace")
        os.close(job.start_error)
        del self._jobs[job.job_id]
        code = os.waitstatus_to_exitcode(status)
        self.send(
            {
                "id": job.job_id,
                "end": {
                    "exit_code": code if code >= 0 else None,
                    "signal": -code if code < 0 else None,
                    "timed_out": job.timed_out,
                    "over_memory": job.over_memory,
                    "flooded": code == -signal.SIGXFSZ,
                    "wall": wall,
                    "cpu": usage.ru_utime + usage.ru_stime,
                    "peak_rss": usage.ru_maxrss * 1024,
                },
                "start_error": start_error or None,
            }
        )


def _resident(pid: int) -> int:
    """Resident bytes of one process; 0 once it is gone."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:  # noqa: PTH123 - a hot path in a tiny process
            return int(file.read().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def main() -> None:
    """Serve `exec` requests: `python supervisor.py SOCKET NAME`."""
    path, name = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Supervisor(connect(path, name), {}).serve()


if __name__ == "__main__":
    main()
