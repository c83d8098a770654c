"""Passes over a PTX module: they say what may be simpler, never whether it may. Pure.

Most are functions from a document to swaps: an instruction's guard, opcode or operand for a simpler
one, or the instruction for nothing.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from gpu_emulator.ptx.text.document import (
    Document,
    Function,
    Head,
    Statement,
    StatementKind,
    read_head,
    statement,
)
from gpu_emulator.ptx.text.facts import NAME, Instruction, names_in, split_operands
from gpu_emulator.ptx.text.registers import (
    Registers,
    declared_registers,
    declared_variable,
    read_registers,
    renamed,
    type_finder,
    without_scopes,
)
from harness.minimize.reduction.reducer import Edit, FoundPass

DELETED, ALL, GUARD, OPCODE = -4, -3, -2, -1
_WIDTH = re.compile(r"([xv])(1|2|4|8|16|32|64|128)")
_IMMEDIATE = re.compile(r"[-+]?[0-9][\w.]*")
_OFFSET = re.compile(r"(?<=[\w$%])\s*[+]\s*-?\w+(?=\s*\])")


@dataclass(frozen=True, slots=True)
class Swap:
    """`text` in place of one part of an instruction.

    `part` is `DELETED`, `ALL`, `GUARD`, `OPCODE`, or the number of an operand.
    """

    place: int
    part: int
    text: str = ""


Pass = FoundPass[Document]


def swapping(name: str, find: Callable[[Document], Iterable[Swap]]) -> Pass:
    """A pass whose edits are swaps; those of one instruction are made one after another."""

    def make(document: Document, chosen: Sequence[Swap]) -> Document | None:
        changes: dict[int, Sequence[Statement]] = {}
        for swap in chosen:
            present = changes.get(swap.place, [document.statements[swap.place]])
            changes[swap.place] = _swapped(present[0], swap) if present else ()
        return document.replaced(changes) if changes else None

    return Pass(name, find, make)


def _swapped(line: Statement, swap: Swap) -> Sequence[Statement]:
    if swap.part == DELETED:
        return ()
    if swap.part == ALL:
        return [statement(line.kind, swap.text, line.before)]
    old = line.instruction
    if old is None:
        return [line]
    if swap.part == GUARD:
        new = replace(old, guard=swap.text)
    elif swap.part == OPCODE:
        new = replace(old, opcode=swap.text)
    else:
        operands = list(old.operands)
        operands[swap.part] = swap.text
        new = replace(old, operands=tuple(operands))
    return [statement(line.kind, str(new), line.before)]


_DEMANDED = frozenset({"sync", "aligned"})


def _modifiers(document: Document) -> list[tuple[str, int]]:
    """Each modifier of each opcode, by its number; all that have the opcode go together.

    What the PTX ISA demands of an opcode stays, though ptxas may take it without.
    """
    opcodes = dict.fromkeys(instruction.opcode for _, instruction in document.instructions)
    return [
        (opcode, n)
        for opcode in opcodes
        for n, word in enumerate(opcode.split("."))
        if n and word not in _DEMANDED
    ]


def _without_modifiers(document: Document, chosen: Collection[tuple[str, int]]) -> Document:
    dropped = set(chosen)
    changes: dict[int, Sequence[Statement]] = {}
    for place, old in document.instructions:
        words = old.opcode.split(".")
        left_words = [word for n, word in enumerate(words) if (old.opcode, n) not in dropped]
        if len(left_words) < len(words):
            new = replace(old, opcode=".".join(left_words))
            before = document.statements[place].before
            changes[place] = [statement(StatementKind.INSTRUCTION, str(new), before)]
    return document.replaced(changes)


MODIFIERS = Pass("modifiers", _modifiers, _without_modifiers)


def deletions(document: Document) -> Iterable[Swap]:
    """Every instruction may go."""
    return (Swap(place, DELETED) for place, _ in document.instructions)


def guards(document: Document) -> Iterable[Swap]:
    """Every guard may go."""
    return (Swap(place, GUARD) for place, op in document.instructions if op.guard)


def immediates(document: Document) -> Iterable[Swap]:
    """Every constant may be 0."""
    for place, op in document.instructions:
        for number, operand in enumerate(op.operands):
            if _IMMEDIATE.fullmatch(operand) and operand != "0":
                yield Swap(place, number, "0")


def offsets(document: Document) -> Iterable[Swap]:
    """Every address may be without its offset."""
    for place, op in document.instructions:
        for number, operand in enumerate(op.operands):
            plain = _OFFSET.sub("", operand)
            if plain != operand:
                yield Swap(place, number, plain)


def definitions(document: Document) -> Iterable[Swap]:
    """Every result may come from the thread's number instead, or be 0 where that has no type."""
    type_of = type_finder(document)
    for place, op in document.instructions:
        if op.results and len(op.writes) == 1 and op.writes == [op.operands[0]]:
            source = _plainest(type_of(place, op.writes[0]))
            if source and op.base != "mov":
                text = Instruction(op.guard, source[0], (op.writes[0], source[1]))
                yield Swap(place, ALL, str(text))


def _plainest(kind: str | None) -> tuple[str, str] | None:
    """Opcode and operand of the plainest way to give a register of this type a value."""
    if kind in (".b32", ".u32", ".s32"):
        return "mov.u32", "%tid.x"
    if kind in (".b16", ".b64", ".u16", ".s16", ".u64", ".s64"):
        return f"mov{kind}", "0"
    if kind in (".f32", ".f64"):
        return f"mov{kind}", "0f00000000" if kind == ".f32" else "0d0000000000000000"
    return ("setp.eq.u32", "%tid.x, 0") if kind == ".pred" else None


def narrowest(document: Document) -> Iterable[Swap]:
    """Every vector may be one element."""
    return _narrowed(document, to_one=True)


def halves(document: Document) -> Iterable[Swap]:
    """Every vector may be half as long."""
    return _narrowed(document, to_one=False)


def _narrowed(document: Document, *, to_one: bool) -> Iterable[Swap]:
    for place, op in document.instructions:
        new = _narrow(op, to_one=to_one)
        if new:
            yield Swap(place, ALL, str(new))


def _narrow(op: Instruction, *, to_one: bool) -> Instruction | None:
    """The instruction with its width, and all its vectors, divided by the same number."""
    words = op.opcode.split(".")
    at = next((n for n, word in enumerate(words) if n and _WIDTH.fullmatch(word)), None)
    if at is None:
        return None
    letter, width = words[at][0], int(words[at][1:])
    part = width if to_one else 2
    if width == 1:
        return None
    narrow = [f"{letter}{width // part}"] if letter == "x" or width > part else []
    is_bare = letter == "v" and width == part
    operands = [_shortened(operand, part, is_bare=is_bare) for operand in op.operands]
    return replace(
        op, opcode=".".join([*words[:at], *narrow, *words[at + 1 :]]), operands=tuple(operands)
    )


def _shortened(operand: str, part: int, *, is_bare: bool) -> str:
    """The first elements of a vector, one in `part`; any other operand as it is."""
    elements = split_operands(operand[1:-1]) if operand.startswith("{") else ()
    if not elements or len(elements) % part:
        return operand
    first = elements[: len(elements) // part]
    return first[0] if is_bare and len(first) == 1 else "{" + ", ".join(first) + "}"


# What is not computation: functions, heads, declarations, branches.

# What says which compiler and which GPU a module is for is not up for reduction.
_KEPT = re.compile(r"\.(?:version|target)\b")
_ALIGNMENT = re.compile(r"\.align\s+\d+\s+")


def _functions(document: Document) -> range:
    count = len(document.functions)
    return range(count if count > 1 else 0)


def _without_functions(document: Document, chosen: Collection[int]) -> Document:
    functions = [document.functions[number] for number in chosen]
    return document.without(
        {place for function in functions for place in range(function.head, function.closing + 1)}
    )


FUNCTIONS = Pass("functions", _functions, _without_functions)
_PARTS = ("front", "parameters", "directives")
_Part = tuple[int, str, int]
"""The place of a head, the kind of what stands in it, and its number."""


def _parts_of_heads(document: Document) -> list[_Part]:
    """What stands in the heads of functions: linkage, parameters, `.reqntid` and its kin."""
    return [
        (place, kind, number)
        for place, head in _heads(document)
        for kind in _PARTS
        for number in range(len(getattr(head, kind)))
    ]


def _without_parts(document: Document, dropped: Collection[_Part]) -> Document | None:
    changes: dict[int, Sequence[Statement]] = {}
    for place, head in _heads(document):
        kept: dict[str, Any] = {
            kind: tuple(
                p for n, p in enumerate(getattr(head, kind)) if (place, kind, n) not in dropped
            )
            for kind in _PARTS
        }
        new = replace(head, **kept)
        if new != head:
            before = document.statements[place].before
            changes[place] = [statement(StatementKind.HEAD, str(new), before)]
    return document.replaced(changes) if changes else None


HEADS = Pass("heads", _parts_of_heads, _without_parts)


def _heads(document: Document) -> Iterable[tuple[int, Head]]:
    for place, line in enumerate(document.statements):
        if line.kind is StatementKind.HEAD and (head := read_head(line.code)):
            yield place, head


def declarations(document: Document) -> Iterable[Swap]:
    """Every declaration and directive may go, or its alignment; not the version and the target."""
    for place, line in enumerate(document.statements):
        if line.kind in (StatementKind.DECLARATION, StatementKind.DIRECTIVE) and not _KEPT.match(
            line.code
        ):
            # The alignment first: what is gone after it has none.
            if (plain := _ALIGNMENT.sub("", line.code)) != line.code:
                yield Swap(place, ALL, plain)
            yield Swap(place, DELETED)


def returns(document: Document) -> Iterable[Swap]:
    """Every branch may leave the function instead."""
    for place, op in document.instructions:
        if op.base in ("bra", "brx"):
            yield Swap(place, ALL, f"{op.guard} ret;".lstrip())


# Other names for registers: one for all undefined ones, a source for its copy.


@dataclass(frozen=True, slots=True)
class Rename:
    """In a function (by its number), one name for another; the statement at `dropped` goes, too."""

    function: int
    old: str
    new: str
    dropped: int | None = None


def bodies(
    document: Document,
) -> Iterator[tuple[int, Function, Registers, list[tuple[int, Instruction]]]]:
    """Each function with its number, its registers, and its instructions by place."""
    for number, function in enumerate(document.functions):
        inside = [(place, op) for place, op in document.instructions if place in function.body]
        yield number, function, read_registers(document, function), inside


def mapped(names: Mapping[str, str]) -> Callable[[str], str]:
    """Another name for each of these."""
    return lambda name: names.get(name, name)


def renamings(
    document: Document, function: Function, name_of: Callable[[str], str]
) -> dict[int, Sequence[Statement]]:
    """The statements of a function with other names; declarations stay."""
    changes: dict[int, Sequence[Statement]] = {}
    for place in function.body:
        line = document.statements[place]
        if line.kind is not StatementKind.DECLARATION:
            new = renamed(line, name_of)
            if new is not line:
                changes[place] = [new]
    return changes


def renaming(name: str, find: Callable[[Document], Iterable[Rename]]) -> Pass:
    """A pass whose edits are renamings. A chain of them is followed to its end."""

    def make(document: Document, chosen: Sequence[Rename]) -> Document | None:
        changes: dict[int, Sequence[Statement]] = {}
        for number, function in enumerate(document.functions):
            renames = [rename for rename in chosen if rename.function == number]
            names = {rename.old: rename.new for rename in renames}
            if names:
                changes |= renamings(document, function, partial(_follow, names))
            changes.update((rename.dropped, ()) for rename in renames if rename.dropped is not None)
        return document.replaced(changes) if changes else None

    return Pass(name, find, make)


def _collapsed(document: Document, chosen: Sequence[int]) -> Document:
    """Without instructions; what they read is handed on to those that read their results.

    So a value stays as various as it was, which a deletion alone would end.
    """
    dropped = set(chosen)
    changes: dict[int, Sequence[Statement]] = dict.fromkeys(dropped, ())
    for _, function, registers, inside in bodies(document):
        writers = Counter(name for _, op in inside for name in op.writes)
        names: dict[str, str] = {}
        for place, op in inside:
            if place in dropped:
                names.update(_heirs(op, registers, writers))
        if names:
            changes = {**renamings(document, function, partial(_follow, names)), **changes}
    return document.replaced(changes)


COLLAPSE = Pass(
    "collapse", lambda document: [place for place, _ in document.instructions], _collapsed
)


def _heirs(op: Instruction, registers: Registers, writers: Counter[str]) -> dict[str, str]:
    """For each register that only this instruction writes, one of the same type that it reads."""
    sources: dict[str, list[str]] = {}
    for operand in op.operands[op.results :]:
        for name in names_in(operand):
            sources.setdefault(registers.type_of(name) or "", []).append(name)
    heirs = {}
    for number, name in enumerate(op.writes):
        kind = registers.type_of(name)
        others = [source for source in sources.get(kind or "", []) if source not in op.writes]
        if kind and others and writers[name] == 1:
            heirs[name] = others[number % len(others)]
    return heirs


def _follow(names: dict[str, str], name: str) -> str:
    visited = {name}
    while name in names and names[name] not in visited:
        name = names[name]
        visited.add(name)
    return name


def undefined(document: Document) -> Iterable[Rename]:
    """Every register that nothing writes may be the first such one of its type."""
    for number, _, registers, inside in bodies(document):
        written = {name for _, op in inside for name in op.writes}
        first: dict[str, str] = {}
        for name in dict.fromkeys(name for _, op in inside for name in op.reads):
            kind = registers.type_of(name)
            if kind and name not in written and first.setdefault(kind, name) != name:
                yield Rename(number, name, first[kind])


def mergers(document: Document) -> Iterable[Rename]:
    """Every register may be the one of its type that came before it."""
    for number, _, registers, inside in bodies(document):
        last: dict[str, str] = {}
        names = (name for _, op in inside for name in (*op.reads, *op.writes))
        for name in dict.fromkeys(names):
            kind = registers.type_of(name)
            if kind:
                if kind in last:
                    yield Rename(number, name, last[kind])
                last.setdefault(kind, name)


def bypasses(document: Document) -> Iterable[Rename]:
    """Every instruction may go whose result can be one of its own operands, of the same type."""
    for number, _, registers, inside in bodies(document):
        writers = Counter(name for _, op in inside for name in op.writes)
        for place, op in inside:
            if not op.results or len(op.writes) != 1 or writers[op.writes[0]] != 1:
                continue
            result = op.writes[0]
            kind = registers.type_of(result)
            sources = (name for operand in op.operands[1:] for name in names_in(operand))
            for source in dict.fromkeys(sources):
                if source != result and registers.type_of(source) == kind:
                    yield Rename(number, result, source, place)


# What makes a module plainer and leaves its program as it is.
#
# Each step is a function from a document to a document. They are tried all at once: ptxas does not
# see most of them, and one test so takes a third of a module away.

_DEBUG = re.compile(r"\.(?:loc|file|section)\b")
_BLANKS_INSIDE = re.compile(r"(?<=[\[({])\s+|\s+(?=[\])}])")
_NO_OFFSET = re.compile(r"\s*\+\s*0(?=[\],])")
_ANY_OFFSET = re.compile(r"\s*\+\s*(?=\w)")
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


def _some_tidied(document: Document, chosen: Sequence[Edit]) -> Document | None:
    result = document
    for step in _STEPS:
        if step in chosen:
            result = step(result)
    return result if result != document else None


# All steps, each as one opportunity.
TIDY = Pass(
    "tidy", lambda document: [step for step in _STEPS if step(document) != document], _some_tidied
)


def tidied(document: Document) -> Document:
    """The document after all steps."""
    for step in _STEPS:
        document = step(document)
    return document


def _plain(document: Document) -> Document:
    lines = [
        statement(line.kind, _plain_code(line), "\n" if place else "")
        for place, line in enumerate(document.statements)
    ]
    return Document(tuple(lines), "\n")


def _plain_code(line: Statement) -> str:
    instruction = line.instruction
    if instruction is None:
        return line.code
    operands = (_BLANKS_INSIDE.sub("", operand) for operand in instruction.operands)
    plain = (_ANY_OFFSET.sub("+", _NO_OFFSET.sub("", operand)) for operand in operands)
    return str(replace(instruction, operands=tuple(plain)))


def _without_debug(document: Document) -> Document:
    return document.without(
        [
            place
            for place, line in enumerate(document.statements)
            if line.kind is StatementKind.DIRECTIVE and _DEBUG.match(line.code)
        ]
    )


def _without_unused(document: Document) -> Document:
    used = _uses(document)
    unused = [
        place
        for place, line in enumerate(document.statements)
        if (name := line.label or _variable(line)) and used[name] == 1
    ]
    return document.without(unused) if unused else document


def _uses(document: Document) -> Counter[str]:
    return Counter(name for line in document.statements for name in NAME.findall(line.code))


def _without_unused_parameters(document: Document) -> Document:
    used = _uses(document)
    changes: dict[int, Sequence[Statement]] = {}
    for place, line in enumerate(document.statements):
        if line.kind is StatementKind.HEAD and (head := read_head(line.code)) and head.is_entry:
            parameters = [parameter for parameter in head.parameters if used[parameter.name] > 1]
            if len(parameters) < len(head.parameters):
                new = replace(head, parameters=tuple(parameters))
                changes[place] = [statement(StatementKind.HEAD, str(new), line.before)]
    return document.replaced(changes) if changes else document


def _variable(line: Statement) -> str | None:
    return declared_variable(line.code) if line.kind is StatementKind.DECLARATION else None


def _numbered_registers(document: Document) -> Document:
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
        line = document.statements[place]
        if line.kind is StatementKind.DECLARATION and any(declared_registers(line.code)):
            changes[place] = ()
            continue
        for name in NAME.findall(line.code):
            kind = registers.type_of(name)
            if kind and name not in names:
                prefix = sign + (_PREFIXES.get(kind) or kind.replace(".", "_"))
                number = counts.get((kind, prefix), 0)
                names[name] = f"{prefix}{number}"
                counts[kind, prefix] = number + 1
        new = renamed(line, mapped(names))
        if new is not line:
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
    used = {name for line in document.statements for name in NAME.findall(line.code)}
    others = used - set(letters)
    numbers = {letter: itertools.count() for letter in letters.values()}
    names = {
        old: next(new for n in numbers[letter] if (new := f"{letter}{n}") not in others)
        for old, letter in letters.items()
    }
    return Document(
        tuple(renamed(line, mapped(names)) for line in document.statements), document.tail
    )


def _named(document: Document) -> Iterator[tuple[str, str]]:
    """Every name that a module or a function declares, registers apart, and its letter."""
    for line in document.statements:
        if line.label:
            yield line.label, "L"
        elif variable := _variable(line):
            yield variable, "v"
        elif line.kind is StatementKind.HEAD and (head := read_head(line.code)):
            yield head.name, "k"
            for parameter in head.parameters:
                yield parameter.name, "a"


_STEPS: tuple[Callable[[Document], Document], ...] = (
    _without_debug,
    _plain,
    without_scopes,
    _without_unused,
    _without_unused_parameters,
    _numbered_registers,
    _short_names,
)
