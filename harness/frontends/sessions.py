"""Processes of a compiler: servers that run launch code, and programs that run once.

There is one server for each compiler, and one session for each capture. A server has imported its
compiler, and nothing else; each request is done in a fork of it.

A program of a front end is a file that imports the standard library and the compiler, and nothing
of ours. It finds `request.json` in its working folder and leaves `answer.json` there, and whatever
else it makes. It writes there only, and has no network, as far as this machine can prevent that.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from harness.frontends.bench import Kept, Sessions, Workbench
from harness.io.children.captures import MOST_TIMES
from harness.io.files.reading import read_regular
from harness.io.files.writing import scratch_disk
from harness.io.processes.hub import (
    FILE_SIZE,
    Hub,
    JobEnd,
    Peer,
    PeerGoneError,
    ResourceLimits,
    shared,
)
from harness.io.processes.machine import (
    is_confined,
    memory_of_children,
    plain_environment,
    require_confinement,
)
from harness.values.errors import CaptureError, ConfigurationError, InfrastructureError
from harness.values.kernel import Scalar
from harness.values.limits import Limits
from harness.values.outcome import Capture, ProcessEnd
from harness.values.toolchain import Compiler


class CapturedLaunch(msgspec.Struct, frozen=True, kw_only=True):
    """A capture, and what it takes to open its session again; `request` is the front end's own."""

    capture: Kept[Capture]
    compiler: Compiler
    request: Any


class LaunchCode(msgspec.Struct, frozen=True, kw_only=True):
    """A launch whose sources lie on this machine; `identity` stands for their content.

    It is `function(**overrides)` of `file`, or the file as `__main__`. `paths` go onto the module
    path, and `beside`, which are folders of the user's, after them; packages below `bare`, which
    are among `paths`, are imported without their `__init__`. What lies below `paths` never changes.
    `injected` are configs in place of those that the tuner of a kernel (a name or pattern) lists.
    """

    file: Path
    function: str | None
    overrides: Mapping[str, object]
    paths: tuple[Path, ...] = ()
    bare: tuple[Path, ...] = ()
    identity: Mapping[str, object] = {}
    beside: tuple[Path, ...] = ()
    injected: Mapping[str, Sequence[Mapping[str, Scalar]]] = {}

    def with_configs(self, kernel: str, configs: Sequence[Mapping[str, Scalar]]) -> LaunchCode:
        """The same launch with these configs of a kernel (a name or pattern) in place of its own.

        A kernel without a tuner is launched with the options among them too.
        """
        return replace(self, injected={kernel: [dict(config) for config in configs]})


class CaptureRequest(LaunchCode, frozen=True, kw_only=True):
    """A launch as a session runs it, with the GPU that it sees.

    `settings` are what only this front end's child understands.
    """

    capability: int
    limits: Limits
    settings: Mapping[str, object] = {}

    def message(self) -> dict[str, Any]:
        """As the session wants it."""
        # The user's PYTHONPATH is for the launch code, not for what runs it.
        user = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
        return {
            "file": str(self.file.resolve()),
            "function": self.function,
            "confined": is_confined(),
            "overrides": dict(self.overrides),
            "paths": [str(path) for path in self.paths],
            "user_paths": [*map(str, self.beside), *(str(Path(path).absolute()) for path in user)],
            "bare": [str(path) for path in self.bare],
            "injected": {name: list(configs) for name, configs in self.injected.items()},
            "settings": dict(self.settings),
            "device": {
                "capability": self.capability,
                "name": f"NVIDIA {self.limits.product or 'GPU'}",
                "multiprocessors": self.limits.multiprocessors,
                "max_shared": self.limits.max_shared_per_block,
                "shared_per_sm": self.limits.shared_per_sm,
                "registers_per_sm": self.limits.registers_per_sm,
                "threads_per_sm": self.limits.max_threads_per_sm,
                "memory": self.limits.memory,
                "l2_cache": self.limits.l2_cache,
                "integrated": self.limits.integrated,
            },
        }


_GOODBYE_SECONDS = 5.0
# What launch code may take to tell what it launched until its time was up.
_LATE_SECONDS = 30.0
_OVERTIME_SECONDS = 60.0
_MOST_SAID = 400


class JobResult(msgspec.Struct, frozen=True, kw_only=True):
    """How the job ended, what it said of itself, and the folder with what it left."""

    end: ProcessEnd
    result: dict[str, Any] | None
    progress: dict[str, Any] | None = None
    folder: Path

    @property
    def words(self) -> str:
        """How its process ended, and the last line that it printed: an exception, where one did."""
        printed = self.folder / "stderr"
        log = b""
        if printed.is_file():
            with printed.open("rb") as file:
                file.seek(max(0, printed.stat().st_size - _MOST_SAID))
                log = file.read()
        line = log.decode(errors="replace").strip().rpartition("\n")[2].strip()
        return f"{self.end.words}: {line}" if line else self.end.words


class _Session(msgspec.Struct, frozen=True, kw_only=True):
    """A capture that goes on; what it and its jobs write lies in its folder.

    It took so many `seconds`, without those in which it waited for a core.
    """

    peer: Peer
    capture: Capture
    folder: Path
    ended: asyncio.Future[JobEnd]
    seconds: float = 0.0

    @property
    def gone(self) -> bool:
        return self.peer.gone


class LaunchSessions(Sessions):
    """Opens sessions on demand and keeps them until they are closed, or die and are replaced.

    `program` gives what the server of a compiler runs, to which a socket and a name are added, and
    its variables. Launch code may take `timeout` seconds and `memory` bytes (0: most of the
    machine's), with all that it starts.
    """

    def __init__(
        self,
        hub: Hub,
        program: Callable[[Compiler], tuple[list[str], dict[str, str]]],
        *,
        timeout: float,
        memory: int = 0,
    ) -> None:
        self._hub = hub
        self._program = program
        self._capture_timeout = timeout
        most = memory_of_children()
        self._capture_memory = memory or most
        self._values_memory = memory or min(most, _VALUES_MEMORY)
        self._servers: dict[Compiler, asyncio.Task[Peer]] = {}
        self._sessions: dict[str, asyncio.Task[_Session]] = {}

    async def _server(self, compiler: Compiler) -> Peer:
        async def start() -> Peer:
            require_confinement()
            folder = self._hub.new_folder("server")
            argv, env = self._program(compiler)
            try:
                peer = await self._hub.spawn(argv, env=env, log=folder / "log")
            except InfrastructureError as error:
                raise InfrastructureError(f"{compiler.name}: {error}") from error
            if await peer.event() is None:
                raise InfrastructureError(f"{compiler.name}: its process ended at once")
            return peer

        return await shared(self._servers, compiler, start)

    async def capture(self, key: str, compiler: Compiler, request: CaptureRequest) -> Capture:
        """The launches of a request; the session stays open under `key` for `lower`.

        Raises:
            CaptureError: the launch code hung or ended its process.
            InfrastructureError: this compiler cannot be imported here.
        """
        return (await self._session(key, compiler, request)).capture

    async def _session(self, key: str, compiler: Compiler, request: CaptureRequest) -> _Session:
        async def opened() -> _Session:
            for _ in range(2):
                server = await self._server(compiler)
                with contextlib.suppress(PeerGoneError):
                    return await self._with_values(server, request)
            raise InfrastructureError(f"{compiler.name}: its child process died twice")

        return await shared(self._sessions, key, opened)

    async def _with_values(self, server: Peer, request: CaptureRequest) -> _Session:
        """A session without values; with those that launch code needs, where that leads further."""
        session = await self._open_on(server, request)
        spent = session.seconds
        values, needs = "", session.capture.needs
        while _VALUES.index(needs) > _VALUES.index(values):
            # Values of small tensors are quick, and most often enough.
            values = needs if values else "small"
            try:
                other = await self._open_on(server, request, values, spent=spent)
            except CaptureError as error:
                return _noted(session, f"with values, {error}")
            spent += other.seconds
            needs = other.capture.needs
            if _got_further(other.capture, session.capture):
                session, other = other, session
            elif other.capture.is_late:
                session = _noted(session, f"with values, {self._late(request)}")
            await self._end(other)
        return session

    async def _open_on(
        self, server: Peer, request: CaptureRequest, values: str = "", *, spent: float = 0
    ) -> _Session:
        folder = self._hub.new_folder("capture")
        name, hello = self._hub.expect()
        limits = {
            "timeout": None,  # ends with the capture, not with the session
            "memory": self._values_memory if values else self._capture_memory,
            "file_size": FILE_SIZE,
        }
        message: dict[str, Any] = {"name": name, "folder": str(folder)}
        message |= {"capture": request.message()}
        left = max(self._capture_timeout - spent, 1)
        message |= {"values": values, "seconds": [left, self._capture_timeout], "limits": limits}
        job, ended = server.start({"op": "open", **message})
        captured = asyncio.create_task(_captured(hello, request.file))
        futures: set[asyncio.Future[Any]] = {captured, ended}
        try:
            # It ends itself in time, unless it does not hear of that: in a call of C, say.
            began = time.monotonic()
            ends, last = began + left, began + MOST_TIMES * left
            while not captured.done() and not ended.done() and time.monotonic() < ends:
                seconds = ends - time.monotonic() + _GOODBYE_SECONDS
                await asyncio.wait(futures, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
                # Where it has waited for a core, it has more time.
                ends = min(_capture_time(folder)[0], last)
            if not _line_in(request, folder):
                # It has heard of it, or there is no sign of it on a loaded machine.
                await asyncio.wait(
                    futures, timeout=_LATE_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
            if captured.done() and (opened := captured.result()):
                peer, capture = opened
                # Its descendants are jobs from now on, each with limits of its own.
                server.count_alone(job)
                waited = _capture_time(folder)[1]
                return _Session(
                    peer=peer,
                    capture=capture,
                    folder=folder,
                    ended=ended,
                    seconds=time.monotonic() - began - waited,
                )
            if not captured.done() and not ended.done():
                raise CaptureError(self._late(request, _line_in(request, folder)))
            # It hung up; launch code that closes all its files does so, and lives on.
            if not (await asyncio.wait({ended}, timeout=_GOODBYE_SECONDS))[0]:
                server.kill(job)
            raise CaptureError(_how_it_died(request, await ended, folder))
        except BaseException:
            server.kill(job)
            self._hub.drop_folder(folder)
            raise
        finally:
            captured.cancel()

    def _late(self, request: CaptureRequest, line: str = "") -> str:
        words = f"the launch code did not end within {self._capture_timeout:.0f} s"
        return f"{request.file}{line}: {words}; it may compute on real values (see --timeout)"

    async def run_job(
        self,
        compiler: Compiler,
        message: dict[str, Any],
        capture: tuple[str, CaptureRequest] | None = None,
    ) -> JobResult:
        """Have a fork of a session do a job in a new folder, or (without) one of the server.

        A child that is confined to the folder of its capture gets the new one inside of it.

        Raises:
            InfrastructureError: the child died twice while it had this job.
        """
        for _ in range(2):
            if capture is None:
                child, around = await self._server(compiler), None
            else:
                session = await self._session(capture[0], compiler, capture[1])
                child, around = session.peer, session.folder
            folder = self._hub.new_folder(message["op"], around)
            try:
                # Its supervisor keeps the limits, and lives in a process that ran launch code.
                process, start_error = await asyncio.wait_for(
                    child.run({**message, "folder": str(folder)}),
                    message["limits"]["timeout"] + _OVERTIME_SECONDS,
                )
                if start_error:
                    raise InfrastructureError(f"a compilation could not start: {start_error}")
            except PeerGoneError:
                self._hub.drop_folder(folder)
                continue
            except TimeoutError as error:
                self._hub.drop_folder(folder)
                raise InfrastructureError(
                    "a compilation was not ended at its time limit: the launch code disturbs the "
                    "process that runs it"
                ) from error
            except BaseException:
                self._hub.drop_folder(folder)
                raise
            return JobResult(
                end=process,
                result=_read_json(folder / "result.json"),
                progress=_read_json(folder / "progress.json"),
                folder=folder,
            )
        raise InfrastructureError(f"{compiler.name}: its child process died twice")

    async def close(self, key: str) -> None:
        """End one session; its memory and its disk space are given back."""
        task = self._sessions.pop(key, None)
        if task and task.done() and not task.cancelled() and not task.exception():
            await self._end(task.result())

    async def _end(self, session: _Session) -> None:
        await session.peer.close()
        await asyncio.wait({session.ended}, timeout=_GOODBYE_SECONDS)
        self._hub.drop_folder(session.folder)


def sessions_of(bench: Workbench) -> LaunchSessions:
    """The living captures of a bench, whose front ends run launch code."""
    assert isinstance(bench.sessions, LaunchSessions)
    return bench.sessions


# Launch code that has values makes tensors as large as those of a GPU.
_VALUES_MEMORY = 8 << 30
# How launch code gets values: each of them has those of the former, too.
_VALUES = ("", "small", "computed", "interpreted")


def _noted(session: _Session, note: str) -> _Session:
    capture = replace(session.capture, notes=[*session.capture.notes, note])
    return replace(session, capture=capture)


def _got_further(capture: Capture, before: Capture) -> bool:
    """Whether launch code came further with values than without."""

    def reached(one: Capture) -> tuple[int, int]:
        # Launches of tests that repeat a config are no records of their own.
        tests = sum(test.launches - sum(test.refused.values()) for test in one.tests)
        return len(one.records), tests

    ended = not capture.is_late and (not capture.error or before.error is not None)
    after, first = reached(capture), reached(before)
    return after > first or (after == first and ended)


async def _captured(hello: asyncio.Future[Peer], file: Path) -> tuple[Peer, Capture] | None:
    """The session's process once its capture is over; None where it died before.

    Raises:
        CaptureError: what it says is not a capture.
    """
    peer = await hello
    event = await peer.event()
    if event is None:
        return None
    try:
        return peer, msgspec.convert(event.get("captured"), Capture)
    except msgspec.ValidationError as error:
        raise CaptureError(
            f"{file}: the launch code interferes: what its process says of its launches makes no "
            f"sense ({error}); does it change modules of Python?"
        ) from error


def _how_it_died(request: CaptureRequest, ended: JobEnd, folder: Path) -> str:
    if ended.start_error:
        return f"{request.file}: the launch code could not run: {ended.start_error}"
    words = ended.end.words + (", see --memory" if ended.end.over_memory else "")
    log = folder / "capture.err"
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    last = f": {lines[-1][:300]}" if lines else ""
    return f"{request.file}: the launch code ended its process ({words}){last}"


def _capture_time(folder: Path) -> tuple[float, float]:
    """When launch code is to end (`monotonic()`), and for how long it has waited for a core."""
    with contextlib.suppress(ConfigurationError, ValueError):
        ends, waited = map(float, read_regular(folder / "capture.time", _MOST_SAID).split())
        return ends, waited
    return 0.0, 0.0


def _line_in(request: CaptureRequest, folder: Path) -> str:
    """Where launch code stands that does not hear of its end, as `:LINE`; empty if it hears."""
    with contextlib.suppress(OSError):
        stack = (folder / "capture.late").read_text(errors="replace")
        place = re.escape(f'File "{request.file.resolve()}", line ')
        if match := re.search(rf"{place}(\d+)", stack):
            return f":{match[1]}"
    return ""


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


_MOST_BYTES = 64 << 20


def interpreter_of(compiler: Compiler) -> str:
    """The Python that can import a compiler: that of its environment, else triage's own."""
    return str(compiler.python or sys.executable)


async def run_program(
    bench: Workbench,
    compiler: Compiler,
    program: Path,
    request: Mapping[str, object],
    *,
    alone: bool = False,
    limits: ResourceLimits | None = None,
) -> JobResult:
    """Run a file of Python in the environment of a compiler, under `limits` or the bench's.

    Its answer is the `result`. `stdout` and `stderr` in the folder are its streams; the caller
    drops that.

    Raises:
        InfrastructureError: it cannot be started, or has to be confined and cannot be.
    """
    require_confinement()
    folder = bench.hub.new_folder("program")
    with scratch_disk():
        (folder / "request.json").write_bytes(msgspec.json.encode(request))
    # Isolated: neither the user's module path nor their own packages are seen there.
    argv: list[str | Path] = [interpreter_of(compiler), "-I", "-B", program]
    env = {
        **(plain_environment() if is_confined() else os.environ),
        "HOME": str(folder),
        "TMPDIR": str(folder),
        # A GPU of this machine is not used; threads of numeric libraries are not needed.
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
        **dict(compiler.variables),
    }
    try:
        async with bench.slot(alone=alone):
            process = await bench.hub.execute(
                argv,
                folder=folder,
                limits=limits or bench.limits,
                env=env,
                writable=[folder] if is_confined() else None,
            )
    except BaseException:
        bench.hub.drop_folder(folder)
        raise
    bench.cpu_seconds += process.cpu
    answer = None
    with contextlib.suppress(ConfigurationError, msgspec.MsgspecError):
        data = read_regular(folder / "answer.json", _MOST_BYTES, follow_links=False)
        answer = msgspec.json.decode(data, type=dict[str, Any])
    return JobResult(end=process, result=answer, folder=folder)
