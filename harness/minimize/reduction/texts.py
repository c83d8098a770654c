"""Drives a reduction of documents that are written as texts: Python, Triton's IR, settings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from harness.minimize.reduction.driver import Effort, Reduction, ReductionProgress
from harness.minimize.reduction.work import Driven

D = TypeVar("D")


class _Reduce(Protocol[D]):
    async def __call__(
        self,
        document: D,
        is_interesting: Callable[[D], Awaitable[bool]],
        /,
        *,
        effort: Effort,
        watch: Callable[[ReductionProgress[D]], None],
    ) -> Reduction[D]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentDriver(Generic[D]):
    """Reduces a text as the document that it is; see `harness.minimize.reduction.work.Driver`."""

    read: Callable[[str], D]
    text_of: Callable[[D], str]
    reduce: _Reduce[D]

    async def __call__(
        self,
        text: str,
        is_interesting: Callable[[str], Awaitable[bool]],
        *,
        effort: Effort,
        watch: Callable[[str, int, str | None], None],
    ) -> Driven:
        """One reduction."""

        def heard(progress: ReductionProgress[D]) -> None:
            document = progress.document
            new = None if document is None else self.text_of(document)
            watch(progress.pass_name, progress.tests, new)

        done = await self.reduce(
            self.read(text),
            lambda document: is_interesting(self.text_of(document)),
            effort=effort,
            watch=heard,
        )
        return Driven(
            text=self.text_of(done.document),
            tests=done.tests,
            is_finished=done.is_finished,
            is_minimal=done.is_minimal,
            ledger=done.ledger,
        )
