"""A child process at the other end of a socket: messages to it, and what it answers."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any, Protocol, TypeVar

import msgspec

from harness.values.outcome import ProcessEnd

_UNREAD_EVENTS = 8
# A killed job is gone at once, unless the machine is in trouble.
_DYING_SECONDS = 5.0
_MortalT = TypeVar("_MortalT", bound="_Mortal")


class PeerGoneError(Exception):
    """The child at the other end is gone; what it was doing is lost. Never leaves `effects`."""


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
                self._hear(msgspec.json.decode(line, type=dict[str, Any]))
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

    def _hear(self, message: dict[str, Any]) -> None:
        """Pass one message on.

        Raises:
            ValueError: none of our children says this.
        """
        if "end" in message:
            ended = msgspec.convert(message, JobEnd)
            future = self._jobs.pop(ended.id, None)
            if future and not future.done():
                future.set_result(ended)
        elif self._events.qsize() < _UNREAD_EVENTS:
            self._events.put_nowait(message)
        else:
            raise ValueError

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
        self._writer.write(json.dumps({**message, "id": job}).encode() + b"\n")
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
            message = {"op": "kill", "id": job, "timed_out": timed_out}
            self._writer.write(json.dumps(message).encode() + b"\n")

    def count_alone(self, job: int) -> None:
        """From now on, a job's own memory is limited; its children's is limited by itself."""
        self._writer.write(json.dumps({"op": "count alone", "id": job}).encode() + b"\n")

    async def event(self) -> dict[str, Any] | None:
        """The next message that is not the end of a job; None when the child is gone."""
        return await self._events.get()

    async def close(self) -> None:
        """Hang up; the child then kills its jobs and leaves."""
        # Not `close`: that first sends what is left, and waits for a child that may not listen.
        self._writer.transport.abort()
        await self._task


class _Mortal(Protocol):
    @property
    def gone(self) -> bool: ...


def is_lost(task: asyncio.Task[_MortalT]) -> bool:
    """Whether what was to be started failed to, or is gone again."""
    if not task.done():
        return False
    return task.cancelled() or task.exception() is not None or task.result().gone
