"""Triton's IR as operations on lines: enough to take some away, not a parser of MLIR. Pure.

Triton prints one operation a line. One that holds others begins with a line that ends in an
opening brace, and ends with the line that closes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

_VALUE = re.compile(r"%[\w$.-]+")
_RESULTS = re.compile(r"\s*(%[\w$.-]+(?::\d+)?(?:\s*,\s*%[\w$.-]+(?::\d+)?)*)\s*=\s")
_ALIAS = re.compile(r"\s*([#!][\w$.-]+)\s*=\s")
_ALIASES = re.compile(r"[#!][A-Za-z_][\w$.-]*")
_POINTER = re.compile(r"!tt\.ptr<([^<>]*)>")
_LOCATION = re.compile(r"\s*\bloc\(")


@dataclass(frozen=True, slots=True, kw_only=True)
class IrOperation:
    """Lines `start` to `end`, the last included; `depth` 0 is the module, 1 its functions.

    `inner` are values that it defines for what is within it. `is_last` in its region: what ends it.
    """

    start: int
    end: int
    depth: int
    parent: int | None
    header: str
    footer: str
    results: tuple[str, ...] = ()
    reads: frozenset[str] = field(default_factory=frozenset)
    is_last: bool = False

    @property
    def has_region(self) -> bool:
        """Whether others are within it."""
        return self.end > self.start

    @property
    def type(self) -> str | None:
        """The type of its one result, as far as its last line says so."""
        if len(self.results) != 1 or ":" in self.results[0]:
            return None
        _, arrow, after = self.footer.rpartition(" -> ")
        if arrow and after.count("(") == after.count(")"):
            return after.strip()
        kinds = self.footer.rpartition(" : ")
        if not kinds[1] or self.has_region:
            return None
        # Of several, the first one is the result's more often than not.
        kind = _first(kinds[2])
        # What is printed of a load is the pointer.
        return _POINTER.sub(r"\1", kind) if " tt.load " in self.header else kind


@dataclass(frozen=True, eq=False)
class IrModule:
    """A module without locations."""

    lines: tuple[str, ...]

    @classmethod
    def read(cls, text: str) -> IrModule:
        """A module as Triton prints it."""
        kept = (_without_locations(line) for line in text.splitlines())
        return cls(lines=tuple(line for line in kept if line.strip()))

    @property
    def text(self) -> str:
        """As a file."""
        return "\n".join(self.lines) + "\n"

    @cached_property
    def operations(self) -> list[IrOperation]:
        """All operations of functions, and the functions, in the order of the text."""
        return list(_operations(self.lines))

    def count(self) -> int:
        """How many operations are within functions."""
        return sum(operation.depth > 1 for operation in self.operations)

    def closure(self, gone: Iterable[int]) -> set[int]:
        """The indices of operations that go with these: those within, and those that need them."""
        lost = set(gone)
        while True:
            before = len(lost)
            lost |= {n for n, each in enumerate(self.operations) if each.parent in lost}
            missing = {v for n in lost for v in map(_bare, self.operations[n].results)}
            for index, each in enumerate(self.operations):
                if each.reads & missing and index not in lost:
                    # What ends a region cannot go alone.
                    lost.add(each.parent if each.is_last and each.parent is not None else index)
            if len(lost) == before:
                return lost

    def without(self, gone: Iterable[int]) -> IrModule | None:
        """The module without these operations and what depends on them; None without a function."""
        lost = self.closure(gone)
        if any(self.operations[index].depth <= 1 for index in lost):
            return None
        return self.replaced(dict.fromkeys(lost, ()))

    def replaced(
        self, texts: Mapping[int, Iterable[str]], names: Mapping[str, str] | None = None
    ) -> IrModule:
        """With other lines for operations, and other names for values."""
        spans = {self.operations[n].start: (self.operations[n].end, t) for n, t in texts.items()}
        kept: list[str] = []
        position = 0
        while position < len(self.lines):
            if position in spans:
                end, lines = spans[position]
                kept += lines
                position = end + 1
            else:
                kept.append(self.lines[position])
                position += 1
        if names:
            kept = [_renamed(line, names) for line in kept]
        return IrModule(lines=tuple(_without_unused_aliases(kept)))


def value_names(text: str) -> set[str]:
    """The values that a piece of text names, without the number of a result."""
    return {_bare(name) for name in _VALUE.findall(text)}


def _bare(name: str) -> str:
    return name.partition(":")[0].partition("#")[0]


def _renamed(line: str, names: Mapping[str, str]) -> str:
    def other(found: re.Match[str]) -> str:
        name = found[0]
        # One after the other: what stands in for a value may be stood in for itself.
        for _ in range(len(names)):
            if name not in names:
                break
            name = names[name]
        return name

    return re.sub(r"%[\w$.-]+(?:#\d+)?", other, line)


def _without_locations(line: str) -> str:
    if re.match(r"\s*#loc\d*\s*=", line):
        return ""
    while found := _LOCATION.search(line):
        depth, end, quoted = 1, found.end(), False
        while end < len(line) and depth:
            if line[end] == '"':
                quoted = not quoted
            elif not quoted:
                depth += {"(": 1, ")": -1}.get(line[end], 0)
            end += 1
        line = line[: found.start()] + line[end:]
    return line.rstrip()


def _without_unused_aliases(lines: list[str]) -> list[str]:
    while True:
        used = {name for line in lines for name in _ALIASES.findall(_ALIAS.sub("", line))}
        kept = [line for line in lines if not (found := _ALIAS.match(line)) or found[1] in used]
        if len(kept) == len(lines):
            return lines
        lines = kept


def _first(kinds: str) -> str:
    """What comes before a comma that is not within brackets."""
    depth = 0
    for position, letter in enumerate(kinds):
        depth += letter in "<(["
        depth -= letter in ">)]"
        if letter == "," and depth == 0:
            return kinds[:position].strip()
    return kinds.strip()


@dataclass(slots=True)
class _Open:
    """An operation whose region is being read."""

    index: int
    start: int
    header: str
    inside: str = ""
    children: list[int] = field(default_factory=list)


def _operations(lines: tuple[str, ...]) -> Iterator[IrOperation]:
    found: list[IrOperation | None] = []
    stack: list[_Open] = []
    for number, line in enumerate(lines):
        words = line.strip()
        if words.startswith("}"):
            if not stack:
                return
            stack[-1].inside += f" {words}"
            if words.endswith("{"):
                continue
            closed = stack.pop()
            found[closed.index] = _operation(closed, (number, line), stack, found)
        elif words.startswith("^") and stack:
            stack[-1].inside += f" {words}"
        elif _ALIAS.match(line) and not stack:
            continue
        else:
            index = len(found)
            found.append(None)
            if stack:
                stack[-1].children.append(index)
            opened = _Open(index=index, start=number, header=line)
            if words.endswith("{"):
                stack.append(opened)
            else:
                found[index] = _operation(opened, (number, line), stack, found)
    yield from (each for each in found if each is not None) if None not in found else ()


def _operation(
    opened: _Open, end: tuple[int, str], stack: list[_Open], found: list[IrOperation | None]
) -> IrOperation:
    results = _RESULTS.match(opened.header)
    names = tuple(each.strip() for each in results[1].split(",")) if results else ()
    rest = opened.header[results.end() :] if results else opened.header
    reads = value_names(rest + opened.inside)
    if opened.children and (last := found[opened.children[-1]]):
        found[opened.children[-1]] = replace(last, is_last=True)
    return IrOperation(
        start=opened.start,
        end=end[0],
        depth=len(stack),
        parent=stack[-1].index if stack else None,
        header=opened.header,
        footer=end[1],
        results=names,
        reads=frozenset(reads),
    )
