"""A PTX module as a list of statements that prints byte for byte as it was read.

The list is flat: an opening and a closing brace are statements of their own, so that any statement
may be taken out without touching another. What cannot be read is kept as opaque text, and a text
that is not PTX at all is one opaque statement: nothing raises. Reading is linear in the size of the
text, whatever the text. Source: PTX ISA manual, chapters "Syntax" and "Directives".

The head of a PTX entry or function: name, parameters and directives. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property

from gpu_emulator.ptx.text.facts import (
    LOC,
    Instruction,
    blank_opaque,
    read_instruction,
    split_operands,
    uncomment,
)

_HEAD = re.compile(
    r"(?P<front>(?:\.\w+\s+){0,4}?)\.(?P<what>entry|func)\s*(?P<results>\([^()]*\))?"
    r"\s*(?P<name>[\w$%]+)\s*(?:\((?P<parameters>[^()]*)\))?(?P<directives>.*)",
    re.DOTALL,
)
_NAME = re.compile(r"([\w$%]+)\s*(?:\[[^\]]*\]\s*)?\Z")
_DIRECTIVES = re.compile(r"\.\w+[^.]*")


@dataclass(frozen=True, slots=True)
class PtxParameter:
    """A parameter as it is written, and its name."""

    text: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """`.visible .entry name(parameters) directives`, part by part."""

    front: tuple[str, ...]
    what: str
    results: str
    name: str
    parameters: tuple[PtxParameter, ...]
    directives: tuple[str, ...]

    def __str__(self) -> str:
        words = " ".join([*self.front, f".{self.what}", *filter(None, [self.results]), self.name])
        parameters = ", ".join(parameter.text for parameter in self.parameters)
        return " ".join([f"{words}({parameters})", *self.directives])

    @property
    def is_entry(self) -> bool:
        """Whether it can be launched: no caller then depends on its parameters."""
        return self.what == "entry"


def read_head(code: str) -> Head | None:
    """Read a head without comments; None if it is not to be understood."""
    match = _HEAD.fullmatch(code)
    if not match:
        return None
    parameters = []
    for text in split_operands(match["parameters"] or ""):
        name = _NAME.search(text)
        if not name:
            return None
        parameters.append(PtxParameter(text, name[1]))
    return Head(
        front=tuple(match["front"].split()), what=match["what"], results=match["results"] or "",
        name=match["name"], parameters=tuple(parameters),
        directives=tuple(text.strip() for text in _DIRECTIVES.findall(match["directives"])),
    )  # fmt: skip


# How deep braces may nest inside one statement: an initialiser of a three-dimensional array.
_DEEPEST = 4
_BLANKS = re.compile(r"\s*")
# An instruction: most of them are read by this alone.
_PLAIN = re.compile(r"[a-z@][^;{}:]*(?:(?:::|\{[^;{}:]*\})[^;{}:]*)*;")
_STOP = re.compile(r"[;{}]")
_DOCUMENT_HEAD = re.compile(r"(?:\.(?:visible|extern|weak|common)\s+){0,4}\.(?:entry|func)\b")
_LABEL = re.compile(r"[A-Za-z_$%][\w$]*\s*:(?!:)")
# Directives that no semicolon ends.
_DIRECTIVE = re.compile(
    r"\.version\s+[0-9.]+|\.target\s+\w+(?:\s*,\s*\w+)*|\.address_size\s+[0-9]+"
    r'|\.file\s+[0-9]+\s*"[^"\n]*"(?:\s*,\s*[0-9]+\s*,\s*[0-9]+)?'
    rf"|{LOC.pattern}"
    r"|\.section\s+[\w.]+\s*\{[^{}]*\}"
)


class StatementKind(Enum):
    """What a statement is. `HEAD` is all of an entry or a function before its body."""

    DIRECTIVE = "directive"
    DECLARATION = "declaration"
    HEAD = "head"
    OPEN = "open"
    CLOSE = "close"
    LABEL = "label"
    INSTRUCTION = "instruction"
    OPAQUE = "opaque"


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement: as it is written, what stands in front of it, and what it says.

    `before` is blanks and comments. `code` is `text` without comments, its blanks folded.
    """

    kind: StatementKind
    text: str
    before: str
    code: str

    @property
    def instruction(self) -> Instruction | None:
        return read_instruction(self.code) if self.kind is StatementKind.INSTRUCTION else None

    @property
    def label(self) -> str | None:
        return self.code[:-1].rstrip() if self.kind is StatementKind.LABEL else None


def statement(kind: StatementKind, code: str, before: str = "\n") -> Statement:
    return Statement(kind, code, before, code)


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """Where an entry or a function is: positions of its head and of its body's braces."""

    head: int
    opening: int
    closing: int

    @property
    def body(self) -> range:
        return range(self.opening + 1, self.closing)


@dataclass(frozen=True)
class Document:
    """The statements of a module, and the blanks and comments after the last one."""

    statements: tuple[Statement, ...]
    tail: str = ""

    def __str__(self) -> str:
        pieces = [piece for s in self.statements for piece in (s.before, s.text)]
        return "".join([*pieces, self.tail])

    @cached_property
    def instructions(self) -> list[tuple[int, Instruction]]:
        read = enumerate(statement.instruction for statement in self.statements)
        return [(place, instruction) for place, instruction in read if instruction]

    @cached_property
    def scopes(self) -> dict[int, int]:
        """The opening brace of each scope that is closed, and its closing one."""
        opened: list[int] = []
        pairs = {}
        for place, statement in enumerate(self.statements):
            if statement.kind is StatementKind.OPEN:
                opened.append(place)
            elif statement.kind is StatementKind.CLOSE and opened:
                pairs[opened.pop()] = place
        return pairs

    @cached_property
    def functions(self) -> list[Function]:
        return [
            Function(head=opening - 1, opening=opening, closing=closing)
            for opening, closing in sorted(self.scopes.items())
            if opening and self.statements[opening - 1].kind is StatementKind.HEAD
        ]

    def replaced(self, changes: Mapping[int, Sequence[Statement]]) -> Document:
        """The document with other statements, or none, at some positions."""
        result: list[Statement] = []
        is_cut = False
        for place, old in enumerate(self.statements):
            new = changes.get(place)
            if new is not None:
                result.extend(new)
                is_cut = not new
                continue
            # What stood on both sides of a cut must not grow into one word.
            result.append(old if old.before or not is_cut else replace(old, before="\n"))
            is_cut = False
        return Document(tuple(result), self.tail)

    def without(self, places: Collection[int]) -> Document:
        return self.replaced(dict.fromkeys(places, ()))


def parse(text: str) -> Document:
    """Read a module; `str()` of the result is the text."""
    clean = blank_opaque(text)
    statements = []
    start = 0
    blanks: dict[str, str] = {}
    for read_as, begin, stop in _pieces(clean):
        piece = text[begin:stop]
        folded = " ".join((uncomment(piece) if "/" in piece else piece).split())
        code = piece if folded == piece else folded
        is_unread = read_as is StatementKind.INSTRUCTION and not read_instruction(code)
        kind = StatementKind.OPAQUE if is_unread else read_as
        before = text[start:begin]
        statements.append(Statement(kind, piece, blanks.setdefault(before, before), code))
        start = stop
    return Document(tuple(statements), text[start:])


def _pieces(clean: str) -> Iterator[tuple[StatementKind, int, int]]:
    """Kind, begin and end of each statement of a text without comments."""
    position = 0
    while blanks := _BLANKS.match(clean, position):
        begin = blanks.end()
        if begin >= len(clean):
            return
        kind, position = _piece(clean, begin)
        yield kind, begin, begin + len(clean[begin:position].rstrip())


def _piece(clean: str, begin: int) -> tuple[StatementKind, int]:
    """What begins here, and where it ends; blanks after it may be included."""
    if plain := _PLAIN.match(clean, begin):
        return StatementKind.INSTRUCTION, plain.end()
    first = clean[begin]
    if first in "{}":
        return (StatementKind.OPEN if first == "{" else StatementKind.CLOSE), begin + 1
    if first == ".":
        if directive := _DIRECTIVE.match(clean, begin):
            return StatementKind.DIRECTIVE, directive.end()
        if head := _DOCUMENT_HEAD.match(clean, begin):
            stop = _STOP.search(clean, head.end())
            if not stop:
                return StatementKind.OPAQUE, len(clean)
            return (
                (StatementKind.DECLARATION, stop.end())
                if stop[0] == ";"
                else (StatementKind.HEAD, stop.start())
            )
    elif label := _LABEL.match(clean, begin):
        return StatementKind.LABEL, label.end()
    stop_at, is_whole = _end_of_statement(clean, begin)
    if not is_whole:
        return StatementKind.OPAQUE, stop_at
    return (StatementKind.DECLARATION if first == "." else StatementKind.INSTRUCTION), stop_at


def _end_of_statement(clean: str, begin: int) -> tuple[int, bool]:
    """Where a statement ends, and whether its semicolon was found.

    Braces are part of it if they close before the semicolon, as those of a vector do. Else what
    they open is a scope, and what stands before them is not to be understood.
    """
    depth, opening = 0, begin
    for stop in _STOP.finditer(clean, begin):
        if stop[0] == ";":
            return (opening, False) if depth else (stop.end(), True)
        if stop[0] == "}":
            if depth == 0:
                return stop.start(), False
            depth -= 1
        else:
            opening = opening if depth else stop.start()
            depth += 1
            if depth > _DEEPEST:
                return opening, False
    return (opening if depth else len(clean)), False
