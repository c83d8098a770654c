"""Passes that give PTX registers other names: one for all undefined ones, a source for its copy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from harness.logic.ptx_document import Document, Kind, Statement
from harness.logic.ptx_instruction import names_in
from harness.logic.ptx_registers import read_registers, renamed
from harness.logic.reduction import Edit

__all__ = ["Rename", "Renaming", "bypasses", "mergers", "undefined"]


@dataclass(frozen=True, slots=True)
class Rename:
    """In a function (by its number), one name for another; the statement at `gone` goes with it."""

    function: int
    old: str
    new: str
    gone: int | None = None


@dataclass(frozen=True)
class Renaming:
    """A pass whose opportunities are renamings. A chain of them is followed to its end."""

    name: str
    find: Callable[[Document], Iterable[Rename]]

    def opportunities(self, document: Document) -> Sequence[Edit]:
        """What the function finds."""
        return list(self.find(document))

    def apply(self, document: Document, chosen: Sequence[Edit]) -> Document | None:
        """The document with these names."""
        changes: dict[int, Sequence[Statement]] = {}
        for number, function in enumerate(document.functions):
            renames = [r for r in chosen if isinstance(r, Rename) and r.function == number]
            names = {rename.old: rename.new for rename in renames}
            for place in function.body if names else ():
                one = document.statements[place]
                if one.kind is not Kind.DECLARATION:
                    new = renamed(one, partial(_follow, names))
                    if new is not one:
                        changes[place] = [new]
            changes.update((rename.gone, ()) for rename in renames if rename.gone is not None)
        return document.replaced(changes) if changes else None


def _follow(names: dict[str, str], name: str) -> str:
    seen = {name}
    while name in names and names[name] not in seen:
        name = names[name]
        seen.add(name)
    return name


def undefined(document: Document) -> Iterable[Rename]:
    """Every register that nothing writes may be the first such one of its type."""
    for number, function in enumerate(document.functions):
        registers = read_registers(document, function)
        inside = [one for place, one in document.instructions if place in function.body]
        written = {name for one in inside for name in one.writes}
        first: dict[str, str] = {}
        for name in dict.fromkeys(name for one in inside for name in one.reads):
            kind = registers.type_of(name)
            if kind and name not in written and first.setdefault(kind, name) != name:
                yield Rename(number, name, first[kind])


def mergers(document: Document) -> Iterable[Rename]:
    """Every register may be the one of its type that came before it."""
    for number, function in enumerate(document.functions):
        registers = read_registers(document, function)
        last: dict[str, str] = {}
        names = (
            name
            for place, one in document.instructions
            if place in function.body
            for name in (*one.reads, *one.writes)
        )
        for name in dict.fromkeys(names):
            kind = registers.type_of(name)
            if kind:
                if kind in last:
                    yield Rename(number, name, last[kind])
                last.setdefault(kind, name)


def bypasses(document: Document) -> Iterable[Rename]:
    """Every instruction may go whose result can be one of its own operands, of the same type."""
    for number, function in enumerate(document.functions):
        registers = read_registers(document, function)
        inside = [(place, one) for place, one in document.instructions if place in function.body]
        writers = Counter(name for _, one in inside for name in one.writes)
        for place, one in inside:
            if not one.results or len(one.writes) != 1 or writers[one.writes[0]] != 1:
                continue
            result = one.writes[0]
            kind = registers.type_of(result)
            sources = (name for operand in one.operands[1:] for name in names_in(operand))
            for source in dict.fromkeys(sources):
                if source != result and registers.type_of(source) == kind:
                    yield Rename(number, result, source, place)
