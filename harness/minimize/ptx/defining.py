"""Gives a value to each register that a reduced PTX program reads before anything wrote it. Pure.

ptxas takes a register that nothing wrote for whatever suits it; a failure may need a value that is
the same for all threads, one that differs between them, or a constant. So each register tries all
three, then each of its uses by itself, with ballast to spare: a value may make code lighter.
Compilers leave registers undefined themselves, so as many as the original has may stay.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from gpu_emulator.ptx.text.document import Document, Statement, StatementKind, statement
from gpu_emulator.ptx.text.registers import read_registers, renamed, undefined_reads
from harness.minimize.ptx.defined import FIRST, VALUES, undefined_registers
from harness.minimize.ptx.weight import double_ballast
from harness.minimize.reduction.driver import Reducer

_NAME = "define"
# The same in a whole block, and unknown; different in each thread; known.
_SOURCES = {"block": "%ctaid.x", "thread": "%tid.x", "one": "1"}


@dataclass(frozen=True, slots=True)
class _Need:
    """A register that is read undefined in a function (by its number), and the lines that do."""

    function: int
    register: str
    type: str
    lines: tuple[str, ...]


async def define(reducer: Reducer[Document], *, allowed: Counter[str]) -> bool:
    """Give values to what the best document reads; whether only `allowed` registers lack one."""
    await double_ballast(reducer)
    for need in _needs(reducer.best):
        await _try_values(reducer, need, None)
    for need in _needs(reducer.best):
        for line in need.lines:
            await _try_values(reducer, need, line)
    return undefined_registers(reducer.best) <= allowed


def _needs(document: Document) -> list[_Need]:
    found = []
    for number, function in enumerate(document.functions):
        registers = read_registers(document, function)
        lines: dict[str, dict[str, None]] = {}
        for read in undefined_reads(document, function):
            code = document.statements[read.place].code
            lines.setdefault(read.register, {})[code] = None
        for register, codes in lines.items():
            kind = registers.type_of(register)
            if kind in VALUES:
                found.append(_Need(number, register, kind, tuple(codes)))
    return found


async def _try_values(reducer: Reducer[Document], need: _Need, line: str | None) -> None:
    """Adopt the first value that keeps it interesting, for one line or for all."""
    for source in _SOURCES:
        candidate = _with_value(reducer.best, need, line, source)
        if (await reducer.ask(_NAME, [candidate]))[0]:
            reducer.adopt(_NAME, candidate)
            return


def _with_value(document: Document, need: _Need, line: str | None, source: str) -> Document:
    """The document with a value in the register, or in a new one that this line reads instead."""
    function = document.functions[need.function]
    type_of = read_registers(document, function).type_of
    changes: dict[int, Sequence[Statement]] = {}
    new: dict[str, str] = {}
    register = need.register
    if line is not None:
        register = _unused(type_of, need.type.replace(".", "%"))
        new[register] = need.type
        rename = partial(_other, need.register, register)
        for place in function.body:
            if document.statements[place].code == line:
                changes[place] = [renamed(document.statements[place], rename)]
    first = register if need.type == FIRST else _unused(type_of, f"%{source}")
    values = [f"mov.b32 {first}, {_SOURCES[source]};"]
    if first != register:
        new[first] = FIRST
        values.append(VALUES[need.type].format(register, first))
    lines = [
        statement(StatementKind.DECLARATION, f".reg {kind} {name};") for name, kind in new.items()
    ]
    lines += [statement(StatementKind.INSTRUCTION, code) for code in values]
    at = next(
        p for p in function.body if document.statements[p].kind is not StatementKind.DECLARATION
    )
    return document.replaced({**changes, at: [*lines, *changes.get(at, [document.statements[at]])]})


def _unused(type_of: Callable[[str], str | None], stem: str) -> str:
    return next(name for n in itertools.count() if not type_of(name := f"{stem}_{n}"))


def _other(old: str, new: str, name: str) -> str:
    return new if name == old else name
