"""Completes a PTX program so that it reads no register before something wrote it. Pure.

Passes may leave registers undefined, as ptxas lets them. What nothing writes any more becomes one
register of its type, and that is given a value where the function begins: the thread's number,
which no compiler can foresee. So a valid program goes through every pass that an invalid one does.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from gpu_emulator.ptx.text.document import (
    Document,
    Function,
    Statement,
    StatementKind,
    parse,
    statement,
)
from gpu_emulator.ptx.text.facts import names_in
from gpu_emulator.ptx.text.registers import (
    Registers,
    read_registers,
    renamed,
    undefined_reads,
    without_scopes,
)
from harness.minimize.ptx.weight import double_ballast
from harness.minimize.reduction.driver import Edit, Reducer, Transformation

# How a register of a type is made from the thread's number, which is in the first one.
FIRST = ".b32"
VALUES = {
    ".b32": "mov.b32 {0}, %tid.x;",
    ".u32": "mov.u32 {0}, {1};",
    ".s32": "mov.s32 {0}, {1};",
    ".f32": "mov.b32 {0}, {1};",
    ".b64": "cvt.u64.u32 {0}, {1};",
    ".u64": "cvt.u64.u32 {0}, {1};",
    ".s64": "cvt.s64.u32 {0}, {1};",
    ".f64": "cvt.rn.f64.u32 {0}, {1};",
    ".b16": "cvt.u16.u32 {0}, {1};",
    ".u16": "cvt.u16.u32 {0}, {1};",
    ".s16": "cvt.s16.u32 {0}, {1};",
    ".pred": "setp.ne.u32 {0}, {1}, 0;",
}


@dataclass(frozen=True)
class Guarded:
    """A pass that makes nothing of which `holds` is not true."""

    inner: Transformation[Document]
    holds: Callable[[Document], bool]

    @property
    def name(self) -> str:
        """That of the pass inside."""
        return self.inner.name

    def opportunities(self, document: Document) -> Sequence[Edit]:
        return self.inner.opportunities(document)

    def apply(self, document: Document, chosen: Sequence[Edit]) -> Document | None:
        result = self.inner.apply(document, chosen)
        return result if result and self.holds(result) else None


def undeclared(document: Document) -> frozenset[str]:
    """The names in instructions that nothing declares: special registers, and mistakes."""
    named = {
        name
        for _, one in document.instructions
        for text in (one.guard, *one.operands)
        for name in names_in(text)
    }
    tables = [read_registers(document, function) for function in document.functions]
    declared = {name for one in document.statements for name in _declared_names(one)}
    return frozenset(
        name
        for name in named - declared
        if not any(registers.type_of(name) for registers in tables)
    )


def count_unwritten(text: str) -> int:
    """How many registers a PTX text may read before anything wrote them, or never declares."""
    document = parse(text)
    nameless = [name for name in undeclared(document) if not name.startswith("%")]
    return undefined_registers(document).total() + len(nameless)


def _declared_names(one: Statement) -> Iterator[str]:
    if one.label:
        yield one.label
    elif one.kind is StatementKind.DECLARATION or one.kind is StatementKind.HEAD:
        # All of its names: of a variable or a parameter it is one, and the others do no harm.
        yield from names_in(one.code)


def undefined_registers(document: Document) -> Counter[str]:
    """How many registers of each type a module may read although nothing wrote them."""
    flat = without_scopes(document)
    found: Counter[str] = Counter()
    for function in flat.functions:
        type_of = read_registers(flat, function).type_of
        names = {read.register for read in undefined_reads(flat, function)}
        found.update(type_of(name) or "" for name in names)
    return found


def completed(document: Document) -> Document:
    """The document, without inner scopes, with a value for every register that may need one.

    A register of a type that no plain instruction can give a value stays undefined.
    """
    document = without_scopes(document)
    changes: dict[int, Sequence[Statement]] = {}
    for function in document.functions:
        changes.update(_completed(document, function))
    return document.replaced(changes) if changes else document


def _completed(document: Document, function: Function) -> dict[int, Sequence[Statement]]:
    registers = read_registers(document, function)
    needed: dict[str, str] = {}
    for read in undefined_reads(document, function):
        kind = registers.type_of(read.register)
        if kind in VALUES:
            needed[read.register] = kind
    if not needed:
        return {}
    inside = [one for place, one in document.instructions if place in function.body]
    written = {name for one in inside for name in one.writes}
    present = _present(document, function, registers)
    shared = {kind: present.get(kind, f"%any{kind.replace('.', '_')}") for kind in VALUES}
    names = {name: shared[kind] for name, kind in needed.items() if name not in written}
    wanted = {shared[needed[name]]: needed[name] for name in names if needed[name] not in present}
    alone = {name: kind for name, kind in needed.items() if name in written}
    lines = list(_lines(wanted, alone, shared[FIRST], has_first=FIRST in present))
    changes: dict[int, Sequence[Statement]] = {}
    for place in function.body:
        one = document.statements[place]
        if names and one.kind is not StatementKind.DECLARATION:
            new = renamed(one, partial(_other, names))
            if new is not one:
                changes[place] = [new]
    # After the values that are there already: they may be needed for these.
    at = _after_present(document, function, set(present.values()))
    before = changes.get(at, [document.statements[at]])
    return {**changes, at: [*before, *lines]}


def _other(names: Mapping[str, str], name: str) -> str:
    return names.get(name, name)


def _lines(
    wanted: Mapping[str, str], alone: Mapping[str, str], first: str, *, has_first: bool
) -> Iterator[Statement]:
    """Declarations and values: of the shared registers, and of those written on some ways only."""
    needs_first = any("{1}" in VALUES[kind] for kind in (*wanted.values(), *alone.values()))
    if needs_first and not has_first:
        wanted = {first: FIRST, **wanted}
    for name, kind in wanted.items():
        yield statement(StatementKind.DECLARATION, f".reg {kind} {name};")
    values = sorted(wanted.items(), key=lambda item: item[0] != first)
    for name, kind in (*values, *alone.items()):
        yield statement(StatementKind.INSTRUCTION, VALUES[kind].format(name, first))


def _leading(document: Document, function: Function) -> Iterator[int]:
    """The instructions at the very beginning of a function, before any label or scope."""
    for place in function.body:
        one = document.statements[place]
        if one.kind is StatementKind.INSTRUCTION:
            yield place
        elif one.kind is not StatementKind.DECLARATION:
            return


def _present(document: Document, function: Function, registers: Registers) -> dict[str, str]:
    """The registers at the beginning that already stand for what nothing writes."""
    inside = [one for place, one in document.instructions if place in function.body]
    found: dict[str, str] = {}
    for place in _leading(document, function):
        one = document.statements[place]
        instruction = one.instruction
        if not instruction or len(instruction.writes) != 1:
            break
        name = instruction.writes[0]
        kind = registers.type_of(name) or ""
        text = VALUES.get(kind, "").format(name, found.get(FIRST, ""))
        if one.code != text or kind in found:
            break
        if sum(name in other.writes for other in inside) != 1:
            break
        found[kind] = name
    return found


def _after_present(document: Document, function: Function, names: set[str]) -> int:
    """The place after which new values go: they need the declarations, and the first register."""
    last = function.opening
    for place in function.body:
        one = document.statements[place]
        instruction = one.instruction
        is_value = instruction and len(instruction.writes) == 1 and instruction.writes[0] in names
        if one.kind is not StatementKind.DECLARATION and not is_value:
            break
        last = place
    return last


# Gives a value to each register that a reduced PTX program reads before anything wrote it.
#
# ptxas takes a register that nothing wrote for whatever suits it; a failure may need a value that
# all threads share, one that differs between them, or a constant. So each register tries all
# three, then each of its uses by itself, with ballast to spare: a value may make code lighter.
# Compilers leave registers undefined themselves, so as many as the original has may stay.

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
        rename = partial(_renamed_to, need.register, register)
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


def _renamed_to(old: str, new: str, name: str) -> str:
    return new if name == old else name
