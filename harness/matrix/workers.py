"""Places of a matrix by names, for another machine: what they name is looked up there.

What would make other results there than here (another source, another compiler, another setting of
one) is found by hashes before anything is compiled.
"""

from __future__ import annotations

import asyncio
import functools
import platform
import sysconfig
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar, cast
from weakref import WeakValueDictionary

import msgspec
from msgspec.structs import replace

from harness.cells.matrix_rules import Rules
from harness.cells.places import CompileOptions, RunProgress, work_off
from harness.cells.repros.find import find_kernels
from harness.frontends.bench import Workbench, content_key
from harness.frontends.launch_code import launch_sha256
from harness.frontends.plan import CapturePlace, PlannedLaunch, Selection
from harness.frontends.registry import OpenSessions, back_end, front_end
from harness.io.files.own_code import program_sha256
from harness.io.files.writing import scratch_disk
from harness.io.processes.hub import Hub, ResourceLimits
from harness.io.toolchains.install import NamedTool, find_tool
from harness.matrix.plan import MatrixPlan
from harness.matrix.run_policy import MatrixRun
from harness.run.emulating import execute_job
from harness.store.artifacts import ArtifactStore, DamagedArtifactError
from harness.store.merge import pack
from harness.store.schema import Evidence, from_row
from harness.store.store import Store
from harness.values.errors import InfrastructureError, TriageError, UsageError
from harness.values.kernel import ConfigFilter, Scalar
from harness.values.matrix import Matrix, MatrixVariant, Selector
from harness.values.outcome import ProcessEnd
from harness.values.target import Target
from harness.values.toolchain import INSTALLED, PTX


def named(place: CapturePlace, *, is_extra: bool) -> NamedPlace:
    """The names of all that a place consists of."""
    chosen = place.selection
    compiler = place.compiler
    return NamedPlace(
        repro=chosen.repro.name,
        launch=place.launch.spec.name,
        overrides=dict(place.launch.overrides),
        given=tuple(sorted(place.launch.named)),
        target=str(place.target),
        compiler=compiler.kind,
        version=None if compiler.origin == INSTALLED else compiler.version,
        assemblers=tuple(ptxas.version if ptxas else None for ptxas in chosen.ptxas),
        config=chosen.config,
        freeze_ptx=chosen.freeze_ptx,
        disassembles=chosen.nvdisasm is not None,
        variant=place.variant,
        is_extra=is_extra,
        same=_same(place),
    )


def place_of_name(name: NamedPlace) -> CapturePlace:
    """The place that is named, with what this machine has; what is missing is installed.

    Raises:
        UsageError: there is no such kernel or launch here.
        InfrastructureError: a toolchain cannot be installed, or something differs.
    """
    repro = next(
        (candidate for candidate in find_kernels(name.repro) if candidate.name == name.repro), None
    )
    specs = [spec for spec in repro.launches if spec.name == name.launch] if repro else []
    if repro is None or not specs:
        raise UsageError(f"there is no launch {name.launch} of {name.repro}")
    target = Target.parse(name.target)
    front = front_end(name.compiler)
    # A compiler without versions is the only one of its kind.
    compiler = front.install(name.version) if name.version else front.default()
    back = back_end(name.compiler, target)
    tools = tuple(back.install(version) if version else None for version in name.assemblers)
    launch = PlannedLaunch(spec=specs[0], overrides=name.overrides, named=frozenset(name.given))
    place = CapturePlace(
        selection=Selection(
            repro=replace(repro, launches=(specs[0],)) if name.compiler == PTX else repro,
            launches=(launch,),
            targets=(target,),
            compilers=(compiler,),
            ptxas=tools,
            config=name.config,
            freeze_ptx=name.freeze_ptx,
            nvdisasm=back.disassembler()[0] if name.disassembles else None,
        ),
        target=target,
        compiler=compiler,
        launch=launch,
        variant=name.variant,
    )
    mine = _same(place)
    if differing := [what for what, digest in name.same.items() if mine.get(what) != digest]:
        raise InfrastructureError(f"other than where the run was started: {', '.join(differing)}")
    return place


def _same(place: CapturePlace) -> dict[str, str]:
    repro, compiler = place.selection.repro, place.compiler
    # Whether somebody edits an installed compiler in place shows in paths and times.
    anywhere = replace(compiler, fingerprint=None)
    return {
        f"the source of {repro.name}": launch_sha256(repro, place.launch.spec),
        f"{compiler.name} or its settings": content_key(
            identity=front_end(compiler.kind).identity(anywhere)
        ),
        **{tool.name: tool.sha256 for tool in place.selection.ptxas if tool},
    }


# Messages between machines: tasks, and the answers that come back. Everything travels by name or as
# content: nothing in a message is a path of the machine it is from, but for kernels that the user
# named by their files.

PastRow = tuple[Any, ...]
"""A result as the store keeps it, with its checksum (`harness.store.schema`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedPlace:
    """A place where a kernel is captured, by names.

    `launch` is its function, with `overrides` of its parameters. `compiler` is the kind, `version`
    None for the one that lies beside triage; None among `assemblers` is the bundled one. `same`
    are hashes, by what to call it, of all that must be the same on both machines.
    """

    repro: str
    launch: str
    overrides: dict[str, Scalar | None]
    given: tuple[str, ...]
    target: str
    compiler: str
    version: str | None
    assemblers: tuple[str | None, ...]
    config: ConfigFilter
    freeze_ptx: bool
    disassembles: bool
    variant: MatrixVariant | None
    is_extra: bool
    same: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureTask:
    """The places that one capture serves, and how to work on their cells.

    `run` is the uid of the run that the results belong to. `timeout`s are in seconds, `memory` in
    bytes (0: a share of the worker's; of `launch_memory`, for launch code: most of it), `until` in
    seconds since the epoch. `past` are the last results of the cells, as far as they are known;
    those of the cells in `settled` are in this run already.
    """

    run: str
    command: str
    places: tuple[NamedPlace, ...]
    matrix: Matrix
    only: tuple[Selector, ...] = ()
    use_cache: bool
    timeout: float
    launch_timeout: float
    memory: int
    launch_memory: int = 0
    until: float | None = None
    past: tuple[PastRow, ...] = ()
    settled: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureAnswer:
    """What a worker found out: `parcel` has the results (empty where there are none).

    `matched` are the rules of the matrix that spoke of a cell; the rest is as in a run here.
    `host` is where the worker is.
    """

    host: str
    parcel: bytes = b""
    failures: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    excluded: Mapping[str, str] = field(default_factory=dict)
    versions: tuple[str, ...] = ()
    matched: tuple[int, ...] = ()
    skipped: int = 0
    skipped_captures: int = 0
    carried: int = 0
    cpu_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolTask:
    """A tool with its arguments, and the files of the folder that it is run in.

    Without a tool it is a job of the emulator, and the word is the module of ours that does it.
    `timeout` is in seconds, `memory` (0: a share of the worker's) and `file_size` in bytes.
    """

    tool: NamedTool | None
    words: tuple[str, ...] = ()
    files: Mapping[str, bytes]
    timeout: float
    memory: int
    file_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolAnswer:
    """How the tool ended, and the files that it left; else what is the matter with its `host`."""

    host: str
    end: ProcessEnd | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)
    failure: str = ""


Message = TypeVar("Message", CaptureTask, CaptureAnswer, ToolTask, ToolAnswer)

# Made once, at import: msgspec crashes where several threads look at a type for the first time.
_DECODERS: Mapping[type, msgspec.msgpack.Decoder[Any]] = {
    kind: msgspec.msgpack.Decoder(kind, dec_hook=lambda of, value: of(value))
    for kind in (CaptureTask, CaptureAnswer, ToolTask, ToolAnswer)
}


def encode(message: CaptureTask | CaptureAnswer | ToolTask | ToolAnswer, code: str = "") -> bytes:
    """A message as bytes, which begin with the `code` of the machine that a task is for."""
    body = msgspec.msgpack.encode(message, enc_hook=str)  # of specifiers
    return msgspec.msgpack.encode((code, zlib.compress(body, 1)))


def decode(data: bytes, kind: type[Message], code: str = "") -> Message | None:
    """What `encode` made; None where other code made it, which may mean other things.

    Raises:
        ValueError: `encode` did not make it.
    """
    try:
        theirs, body = msgspec.msgpack.decode(data, type=tuple[str, bytes])
        if theirs != code:
            return None
        return cast("Message", _DECODERS[kind].decode(zlib.decompress(body)))
    except (msgspec.MsgspecError, zlib.error) as error:
        raise ValueError(str(error)) from error


# What the tasks of one run have in common in one worker: PTX of two captures is assembled once.
# Each task keeps its results in a store of its own, which becomes its answer. What another task of
# the same run has made beside it, or before it, is copied from there.

# Captures that have PTX in common are near each other in a night, and disks are small.
TASKS_KEPT = 32


@dataclass(slots=True, kw_only=True)
class CommonEvidence:
    """Of the tasks of the run with this uid; `made` and `making` are those of all their benches."""

    run: str
    hub: Hub
    made: set[str] = field(default_factory=set)
    making: MutableMapping[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)
    _known: dict[tuple[str, str], tuple[Evidence, ArtifactStore]] = field(default_factory=dict)
    _done: deque[Path] = field(default_factory=deque)

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """A folder for the store of one task: that of an older one goes for it."""
        home = self.hub.new_folder("results")
        try:
            yield home
        finally:
            self._done.append(home)
            if len(self._done) > TASKS_KEPT:
                self._forget(self._done.popleft())

    def clear(self) -> None:
        """Forget all that is done."""
        while self._done:
            self._forget(self._done.popleft())

    def _forget(self, home: Path) -> None:
        root = home / "artifacts"
        self._known = {key: entry for key, entry in self._known.items() if entry[1].root != root}
        self.hub.drop_folder(home)

    def note(self, kind: str, key: str, evidence: Evidence, where: ArtifactStore) -> None:
        """This was made, and its artifacts lie there."""
        self._known[kind, key] = evidence, where

    def copied(self, kind: str, key: str, to: ArtifactStore) -> Evidence | None:
        """What another task has made, its artifacts copied; None where that is not here."""
        if (kind, key) not in self._known:
            return None
        evidence, where = self._known[kind, key]
        for sha256 in set(evidence.artifacts.values()):
            try:
                to.put_packed(sha256, where.packed(sha256) or b"")
            except DamagedArtifactError:
                return None
        return evidence


class _TaskStore(Store):
    def __init__(self, home: Path, common: CommonEvidence) -> None:
        super().__init__(home)
        self._common = common

    def get_evidence(self, kind: str, key: str) -> Evidence | None:
        if own := super().get_evidence(kind, key):
            return own
        evidence = self._common.copied(kind, key, self.artifacts)
        if evidence:
            super().put_evidence(kind, key, evidence.body, evidence.artifacts)
        return evidence

    def put_evidence(self, kind: str, key: str, body: bytes, artifacts: Mapping[str, str]) -> None:
        super().put_evidence(kind, key, body, artifacts)
        self._common.note(kind, key, Evidence(body, dict(artifacts)), self.artifacts)


# What a worker does: one capture with its cells, or one tool, in a scratch folder of its own.

T = TypeVar("T")

_OTHER_CODE = "its triage is another version than the one that was started"
_IDLE_SECONDS = 60.0

# Up to Python 3.11, a second thread that asks while the first one looks sees no value.
sysconfig.get_config_vars()


def work_on_capture(message: bytes) -> bytes:
    """The answer to a `CaptureTask`; what this machine cannot do is said in it."""
    task = decode(message, CaptureTask, _code())
    if task is None:
        return encode(CaptureAnswer(host=platform.node(), failures=(_OTHER_CODE,)))
    try:
        # Here, and not in the loop that others share: toolchains may have to be installed.
        places = tuple(place_of_name(place) for place in task.places)
        return encode(worker_loop().run(task, places))
    except TriageError as error:
        return encode(CaptureAnswer(host=platform.node(), failures=(str(error),)))


def run_tool_task(message: bytes) -> bytes:
    """The answer to a `ToolTask`; what this machine cannot do is said in it."""
    task = decode(message, ToolTask, _code())
    if task is None:
        return encode(ToolAnswer(host=platform.node(), failure=_OTHER_CODE))
    try:
        tool = find_tool(task.tool) if task.tool else None
        return encode(worker_loop().with_hub(lambda hub: _run_tool(hub, task, tool)))
    except TriageError as error:
        return encode(ToolAnswer(host=platform.node(), failure=str(error)))


@functools.cache
def _code() -> str:
    # Once, near the start: what is on the disk later is not what runs.
    return program_sha256()


@functools.cache
def worker_loop() -> WorkerLoop:
    """The one of this process."""
    return WorkerLoop()


class WorkerLoop:
    """An event loop in a thread of its own, with the children that all tasks of a process share.

    Compilers that are loaded stay loaded, one process for each, until nothing was to be done for a
    minute.
    """

    def __init__(self) -> None:
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
            # What the tasks of a run share, and of the last run only.
            if self._common is None or self._common.run != task.run:
                if self._common:
                    self._common.clear()
                self._common = CommonEvidence(run=task.run, hub=hub)
            return await _work(task, places, self._common, sessions, self._slots)
        finally:
            leaving = asyncio.create_task(self._slots.acquire())
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)

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
        with _TaskStore(home, common) as store:
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
            run = MatrixRun(
                bench=bench,
                run=run_id,
                progress=RunProgress(),
                plan=MatrixPlan(
                    rules=Rules(matrix=task.matrix, only=task.only),
                    places=list(places),
                    extras={n for n, place in enumerate(task.places) if place.is_extra},
                ),
                past={record.cell: record for record in map(from_row, task.past)},
                settled=set(task.settled),
            )
            await work_off(run, places, [range(len(places))])
        return CaptureAnswer(
            host=platform.node(),
            parcel=pack(home),
            failures=tuple(map(str, run.failures)),
            notes=tuple(run.notes),
            excluded=run.excluded,
            versions=tuple(sorted(run.versions)),
            matched=tuple(run.rules.matched()),
            skipped=run.skipped,
            skipped_captures=run.skipped_captures,
            carried=run.carried,
            cpu_seconds=bench.cpu_seconds,
        )


async def _run_tool(hub: Hub, task: ToolTask, tool: Path | None) -> ToolAnswer:
    with hub.folder("tool") as folder:
        with scratch_disk():
            for name, data in task.files.items():
                (folder / name).write_bytes(data)
        limits = ResourceLimits(
            timeout=task.timeout,
            memory=task.memory or CompileOptions().limits.memory,
            file_size=task.file_size,
        )
        if tool:
            process_end = await hub.execute([tool, *task.words], folder=folder, limits=limits)
        else:
            process_end = await execute_job(hub, folder, limits, *task.words)
        outputs = {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}
    files = {name: data for name, data in outputs.items() if task.files.get(name) != data}
    return ToolAnswer(host=platform.node(), end=process_end, files=files)
