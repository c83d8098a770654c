"""Questions one by one, trips to a GPU many at a time: what is asked together travels together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from harness.values.errors import TriageError

Q = TypeVar("Q")
A = TypeVar("A")

_PAUSE = 0.3
"""Seconds without another question until a trip begins; one takes seconds by itself."""


@dataclass(slots=True, kw_only=True)
class Together(Generic[Q, A]):
    """Answers questions by `trip`, one trip at a time, each with all that has been asked by then.

    `trips` counts them.
    """

    trip: Callable[[Sequence[Q]], Awaitable[Sequence[A]]]
    trips: int = 0
    _asked: list[tuple[Q, asyncio.Future[A]]] = field(default_factory=list)
    _next: asyncio.Task[None] | None = None
    _travelling: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def ask(self, question: Q) -> A:
        """The answer, when a trip has brought it.

        Raises:
            TriageError: the trip failed.
        """
        answer: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._asked.append((question, answer))
        if self._next is not None:
            self._next.cancel()
        self._next = asyncio.create_task(self._wait())
        return await answer

    async def _wait(self) -> None:
        await asyncio.sleep(_PAUSE)
        async with self._travelling:
            # From here on another question does not put it off, and begins the next trip.
            self._next = None
            asked, self._asked = [each for each in self._asked if not each[1].done()], []
            if asked:
                await self._travel(asked)

    async def _travel(self, asked: Sequence[tuple[Q, asyncio.Future[A]]]) -> None:
        self.trips += 1
        try:
            found = await self.trip([question for question, _ in asked])
            for (_, answer), each in zip(asked, found, strict=True):
                if not answer.done():
                    answer.set_result(each)
        except TriageError as error:
            for _, answer in asked:
                if not answer.done():
                    answer.set_exception(error)
        finally:
            # None keeps waiting where the trip ended in another way.
            for _, answer in asked:
                answer.cancel()
