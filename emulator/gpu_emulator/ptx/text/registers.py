"""Which registers a function declares, of which type, and what they are called. Pure."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from gpu_emulator.ptx.text.document import Document, Function, Statement, StatementKind
from gpu_emulator.ptx.text.instruction import NAME

_DECLARATION = re.compile(r"\.reg\s+((?:\.v[248]\s*)?\.\w+)\s+(.*);", re.DOTALL)
_NAMES = re.compile(r"([\w$%]+)\s*(?:<\s*([0-9]{1,9})\s*>)?")
_VARIABLE = re.compile(
    r"\.(?:global|shared|const|local|param|tex|extern|visible|weak|common)\b[^=;]*?"
    r"([A-Za-z_$%][\w$]*)\s*(?:\[[^\]]*\]\s*){0,4}[=;]"
)
_NUMBERED = re.compile(r"(.*?)(0|[1-9][0-9]{0,8})")


@dataclass(frozen=True, slots=True)
class Declared:
    """One declared name; with a count it stands for `name0`, `name1`, ..."""

    type: str
    name: str
    count: int | None

    @property
    def names(self) -> list[str]:
        """Every register that it stands for."""
        if self.count is None:
            return [self.name]
        return [f"{self.name}{number}" for number in range(self.count)]


def declared_registers(code: str) -> Iterator[Declared]:
    """What a `.reg` declaration declares; nothing for any other declaration."""
    found = _DECLARATION.match(code)
    if found:
        for name, count in _NAMES.findall(found[2]):
            yield Declared(found[1].replace(" ", ""), name, int(count) if count else None)


@dataclass(slots=True)
class Registers:
    """The types of a function's registers, whatever the scope that declares them."""

    single: dict[str, str] = field(default_factory=dict)
    numbered: dict[str, tuple[str, int]] = field(default_factory=dict)

    def add(self, declared: Declared) -> None:
        """Enter one declaration."""
        if declared.count is None:
            self.single[declared.name] = declared.type
        else:
            self.numbered[declared.name] = (declared.type, declared.count)

    def type_of(self, name: str) -> str | None:
        """The declared type (`.b32`, `.pred`, ...) of a register; None if it is none."""
        if name in self.single:
            return self.single[name]
        found = _NUMBERED.fullmatch(name)
        if found and found[1] in self.numbered:
            kind, count = self.numbered[found[1]]
            return kind if int(found[2]) < count else None
        return None


def declared_variable(code: str) -> str | None:
    """The name of the variable, label of a table or parameter that a declaration declares."""
    found = _VARIABLE.match(code)
    return found[1] if found else None


def read_registers(document: Document, function: Function, *, is_inner: bool = True) -> Registers:
    """All registers that a function declares; `is_inner`: also those of its inner scopes."""
    registers = Registers()
    depth = 0
    for place in function.body:
        if place in document.scopes:
            depth += 1
        depth -= document.statements[place].kind is StatementKind.CLOSE
        if depth and not is_inner:
            continue
        one = document.statements[place]
        if one.kind is StatementKind.DECLARATION:
            for declared in declared_registers(one.code):
                registers.add(declared)
    return registers


def renamed(one: Statement, rename: Callable[[str], str]) -> Statement:
    """The statement with other names in it; the same one where none changes."""
    code = NAME.sub(lambda found: rename(found[0]), one.code)
    return one if code == one.code else Statement(one.kind, code, one.before, code)


def type_finder(document: Document) -> Callable[[int, str], str | None]:
    """A function that tells the type of a register that a statement, by its place, names."""
    functions = document.functions
    tables = [read_registers(document, function) for function in functions]
    starts = [function.opening for function in functions]

    def type_of(place: int, name: str) -> str | None:
        number = bisect_right(starts, place) - 1
        return tables[number].type_of(name) if number >= 0 else None

    return type_of
