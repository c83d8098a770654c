"""A reduction that does not ask again for what was refused, until nothing else is left. Pure.

Where a test takes a second, most of a reduction would go into edits that were refused before and
look no different now. They are asked for once more at the end: only that tells that nothing can go.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from harness.minimize.reduction.driver import Edit, Reducer, Transformation

D = TypeVar("D")


class MarkedPass(Transformation[D], Protocol[D]):
    """A transformation that knows its edits again when the document has changed elsewhere."""

    def mark(self, document: D, edit: Edit) -> Hashable:
        """What an edit would change, in words: the same for the same change."""


@dataclass(slots=True)
class _Patient(Generic[D]):
    """A pass without the edits that were refused."""

    inner: MarkedPass[D]
    refused: set[Hashable] = field(default_factory=set)

    @property
    def name(self) -> str:
        return self.inner.name

    def opportunities(self, document: D) -> Sequence[Edit]:
        return [
            edit
            for edit in self.inner.opportunities(document)
            if self.inner.mark(document, edit) not in self.refused
        ]

    def apply(self, document: D, chosen: Sequence[Edit]) -> D | None:
        return self.inner.apply(document, chosen)

    def marks(self, document: D) -> set[Hashable]:
        """All that could be asked for."""
        found = self.inner.opportunities(document)
        return {self.inner.mark(document, edit) for edit in found}


async def sweep_coarsely(
    reducer: Reducer[D], passes: Sequence[Transformation[D]], *, smallest: int
) -> None:
    """One round of each pass, in chunks of `smallest` at least; each begins with everything."""
    for each in passes:
        await _round(reducer, each, smallest=smallest)


async def _round(
    reducer: Reducer[D], transformation: Transformation[D], *, smallest: int = 1
) -> bool:
    # What is offered now has little to do with how much went in the last round.
    largest = len(transformation.opportunities(reducer.best))
    return await reducer.round(transformation, smallest=smallest, largest=max(1, largest))


async def reduce_patiently(reducer: Reducer[D], passes: Sequence[MarkedPass[D]]) -> None:
    """Sweep until no pass brings anything; single edits are tried all along."""
    patient = [_Patient(each) for each in passes]
    while True:
        while await _sweep(reducer, patient):
            pass
        # What was refused long ago may have a chance now.
        if not await reducer.sweep(passes):
            return


async def _sweep(reducer: Reducer[D], passes: Sequence[_Patient[D]]) -> bool:
    brought = False
    for each in passes:
        is_taken = True
        while is_taken:
            before = each.marks(reducer.best)
            is_taken = await _round(reducer, each)
            brought |= is_taken
            # What a taken edit made possible is new, and was not asked for.
            each.refused |= before & each.marks(reducer.best)
    return brought
