"""Reduces a standalone file: what is large goes first, what is fine last. Pure.

Statements go with all that depends on them, so that candidates fail for a reason, not for a name
that is missing. Expressions are looked at once the statements are few.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from harness.logic.reduction import Edit, Progress, Reducer, Reduction
from harness.logic.source_launch_passes import Arguments, Numbers, Options
from harness.logic.source_passes import (
    Statements,
    Unused,
    bare_expressions,
    branches,
    constants,
    keywords,
    operands,
    plain_assignments,
    trailing_arguments,
)
from harness.logic.source_tree import Source
from harness.logic.source_variables import Propagations, Twins, Variables

__all__ = ["PASSES", "SourcePass", "reduce_source"]


class SourcePass(Protocol):
    """A transformation that can tell its edits again when the document has changed elsewhere."""

    @property
    def name(self) -> str:
        """What the ledger calls it."""

    def opportunities(self, document: Source) -> Sequence[Edit]:
        """As of any transformation."""

    def apply(self, document: Source, chosen: Sequence[Edit]) -> Source | None:
        """As of any transformation."""

    def mark(self, document: Source, edit: Edit) -> Hashable:
        """What an edit would change, in words: the same for the same change."""


_STRUCTURE: tuple[SourcePass, ...] = (Unused(), Statements(), branches("body"), branches("else"))
PASSES: tuple[SourcePass, ...] = (
    Arguments(is_inlining=False),
    Options(),
    keywords(),
    plain_assignments(),
    operands(0),
    operands(1),
    operands(2),
    *_STRUCTURE,
    Twins(),
    trailing_arguments(),
    Variables(1.0),
    Variables(0),
    constants(1.0),
    constants(0),
    bare_expressions(),
    Unused(),
    Propagations(),
    Numbers(),
    Arguments(is_inlining=True),
)


@dataclass(slots=True)
class _Patient:
    """A pass that does not ask again for what was refused, as long as it looks the same."""

    inner: SourcePass
    refused: set[Hashable] = field(default_factory=set)

    @property
    def name(self) -> str:
        return self.inner.name

    def opportunities(self, document: Source) -> Sequence[Edit]:
        return [
            edit
            for edit in self.inner.opportunities(document)
            if self.inner.mark(document, edit) not in self.refused
        ]

    def apply(self, document: Source, chosen: Sequence[Edit]) -> Source | None:
        return self.inner.apply(document, chosen)

    def remember(self, document: Source) -> None:
        """After a round, all that is still there was refused."""
        found = self.inner.opportunities(document)
        self.refused |= {self.inner.mark(document, edit) for edit in found}


async def _sweep_patiently(reducer: Reducer[Source], passes: Sequence[_Patient]) -> bool:
    brought = False
    for each in passes:
        while await reducer.round(each):
            brought = True
            each.remember(reducer.best)
        each.remember(reducer.best)
    return brought


async def reduce_source(
    document: Source,
    is_interesting: Callable[[Source], Awaitable[bool]],
    *,
    jobs: int = 1,
    seed: int = 0,
    max_tests: int | None = None,
    is_time_up: Callable[[], bool] = lambda: False,
    watch: Callable[[Progress[Source]], None] = lambda _: None,
) -> Reduction[Source]:
    """Reduce until nothing more can go; the arguments are those of `reduction.Reducer`."""
    reducer = Reducer(
        document,
        is_interesting,
        size=lambda source: source.size,
        key=lambda source: source.text,
        jobs=jobs,
        seed=seed,
        max_tests=max_tests,
        is_time_up=is_time_up,
        watch=watch,
    )
    await reducer.sweep(_STRUCTURE, smallest=8)
    await reducer.sweep(PASSES, smallest=4)
    passes = [_Patient(each) for each in PASSES]
    while True:
        while await _sweep_patiently(reducer, passes):
            pass
        # What was refused long ago may have a chance now; and only this tells that nothing has.
        if not await reducer.sweep(PASSES):
            break
    return reducer.reduction(is_minimal=True)
