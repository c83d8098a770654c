"""Reduces a PTX module to what makes it interesting: the passes, and the order they come in. Pure.

Passes that take much for one test come first. Instructions go in chunks before they go one by one.
Where deletion stalls, register pressure that nothing else needs is taken out. Only what is left is
rewritten. At the end every pass has tried every step on the document that is returned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import overload

from gpu_emulator.ptx.text.document import Document, parse
from harness.minimize.ptx.defined import Guarded, completed, define, undeclared, undefined_registers
from harness.minimize.ptx.passes import (
    Collapsing,
    Functions,
    Heads,
    Modifiers,
    Renaming,
    Swapping,
    Tidying,
    bypasses,
    declarations,
    definitions,
    deletions,
    guards,
    halves,
    immediates,
    mergers,
    narrowest,
    offsets,
    returns,
    tidied,
    undefined,
)
from harness.minimize.ptx.weight import Ballast, ballasts, pump
from harness.minimize.reduction.driver import (
    UNLIMITED,
    Effort,
    Reducer,
    Reduction,
    ReductionProgress,
    Transformation,
)

_Passes = tuple[Transformation[Document], ...]

_PER_INSTRUCTION = 10_000
# Registers that passes may name, though a document does not.
_SPECIAL = frozenset({"%tid", "%ctaid"})
_TIDY = Tidying()
_DELETE = Swapping("delete", deletions)
_COLLAPSE = Collapsing()
_UNDEFINED = Renaming("undefined", undefined)
_STRUCTURE: _Passes = (Functions(), Heads(), Swapping("declarations", declarations))
_PLAIN: _Passes = (
    Swapping("guards", guards),
    Swapping("immediates", immediates),
    Swapping("offsets", offsets),
    Renaming("bypass", bypasses),
)
_FINE: _Passes = (
    Modifiers(),
    Swapping("narrowest", narrowest),
    Swapping("halves", halves),
    Swapping("definitions", definitions),
    Swapping("returns", returns),
    Renaming("merge", mergers),
)


async def reduce_ptx(
    text: str,
    is_interesting: Callable[[str], Awaitable[bool]],
    *,
    defined: bool = False,
    always: bool = False,
    effort: Effort = UNLIMITED,
    watch: Callable[[ReductionProgress[str]], None] = lambda _: None,
) -> Reduction[str]:
    """Reduce a module; the arguments are those of `reduction.Reducer`.

    `defined`: what comes out reads no register that nothing wrote, if the text that goes in does
    not; `always`: neither does any candidate.
    """
    work = _Work(document=parse(text), is_interesting=is_interesting, effort=effort, watch=watch)
    if always:
        return await _reduce(
            work,
            allowed=undefined_registers(work.document),
            named=undeclared(work.document) | _SPECIAL,
        )
    return await (_reduce_defined(work) if defined else _reduce(work))


def _as_it_is(document: Document) -> Document:
    return document


@dataclass(kw_only=True)
class _Work:
    """The arguments of `reduce_ptx`; while `is_ahead`, no better document is reported."""

    document: Document
    is_interesting: Callable[[str], Awaitable[bool]]
    effort: Effort
    watch: Callable[[ReductionProgress[str]], None]
    is_ahead: bool = False

    def reducer(self, complete: Callable[[Document], Document], spent: int) -> Reducer[Document]:
        """A reducer that tests what `complete` makes of a document, after so many tests."""

        def hear(progress: ReductionProgress[Document]) -> None:
            if self.is_ahead:
                progress = replace(progress, document=None)
            progress = replace(progress, tests=spent + progress.tests)
            self.watch(progress.mapped(lambda best: str(complete(best)), unit=_PER_INSTRUCTION))

        most = self.effort.max_tests
        left = None if most is None else max(0, most - spent)
        return Reducer(
            self.document,
            lambda candidate: self.is_interesting(str(complete(candidate))),
            size=lambda candidate: _size(complete(candidate)),
            key=lambda candidate: _key(complete(candidate)),
            effort=replace(self.effort, max_tests=left),
            watch=hear,
        )


async def _reduce(
    work: _Work, *, allowed: Counter[str] | None = None, named: frozenset[str] | None = None
) -> Reduction[str]:
    reducer = work.reducer(_as_it_is, 0)
    kinds = ballasts(tidied(work.document))
    is_minimal = await _Strategy(reducer, kinds, allowed=allowed, named=named).run()
    return _result(reducer, reducer.best, is_minimal=is_minimal)


async def _reduce_defined(work: _Work) -> Reduction[str]:
    """Reduce without a care, then give values to what reads none.

    Where that cannot be done, every step gives its values.
    """
    kinds, allowed = ballasts(tidied(work.document)), undefined_registers(work.document)
    work.is_ahead = True
    reducer = work.reducer(_as_it_is, 0)
    named = undeclared(work.document) | _SPECIAL
    await _Strategy(reducer, kinds, named=named).run()
    is_defined = await define(reducer, allowed=allowed)
    work.is_ahead = False
    if is_defined and reducer.growth(work.document) > 0:
        reducer.tell("define", is_accepted=True)
        left = undefined_registers(reducer.best)
        is_minimal = await _Strategy(reducer, kinds, allowed=left, named=named).finish()
        return _result(reducer, reducer.best, is_minimal=is_minimal)
    complete, spent = lru_cache(maxsize=16)(completed), reducer.tests
    reducer, is_minimal = work.reducer(complete, spent), False
    if (await reducer.ask("define", [reducer.best]))[0]:
        is_minimal = await _Strategy(reducer, kinds, by_values=True, named=named).run()
    is_same = reducer.best is work.document
    best = reducer.best if is_same else complete(reducer.best)
    return _result(reducer, best, is_minimal=is_minimal, spent=spent)


def _result(
    reducer: Reducer[Document], best: Document, *, is_minimal: bool, spent: int = 0
) -> Reduction[str]:
    done = reducer.reduction(is_minimal=is_minimal)
    return Reduction(
        document=str(best),
        tests=spent + done.tests,
        is_finished=done.is_finished,
        is_minimal=done.is_minimal,
        ledger=done.ledger,
    )


class _Strategy:
    """The order of the passes on one reducer."""

    def __init__(
        self,
        reducer: Reducer[Document],
        kinds: list[Ballast],
        *,
        allowed: Counter[str] | None = None,
        named: frozenset[str] | None = None,
        by_values: bool = False,
    ) -> None:
        """What `_guarded` lets through; `by_values`: every document is completed by values."""
        self._reducer = reducer
        self._kinds = kinds
        self._allowed = allowed
        # A value that is handed on stays various; a deletion leaves one value for all.
        removal = (_DELETE,) if allowed is None and not by_values else (_COLLAPSE, _DELETE)
        self._named = named
        self._removal = self._guarded(removal)
        self._structure = self._guarded(_STRUCTURE)
        self._plain = self._guarded((*_PLAIN, _UNDEFINED))
        self._fine = self._guarded(_FINE)
        self._tidying = self._guarded((_UNDEFINED, _TIDY))

    def _guarded(self, passes: Sequence[Transformation[Document]]) -> _Passes:
        """The passes with these undefined registers, and names declared nowhere, and no others."""
        if self._allowed is None and self._named is None:
            return tuple(passes)
        return tuple(Guarded(one, self._is_allowed) for one in passes)

    def _is_allowed(self, document: Document) -> bool:
        if self._named is not None and not undeclared(document) <= self._named:
            return False
        return self._allowed is None or undefined_registers(document) <= self._allowed

    async def run(self) -> bool:
        """Reduce until nothing changes; whether that was reached."""
        reducer = self._reducer
        await reducer.sweep(self._guarded((_TIDY, Functions())))
        await reducer.sweep(self._removal[:1], smallest=2)
        await reducer.sweep((*self._structure, *self._tidying))
        await self._pump()
        await reducer.sweep((*self._plain, *self._tidying, *self._removal))
        await self._pump()
        return await self.finish()

    async def finish(self) -> bool:
        """Every pass, again and again, until nothing changes; whether that was reached."""
        reducer = self._reducer
        whole = (*self._plain, *self._removal, *self._fine, *self._structure, *self._tidying)
        while await reducer.sweep(whole):
            await self._pump()
        return not reducer.is_spent()

    async def _pump(self) -> None:
        if self._allowed is not None:
            return  # the pump's registers have no values
        sweeps = (self._removal, (*self._plain, *self._tidying, *self._removal))
        while await pump(self._reducer, self._kinds, sweeps):
            await self._reducer.sweep(self._tidying)


def _size(document: Document) -> int:
    """Instructions first, then what there is to read."""
    length = sum(len(one.code) + 1 for one in document.statements)
    return _PER_INSTRUCTION * len(document.instructions) + length


def _key(document: Document) -> str:
    return "\n".join(one.code for one in document.statements)


class _Deletions(Sequence[tuple[str, str]]):
    """Made when they are asked for: together they are as long as the text times its length."""

    def __init__(self, text: str) -> None:
        self._document = parse(text)

    def __len__(self) -> int:
        return len(self._document.instructions)

    @overload
    def __getitem__(self, index: int) -> tuple[str, str]: ...
    @overload
    def __getitem__(self, index: slice) -> list[tuple[str, str]]: ...
    def __getitem__(self, index: int | slice) -> tuple[str, str] | list[tuple[str, str]]:
        if isinstance(index, slice):
            return [self[number] for number in range(len(self))[index]]
        place, _ = self._document.instructions[index]
        return self._document.statements[place].text, str(self._document.without([place]))


def single_deletions(text: str) -> Sequence[tuple[str, str]]:
    """Each instruction as it is written, and the text without it."""
    return _Deletions(text)


def count_instructions(text: str) -> int:
    """How many instructions a module has."""
    return len(parse(text).instructions)
