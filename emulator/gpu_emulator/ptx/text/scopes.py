"""Takes the scopes out of PTX functions. Pure.

Of names that two scopes declare, one is renamed first, so that the program stays what it was.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial

from gpu_emulator.ptx.text.document import Document, Function, Statement, StatementKind, statement
from gpu_emulator.ptx.text.instruction import NAME
from gpu_emulator.ptx.text.registers import (
    declared_registers,
    declared_variable,
    read_registers,
    renamed,
)

# Deeper nests, and nested declarations of more names, are left as they are.
_DEEPEST = 16
_MOST_NAMES = 256


def without_scopes(document: Document) -> Document:
    """The document without scopes inside its functions."""
    changes: dict[int, Sequence[Statement]] = {}
    for function in document.functions:
        changes.update(_flattened(document, function))
    return document.replaced(changes) if changes else document


def _flattened(document: Document, function: Function) -> dict[int, Sequence[Statement]]:
    lines = {place: document.statements[place] for place in function.body}
    if not any(place in document.scopes for place in lines):
        return {}
    new_names = _new_names(document, function)
    changes: dict[int, Sequence[Statement]] = {}
    for place, scopes in _scopes(document, function):
        if place in document.scopes or lines[place].kind is StatementKind.CLOSE:
            changes[place] = ()
        elif scopes:
            names = [new_names.get(scope, {}) for scope in reversed(scopes)]
            changes[place] = [renamed(_expanded(lines[place]), partial(_find, names))]
        if len(scopes) > _DEEPEST:
            return {}
    return changes


def _scopes(document: Document, function: Function) -> Iterator[tuple[int, list[int]]]:
    """Each statement of a function and the inner scopes that it is in, outermost first.

    A brace that opens or closes a scope is in it. The list is only true until the next step.
    """
    opened: list[int] = []
    for place in function.body:
        if place in document.scopes:
            opened.append(place)
        yield place, opened
        if opened and document.scopes[opened[-1]] == place:
            opened.pop()


def _new_names(document: Document, function: Function) -> dict[int, dict[str, str]]:
    """For each inner scope, another name for all that it declares and that is not unique."""
    owned: dict[int, list[str]] = {}
    for place, scopes in _scopes(document, function):
        owned.setdefault(scopes[-1] if scopes else function.opening, []).extend(
            _declared(_expanded(document.statements[place]))
        )
    counts = Counter(name for names in owned.values() for name in set(names))
    registers = read_registers(document, function, is_inner=False)
    words = {
        name for place in function.body for name in NAME.findall(document.statements[place].code)
    }
    result: dict[int, dict[str, str]] = {}
    for scope, names in owned.items():
        if scope == function.opening:
            continue
        for name in names:
            if counts[name] > 1 or registers.type_of(name):
                new = next(
                    new for n in itertools.count(scope) if (new := f"{name}_{n}") not in words
                )
                words.add(new)
                result.setdefault(scope, {})[name] = new
    return result


def _declared(one: Statement) -> list[str]:
    if one.label:
        return [one.label]
    if one.kind is not StatementKind.DECLARATION:
        return []
    variable = declared_variable(one.code)
    registers = [each.name for each in declared_registers(one.code) if each.count is None]
    return [variable, *registers] if variable else registers


def _find(scopes: list[dict[str, str]], name: str) -> str:
    return next((names[name] for names in scopes if name in names), name)


def _expanded(one: Statement) -> Statement:
    """A declaration of `%r<3>` as one of `%r0, %r1, %r2`: so each of them can be renamed."""
    found = list(declared_registers(one.code)) if one.kind is StatementKind.DECLARATION else []
    size = sum(each.count or 1 for each in found)
    if all(each.count is None for each in found) or size > _MOST_NAMES:
        return one
    names = ", ".join(name for each in found for name in each.names)
    return statement(one.kind, f".reg {found[0].type} {names};", one.before)
