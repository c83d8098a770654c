"""Triton's IR as operations on lines, and the passes that take them away one by one. Pure.

This is not a parser of MLIR. Triton prints one operation a line. One that holds others begins with
a line that ends in an opening brace, and ends with the line that closes it. Types are written
beside every operation, so that a value can be replaced by another one of its type, or by a
constant, without knowing what the operation does.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from harness.minimize.reduction.reducer import (
    FoundPass,
    Reducer,
    TextFormat,
    reduce_patiently,
    sweep_coarsely,
)

_VALUE = re.compile(r"%[\w$.-]+")
_RESULTS = re.compile(r"\s*(%[\w$.-]+(?::\d+)?(?:\s*,\s*%[\w$.-]+(?::\d+)?)*)\s*=\s")
_ALIAS = re.compile(r"\s*([#!][\w$.-]+)\s*=\s")
_ALIASES = re.compile(r"[#!][A-Za-z_][\w$.-]*")
_POINTER = re.compile(r"!tt\.ptr<([^<>]*)>")
_LOCATION = re.compile(r"\s*\bloc\(")
# Before the name of an operation, the name, and what follows.
_CODE = re.compile(r'(\s*(?:%[^=]*= )?"?)([a-z]\w*\.[\w.]+)(.*)')


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
    def code(self) -> re.Match[str] | None:
        """Its first line in three groups: the second is the name, with that of its dialect."""
        return _CODE.match(self.header)

    @property
    def name(self) -> str:
        """Its name, with that of its dialect; empty where it has none."""
        return code[2] if (code := self.code) else ""

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
        kind = next(_split(kinds[2]), "")
        # What is printed of a load is the pointer.
        return _POINTER.sub(r"\1", kind) if " tt.load " in self.header else kind


@dataclass(frozen=True, eq=False)
class IrModule:
    """A module without locations."""

    lines: tuple[str, ...]

    @classmethod
    def read(cls, text: str) -> IrModule:
        """A module as Triton prints it."""
        lines = (_without_locations(line) for line in text.splitlines())
        return cls(lines=tuple(line for line in lines if line.strip()))

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

    def closure(self, first: Iterable[int]) -> set[int]:
        """The indices of operations that go with these: those within, and those that need them."""
        lost = set(first)
        while True:
            before = len(lost)
            lost |= {n for n, op in enumerate(self.operations) if op.parent in lost}
            missing = {v for n in lost for v in map(bare_name, self.operations[n].results)}
            for index, op in enumerate(self.operations):
                if op.reads & missing and index not in lost:
                    # What ends a region cannot go alone.
                    lost.add(op.parent if op.is_last and op.parent is not None else index)
            if len(lost) == before:
                return lost

    def without(self, first: Iterable[int]) -> IrModule | None:
        """The module without these operations and what depends on them; None without a function."""
        lost = self.closure(first)
        if any(self.operations[index].depth <= 1 for index in lost):
            return None
        return self.replaced(dict.fromkeys(lost, ()))

    def replaced(
        self, texts: Mapping[int, Iterable[str]], names: Mapping[str, str] | None = None
    ) -> IrModule:
        """With other lines for operations, and other names for values."""
        spans = {self.operations[n].start: (self.operations[n].end, t) for n, t in texts.items()}
        result: list[str] = []
        position = 0
        while position < len(self.lines):
            if position in spans:
                last, lines = spans[position]
                result += lines
                position = last + 1
            else:
                result.append(self.lines[position])
                position += 1
        if names:
            result = [_renamed(line, names) for line in result]
        return IrModule(lines=tuple(_without_unused_aliases(result)))


def value_names(text: str) -> set[str]:
    """The values that a piece of text names, without the number of a result."""
    return {bare_name(name) for name in _VALUE.findall(text)}


def bare_name(name: str) -> str:
    """Without the number of a result."""
    return name.partition(":")[0].partition("#")[0]


def _renamed(line: str, names: Mapping[str, str]) -> str:
    def other(match: re.Match[str]) -> str:
        name = match[0]
        # One after the other: what stands in for a value may be stood in for itself.
        for _ in range(len(names)):
            if name not in names:
                break
            name = names[name]
        return name

    return _VALUES.sub(other, line)


def _without_locations(line: str) -> str:
    if re.match(r"\s*#loc\d*\s*=", line):
        return ""
    while match := _LOCATION.search(line):
        depth, stop, quoted = 1, match.end(), False
        while stop < len(line) and depth:
            if line[stop] == '"':
                quoted = not quoted
            elif not quoted:
                depth += {"(": 1, ")": -1}.get(line[stop], 0)
            stop += 1
        line = line[: match.start()] + line[stop:]
    return line.rstrip()


def _without_unused_aliases(lines: list[str]) -> list[str]:
    while True:
        used = {name for line in lines for name in _ALIASES.findall(_ALIAS.sub("", line))}
        used_lines = [
            line for line in lines if not (alias := _ALIAS.match(line)) or alias[1] in used
        ]
        if len(used_lines) == len(lines):
            return lines
        lines = used_lines


def _operations(lines: tuple[str, ...]) -> Iterator[IrOperation]:
    """All of them, in the order of the text; none where braces do not pair."""
    found: list[IrOperation] = []
    inside: list[str] = []
    stack: list[int] = []
    for number, line in enumerate(lines):
        words = line.strip()
        if stack and words.startswith(("}", "^")):
            inside[stack[-1]] += f" {words}"
            if words.startswith("}") and not words.endswith("{"):
                closed = stack.pop()
                found[closed] = replace(found[closed], end=number, footer=line)
        elif words.startswith("}"):
            return
        elif stack or not _ALIAS.match(line):
            results = _RESULTS.match(line)
            operation = IrOperation(
                start=number,
                end=number,
                depth=len(stack),
                parent=stack[-1] if stack else None,
                header=line,
                footer=line,
                results=tuple(map(str.strip, results[1].split(","))) if results else (),
            )
            if words.endswith("{"):
                stack.append(len(found))
            found.append(operation)
            inside.append(line[results.end() :] if results else line)
    last = {operation.parent: number for number, operation in enumerate(found)}
    for number, operation in enumerate(found if not stack else ()):
        is_last = operation.parent is not None and last[operation.parent] == number
        reads = frozenset(value_names(inside[number]))
        yield replace(operation, reads=reads, is_last=is_last)


_ARGUMENT = re.compile(r"(%[\w$.-]+): ((?:[^,{()]|<[^>]*>)+)")
_FOR = re.compile(
    r"scf\.for (%[\w$.-]+) = (%[\w$.-]+) to .*?(?:iter_args\((.*?)\) -> \((.*)\))?\s*:"
)
_FUNCTION = re.compile(r"(\s*tt\.func public @[^(]*\()(.*)(\)[^)]*\{)\s*$")
_VALUES = re.compile(r"%[\w$.-]+(?:#\d+)?")
_TENSOR = re.compile(r"tensor<(?:\d+x)*(i\d+|f\d+|bf16)\b")
_SCALAR = re.compile(r"(i\d+|f\d+|bf16)")


def _words(document: IrModule, index: int) -> Hashable:
    return document.operations[index].header.strip()


def _can_go(operation: IrOperation) -> bool:
    return operation.depth > 1 and not operation.is_last


def _operations_that_can_go(document: IrModule) -> list[int]:
    return [n for n, operation in enumerate(document.operations) if _can_go(operation)]


def _unused(document: IrModule) -> list[int]:
    unused: set[int] = set()
    while True:
        living = [op for n, op in enumerate(document.operations) if n not in unused]
        read = {name for op in living for name in op.reads}
        more = [
            n
            for n, op in enumerate(document.operations)
            if n not in unused
            and _can_go(op)
            and op.results
            # What is within it may do something.
            and not op.has_region
            and not {name.partition(":")[0] for name in op.results} & read
        ]
        if not more:
            return sorted(unused)
        unused.update(more)


def _that_can_be_constant(document: IrModule) -> list[int]:
    operations = document.operations
    return [n for n in _operations_that_can_go(document) if _constant(operations[n])]


def _with_constants(document: IrModule, chosen: Sequence[int]) -> IrModule:
    return document.replaced({index: _constant(document.operations[index]) for index in chosen})


def _constant(operation: IrOperation) -> list[str]:
    """A constant in place of an operation that is none, where its type has one."""
    kind = operation.type or ""
    tensor, scalar = _TENSOR.match(kind), _SCALAR.fullmatch(kind)
    element = tensor or scalar
    if element is None or operation.name == "arith.constant":
        return []
    number = "0" if element[1].startswith("i") else "0.000000e+00"
    if element[1] == "i1":
        number = "false"
    value = f"dense<{number}> : {kind}" if tensor else f"{number} : {kind}"
    text = "false" if kind == "i1" else value
    return [f"{'  ' * operation.depth}{operation.results[0]} = arith.constant {text}"]


def _by_another_value(name: str, *, is_earlier: bool = False) -> FoundPass[IrModule]:
    """An operand of the same type in place of a result; or a value that was there before."""

    def other(document: IrModule, index: int, types: dict[str, str]) -> str | None:
        operation = document.operations[index]
        kind = operation.type
        if kind is None:
            return None
        if is_earlier:
            first = next((name for name, typed in types.items() if typed == kind), None)
            return first if first != operation.results[0] else None
        mine = value_names(operation.header) - set(operation.results)
        return next((name for name in sorted(mine) if types.get(name) == kind), None)

    def find(document: IrModule) -> list[int]:
        types = dict(_types(document))
        return [n for n in _operations_that_can_go(document) if other(document, n, types)]

    def make(document: IrModule, chosen: Sequence[int]) -> IrModule:
        types = dict(_types(document))
        others = {document.operations[n].results[0]: other(document, n, types) for n in chosen}
        names = {result: value for result, value in others.items() if value}
        return document.replaced(dict.fromkeys(chosen, ()), names)

    return FoundPass(name, find, make, _words)


def _types(document: IrModule) -> Iterator[tuple[str, str]]:
    for operation in document.operations:
        if operation.depth == 1:
            yield from typed_arguments(operation)
        elif operation.type:
            yield operation.results[0], operation.type


def typed_results(operation: IrOperation) -> Iterator[tuple[str, str]]:
    """The results of an operation with their types, as far as it says them; of a loop, all."""
    loop = _FOR.search(operation.header)
    if loop and loop[4] and operation.results:
        name, _, count = operation.results[0].partition(":")
        for number, kind in enumerate(_split(loop[4])):
            yield (f"{name}#{number}" if count else name), kind
    elif operation.type:
        yield operation.results[0], operation.type


def typed_arguments(operation: IrOperation) -> Iterator[tuple[str, str]]:
    """What a function or a loop defines for what is within it, with the types."""
    if operation.depth == 1:
        yield from ((name, kind.strip()) for name, kind in _ARGUMENT.findall(operation.header))
    elif loop := _FOR.search(operation.header):
        yield loop[1], operation.header.rpartition(" : ")[2].removesuffix("{").strip()
        names = (pair.partition("=")[0].strip() for pair in _split(loop[3] or ""))
        yield from zip(names, _split(loop[4] or ""), strict=False)


def _loops(document: IrModule) -> list[int]:
    return [n for n, op in enumerate(document.operations) if _FOR.search(op.header)]


def _unrolled_once(document: IrModule, chosen: Sequence[int]) -> IrModule | None:
    """The body of a loop, once, in place of the loop."""
    # One at a time: a loop within a loop would move.
    [*others, edit] = chosen
    operation = document.operations[edit]
    loop = _FOR.search(operation.header)
    *body, last = document.lines[operation.start + 1 : operation.end]
    if others or loop is None:
        return None
    names = {loop[1]: loop[2]}
    for pair in (loop[3] or "").split(","):
        inner, _, outer = pair.partition("=")
        names[inner.strip()] = outer.strip()
    if operation.results:
        result, _, count = operation.results[0].partition(":")
        yielded = _VALUES.findall(last)
        numbers = range(int(count or 1))
        names |= {
            (f"{result}#{n}" if count else result): value
            for n, value in zip(numbers, yielded, strict=False)
        }
    return document.replaced({edit: body}, names)


def _unread_arguments(document: IrModule) -> list[str]:
    read = {name for op in document.operations if op.depth > 1 for name in op.reads}
    return [name for name in argument_names(document) if name not in read]


def _without_arguments(document: IrModule, chosen: Sequence[str]) -> IrModule:
    lines = list(document.lines)
    for op in document.operations:
        match = _FUNCTION.match(op.header) if op.depth == 1 else None
        if match:
            arguments = [text for text in _split(match[2]) if text.partition(":")[0] not in chosen]
            lines[op.start] = f"{match[1]}{', '.join(arguments)}{match[3]}"
    return IrModule(lines=tuple(lines))


def argument_names(document: IrModule) -> tuple[str, ...]:
    """The arguments of its functions, in their order."""
    functions = (op for op in document.operations if op.depth == 1)
    return tuple(name for op in functions for name, _ in typed_arguments(op))


def _split(arguments: str) -> Iterator[str]:
    depth, start = 0, 0
    for position, letter in enumerate(arguments):
        depth += letter in "<({["
        depth -= letter in ">)}]"
        if letter == "," and depth == 0:
            yield arguments[start:position].strip()
            start = position + 1
    if arguments[start:].strip():
        yield arguments[start:].strip()


_UNUSED = FoundPass("unused", _unused, IrModule.without, _words)
IR_PASSES: tuple[FoundPass[IrModule], ...] = (
    _UNUSED,
    FoundPass(
        "operations",
        _operations_that_can_go,
        IrModule.without,
        # With all that goes with it.
        lambda module, index: tuple(_words(module, n) for n in sorted(module.closure([index]))),
    ),
    FoundPass("constants", _that_can_be_constant, _with_constants, _words),
    _by_another_value("operands"),
    _by_another_value("earlier values", is_earlier=True),
    FoundPass("loops", _loops, _unrolled_once, _words),
    _UNUSED,
    FoundPass("arguments", _unread_arguments, _without_arguments),
)


def _size(module: IrModule) -> int:
    reads = sum(len(op.reads) for op in module.operations)
    return 10 * len(module.operations) + reads + len(list(_types(module)))


async def _reduce_ir(reducer: Reducer[IrModule]) -> None:
    await sweep_coarsely(reducer, IR_PASSES, smallest=4)
    await reduce_patiently(reducer, IR_PASSES)


IR_FORMAT = TextFormat(
    read=IrModule.read,
    text_of=lambda module: module.text,
    size=_size,
    lines=IrModule.count,
    run=_reduce_ir,
)
"""Modules of Triton's IR; lines are operations."""
