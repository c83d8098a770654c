"""Captures and lowerings of launch code that runs in a compiler's own environment, kept by content.

What is alike for all compilers that live in a virtual environment and have a child program of their
own (`harness.io.children.captures`).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

import harness.io.children.enter
from harness.frontends.bench.bench import Kept, content_key, has_died, still_valid
from harness.frontends.captured_launch import CapturedLaunch
from harness.frontends.programs import interpreter_of
from harness.frontends.reads import is_unchanged
from harness.frontends.registry import OpenSessions
from harness.frontends.sessions import ChildProgram, LaunchSessions
from harness.io.files.own_code import code_sha256
from harness.io.files.regular_files import read_regular
from harness.io.files.scratch import scratch_disk
from harness.io.processes.confinement import is_confined
from harness.io.processes.environment import plain_environment
from harness.values.errors import ConfigurationError, InfrastructureError
from harness.values.outcome import Capture, LaunchFacts, Lowering, RaisedError
from harness.values.toolchain import Compiler

if TYPE_CHECKING:
    from harness.frontends.base import LaunchCode
    from harness.frontends.bench.bench import Workbench
    from harness.frontends.capture_request import CaptureRequest
    from harness.frontends.sessions import JobResult
    from harness.io.processes.hub import Hub, ResourceLimits


# Where the sources lie; `LaunchCode.identity` says what they are.
_SOURCES = frozenset({"file", "paths", "bare"})
_MAX_LOG = 1 << 20
_MOST_SOURCE = 1 << 20

Finish = Callable[["JobResult", bool], "Awaitable[tuple[Lowering, dict[str, str]]]"]
"""Makes evidence and artifacts of what a job left; the second says that it ran alone."""
# Of the host's: its Python's settings, and a toolkit that is none of the compiler's.
_NOT_OURS = ("PYTHON", "CUDA", "NVCC", "LD_LIBRARY_PATH")


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturingChild:
    """The child program of a kind of compiler.

    `module` is run in the compiler's environment; `code` are the places of all of our code that
    runs there. `settings` are the variables that the compiler reads, by their prefixes; of those,
    children never get the ones in `never`.
    """

    kind: str
    module: str
    code: tuple[str, ...]
    settings: tuple[str, ...] = ()
    never: frozenset[str] = frozenset()

    def open_sessions(self, hub: Hub, *, timeout: float, memory: int) -> LaunchSessions:
        """What keeps captures alive between their lowerings."""
        return LaunchSessions(hub, self._program, capture_timeout=timeout, capture_memory=memory)

    def _program(self, compiler: Compiler) -> ChildProgram:
        enter = str(Path(harness.io.children.enter.__file__).resolve())
        argv = (interpreter_of(compiler), "-s", "-B", enter, self.module)
        return ChildProgram(argv=argv, env=self.environment(compiler))

    def environment(self, compiler: Compiler) -> dict[str, str]:
        """The variables of its processes: what any program needs, and settings of the compiler."""
        return child_environment(compiler, self.user_settings())

    def user_settings(self) -> dict[str, str]:
        """The user's settings of this compiler, and of torch."""
        wanted = (*self.settings, "TORCH", "PYTORCH_")
        found = {name: each for name, each in os.environ.items() if name.startswith(wanted)}
        return {name: found[name] for name in sorted(found) if name not in self.never}

    def identity(self) -> object:
        """All of the child and its settings that decides what is generated."""
        return [_code_of(self.code), self.user_settings()]

    def sessions_of(self, bench: Workbench) -> LaunchSessions:
        """The living captures of a bench, which are this kind's."""
        found = bench.sessions
        if isinstance(found, OpenSessions):
            found = found.of(self.kind)
        assert isinstance(found, LaunchSessions)
        return found

    async def capture(
        self, bench: Workbench, code: LaunchCode, request: CaptureRequest, compiler: Compiler
    ) -> CapturedLaunch:
        """What the launch code launches. A capture of code that raised is not kept.

        Raises:
            CaptureError: the launch code hung or ended its process.
            InfrastructureError: this compiler cannot be imported here.
        """
        key = self._key(code, request, compiler)
        async with bench.once(key):
            kept = self._if_true(bench.find("capture", key, Capture), compiler)
            if kept is None:
                async with bench.slot():
                    value = await self.sessions_of(bench).capture(key, compiler, request)
                kept = (
                    Kept(value=value, key=key, artifacts={}, cached=False)
                    if value.error
                    else bench.keep("capture", key, value, {})
                )
        return CapturedLaunch(capture=kept, compiler=compiler, request=request)

    def stored_capture(
        self, bench: Workbench, code: LaunchCode, request: CaptureRequest, compiler: Compiler
    ) -> CapturedLaunch | None:
        """What `capture` would find stored; None where nothing is."""
        key = self._key(code, request, compiler)
        kept = self._if_true(bench.read("capture", key, Capture), compiler)
        return CapturedLaunch(capture=kept, compiler=compiler, request=request) if kept else None

    def _key(self, code: LaunchCode, request: CaptureRequest, compiler: Compiler) -> str:
        sent = {name: each for name, each in request.message().items() if name not in _SOURCES}
        return content_key(
            kind="capture",
            sent=sent,
            code=code.identity,
            compiler=compiler.identity,
            child=_code_of(self.code),
            settings=self.user_settings(),
        )

    def _if_true(self, kept: Kept[Capture] | None, compiler: Compiler) -> Kept[Capture] | None:
        """A stored capture, if what the launch code read is still the same."""
        if kept is None or not is_unchanged(kept.value.reads, self.environment(compiler)):
            return None
        return kept

    def lowering_key(self, launch: CapturedLaunch, record: LaunchFacts, **more: object) -> str:
        """By what a lowering is kept: equal for all that share one."""
        return content_key(
            record=record.key,
            settings=[dict(launch.request.settings), self.user_settings()],
            compiler=launch.compiler.identity,
            child=_code_of(self.code),
            **more,
        )

    async def lower(
        self,
        bench: Workbench,
        launch: CapturedLaunch,
        record: LaunchFacts,
        key: str,
        finish: Finish,
        asked: Mapping[str, object],
    ) -> Kept[Lowering]:
        """Have a fork of the capture lower one record, and `finish` make evidence of what it left.

        `asked` is what the child gets to know besides the record.

        A job that dies is run once more, alone, to tell what kills its compiler from a machine in
        trouble.

        Raises:
            InfrastructureError: the child could not be kept alive.
        """
        async with bench.once(key):
            kept = bench.find("lower", key, Lowering)
            if kept and still_valid(kept.value.end, bench.limits):
                return kept
            once = partial(self._once, bench, launch, record, finish, asked)
            lowering, artifacts = await once(alone=False)
            if has_died(lowering.end):
                again, artifacts = await once(alone=True)
                lowering = replace(again, attempts=2)
            return bench.keep("lower", key, lowering, artifacts)

    async def _once(
        self,
        bench: Workbench,
        launch: CapturedLaunch,
        record: LaunchFacts,
        finish: Finish,
        asked: Mapping[str, object],
        *,
        alone: bool,
    ) -> tuple[Lowering, dict[str, str]]:
        limits = bench.limits.message()
        message = {**asked, "op": "lower", "key": record.key, "limits": limits}
        key, compiler, request = launch.capture.key, launch.compiler, launch.request
        async with bench.slot(alone=alone):
            await self._meet_again(bench, launch, record)
            done = await self.sessions_of(bench).on_record(key, compiler, request, message)
        bench.cpu_seconds += done.end.cpu
        try:
            lowering, artifacts = await finish(done, alone)
        finally:
            bench.hub.drop_folder(done.folder)
        return lowering, artifacts

    async def export(
        self, bench: Workbench, launch: CapturedLaunch, record: LaunchFacts
    ) -> JobResult:
        """What one record is made of, by a fork of its capture.

        Raises:
            InfrastructureError: the child could not be kept alive.
        """
        message = {"op": "export", "key": record.key, "limits": bench.limits.message()}
        key, compiler, request = launch.capture.key, launch.compiler, launch.request
        async with bench.slot():
            await self._meet_again(bench, launch, record)
            return await self.sessions_of(bench).on_record(key, compiler, request, message)

    async def compile_file(
        self, bench: Workbench, compiler: Compiler, request: CaptureRequest, limits: ResourceLimits
    ) -> JobResult:
        """Run a file that stands alone, and lower its first kernel; nothing is kept.

        Raises:
            InfrastructureError: the child could not be kept alive.
        """
        message = {"op": "compile", "capture": request.message(), "limits": limits.message()}
        async with bench.slot():
            done = await self.sessions_of(bench).on_server(compiler, message)
        bench.cpu_seconds += done.end.cpu
        return done

    async def _meet_again(
        self, bench: Workbench, launch: CapturedLaunch, record: LaunchFacts
    ) -> None:
        """Run the launch code for a stored capture, which must come to the same launch again.

        Raises:
            InfrastructureError: it does not; what it came to now is kept in its place.
        """
        if not launch.capture.cached:
            return
        key, request = launch.capture.key, launch.request
        value = await self.sessions_of(bench).capture(key, launch.compiler, request)
        if any(each.key == record.key for each in value.records):
            return
        if not value.error:
            bench.keep("capture", key, value, {})
        raise InfrastructureError(
            f"{request.file}: the launch code no longer makes this launch, and nothing that it "
            "reads has changed, as far as can be seen (random numbers, the time, a service?); what "
            "it makes now is stored: run again"
        )


@cache
def _code_of(places: tuple[str, ...]) -> str:
    return code_sha256("io/children", *places)


def child_environment(compiler: Compiler, settings: Mapping[str, str]) -> dict[str, str]:
    """The variables of a process in a compiler's environment; `settings` are the user's for it."""
    user = plain_environment() if is_confined() else dict(os.environ)
    plain = {name: value for name, value in user.items() if not name.startswith(_NOT_OURS)}
    return {
        **plain,
        **settings,
        # Launch code that iterates over a set makes the same launches every time.
        "PYTHONHASHSEED": "0",
        # Threads of numeric libraries do not survive a fork, and nothing here computes.
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        **dict(compiler.variables),
    }


def read_lowering(done: JobResult, first: str) -> Lowering:
    """The evidence that a job left in its folder; `first` is the stage that it begins with."""
    # A result that was written before the process died is whole: it is renamed into place.
    result: Mapping[str, Any] = done.result or {}
    error = result.get("error")
    progress: Mapping[str, Any] = done.progress or {}
    return Lowering(
        end=done.end,
        stage=str(result.get("stage") or progress.get("stage") or first),
        error=msgspec.convert(error, RaisedError) if error else None,
        metadata=result.get("metadata", {}),
        seconds=result.get("seconds", {}),
        log=_tail(done.folder / "stderr"),
    )


def _tail(path: Path) -> str:
    """The end of what a job printed; it may be far more than fits our memory."""
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - _MAX_LOG, 0))
        return file.read().decode(errors="replace")


def keep_streams(bench: Workbench, done: JobResult, more: str = "") -> str:
    """Keep what a job printed, and `more`, as one artifact; its sha256."""
    with scratch_disk(), (done.folder / "log").open("wb") as log:
        for name in ("stderr", "stdout"):
            # One that was killed at once may not have made them yet.
            if (done.folder / name).is_file():
                with (done.folder / name).open("rb") as stream:
                    shutil.copyfileobj(stream, log)
        log.write(more.encode())
    return bench.store.artifacts.put_file(done.folder / "log")


def kernel_text(request: CaptureRequest, record: LaunchFacts) -> bytes | None:
    """The file that holds the kernel, where it lies beside the launch code or in its packages.

    Its place was said by a child that runs what others wrote: it names no other file of the user's.
    """
    file = Path(record.file).resolve()
    roots = (request.file.resolve().parent, *(path.resolve() for path in request.paths))
    if file.suffix != ".py" or not any(map(file.is_relative_to, roots)):
        return None
    try:
        return read_regular(file, _MOST_SOURCE)
    except ConfigurationError:
        return None
