"""Reduces a PTX module to what makes it interesting: the passes, and the order they come in. Pure.

The order is that of facts.md: what costs one test and takes much comes first, instructions go in
chunks before they go one by one, ballast is pumped out where deletion stalls, and only what is left
is rewritten. In the end every pass had every opportunity on the very document that is returned.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from harness.logic.ptx_ballast import Ballast, ballasts, pump
from harness.logic.ptx_defined import completed
from harness.logic.ptx_document import Document, parse
from harness.logic.ptx_passes_renaming import Renaming, bypasses, mergers, undefined
from harness.logic.ptx_passes_rewriting import (
    Modifiers,
    Swapping,
    definitions,
    deletions,
    guards,
    halves,
    immediates,
    narrowest,
    offsets,
)
from harness.logic.ptx_passes_structure import Functions, Heads, declarations, returns
from harness.logic.ptx_passes_tidying import Tidying, tidied
from harness.logic.reduction import PassCount, Progress, Reducer, Transformation

__all__ = ["PtxReduction", "count_instructions", "reduce_ptx", "single_deletions"]

_PER_INSTRUCTION = 10_000
_TIDY = Tidying()
_DELETE = Swapping("delete", deletions)
_UNDEFINED = Renaming("undefined", undefined)
_STRUCTURE: tuple[Transformation[Document], ...] = (
    Functions(),
    Heads(),
    Swapping("declarations", declarations),
)
_PLAIN: tuple[Transformation[Document], ...] = (
    Swapping("guards", guards),
    Swapping("immediates", immediates),
    Swapping("offsets", offsets),
    Renaming("bypass", bypasses),
)
_FINE: tuple[Transformation[Document], ...] = (
    Modifiers(),
    Swapping("narrowest", narrowest),
    Swapping("halves", halves),
    Swapping("definitions", definitions),
    Swapping("returns", returns),
    Renaming("merge", mergers),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PtxReduction:
    """What became of a module; the rest as in `reduction.Reduction`."""

    text: str
    instructions: int
    tests: int
    is_finished: bool
    is_minimal: bool
    ledger: Mapping[str, PassCount]

    @property
    def bytes(self) -> int:
        """How long the text is."""
        return len(self.text.encode(errors="surrogatepass"))


async def reduce_ptx(
    text: str,
    is_interesting: Callable[[str], Awaitable[bool]],
    *,
    defined: bool = False,
    jobs: int = 1,
    seed: int = 0,
    max_tests: int | None = None,
    is_time_up: Callable[[], bool] = lambda: False,
    watch: Callable[[Progress[str]], None] = lambda _: None,
) -> PtxReduction:
    """Reduce a module; the arguments are those of `reduction.Reducer`.

    `defined`: what comes out reads no register that nothing wrote, if the text that goes in does
    not.
    """
    document = parse(text)
    complete = lru_cache(maxsize=16)(completed) if defined else _as_it_is
    reducer = Reducer(
        document,
        lambda candidate: is_interesting(str(complete(candidate))),
        size=lambda candidate: _size(complete(candidate)),
        key=lambda candidate: _key(complete(candidate)),
        jobs=jobs,
        seed=seed,
        max_tests=max_tests,
        is_time_up=is_time_up,
        watch=lambda progress: watch(_as_text(progress, complete)),
    )
    is_minimal = False
    if complete(document) is document or (await reducer.ask("define", [complete(document)]))[0]:
        is_minimal = await _Strategy(reducer, ballasts(tidied(document))).run()
    reduction = reducer.reduction(is_minimal=is_minimal)
    result = complete(reduction.document) if reduction.document is not document else document
    return PtxReduction(
        text=str(result),
        instructions=len(result.instructions),
        tests=reduction.tests,
        is_finished=reduction.is_finished,
        is_minimal=reduction.is_minimal,
        ledger=reduction.ledger,
    )


def _as_it_is(document: Document) -> Document:
    return document


class _Strategy:
    """The order of the passes on one reducer."""

    def __init__(self, reducer: Reducer[Document], kinds: list[Ballast]) -> None:
        self._reducer = reducer
        self._kinds = kinds

    async def run(self) -> bool:
        """Reduce until nothing changes; whether that was reached."""
        reducer = self._reducer
        await reducer.sweep((_TIDY, Functions()))
        await reducer.round(_DELETE, smallest=2)
        await reducer.sweep((*_STRUCTURE, _UNDEFINED, _TIDY))
        await self._pump()
        await reducer.sweep((*_PLAIN, _UNDEFINED, _TIDY, _DELETE))
        await self._pump()
        while await reducer.sweep((*_PLAIN, _UNDEFINED, _DELETE, *_FINE, *_STRUCTURE, _TIDY)):
            await self._pump()
        return not reducer.is_spent()

    async def _pump(self) -> None:
        while await pump(self._reducer, self._kinds, (_DELETE,)):
            await self._reducer.sweep((_UNDEFINED, _TIDY))


def _size(document: Document) -> int:
    """Instructions first, then what there is to read."""
    length = sum(len(one.code) + 1 for one in document.statements)
    return _PER_INSTRUCTION * len(document.instructions) + length


def _key(document: Document) -> str:
    return "\n".join(one.code for one in document.statements)


def _as_text(
    progress: Progress[Document], complete: Callable[[Document], Document]
) -> Progress[str]:
    return Progress(
        pass_name=progress.pass_name,
        is_accepted=progress.is_accepted,
        tests=progress.tests,
        size=progress.size // _PER_INSTRUCTION,
        document=None if progress.document is None else str(complete(progress.document)),
    )


def single_deletions(text: str) -> list[tuple[str, str]]:
    """Each instruction as it is written, and the text without it."""
    document = parse(text)
    return [
        (document.statements[place].text, str(document.without([place])))
        for place, _ in document.instructions
    ]


def count_instructions(text: str) -> int:
    """How many instructions a module has."""
    return len(parse(text).instructions)
