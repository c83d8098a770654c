"""Work side by side in one event loop: all of it ends with the first error.

And questions that are asked side by side, and answered many at a time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

Q = TypeVar("Q")
A = TypeVar("A")
T = TypeVar("T")

_TURNS = 3
"""Turns of the loop until all who are about to ask have asked."""


async def in_parallel(jobs: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of all jobs, in their order.

    When one fails, or we are stopped, the others are cancelled and waited for: none goes on with
    what its caller has closed. The first error is raised as it is.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(job) for job in jobs]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


@dataclass(slots=True, kw_only=True)
class Batcher(Generic[Q, A]):
    """Answers questions by `answer`, which gets all that have been asked by then.

    Up to `at_once` batches are under way, of `most` questions each. A batch begins `pause` seconds
    after the last question. `count` is how many began.
    """

    answer: Callable[[Sequence[Q]], Awaitable[Sequence[A]]]
    at_once: int = 1
    most: int | None = None
    pause: float = 0.0
    count: int = 0
    _waiting: list[tuple[Q, asyncio.Future[A]]] = field(default_factory=list)
    _asked: float = 0.0
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def ask(self, question: Q) -> asyncio.Future[A]:
        """A started question: its answer, or whatever its batch raises."""
        future: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._waiting.append((question, future))
        self._asked = time.monotonic()
        if len(self._tasks) < self.at_once:
            task = asyncio.create_task(self._work())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return future

    async def _work(self) -> None:
        while True:
            for _ in range(_TURNS):
                await asyncio.sleep(0)
            while self._waiting and (left := self._asked + self.pause - time.monotonic()) > 0:
                await asyncio.sleep(left)
            most = self.most or len(self._waiting)
            batch, self._waiting = self._waiting[:most], self._waiting[most:]
            if not batch:
                # At once: a question of the next turn has to begin a task of its own.
                self._tasks -= {asyncio.current_task()}
                return
            await self._answer([(one, future) for one, future in batch if not future.done()])

    async def _answer(self, batch: Sequence[tuple[Q, asyncio.Future[A]]]) -> None:
        if not batch:
            return
        self.count += 1
        try:
            answers = await self.answer([question for question, _ in batch])
            for (_, future), answer in zip(batch, answers, strict=True):
                if not future.done():
                    future.set_result(answer)
        except Exception as error:  # noqa: BLE001 - the caller gets it
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
                    future.exception()  # who asked may be gone
        finally:
            # We are stopped: no caller keeps waiting.
            for _, future in batch:
                future.cancel()
