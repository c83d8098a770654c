"""What the steps of one run share: store, children, limits, and how many may work at once."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import hashlib
import json
import math
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

import msgspec

from harness.io.processes.hub import FILE_SIZE, Hub, ResourceLimits
from harness.store.store import Store
from harness.values.errors import CannotGoOnError
from harness.values.outcome import Assembly, Lowering, ProcessEnd

_SHELL_SIGNALS = range(129, 160)

T = TypeVar("T")


E = TypeVar("E", Assembly, Lowering)


class TimeIsUpError(CannotGoOnError):
    """The time that a run was given is over: nothing new is started. Says nothing of the cell."""

    def __init__(self, message: str = "the time is up: give the command more (--max-time)") -> None:
        super().__init__(message)


async def until(deadline: float, work: Awaitable[T]) -> T:
    """The result of this, if it is there by then (`time.monotonic`); else its processes are ended.

    Raises:
        TimeIsUpError: it is not.
    """
    seconds = None if math.isinf(deadline) else max(0.0, deadline - time.monotonic())
    try:
        return await asyncio.wait_for(work, seconds)
    except TimeoutError:
        raise TimeIsUpError from None


class Sessions:
    """Living captures of launch code; here there are none."""

    async def close(self, key: str) -> None:
        """End one session, if it is open."""


class Kept(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """A piece of evidence, its key, the artifacts beside it, and whether it was there already."""

    value: T
    key: str = ""
    artifacts: Mapping[str, str] = {}
    cached: bool = False


@dataclass(slots=True, kw_only=True)
class Workbench:
    """Store, children and slots of one run; `cpu_seconds` adds up what the compilers used.

    Of the `jobs` that may be done at once, `here` may be on this machine where others run tools, 0
    for all. Benches of one job each may have their `slots` in common: one waits, another has two.
    After `deadline` (by `time.monotonic`) no slot is given any more. `made` are the keys of the
    evidence that this run made. `warn` tells the user what may make results others than expected,
    `lowered` hears that one more cell is lowered.
    """

    hub: Hub
    store: Store
    sessions: Sessions
    jobs: int
    limits: ResourceLimits
    here: int = 0
    use_cache: bool = True
    deadline: float | None = None
    cpu_seconds: float = 0.0
    slots: asyncio.Semaphore | None = None
    warn: Callable[[str], None] = lambda words: None  # noqa: ARG005
    lowered: Callable[[], None] = lambda: None
    _slots: asyncio.Semaphore = field(init=False)
    _here: asyncio.Semaphore | None = field(init=False)
    _alone: asyncio.Lock = field(default_factory=asyncio.Lock)
    making: MutableMapping[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)
    made: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._slots = self.slots or asyncio.Semaphore(self.jobs)
        self._here = asyncio.Semaphore(self.here) if self.here else None

    def apart(self, *, limits: ResourceLimits | None, uncached: bool) -> Workbench:
        """The same bench with other limits; `uncached`: as if nothing were stored or being made."""
        bench = copy.copy(self)
        bench.cpu_seconds = 0.0
        bench.limits = limits or self.limits
        if uncached:
            bench.use_cache, bench.made, bench.making = False, set(), WeakValueDictionary()
        return bench

    @contextlib.asynccontextmanager
    async def closing(self, *sessions: str | None) -> AsyncIterator[None]:
        """End these sessions after the block, however the block ends: each holds memory."""
        try:
            yield
        finally:
            for session in filter(None, sessions):
                await self.sessions.close(session)

    @contextlib.asynccontextmanager
    async def slot(self, *, alone: bool = False, is_tool: bool = False) -> AsyncIterator[None]:
        """Wait for a turn; `alone` waits until nothing else runs.

        What is not a tool waits for its turn on this machine, too: see `here`.

        Raises:
            TimeIsUpError: the turn would come after the deadline.
        """
        slots = self.jobs if alone else 1
        taken = 0
        is_here = not (alone or is_tool)
        async with self._here if self._here and is_here else contextlib.nullcontext():
            try:
                # One taker of many at a time: two could each hold half and wait for the other.
                async with self._alone if alone else contextlib.nullcontext():
                    while taken < slots:
                        await self._slots.acquire()
                        taken += 1
                if self.deadline is not None and time.monotonic() > self.deadline:
                    raise TimeIsUpError
                yield
            finally:
                for _ in range(taken):
                    self._slots.release()

    def once(self, key: str) -> asyncio.Lock:
        """The lock under which one piece of evidence is made, however many cells want it.

        It lives as long as one of them holds it or waits for it.
        """
        return self.making.setdefault(key, asyncio.Lock())

    def find(self, kind: str, key: str, schema: type[T]) -> Kept[T] | None:
        """Stored evidence, unless the user wants none or it can no longer be read."""
        if not self.use_cache and key not in self.made:
            return None
        return self.read(kind, key, schema)

    def read(self, kind: str, key: str, schema: type[T]) -> Kept[T] | None:
        """Stored evidence, whether it was made in this run or before."""
        evidence = self.store.get_evidence(kind, key)
        if evidence is None:
            return None
        try:
            value = msgspec.json.decode(evidence.body, type=schema)
        except msgspec.MsgspecError:
            return None  # written by another version of this program: made again
        return Kept(value=value, key=key, artifacts=evidence.artifacts, cached=True)

    def keep(self, kind: str, key: str, value: T, artifacts: Mapping[str, str]) -> Kept[T]:
        """Store evidence that was just made."""
        self.store.put_evidence(kind, key, msgspec.json.encode(value), artifacts)
        self.made.add(key)
        return Kept(value=value, key=key, artifacts=artifacts)

    async def run_once(
        self,
        kind: str,
        key: str,
        schema: type[E],
        run: Callable[[int], Awaitable[tuple[E, Mapping[str, str]]]],
        *,
        must_repeat: Callable[[ProcessEnd], bool] | None = None,
    ) -> Kept[E]:
        """Stored evidence of a process, or what `run` gives for the first attempt.

        Where that died (or `must_repeat`) there is a second one, which runs alone: that tells what
        kills its compiler from a machine in trouble.
        """
        async with self.once(key):
            stored = self.find(kind, key, schema)
            if stored and still_valid(stored.value.end, self.limits):
                return stored
            evidence, artifacts = await run(1)
            if (must_repeat or has_died)(evidence.end):
                evidence, artifacts = await run(2)
            return self.keep(kind, key, evidence, artifacts)


def content_key(**parts: object) -> str:
    """One hash for everything that a step depends on."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def still_valid(process: ProcessEnd, limits: ResourceLimits) -> bool:
    """Whether a stored end would come out the same.

    Not if we killed it at a tighter limit, nor if somebody else did (the kernel's OOM killer).
    """
    if process.signal == signal.SIGKILL and not process.killed_by_us:
        return False
    if process.timed_out:
        return limits.timeout <= process.wall
    if process.over_memory:
        return limits.memory <= process.peak_rss
    return not process.flooded or limits.file_size <= FILE_SIZE


def has_died(process: ProcessEnd) -> bool:
    """Whether a compiler was taken down, by a signal that was not ours; a shell adds 128 to it."""
    return not process.killed_by_us and (
        process.signal is not None or process.exit_code in _SHELL_SIGNALS
    )
