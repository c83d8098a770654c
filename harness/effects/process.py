"""The one module that spawns processes.

`run_tool` is for trusted helpers (uv, version queries). Compilers go through a `Hub`: a supervisor
child starts them, limits them, and kills their whole process group when we are gone, however we go.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from harness.values.errors import InfrastructureError
from harness.values.outcome import ProcessEnd

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from typing_extensions import Self

__all__ = [
    "FILE_SIZE",
    "Hub",
    "Peer",
    "PeerGoneError",
    "ResourceLimits",
    "ToolResult",
    "is_lost",
    "run_tool",
    "scratch_disk",
]

FILE_SIZE = 1 << 28
"""No file that a job writes may be larger, in bytes; its output streams are files too."""

_MortalT = TypeVar("_MortalT", bound="_Mortal")

_HELLO_SECONDS = 120.0
_GOODBYE_SECONDS = 5.0
_MAX_MESSAGE = 64 << 20
_SCRATCH = "triage-"
_OWNER = "owner"
_SOCKET_PATH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """A helper tool's end and what it printed (uv, `ptxas --version`)."""

    end: ProcessEnd
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceLimits:
    """Limits of one job: wall clock in seconds, resident memory and written files in bytes."""

    timeout: float
    memory: int
    file_size: int = FILE_SIZE

    def message(self) -> dict[str, float | int]:
        """As the supervisor wants it."""
        return {"timeout": self.timeout, "memory": self.memory, "file_size": self.file_size}


def run_tool(
    argv: Sequence[str | Path],
    *,
    timeout: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> ToolResult:
    """Run a trusted tool to its end, in its own process group, for at most `timeout` seconds.

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
        stdout, stderr = _killed(process)
    except BaseException:
        _killed(process)
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


def _killed(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    """Kill a tool with its process group; what it printed."""
    # It may have ended, and only something that it left behind still holds its streams.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        return process.communicate(timeout=_GOODBYE_SECONDS)
    except subprocess.TimeoutExpired as expired:
        # A descendant left the group and holds the streams: it is not ours to wait for.
        for stream in (process.stdout, process.stderr):
            if stream:
                stream.close()
        process.wait()
        return expired.output or b"", expired.stderr or b""


class Peer:
    """A child process at the other end of a socket: asks it for jobs, hears how they ended."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._ids = itertools.count(1)
        self._jobs: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._events: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._task = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        try:
            while line := await self._reader.readline():
                message = json.loads(line)
                if "end" in message:
                    future = self._jobs.pop(message["id"], None)
                    if future and not future.done():
                        future.set_result(message)
                else:
                    self._events.put_nowait(message)
        except (ConnectionError, ValueError):
            pass  # a child that dies in the middle of a message is a child that is gone
        finally:
            self._events.put_nowait(None)
            for future in self._jobs.values():
                if not future.done():
                    future.set_exception(PeerGoneError())
            self._jobs.clear()

    @property
    def gone(self) -> bool:
        """Whether the child has hung up."""
        return self._task.done()

    def start(self, message: dict[str, Any]) -> tuple[int, asyncio.Future[dict[str, Any]]]:
        """Ask for a job; the future is its end, or `PeerGoneError` when the child is gone."""
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        # Not every caller waits for every end; an end that nobody hears is no error.
        future.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        if self.gone:
            future.set_exception(PeerGoneError())
            return 0, future
        job = next(self._ids)
        self._jobs[job] = future
        self._writer.write(json.dumps({**message, "id": job}).encode() + b"\n")
        return job, future

    async def run(self, message: dict[str, Any]) -> tuple[ProcessEnd, str | None]:
        """Run one job to its end, with the reason why it could not start, if so.

        A job that nobody waits for any more is killed.
        """
        job, future = self.start(message)
        try:
            answer = await future
        except asyncio.CancelledError:
            self.kill(job)
            raise
        return ProcessEnd(**answer["end"]), answer["start_error"]

    def kill(self, job: int, *, timed_out: bool = False) -> None:
        """Kill a job and its process group."""
        if not self.gone:
            message = {"op": "kill", "id": job, "timed_out": timed_out}
            self._writer.write(json.dumps(message).encode() + b"\n")

    async def event(self) -> dict[str, Any] | None:
        """The next message that is not the end of a job; None when the child is gone."""
        return await self._events.get()

    async def close(self) -> None:
        """Hang up; the child then kills its jobs and leaves."""
        # Not `close`: that first sends what is left, and waits for a child that may not listen.
        self._writer.transport.abort()
        await self._task


@contextlib.contextmanager
def scratch_disk() -> Iterator[None]:
    """Tell a scratch disk that fails us from everything else.

    Raises:
        InfrastructureError: in place of `OSError`.
    """
    try:
        yield
    except OSError as error:
        raise InfrastructureError(
            f"cannot write scratch files in {tempfile.gettempdir()}: {error.strerror or error}; "
            "free some space or set TMPDIR to another disk"
        ) from error


def _make_scratch() -> tuple[Path, int]:
    """A scratch folder, and the file descriptor of the lock that says it is in use."""
    _sweep_scratch()
    folder = Path(tempfile.mkdtemp(prefix=_SCRATCH))
    owner = os.open(folder / _OWNER, os.O_RDWR | os.O_CREAT, 0o600)
    # Not a process id: containers that share a temporary folder do not share those.
    fcntl.flock(owner, fcntl.LOCK_EX)
    return folder, owner


def _sweep_scratch() -> None:
    """Delete the scratch folders of runs that were killed: those that nobody holds."""
    for owner in Path(tempfile.gettempdir()).glob(f"{_SCRATCH}*/{_OWNER}"):
        with contextlib.suppress(OSError):
            fd = os.open(owner, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Made but not yet locked, it is held in a moment.
                if os.fstat(fd).st_mtime < time.time() - 1:
                    shutil.rmtree(owner.parent, ignore_errors=True)
            finally:
                os.close(fd)


async def _leave(process: asyncio.subprocess.Process) -> None:
    try:
        await asyncio.wait_for(process.wait(), _GOODBYE_SECONDS)
    except asyncio.TimeoutError:
        process.kill()
        await process.wait()


class _Mortal(Protocol):
    @property
    def gone(self) -> bool: ...


def is_lost(task: asyncio.Task[_MortalT]) -> bool:
    """Whether what was to be started failed to, or is gone again."""
    if not task.done():
        return False
    return task.cancelled() or task.exception() is not None or task.result().gone


class PeerGoneError(Exception):
    """The child at the other end is gone; what it was doing is lost. Never leaves `effects`."""


class Hub:
    """Listens for children, starts them, and runs executables under limits.

    An async context manager: on leaving, every child is gone.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Future[Peer]] = {}
        self._names = itertools.count(1)
        self._folders = itertools.count(1)
        self._peers: list[Peer] = []
        self._processes: list[asyncio.subprocess.Process] = []
        self._runner: asyncio.Task[Peer] | None = None

    async def __aenter__(self) -> Self:
        self._folders_to_drop: list[Path] = []
        with scratch_disk():
            self.scratch, self._owner = _make_scratch()
            place = self.scratch
            self._folders_to_drop.append(place)
            # A Unix socket address holds 107 bytes.
            if len(os.fsencode(place / "socket")) > _SOCKET_PATH:
                place = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir="/tmp"))
                self._folders_to_drop.append(place)
            self.socket = str(place / "socket")
            self._server = await asyncio.start_unix_server(
                self._connected, self.socket, limit=_MAX_MESSAGE
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        if self._runner:
            self._runner.cancel()
        for peer in self._peers:
            await peer.close()
        for process in self._processes:
            await _leave(process)
        for folder in self._folders_to_drop:
            shutil.rmtree(folder, ignore_errors=True)
        os.close(self._owner)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            name = json.loads(await reader.readline())["hello"]
        except (ValueError, KeyError, ConnectionError):
            writer.close()
            return
        peer = Peer(reader, writer)
        self._peers.append(peer)
        waiting = self._waiting.pop(name, None)
        if waiting and not waiting.done():
            waiting.set_result(peer)

    def expect(self) -> tuple[str, asyncio.Future[Peer]]:
        """A fresh name and the future of the child that will say hello with it."""
        name = f"child-{next(self._names)}"
        self._waiting[name] = asyncio.get_running_loop().create_future()
        return name, self._waiting[name]

    async def spawn(self, argv: Sequence[str], *, env: Mapping[str, str], log: Path) -> Peer:
        """Start a child that serves jobs and wait for its hello.

        Raises:
            InfrastructureError: it ended, or said nothing for two minutes; with the end of its log.
        """
        name, hello = self.expect()
        process = await self._start([*argv, self.socket, name], env, log)
        self._processes.append(process)
        ended = asyncio.create_task(process.wait())
        either: set[asyncio.Future[Any]] = {ended, hello}
        await asyncio.wait(either, timeout=_HELLO_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if hello.done():
            ended.cancel()
            return hello.result()
        self._waiting.pop(name, None)
        if not ended.done():
            process.kill()
        await ended
        lines = log.read_text(errors="replace").strip().splitlines() or ["it printed nothing"]
        raise InfrastructureError(f"a child process did not start: {lines[-1][:500]}")

    async def _start(
        self, argv: Sequence[str], env: Mapping[str, str], log: Path
    ) -> asyncio.subprocess.Process:
        with scratch_disk():
            output = log.open("wb")
        with output:
            try:
                return await asyncio.create_subprocess_exec(
                    *argv,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    cwd=self.scratch,
                    env=dict(env),
                    start_new_session=True,
                )
            except OSError as error:
                raise InfrastructureError(f"cannot start {argv[0]}: {error.strerror}") from error

    async def execute(
        self,
        argv: Sequence[str | Path],
        *,
        folder: Path,
        limits: ResourceLimits,
        env: Mapping[str, str] | None = None,
    ) -> ProcessEnd:
        """Run an executable in `folder` under limits; `stdout` and `stderr` there are its streams.

        Raises:
            InfrastructureError: it cannot be started, or the machine kills what starts it.
        """
        words = [os.fspath(word) for word in argv]
        message = {
            "op": "exec",
            "argv": words,
            "env": None if env is None else dict(env),
            "cwd": str(folder),
            "stdout": str(folder / "stdout"),
            "stderr": str(folder / "stderr"),
            "limits": limits.message(),
        }
        for _ in range(2):
            try:
                end, start_error = await (await self._running()).run(message)
            except PeerGoneError:
                continue
            if start_error:
                raise InfrastructureError(f"cannot start {words[0]}: {start_error}")
            return end
        raise InfrastructureError(f"the process that runs {words[0]} was killed twice")

    async def _running(self) -> Peer:
        task = self._runner
        if task is None or is_lost(task):
            task = self._runner = asyncio.create_task(self._start_runner())
        return await asyncio.shield(task)

    def new_folder(self, kind: str) -> Path:
        """A fresh scratch folder; it goes with the hub, if not before."""
        folder = self.scratch / f"{kind}-{next(self._folders)}"
        with scratch_disk():
            folder.mkdir()
        return folder

    def drop_folder(self, folder: Path) -> None:
        """Give a scratch folder's disk space back."""
        shutil.rmtree(folder, ignore_errors=True)

    async def _start_runner(self) -> Peer:
        script = Path(__file__).parent.parent / "child" / "supervisor.py"
        # -I -S: a bare interpreter, small and fast to fork.
        argv = [sys.executable, "-I", "-S", str(script)]
        return await self.spawn(argv, env=os.environ, log=self.scratch / "runner.log")
