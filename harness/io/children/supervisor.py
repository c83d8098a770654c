"""Runs jobs as children of this small process, each under limits, and tells how each one ended.

One thread, one select loop: forking is safe here, in the caller with its threads and its event
loop it is not. Messages are JSON lines over a Unix socket. When the socket closes (the caller
died, `kill -9` included) every job is killed, with all that descends from it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from json import dumps, loads
from typing import Any

from harness.io.children.confine import confine, hide
from harness.io.children.jobs import (
    FILES,
    Families,
    Job,
    JobLimits,
    is_full,
    open_pidfd,
    resident,
    written,
)

Message = dict[str, Any]

_POLL_SECONDS = 0.03
_FAMILY_SECONDS = 0.25
_BURIAL_SECONDS = 2.0
_LAST_BURIAL_SECONDS = 10.0
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LIBC = ctypes.CDLL(None, use_errno=True)


def connect(path: str, name: str) -> socket.socket:
    """Connect to the caller's socket and say who we are."""
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    channel.connect(path)
    channel.sendall(dumps({"hello": name}).encode() + b"\n")
    return channel


def redirect(stdout: str, stderr: str) -> None:
    """Send this process's standard streams to files, below Python as well (LLVM writes to fd 2)."""
    _flush()
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    for number, path in ((1, stdout), (2, stderr)):
        fd = os.open(path, flags, 0o644)
        os.dup2(fd, number)
        os.close(fd)


def _flush() -> None:
    # Code under capture may have closed these, or put None or anything else in their place.
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stdout.flush()
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.flush()


def split() -> int:
    """Fork this process, which runs no supervisor: 0 in the new one, its id in this one."""
    _flush()
    return os.fork()


def forked(body: Callable[[], object]) -> int:
    """Do this in a fork of this process, whose id is given: it ends with 0, or with what failed."""
    child = split()
    if child == 0:
        code = 1
        try:
            body()
            code = 0
        except BaseException:  # noqa: BLE001 - this process has no other way to report it
            traceback.print_exc()
        finally:
            _flush()
            os._exit(code)
    return child


def wait_until(child: int, deadline: float) -> int | None:
    """The status of a process that `split` made; None if it had to be killed at the deadline."""
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None
        time.sleep(_POLL_SECONDS)


def _file_size(size: int) -> int:
    """What is wanted of a limit that may only be lowered: another supervisor may have set it."""
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    return size if hard == resource.RLIM_INFINITY else min(size, hard)


class Supervisor:
    """Starts jobs, enforces their limits, reports their ends.

    A descendant that left its job's process group (a daemon) becomes a child of this process when
    its parent dies, and is killed with the job.
    """

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._handlers: dict[str, Callable[[Message], None]] = {
            "kill": self._kill_asked,
            "exec": self._exec_asked,
            "count alone": self._count_alone_asked,
        }
        self._jobs: dict[int, Job] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(channel, selectors.EVENT_READ, None)
        self._pending = b""
        self._families_read = 0.0
        _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1)
        hide()

    def handle(self, operation: str, handler: Callable[[Message], None]) -> None:
        """Answer messages of one more kind."""
        self._handlers[operation] = handler

    def send(self, message: Message) -> None:
        """Tell the caller something; a caller that is gone is noticed by the loop."""
        with contextlib.suppress(OSError):
            self._channel.sendall(dumps(message).encode() + b"\n")

    def serve(self) -> None:
        """Handle messages and jobs until the caller hangs up; then nothing is left running."""
        while True:
            timeout = _POLL_SECONDS if self._jobs else None
            for key, _ in self._selector.select(timeout):
                if key.data is not None:
                    self._reap(key.data)
                elif not self._read():
                    for job in self._jobs.values():
                        self._kill(job)
                    self._bury((), _LAST_BURIAL_SECONDS)
                    return
            for job in [job for job in self._jobs.values() if job.pidfd is None]:
                if os.waitid(os.P_PID, job.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                    self._reap(job)
            self._enforce_limits()

    def fork(
        self, job_id: int, body: Callable[[], None], limits: JobLimits, streams: Sequence[str] = ()
    ) -> None:
        """Run `body` in a forked child with its own process group.

        `streams` are the files that its output goes to.
        """
        caller = os.getpid()
        error_read = error_write = -1
        try:
            error_read, error_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            pid = os.fork()
        except OSError as error:
            for fd in (error_read, error_write):
                if fd >= 0:
                    os.close(fd)
            self.refuse(job_id, f"cannot fork: {error.strerror}")
            return
        if pid == 0:
            os.close(error_read)
            self._run_child(body, limits, caller, error_write, streams)
        os.close(error_write)
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)
        job = Job(
            job_id=job_id,
            pid=pid,
            pidfd=open_pidfd(pid),
            started=time.monotonic(),
            limits=limits,
            start_error=error_read,
            streams=streams,
        )
        self._jobs[job_id] = job
        if job.pidfd is not None:
            self._selector.register(job.pidfd, selectors.EVENT_READ, job)

    def refuse(self, job_id: int, reason: str) -> None:
        """Tell the caller that a job could not start."""
        self.send({"id": job_id, "end": {"exit_code": 70}, "start_error": reason})

    def _run_child(
        self,
        body: Callable[[], None],
        limits: JobLimits,
        caller: int,
        error_write: int,
        streams: Sequence[str],
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
            signal.signal(signal.SIGINT, signal.default_int_handler)
            # Python ignores this one; it is how a job that floods its output ends.
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            if limits.file_size is not None:
                size = _file_size(limits.file_size)
                resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
            if streams:
                redirect(*streams)
            body()
            code = 0
        except OSError as error:
            where = f": {error.filename}" if error.filename else ""
            with contextlib.suppress(OSError):
                os.write(error_write, f"{error.strerror or error}{where}".encode()[:500])
        except BaseException:  # noqa: BLE001 - the last frame of a forked child: report, then leave
            traceback.print_exc()
        finally:
            try:
                _flush()
            finally:
                os._exit(code)

    def _exec_asked(self, message: Message) -> None:
        argv: list[str] = message["argv"]
        env = message.get("env")

        def body() -> None:
            os.chdir(message["cwd"])
            if message.get("writable") is not None:
                confine(message["writable"])
            # A compiler must meet signals as it would in a shell, not as Python likes them.
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.execve(argv[0], argv, os.environ if env is None else env)  # noqa: S606 - no shell is meant

        streams = (message["stdout"], message["stderr"])
        self.fork(message["id"], body, JobLimits.of(message), streams)

    def _kill_asked(self, message: Message) -> None:
        if job := self._jobs.get(message["id"]):
            job.timed_out = bool(message.get("timed_out"))
            self._kill(job)

    def _count_alone_asked(self, message: Message) -> None:
        if job := self._jobs.get(message["id"]):
            job.limits = replace(job.limits, with_descendants=False)

    def _kill(self, job: Job) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(job.pid, signal.SIGKILL)

    def clear(self) -> None:
        """Kill what this process started that is not a job."""
        self._bury([job.pid for job in self._jobs.values()])

    def _bury(self, living: Sequence[int], seconds: float = _BURIAL_SECONDS) -> None:
        """Kill and reap all children but the process groups in `living`, until none is left.

        What descends from a process that dies becomes a child of this one only once it is dead,
        which on a busy machine takes its time.
        """
        until = time.monotonic() + seconds
        pause = 0.001
        while _has_children():
            mine = [pid for pid in Families().children(os.getpid()) if _group(pid) not in living]
            if not mine or time.monotonic() > until:
                return
            for pid in mine:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(pause)
            pause = min(pause * 2, 0.05)
            for pid in mine:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)

    def _read(self) -> bool:
        try:
            data = self._channel.recv(1 << 16)
        except ConnectionError:
            return False
        if not data:
            return False
        *lines, self._pending = (self._pending + data).split(b"\n")
        for line in lines:
            message = loads(line)
            self._handlers[message["op"]](message)
        return True

    def _enforce_limits(self) -> None:
        now = time.monotonic()
        families = Families() if now - self._families_read > _FAMILY_SECONDS else None
        if families:
            self._families_read = now
        for job in self._jobs.values():
            if job.timed_out or job.over_memory or job.over_disk:
                continue
            limits = job.limits
            if limits.timeout is not None and now - job.started > limits.timeout:
                job.timed_out = True
                self._kill(job)
            elif limits.memory is not None:
                memory = resident(job.pid)
                if families and limits.with_descendants:
                    memory += sum(map(resident, families.descendants(job.pid)))
                job.peak_memory = max(job.peak_memory, memory)
                if memory > limits.memory:
                    job.over_memory = True
                    self._kill(job)
            if families and limits.folders and limits.file_size is not None:
                family = [job.pid, *families.descendants(job.pid)]
                if written(limits.folders, family) > limits.file_size * FILES:
                    job.over_disk = True
                    self._kill(job)

    def _reap(self, job: Job) -> None:
        _, status, usage = os.wait4(job.pid, 0)
        wall = time.monotonic() - job.started
        # Those that outlive the job (a hung tool behind a wrapper) go with it.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(job.pid, signal.SIGKILL)
        del self._jobs[job.job_id]
        self.clear()
        if job.pidfd is not None:
            self._selector.unregister(job.pidfd)
            os.close(job.pidfd)
        start_error = b""
        # A descendant that still lives may hold the other end.
        with contextlib.suppress(BlockingIOError):
            start_error = os.read(job.start_error, 500)
        os.close(job.start_error)
        code = os.waitstatus_to_exitcode(status)
        killed = code == -signal.SIGKILL
        self.send(
            {
                "id": job.job_id,
                "end": {
                    "exit_code": code if code >= 0 else None,
                    "signal": -code if code < 0 else None,
                    # Not if it ended by itself just before.
                    "timed_out": job.timed_out and killed,
                    "over_memory": job.over_memory and killed,
                    "flooded": code == -signal.SIGXFSZ or job.over_disk or is_full(job),
                    "wall": wall,
                    "cpu": usage.ru_utime + usage.ru_stime,
                    "peak_rss": max(usage.ru_maxrss * 1024, job.peak_memory),
                },
                "start_error": start_error.decode(errors="replace") or None,
            }
        )


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


def main() -> None:
    """Serve `exec` requests, for a caller at a socket or at the other end of an open descriptor.

    `python -c "... main()" SOCKET NAME` or `python -c "... main()" DESCRIPTOR`.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    where, *name = sys.argv[1:]
    if name:
        channel = connect(where, *name)
    else:
        channel = socket.socket(fileno=int(where))
        # What the caller handed down is for this process, not for its jobs.
        for descriptor in os.listdir("/proc/self/fd"):  # noqa: PTH208 - pathlib would double the start-up time
            with contextlib.suppress(OSError):
                if int(descriptor) > 2:
                    os.set_inheritable(int(descriptor), False)  # noqa: FBT003 - a stdlib function
    Supervisor(channel).serve()
