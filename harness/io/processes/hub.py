"""The one module that spawns processes: each is a supervisor's job, or a supervisor.

A supervisor child starts the jobs, limits them, and kills all that descends from them when this
process is gone, however it goes. A `Hub` keeps one for many jobs; `run_tool` has one for itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Self, TypeVar

import msgspec

import harness
from harness.io.children.confine import hide
from harness.io.files.writing import Scratch, scratch_disk
from harness.io.processes.tasks import in_parallel
from harness.values.errors import InfrastructureError
from harness.values.outcome import ProcessEnd

K = TypeVar("K")
T = TypeVar("T")

_UNREAD_EVENTS = 8
# A killed job is gone at once, unless the machine is in trouble.
_DYING_SECONDS = 5.0


class PeerGoneError(InfrastructureError):
    """The child at the other end is gone, and with it what it was doing: another is started."""

    def __init__(self) -> None:
        super().__init__("a process that triage had started was killed: run the command again")


class JobEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How a job ended, and why it could not start where it did not."""

    id: int
    end: ProcessEnd
    start_error: str | None


class Peer:
    """A child process at the other end of a socket: asks it for jobs, hears how they ended."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._ids = itertools.count(1)
        self._jobs: dict[int, asyncio.Future[JobEnd]] = {}
        self._events: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._task = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        try:
            while line := await self._reader.readline():
                message = msgspec.json.decode(line, type=dict[str, Any])
                if "end" in message:
                    ended = msgspec.convert(message, JobEnd)
                    future = self._jobs.pop(ended.id, None)
                    if future and not future.done():
                        future.set_result(ended)
                elif self._events.qsize() < _UNREAD_EVENTS:
                    self._events.put_nowait(message)
                else:
                    raise ValueError
        except (ConnectionError, ValueError):
            # A child that dies in the middle of a message, or sends nonsense, is gone: what runs
            # in it may be launch code, which can do as it likes with what it inherits.
            self._writer.transport.abort()
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

    def start(self, message: dict[str, Any]) -> tuple[int, asyncio.Future[JobEnd]]:
        """Ask for a job; the future is its end, or `PeerGoneError` when the child is gone."""
        future: asyncio.Future[JobEnd] = asyncio.get_running_loop().create_future()
        # Not every caller waits for every end: an end that is not waited for is not an error.
        future.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        if self.gone:
            future.set_exception(PeerGoneError())
            return 0, future
        job = next(self._ids)
        self._jobs[job] = future
        self._send({**message, "id": job})
        return job, future

    async def run(self, message: dict[str, Any]) -> tuple[ProcessEnd, str | None]:
        """Run one job to its end, with the reason why it could not start, if so.

        A job that is no longer waited for is killed, and is gone when this ends.
        """
        job, future = self.start(message)
        try:
            answer = await asyncio.shield(future)
        except asyncio.CancelledError:
            self.kill(job)
            await asyncio.wait({future}, timeout=_DYING_SECONDS)
            raise
        return answer.end, answer.start_error

    def kill(self, job: int, *, timed_out: bool = False) -> None:
        """Kill a job and its process group."""
        if not self.gone:
            self._send({"op": "kill", "id": job, "timed_out": timed_out})

    def count_alone(self, job: int) -> None:
        """From now on, a job's own memory is limited; its children's is limited by itself."""
        self._send({"op": "count alone", "id": job})

    def _send(self, message: Mapping[str, Any]) -> None:
        self._writer.write(json.dumps(message).encode() + b"\n")

    async def event(self) -> dict[str, Any] | None:
        """The next message that is not the end of a job; None when the child is gone."""
        return await self._events.get()

    async def close(self) -> None:
        """Hang up; the child then kills its jobs and leaves."""
        # Not `close`: that first sends what is left, and waits for a child that may not listen.
        self._writer.transport.abort()
        await self._task


async def shared(
    tasks: dict[K, asyncio.Task[Any]], key: K, start: Callable[[], Coroutine[Any, Any, T]]
) -> T:
    """What one task gives to all who ask for this key; it is started again where it is lost."""
    task = tasks.get(key)
    is_ended = task is not None and task.done()
    if task is None or (is_ended and (task.cancelled() or task.exception() or task.result().gone)):
        task = tasks[key] = asyncio.create_task(start())
        # Seen here: on a run that is stopped, no task waits for its failure any more.
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    answer: T = await asyncio.shield(task)
    return answer


FILE_SIZE = 1 << 28
"""No file that a job writes may be larger, in bytes; its output streams are files too."""

_HELLO_SECONDS = 120.0
# A supervisor that is left kills for up to ten seconds what descends from its jobs.
_GOODBYE_SECONDS = 12.0
_WATCH_SECONDS = 0.5
_MAX_MESSAGE = 64 << 20
_MAX_OUTPUT = 16 << 20
_SOCKET_PATH = 100


def bare_python(module: str) -> list[str]:
    """The words that run `main` of a module of `harness.io.children` in a bare interpreter.

    It is small and fast to fork; what is installed beside us stays out of its sight.
    """
    program = (
        "import sys; sys.path.append(sys.argv.pop(1)); "
        f"from harness.io.children.{module} import main; main()"
    )
    root = Path(harness.__file__).parent.parent
    return [sys.executable, "-I", "-S", "-c", program, str(root)]


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a tool ended and what it printed (uv, `ptxas --version`)."""

    end: ProcessEnd
    stdout: str
    stderr: str

    @property
    def last_words(self) -> str:
        """The last line that it printed to stderr; how it ended, where there is none."""
        return (self.stderr.strip().splitlines() or [self.end.words])[-1]


class ResourceLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one job: wall clock in seconds, resident memory and written files in bytes."""

    timeout: float
    memory: int
    file_size: int = FILE_SIZE

    def message(self) -> dict[str, float | int]:
        """As the supervisor takes it."""
        return {"timeout": self.timeout, "memory": self.memory, "file_size": self.file_size}


def run_tool(
    argv: Sequence[str | Path],
    *,
    timeout: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    limits: ResourceLimits | None = None,
    writable: Sequence[Path] | None = None,
    watch: Callable[[str], None] | None = None,
) -> ToolResult:
    """Run a tool to its end, for at most `timeout` seconds.

    `watch` gets all that it has printed to stderr so far, now and then, in a thread.

    One that is foreign runs under `limits` and, where `writable` is given, confined to write in
    these folders only and without a network, as far as this machine is able to.
    When it ends, or this process does, nothing that descends from it is left. A tool that fails is
    a result, not an exception. Of what it prints, the first 16 MiB of each stream are kept.

    Raises:
        InfrastructureError: the executable cannot be started, or the scratch disk is full.
    """
    words = [os.fspath(word) for word in argv]
    search = (os.environ if env is None else env).get("PATH")
    executable = shutil.which(words[0], path=search) or words[0]
    message = _order([executable, *words[1:]], env, str(cwd or "."), writable)
    message |= {"id": 1, "limits": {**(limits.message() if limits else {}), "timeout": timeout}}
    with contextlib.ExitStack() as stack:
        with scratch_disk():
            stdout, stderr = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(2))
        streams = {
            name: f"/proc/self/fd/{stream.fileno()}"
            for name, stream in (("stdout", stdout), ("stderr", stderr))
        }
        if watch:
            stack.enter_context(_watched(stderr, watch))
        ended = _run_once({**message, **streams}, (stdout.fileno(), stderr.fileno()), timeout)
        if ended.start_error:
            raise InfrastructureError(f"cannot start {words[0]}: {ended.start_error}")
        return ToolResult(end=ended.end, stdout=_printed(stdout), stderr=_printed(stderr))


def _order(
    argv: Sequence[str], env: Mapping[str, str] | None, cwd: str, writable: Sequence[Path] | None
) -> dict[str, Any]:
    return {
        "op": "exec",
        "argv": argv,
        "env": None if env is None else dict(env),
        "cwd": cwd,
        "writable": None if writable is None else [str(path) for path in writable],
    }


@contextlib.contextmanager
def _watched(stream: IO[bytes], watch: Callable[[str], None]) -> Iterator[None]:
    ended = threading.Event()

    def follow() -> None:
        while not ended.wait(_WATCH_SECONDS):
            watch(os.pread(stream.fileno(), _MAX_OUTPUT, 0).decode(errors="replace"))

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _run_once(message: Mapping[str, Any], streams: tuple[int, ...], timeout: float) -> JobEnd:
    """Have one job done by a supervisor that has no other, which hangs up with this process."""
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            process = _start_supervisor(theirs.fileno(), streams)
        try:
            ours.settimeout(timeout + _HELLO_SECONDS)
            ours.sendall(json.dumps(message).encode() + b"\n")
            with ours.makefile("rb") as answers:
                return msgspec.json.decode(answers.readline(_MAX_MESSAGE), type=JobEnd)
        except (OSError, msgspec.DecodeError) as error:
            name = message["argv"][0]
            raise InfrastructureError(f"the process that runs {name} was killed") from error
        finally:
            with contextlib.suppress(OSError):
                ours.shutdown(socket.SHUT_RDWR)
            try:
                process.wait(_GOODBYE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _start_supervisor(channel: int, streams: Sequence[int]) -> subprocess.Popen[bytes]:
    hide()
    try:
        return subprocess.Popen(
            [*bare_python("supervisor"), str(channel)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(channel, *streams),
            start_new_session=True,
        )
    except OSError as error:
        raise InfrastructureError(f"cannot start {sys.executable}: {error.strerror}") from error


def _printed(stream: IO[bytes]) -> str:
    stream.seek(0)
    return stream.read(_MAX_OUTPUT).decode(errors="replace")


async def _leave(process: asyncio.subprocess.Process) -> None:
    try:
        await asyncio.wait_for(process.wait(), _GOODBYE_SECONDS)
    except TimeoutError:
        _kill(process)
        await process.wait()


def _kill(process: asyncio.subprocess.Process) -> None:
    # On a busy machine it ends by itself just before this.
    with contextlib.suppress(ProcessLookupError):
        process.kill()


class Hub:
    """Listens for children, starts them, and runs executables under limits.

    An async context manager: on leaving, every child is gone.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Future[Peer]] = {}
        self._folders = itertools.count(1)
        self._peers: list[Peer] = []
        self._processes: list[asyncio.subprocess.Process] = []
        # Children that do any number of jobs, by their names.
        self._servers: dict[str, asyncio.Task[Peer]] = {}

    async def __aenter__(self) -> Self:
        with scratch_disk():
            self._scratches = [Scratch()]
            self.scratch = place = self._scratches[0].folder
            # A Unix socket address holds 107 bytes.
            if len(os.fsencode(place / "socket")) > _SOCKET_PATH:
                self._scratches.append(Scratch("/tmp"))  # noqa: S108 - the folder has a random name
                place = self._scratches[1].folder
            self.socket = str(place / "socket")
            self._server = await asyncio.start_unix_server(
                self._connected, self.socket, limit=_MAX_MESSAGE
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for server in self._servers.values():
            server.cancel()
        await in_parallel(peer.close() for peer in self._peers)
        await in_parallel(map(_leave, self._processes))
        for scratch in self._scratches:
            scratch.remove()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            hello = msgspec.json.decode(await reader.readline(), type=dict[str, str])
        except (ValueError, ConnectionError):
            hello = {}
        waiting = self._waiting.get(hello.get("hello", ""))
        if waiting is None or waiting.done():
            writer.transport.abort()
            return
        self._peers = [peer for peer in self._peers if not peer.gone]
        peer = Peer(reader, writer)
        self._peers.append(peer)
        waiting.set_result(peer)

    def expect(self) -> tuple[str, asyncio.Future[Peer]]:
        """A name that cannot be guessed, and the future of the child that says hello with it."""
        name = secrets.token_hex(16)
        hello: asyncio.Future[Peer] = asyncio.get_running_loop().create_future()
        hello.add_done_callback(lambda _: self._waiting.pop(name, None))
        self._waiting[name] = hello
        return name, hello

    async def spawn(self, argv: Sequence[str], *, env: Mapping[str, str], log: Path) -> Peer:
        """Start a child that serves jobs and wait for its hello.

        Raises:
            InfrastructureError: it ended, or said nothing for two minutes; with the end of its log.
        """
        name, hello = self.expect()
        process = await self._start([*argv, self.socket, name], env, log)
        self._processes.append(process)
        ended = asyncio.create_task(process.wait())
        outcomes: set[asyncio.Future[Any]] = {ended, hello}
        await asyncio.wait(outcomes, timeout=_HELLO_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if hello.done():
            ended.cancel()
            return hello.result()
        hello.cancel()
        if not ended.done():
            _kill(process)
        await ended
        lines = log.read_text(errors="replace").strip().splitlines() or ["it printed nothing"]
        raise InfrastructureError(f"a child process did not start: {lines[-1][:500]}")

    async def _start(
        self, argv: Sequence[str], env: Mapping[str, str], log: Path
    ) -> asyncio.subprocess.Process:
        # What it starts is not to read our environment, nor to write into our memory.
        hide()
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

    async def do(
        self,
        module: str,  # noqa: ARG002 - for a hub whose jobs are done elsewhere
        folder: Path,  # noqa: ARG002
        limits: ResourceLimits,  # noqa: ARG002
        here: Callable[[], Awaitable[ProcessEnd]],
    ) -> ProcessEnd:
        """Have a module of ours do a job, with all its files in `folder`, as `here` does it.

        Raises:
            InfrastructureError: as `here`.
        """
        return await here()

    async def execute(
        self,
        argv: Sequence[str | Path],
        *,
        folder: Path,
        limits: ResourceLimits,
        env: Mapping[str, str] | None = None,
        writable: Sequence[Path] | None = None,
    ) -> ProcessEnd:
        """Run an executable in `folder` under limits; `stdout` and `stderr` there are its streams.

        Where `writable` is given, it is confined as in `run_tool`.

        Raises:
            InfrastructureError: it cannot be started, or the machine kills what starts it.
        """
        words = [os.fspath(word) for word in argv]
        message = _order(words, env, str(folder), writable)
        message |= {name: str(folder / name) for name in ("stdout", "stderr")}
        message["limits"] = limits.message()
        return await self.serve("runner", bare_python("supervisor"), os.environ, message, words[0])

    async def serve(
        self,
        server: str,
        argv: Sequence[str],
        env: Mapping[str, str],
        message: dict[str, Any],
        what: str,
    ) -> ProcessEnd:
        """Have the child of this name do a job, which names `what` runs in it to the user.

        It is started by `argv` where it is not there yet, or gone.

        Raises:
            InfrastructureError: it cannot be started, or the machine kills it.
        """
        log = self.scratch / f"{server}.log"
        for _ in range(2):
            try:
                peer = await shared(
                    self._servers, server, lambda: self.spawn(argv, env=env, log=log)
                )
                end, start_error = await peer.run(message)
            except PeerGoneError:
                continue
            if start_error:
                raise InfrastructureError(f"cannot start {what}: {start_error}")
            return end
        raise InfrastructureError(f"the process that runs {what} was killed twice")

    def new_folder(self, kind: str, inside: Path | None = None) -> Path:
        """A new scratch folder, in another one where `inside` is given; it goes with the hub."""
        folder = (inside or self.scratch) / f"{kind}-{next(self._folders)}"
        with scratch_disk():
            folder.mkdir()
        return folder

    @contextlib.contextmanager
    def folder(self, kind: str) -> Iterator[Path]:
        """A new scratch folder for a block, which goes however the block ends."""
        folder = self.new_folder(kind)
        try:
            yield folder
        finally:
            self.drop_folder(folder)

    def drop_folder(self, folder: Path) -> None:
        """Give a scratch folder's disk space back."""
        shutil.rmtree(folder, ignore_errors=True)
