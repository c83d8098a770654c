"""What a worker does: one capture with its cells, or one tool, in a scratch folder of its own."""

from __future__ import annotations

import asyncio
import functools
import platform
import sysconfig
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from harness.cells.places import CompileOptions, Run, RunProgress, work_off
from harness.frontends.base import CapturePlace
from harness.frontends.bench.bench import Workbench
from harness.frontends.registry import OpenSessions
from harness.io.files.own_code import program_sha256
from harness.io.files.scratch import scratch_disk
from harness.io.processes.hub import Hub, ResourceLimits
from harness.io.toolchains.by_name import find_tool
from harness.matrix.nights.by_name import place_of_name
from harness.matrix.nights.common_evidence import CommonEvidence
from harness.matrix.nights.plan import MatrixPlan
from harness.matrix.nights.steering import MatrixSteering
from harness.matrix.nights.tasks import CaptureAnswer, CaptureTask
from harness.matrix.nights.tool_tasks import ToolAnswer, ToolTask
from harness.matrix.rules import Rules
from harness.run.emulating import execute_job
from harness.store.exchange.parcels import pack
from harness.store.sqlite.records import from_row
from harness.store.store import Store
from harness.values.errors import TriageError

T = TypeVar("T")

_OTHER_CODE = "its triage is another version than the one that was started"
_IDLE_SECONDS = 60.0

# Up to Python 3.11, a second thread that asks while the first one looks sees no value.
sysconfig.get_config_vars()


def work_on_capture(message: bytes) -> bytes:
    """The answer to a `CaptureTask`; what this machine cannot do is said in it."""
    task = CaptureTask.decode(message, _code())
    if task is None:
        return CaptureAnswer(host=platform.node(), failures=(_OTHER_CODE,)).encode()
    try:
        # Here, and not in the loop that others share: toolchains may have to be installed.
        places = tuple(place_of_name(each) for each in task.places)
        return workshop().run(task, places).encode()
    except TriageError as error:
        return CaptureAnswer(host=platform.node(), failures=(str(error),)).encode()


def run_tool_task(message: bytes) -> bytes:
    """The answer to a `ToolTask`; what this machine cannot do is said in it."""
    task = ToolTask.decode(message, _code())
    if task is None:
        return ToolAnswer(host=platform.node(), failure=_OTHER_CODE).encode()
    try:
        tool = find_tool(task.tool) if task.tool else None
        return workshop().with_hub(lambda hub: _run_tool(hub, task, tool)).encode()
    except TriageError as error:
        return ToolAnswer(host=platform.node(), failure=str(error)).encode()


@functools.cache
def _code() -> str:
    # Once, near the start: what is on the disk later is not what runs.
    return program_sha256()


@functools.cache
def workshop() -> Workshop:
    """The one of this process."""
    return Workshop()


class Workshop:
    """An event loop in a thread of its own, with the children that all tasks of a process share.

    Compilers that are loaded stay loaded, one process for each, until nothing was to be done for a
    minute.
    """

    def __init__(self) -> None:
        """Start the thread; it ends with the process."""
        self._loop = asyncio.new_event_loop()
        self._lock = asyncio.Lock()
        self._hub: Hub | None = None
        self._sessions: dict[tuple[float, int], OpenSessions] = {}
        self._common: CommonEvidence | None = None
        self._at_work = 0
        # As many as there are tasks: one that waits for what another makes leaves its own to it.
        self._slots = asyncio.Semaphore(0)
        self._leaving: set[asyncio.Task[Literal[True]]] = set()
        self._closing: asyncio.TimerHandle | None = None
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def run(self, task: CaptureTask, places: Sequence[CapturePlace]) -> CaptureAnswer:
        """Work on a task; called from any thread but that of the loop."""
        return self.with_hub(lambda hub: self._work(hub, task, places))

    def with_hub(self, work: Callable[[Hub], Coroutine[Any, Any, T]]) -> T:
        """The result of a coroutine in the loop; called from any other thread."""
        return asyncio.run_coroutine_threadsafe(self._busy(work), self._loop).result()

    def close(self) -> None:
        """End the children, unless something is being worked on."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()

    async def _busy(self, work: Callable[[Hub], Coroutine[Any, Any, T]]) -> T:
        self._at_work += 1
        if self._closing:
            self._closing.cancel()
        try:
            async with self._lock:
                if self._hub is None:
                    self._hub = await Hub().__aenter__()
                hub = self._hub
            return await work(hub)
        finally:
            self._at_work -= 1
            self._closing = self._loop.call_later(
                _IDLE_SECONDS, lambda: asyncio.ensure_future(self._close())
            )

    async def _work(
        self, hub: Hub, task: CaptureTask, places: Sequence[CapturePlace]
    ) -> CaptureAnswer:
        limits = task.launch_timeout, task.launch_memory
        sessions = self._sessions.setdefault(
            limits, OpenSessions(hub, timeout=limits[0], memory=limits[1])
        )
        self._slots.release()
        try:
            return await _work(task, places, self._evidence(hub, task.run), sessions, self._slots)
        finally:
            leaving = asyncio.create_task(self._slots.acquire())
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)

    def _evidence(self, hub: Hub, run: str) -> CommonEvidence:
        """What the tasks of a run share, and of the last run only."""
        if self._common is None or self._common.run != run:
            if self._common:
                self._common.clear()
            self._common = CommonEvidence(run=run, hub=hub)
        return self._common

    async def _close(self) -> None:
        async with self._lock:
            if self._hub is not None and not self._at_work:
                await self._hub.__aexit__()
                self._hub = None
                self._sessions.clear()
                self._common = None


async def _work(
    task: CaptureTask,
    places: Sequence[CapturePlace],
    common: CommonEvidence,
    sessions: OpenSessions,
    slots: asyncio.Semaphore,
) -> CaptureAnswer:
    with common.folder() as home:
        with common.store(home) as store:
            done = await _results(task, places, common, sessions, slots, store)
        return CaptureAnswer(
            host=platform.node(),
            parcel=pack(home),
            failures=tuple(map(str, done.run.failures)),
            notes=tuple(done.run.notes),
            excluded=done.steering.excluded,
            versions=tuple(sorted(done.steering.versions)),
            matched=tuple(done.steering.rules.matched()),
            skipped=done.steering.skipped,
            skipped_captures=done.steering.skipped_captures,
            carried=done.steering.carried,
            cpu_seconds=done.run.bench.cpu_seconds,
        )


async def _run_tool(hub: Hub, task: ToolTask, tool: Path | None) -> ToolAnswer:
    """Run it on the files of a task; what it leaves beside them comes back."""
    folder = hub.new_folder("tool")
    try:
        with scratch_disk():
            for name, data in task.files.items():
                (folder / name).write_bytes(data)
        limits = ResourceLimits(
            timeout=task.timeout,
            memory=task.memory or CompileOptions().limits.memory,
            file_size=task.file_size,
        )
        if tool:
            end = await hub.execute([tool, *task.words], folder=folder, limits=limits)
        else:
            end = await execute_job(hub, folder, limits)
        left = {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}
    finally:
        hub.drop_folder(folder)
    files = {name: data for name, data in left.items() if task.files.get(name) != data}
    return ToolAnswer(host=platform.node(), end=end, files=files)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Done:
    run: Run
    steering: MatrixSteering


async def _results(
    task: CaptureTask,
    places: Sequence[CapturePlace],
    common: CommonEvidence,
    sessions: OpenSessions,
    slots: asyncio.Semaphore,
    store: Store,
) -> _Done:
    """The cells of these places, worked off into a store."""
    # As many tasks as cores may be at work on this machine.
    memory = task.memory or CompileOptions().limits.memory
    bench = Workbench(
        hub=common.hub,
        store=store,
        sessions=sessions,
        jobs=1,
        slots=slots,
        limits=ResourceLimits(timeout=task.timeout, memory=memory),
        use_cache=task.use_cache,
        making=common.making,
        made=common.made,
    )
    if task.until is not None:
        bench.deadline = time.monotonic() + task.until - time.time()
    run_id = store.begin_run(task.command, uid=task.run)
    progress = RunProgress()
    steering = MatrixSteering(
        bench=bench,
        plan=MatrixPlan(
            rules=Rules(matrix=task.matrix, only=task.only),
            places=tuple(places),
            extras=frozenset(n for n, each in enumerate(task.places) if each.is_extra),
            dropped=(),
            warnings=(),
            failures=(),
            versions={},
        ),
        progress=progress,
        run=run_id,
        use_cache=task.use_cache,
        past={record.cell: record for record in map(from_row, task.past)},
    )
    steering.settled.update(task.settled)
    run = Run(bench=bench, run=run_id, progress=progress, steering=steering)
    await work_off(run, places, [range(len(places))])
    return _Done(run=run, steering=steering)
