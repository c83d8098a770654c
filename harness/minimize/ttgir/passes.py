"""Reduces a module of Triton's IR, operation by operation. Pure.

Types are written beside every operation there, so that a value can be replaced by another one of
its type, or by a constant, without knowing what the operation does.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass

from harness.minimize.reduction.driver import Edit, Reducer, Reduction, ReductionProgress
from harness.minimize.reduction.patient import MarkedPass, reduce_patiently, sweep_coarsely
from harness.minimize.reduction.tests import UNLIMITED, Effort
from harness.minimize.ttgir.module import IrModule, IrOperation, value_names

_ARGUMENT = re.compile(r"(%[\w$.-]+): ((?:[^,{()]|<[^>]*>)+)")
_FOR = re.compile(
    r"scf\.for (%[\w$.-]+) = (%[\w$.-]+) to .*?(?:iter_args\((.*?)\) -> \((.*)\))?\s*:"
)
_FUNCTION = re.compile(r"(\s*tt\.func public @[^(]*\()(.*)(\)[^)]*\{)\s*$")
_TENSOR = re.compile(r"tensor<(?:\d+x)*(i\d+|f\d+|bf16)\b")
_SCALAR = re.compile(r"(i\d+|f\d+|bf16)")


def _index(edit: Edit) -> int:
    assert isinstance(edit, int)
    return edit


class _OnOperations:
    """A pass whose edits are operations, by index."""

    def mark(self, document: IrModule, edit: Edit) -> Hashable:
        """The operation in words."""
        return document.operations[_index(edit)].header.strip()


def _can_go(operation: IrOperation) -> bool:
    return operation.depth > 1 and not operation.is_last


@dataclass(frozen=True, slots=True)
class _Operations(_OnOperations):
    """Operations, each with all that needs its results."""

    name: str = "operations"

    def opportunities(self, document: IrModule) -> Sequence[Edit]:
        return [n for n, each in enumerate(document.operations) if _can_go(each)]

    def mark(self, document: IrModule, edit: Edit) -> Hashable:
        """All that would go, in words."""
        gone = sorted(document.closure([_index(edit)]))
        return tuple(document.operations[index].header.strip() for index in gone)

    def apply(self, document: IrModule, chosen: Sequence[Edit]) -> IrModule | None:
        return document.without(map(_index, chosen))


@dataclass(frozen=True, slots=True)
class _Unused(_OnOperations):
    """Operations whose results are never read."""

    name: str = "unused"

    def opportunities(self, document: IrModule) -> Sequence[Edit]:
        found: set[int] = set()
        while True:
            living = [each for n, each in enumerate(document.operations) if n not in found]
            read = {name for each in living for name in each.reads}
            more = [
                n
                for n, each in enumerate(document.operations)
                if n not in found
                and _can_go(each)
                and each.results
                # What is within it may do something.
                and not each.has_region
                and not {name.partition(":")[0] for name in each.results} & read
            ]
            if not more:
                return sorted(found)
            found.update(more)

    def apply(self, document: IrModule, chosen: Sequence[Edit]) -> IrModule | None:
        # What reads one of them is unused too, but need not be among the chosen.
        return document.without(map(_index, chosen))


@dataclass(frozen=True, slots=True)
class _Constants(_OnOperations):
    """A constant of the same type in place of an operation."""

    name: str = "constants"

    def opportunities(self, document: IrModule) -> Sequence[Edit]:
        return [
            n
            for n, each in enumerate(document.operations)
            if _can_go(each) and "arith.constant" not in each.header and _constant(each)
        ]

    def apply(self, document: IrModule, chosen: Sequence[Edit]) -> IrModule | None:
        texts = {}
        for index in map(_index, chosen):
            operation = document.operations[index]
            text = _constant(operation)
            if text:
                texts[index] = (f"{'  ' * operation.depth}{operation.results[0]} = {text}",)
        return document.replaced(texts)


def _constant(operation: IrOperation) -> str | None:
    kind = operation.type or ""
    tensor, scalar = _TENSOR.match(kind), _SCALAR.fullmatch(kind)
    element = tensor or scalar
    if element is None:
        return None
    number = "0" if element[1].startswith("i") else "0.000000e+00"
    if kind == "i1":
        return "arith.constant false"
    if element[1] == "i1":
        number = "false"
    return f"arith.constant {f'dense<{number}>' if tensor else number} : {kind}"


@dataclass(frozen=True, slots=True)
class _Operands(_OnOperations):
    """An operand of the same type in place of a result; or a value that was there before."""

    name: str
    is_earlier: bool = False

    def opportunities(self, document: IrModule) -> Sequence[Edit]:
        types = dict(_types(document))
        return [
            n
            for n, each in enumerate(document.operations)
            if _can_go(each) and self._other(document, n, types)
        ]

    def apply(self, document: IrModule, chosen: Sequence[Edit]) -> IrModule | None:
        types = dict(_types(document))
        names = {}
        for index in map(_index, chosen):
            other = self._other(document, index, types)
            if other:
                names[document.operations[index].results[0]] = other
        return document.replaced({_index(edit): () for edit in chosen}, names)

    def _other(self, document: IrModule, index: int, types: dict[str, str]) -> str | None:
        operation = document.operations[index]
        kind = operation.type
        if kind is None:
            return None
        if self.is_earlier:
            found = (name for name, each in types.items() if each == kind)
            first = next(found, None)
            return first if first != operation.results[0] else None
        mine = value_names(operation.header) - set(operation.results)
        return next((name for name in sorted(mine) if types.get(name) == kind), None)


def _types(document: IrModule) -> Iterator[tuple[str, str]]:
    """Values with their types, in order, as far as they are known."""
    for operation in document.operations:
        if operation.depth == 1:
            for name, kind in _ARGUMENT.findall(operation.header):
                yield name, kind.strip()
        elif operation.type:
            yield operation.results[0], operation.type


@dataclass(frozen=True, slots=True)
class _Loops(_OnOperations):
    """The body of a loop, once, in place of the loop."""

    name: str = "loops"

    def opportunities(self, document: IrModule) -> Sequence[Edit]:
        return [n for n, each in enumerate(document.operations) if _FOR.search(each.header)]

    def apply(self, document: IrModule, chosen: Sequence[Edit]) -> IrModule | None:
        # One at a time: a loop within a loop would move.
        [*others, edit] = map(_index, chosen)
        if others:
            return None
        operation = document.operations[edit]
        found = _FOR.search(operation.header)
        *body, last = document.lines[operation.start + 1 : operation.end]
        if found is None:
            return None
        names = {found[1]: found[2]}
        for pair in (found[3] or "").split(","):
            inner, _, outer = pair.partition("=")
            names[inner.strip()] = outer.strip()
        if operation.results:
            result, _, count = operation.results[0].partition(":")
            yielded = re.findall(r"%[\w$.-]+(?:#\d+)?", last)
            numbers = range(int(count or 1))
            names |= {
                (f"{result}#{n}" if count else result): value
                for n, value in zip(numbers, yielded, strict=False)
            }
        return document.replaced({edit: body}, names)


@dataclass(frozen=True, slots=True)
class _Arguments:
    """Arguments of the kernel that are never read."""

    name: str = "arguments"

    def opportunities(self, document: IrModule) -> Sequence[Edit]:
        read = {name for each in document.operations if each.depth > 1 for name in each.reads}
        return [name for name in argument_names(document) if name not in read]

    def mark(self, document: IrModule, edit: Edit) -> Hashable:  # noqa: ARG002
        return edit

    def apply(self, document: IrModule, chosen: Sequence[Edit]) -> IrModule | None:
        lines = list(document.lines)
        for each in document.operations:
            found = _FUNCTION.match(each.header) if each.depth == 1 else None
            if found:
                kept = [text for text in _split(found[2]) if text.partition(":")[0] not in chosen]
                lines[each.start] = f"{found[1]}{', '.join(kept)}{found[3]}"
        return IrModule(lines=tuple(lines))


def argument_names(document: IrModule) -> tuple[str, ...]:
    """The arguments of its functions, in their order."""
    return tuple(
        name
        for each in document.operations
        if each.depth == 1
        for name, _ in _ARGUMENT.findall(each.header)
    )


def _split(arguments: str) -> Iterator[str]:
    """At commas that are not within brackets."""
    depth, start = 0, 0
    for position, letter in enumerate(arguments):
        depth += letter in "<({["
        depth -= letter in ">)}]"
        if letter == "," and depth == 0:
            yield arguments[start:position].strip()
            start = position + 1
    if arguments[start:].strip():
        yield arguments[start:].strip()


IR_PASSES: tuple[MarkedPass[IrModule], ...] = (
    _Unused(),
    _Operations(),
    _Constants(),
    _Operands("operands"),
    _Operands("earlier values", is_earlier=True),
    _Loops(),
    _Unused(),
    _Arguments(),
)


def _size(module: IrModule) -> int:
    reads = sum(len(each.reads) for each in module.operations)
    return 10 * len(module.operations) + reads + len(list(_types(module)))


async def reduce_ir(
    document: IrModule,
    is_interesting: Callable[[IrModule], Awaitable[bool]],
    *,
    effort: Effort = UNLIMITED,
    watch: Callable[[ReductionProgress[IrModule]], None] = lambda _: None,
) -> Reduction[IrModule]:
    """Reduce until nothing more can go; the arguments are those of `reduction.Reducer`."""
    reducer = Reducer(
        document,
        is_interesting,
        size=_size,
        key=lambda module: module.text,
        effort=effort,
        watch=watch,
    )
    await sweep_coarsely(reducer, IR_PASSES, smallest=4)
    await reduce_patiently(reducer, IR_PASSES)
    return reducer.reduction(is_minimal=True)
