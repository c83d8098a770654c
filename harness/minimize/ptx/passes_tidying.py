"""Passes that make a PTX module plainer and leave its program as it is. Pure.

Each step is a function from a document to a document. They are tried all at once: ptxas does not
see most of them, and one test so takes a third of a module away.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from gpu_emulator.ptx.text.document import (
    Document,
    Function,
    Head,
    Statement,
    StatementKind,
    read_head,
    statement,
)
from gpu_emulator.ptx.text.facts import NAME
from gpu_emulator.ptx.text.registers import (
    declared_registers,
    declared_variable,
    read_registers,
    renamed,
    without_scopes,
)
from harness.minimize.reduction.driver import Edit

_DEBUG = re.compile(r"\.(?:loc|file|section)\b")
_BLANKS_INSIDE = re.compile(r"(?<=[\[({])\s+|\s+(?=[\])}])")
_NO_OFFSET = re.compile(r"\s*\+\s*0(?=[\],])")
_OFFSET = re.compile(r"\s*\+\s*(?=\w)")
# What the registers of a type are called; those of any other type are called after it.
_PREFIXES = {
    ".pred": "p",
    ".b16": "rs",
    ".b32": "r",
    ".b64": "rd",
    ".f32": "f",
    ".f64": "fd",
    ".b128": "rq",
}
_LIKE_A_REGISTER = re.compile(r"(?:_\w*[a-z]|p|r|rs|rd|rq|f|fd)[0-9]+")


@dataclass(frozen=True)
class Tidying:
    """All steps, each as one opportunity."""

    name: str = "tidy"

    def opportunities(self, document: Document) -> Sequence[Edit]:
        """The steps that would change this document."""
        return [step for step in _STEPS if step(document) != document]

    def apply(self, document: Document, chosen: Sequence[Edit]) -> Document | None:
        """The document after these steps, in their own order."""
        result = document
        for step in _STEPS:
            if step in chosen:
                result = step(result)
        return result if result != document else None


def tidied(document: Document) -> Document:
    """The document after all steps."""
    for step in _STEPS:
        document = step(document)
    return document


def _plain(document: Document) -> Document:
    """One statement on a line, without comments, in one way to write it."""
    lines = [
        statement(one.kind, _plain_code(one), "\n" if place else "")
        for place, one in enumerate(document.statements)
    ]
    return Document(tuple(lines), "\n")


def _plain_code(one: Statement) -> str:
    instruction = one.instruction
    if instruction is None:
        return one.code
    operands = (_BLANKS_INSIDE.sub("", operand) for operand in instruction.operands)
    plain = (_OFFSET.sub("+", _NO_OFFSET.sub("", operand)) for operand in operands)
    return str(replace(instruction, operands=tuple(plain)))


def _without_debug(document: Document) -> Document:
    return document.without(
        [
            place
            for place, one in enumerate(document.statements)
            if one.kind is StatementKind.DIRECTIVE and _DEBUG.match(one.code)
        ]
    )


def _without_unused(document: Document) -> Document:
    """No labels and variables that nothing names."""
    used = _uses(document)
    unused = [
        place
        for place, one in enumerate(document.statements)
        if (name := one.label or _variable(one)) and used[name] == 1
    ]
    return document.without(unused) if unused else document


def _uses(document: Document) -> Counter[str]:
    return Counter(name for one in document.statements for name in NAME.findall(one.code))


def _without_unused_parameters(document: Document) -> Document:
    """No parameters of entries that nothing names."""
    used = _uses(document)
    changes: dict[int, Sequence[Statement]] = {}
    for place, one in enumerate(document.statements):
        if one.kind is StatementKind.HEAD and (head := read_head(one.code)) and head.is_entry:
            kept = [each for each in head.parameters if used[each.name] > 1]
            if len(kept) < len(head.parameters):
                changes[place] = [_as_head(one, replace(head, parameters=tuple(kept)))]
    return document.replaced(changes) if changes else document


def _as_head(one: Statement, head: Head) -> Statement:
    return statement(StatementKind.HEAD, str(head), one.before)


def _variable(one: Statement) -> str | None:
    return declared_variable(one.code) if one.kind is StatementKind.DECLARATION else None


def _numbered_registers(document: Document) -> Document:
    """Registers numbered in the order of their use, and declared in one place."""
    changes: dict[int, Sequence[Statement]] = {}
    for function in document.functions:
        if not any(place in document.scopes for place in function.body):
            changes.update(_renumbered(document, function))
    return document.replaced(changes) if changes else document


def _renumbered(document: Document, function: Function) -> dict[int, Sequence[Statement]]:
    registers = read_registers(document, function)
    # The sign in front is a custom; it is left out unless something else has such a name.
    sign = "%" * any(_LIKE_A_REGISTER.fullmatch(name) for name, _ in _named(document))
    names: dict[str, str] = {}
    counts: dict[tuple[str, str], int] = {}
    changes: dict[int, Sequence[Statement]] = {}
    for place in function.body:
        one = document.statements[place]
        if one.kind is StatementKind.DECLARATION and any(declared_registers(one.code)):
            changes[place] = ()
            continue
        for name in NAME.findall(one.code):
            kind = registers.type_of(name)
            if kind and name not in names:
                prefix = sign + (_PREFIXES.get(kind) or kind.replace(".", "_"))
                number = counts.get((kind, prefix), 0)
                names[name] = f"{prefix}{number}"
                counts[kind, prefix] = number + 1
        new = renamed(one, lambda name: names.get(name, name))
        if new is not one:
            changes[place] = [new]
    opening = document.statements[function.opening]
    lines = [
        statement(StatementKind.DECLARATION, f".reg {kind} {prefix}<{count}>;")
        for (kind, prefix), count in counts.items()
    ]
    return {**changes, function.opening: [opening, *lines]}


def _short_names(document: Document) -> Document:
    """Entries, parameters, variables and labels called by a letter and a number."""
    letters = dict(_named(document))
    used = {name for one in document.statements for name in NAME.findall(one.code)}
    others = used - set(letters)
    numbers = {letter: itertools.count() for letter in letters.values()}
    names = {
        old: next(new for n in numbers[letter] if (new := f"{letter}{n}") not in others)
        for old, letter in letters.items()
    }
    return Document(
        tuple(renamed(one, lambda name: names.get(name, name)) for one in document.statements),
        document.tail,
    )


def _named(document: Document) -> Iterator[tuple[str, str]]:
    """Every name that a module or a function declares, registers apart, and its letter."""
    for one in document.statements:
        if one.label:
            yield one.label, "L"
        elif variable := _variable(one):
            yield variable, "v"
        elif one.kind is StatementKind.HEAD and (head := read_head(one.code)):
            yield head.name, "k"
            for each in head.parameters:
                yield each.name, "a"


_STEPS: tuple[Callable[[Document], Document], ...] = (
    _without_debug,
    _plain,
    without_scopes,
    _without_unused,
    _without_unused_parameters,
    _numbered_registers,
    _short_names,
)
