"""Passes that give PTX registers other names: one for all undefined ones, a source for its copy.

Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from gpu_emulator.ptx.text.document import Document, Statement, StatementKind
from gpu_emulator.ptx.text.facts import Instruction, names_in
from gpu_emulator.ptx.text.registers import Registers, read_registers, renamed
from harness.minimize.reduction.driver import Edit


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
                if one.kind is not StatementKind.DECLARATION:
                    new = renamed(one, partial(_follow, names))
                    if new is not one:
                        changes[place] = [new]
            changes.update((rename.gone, ()) for rename in renames if rename.gone is not None)
        return document.replaced(changes) if changes else None


@dataclass(frozen=True)
class Collapsing:
    """Deletes instructions, and hands what they read on to those that read their results.

    So a value stays as various as it was, which a deletion alone would end.
    """

    name: str = "collapse"

    def opportunities(self, document: Document) -> Sequence[Edit]:
        """Every instruction, by its place."""
        return [place for place, _ in document.instructions]

    def apply(self, document: Document, chosen: Sequence[Edit]) -> Document | None:
        """The document without these instructions."""
        gone = set(chosen)
        changes: dict[int, Sequence[Statement]] = dict.fromkeys(
            (place for place, _ in document.instructions if place in gone), ()
        )
        for function in document.functions:
            registers = read_registers(document, function)
            inside = [
                (place, one) for place, one in document.instructions if place in function.body
            ]
            writers = Counter(name for _, one in inside for name in one.writes)
            names: dict[str, str] = {}
            for place, one in inside:
                if place in gone:
                    names.update(_heirs(one, registers, writers))
            for place in function.body if names else ():
                line = document.statements[place]
                if place not in gone and line.kind is not StatementKind.DECLARATION:
                    new = renamed(line, partial(_follow, names))
                    if new is not line:
                        changes[place] = [new]
        return document.replaced(changes)


def _heirs(one: Instruction, registers: Registers, writers: Counter[str]) -> dict[str, str]:
    """For each register that only this instruction writes, one of the same type that it reads."""
    sources: dict[str, list[str]] = {}
    for operand in one.operands[one.results :]:
        for name in names_in(operand):
            sources.setdefault(registers.type_of(name) or "", []).append(name)
    heirs = {}
    for number, name in enumerate(one.writes):
        kind = registers.type_of(name)
        others = [source for source in sources.get(kind or "", []) if source not in one.writes]
        if kind and others and writers[name] == 1:
            heirs[name] = others[number % len(others)]
    return heirs


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
