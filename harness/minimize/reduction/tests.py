"""The tests of a reduction: questions, answers and costs. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

D = TypeVar("D")


@dataclass(frozen=True, slots=True, kw_only=True)
class PassCount:
    """What one pass cost, and what it brought."""

    tests: int = 0
    accepted: int = 0
    removed: int = 0


class ReductionTest:
    """A test that was started. It may be heard more than once."""

    __slots__ = ("_pending", "said")

    def __init__(self, pending: Awaitable[bool] | None) -> None:
        self._pending = pending
        self.said = None if pending else True

    async def hear(self) -> bool:
        """What it said, when it has said it."""
        if self.said is None and self._pending:
            self.said = bool(await self._pending)
        return bool(self.said)

    def abandon(self) -> None:
        """End a test that is not needed any more: a task is cancelled, a coroutine is closed."""
        stop = getattr(self._pending, "cancel", None) or getattr(self._pending, "close", None)
        if self.said is None and stop:
            stop()


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """What a reduction may spend, and how.

    `jobs` candidates are on their way at a time. `seed` says where chunks are cut; 0 cuts them in
    the middle. `max_tests` is how many tests it may make; `is_time_up` is asked before every one.
    """

    jobs: int = 1
    seed: int = 0
    max_tests: int | None = None
    is_time_up: Callable[[], bool] = lambda: False


UNLIMITED = Effort()


class Tests(Generic[D]):
    """All that was asked, what it said and cost, and what may still be asked."""

    def __init__(
        self,
        is_interesting: Callable[[D], Awaitable[bool]],
        key: Callable[[D], str],
        effort: Effort,
    ) -> None:
        self.count = 0
        self.is_over = False
        self.ledger: dict[str, PassCount] = {}
        self._is_interesting = is_interesting
        self._key = key
        self._effort = effort
        self._known: dict[bytes, ReductionTest] = {}

    def begin(self, name: str, document: D) -> ReductionTest | None:
        """The test of a document, started unless it was before; None if nothing may be spent."""
        digest = self._digest(document)
        if digest not in self._known:
            if self.is_spent():
                return None
            self.count += 1
            self.enter(name, tests=1)
            self._known[digest] = ReductionTest(self._is_interesting(document))
        return self._known[digest]

    def is_known(self, document: D) -> bool:
        """Whether this document was tested before."""
        return self._digest(document) in self._known

    def take_for_granted(self, document: D) -> None:
        """Enter a document as interesting without a test."""
        self._known[self._digest(document)] = ReductionTest(None)

    def is_spent(self) -> bool:
        """Whether no further test may be started."""
        if not self.is_over:
            most = self._effort.max_tests
            self.is_over = (most is not None and self.count >= most) or self._effort.is_time_up()
        return self.is_over

    def enter(self, name: str, *, tests: int = 0, accepted: int = 0, removed: int = 0) -> None:
        """Enter something into the ledger."""
        before = self.ledger.get(name, PassCount())
        self.ledger[name] = PassCount(
            tests=before.tests + tests,
            accepted=before.accepted + accepted,
            removed=before.removed + removed,
        )

    def _digest(self, document: D) -> bytes:
        return hashlib.sha256(self._key(document).encode(errors="surrogatepass")).digest()
