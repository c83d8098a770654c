"""What may go with a variable: it is what it was set to, or another one, or a number. Pure."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.minimize.python.passes import edit_position, nothing, positions_of
from harness.minimize.python.tree import (
    PythonFile,
    PythonFunction,
    Replacement,
    expression,
    loads,
    stores,
)
from harness.minimize.reduction.driver import Edit

_SHORT = 40
Change = Callable[[ast.AST], Replacement]


@dataclass(frozen=True, slots=True)
class Variables:
    """A number in place of a variable, wherever it is read; what sets it goes."""

    value: float

    @property
    def name(self) -> str:
        """What the ledger calls it."""
        return f"{self.value} for a variable"

    def opportunities(self, document: PythonFile) -> Sequence[Edit]:
        """Functions and variables by name."""
        return [
            (place, name)
            for place, function in document.functions.items()
            for name in dict.fromkeys(
                name for each in function.statements for name in sorted(_only_sets(each))
            )
        ]

    def mark(self, document: PythonFile, edit: Edit) -> Hashable:
        """All that sets it, in words."""
        assert isinstance(edit, tuple)
        function = document.functions[edit[0]]
        found = (each for each in function.statements if edit[1] in stores(each))
        return edit, tuple(ast.unparse(each).partition("\n")[0] for each in found)

    def apply(self, document: PythonFile, chosen: Sequence[Edit]) -> PythonFile | None:
        """Without these variables."""
        positions = positions_of(document)
        changes: dict[int, Change] = {}
        for place, function in document.functions.items():
            names = {name for name in _locals(function) if (place, name) in chosen}
            for statement in function.statements:
                if _only_sets(statement) & names:
                    changes[positions[id(statement)]] = nothing
            for node in _reads(function):
                if node.id in names:
                    changes[positions[id(node)]] = lambda _: ast.Constant(self.value)
        return document.rewrite(changes)


def _only_sets(statement: ast.stmt) -> set[str]:
    """The variable of an assignment to one; the loop's own is not set by an assignment."""
    return stores(statement) if isinstance(statement, ast.Assign | ast.AugAssign) else set()


def _locals(function: PythonFunction) -> set[str]:
    return {name for each in function.statements for name in stores(each)}


def _reads(function: PythonFunction) -> Iterator[ast.Name]:
    for node in ast.walk(function.node):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node


@dataclass(frozen=True, slots=True)
class Twins:
    """A variable that was set before, in the same way but from others, in place of one."""

    name: str = "twins"

    def opportunities(self, document: PythonFile) -> Sequence[Edit]:
        """Positions of the later assignments."""
        positions = positions_of(document)
        return [
            positions[id(later)]
            for function in document.functions.values()
            for later, _ in _twins(function)
        ]

    def mark(self, document: PythonFile, edit: Edit) -> Hashable:
        """The assignment in words."""
        return document.words(edit_position(edit))

    def apply(self, document: PythonFile, chosen: Sequence[Edit]) -> PythonFile | None:
        """With the earlier variables alone."""
        gone = {id(document.nodes[edit_position(edit)]) for edit in chosen}
        positions = positions_of(document)
        changes: dict[int, Change] = dict.fromkeys(map(edit_position, chosen), nothing)
        for function in document.functions.values():
            texts = {
                _target(later): _target(earlier)
                for later, earlier in _twins(function)
                if id(later) in gone
            }
            changes |= _in_place(function, texts, positions)
        return document.rewrite(changes)


def _twins(function: PythonFunction) -> Iterator[tuple[ast.Assign, ast.Assign]]:
    """Assignments, and the nearest one before that looks the same but for the names in it."""
    counts = Counter(name for each in function.statements for name in stores(each))
    before: dict[str, ast.Assign] = {}
    for each in function.statements:
        if not isinstance(each, ast.Assign) or not isinstance(each.targets[0], ast.Name):
            continue
        if counts[_target(each)] > 1 or _target(each) in function.parameters:
            continue
        if not isinstance(each.value, ast.Call):
            continue
        look = _nameless(each.value)
        if look in before:
            yield each, before[look]
        before[look] = each


def _nameless(node: ast.expr) -> str:
    """An expression with the names of variables left out; what is called keeps its name."""
    parts = []
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute):
            parts.append(f".{each.attr}")
        elif isinstance(each, ast.Constant):
            parts.append(repr(each.value))
        else:
            parts.append(type(each).__name__)
    return " ".join(parts)


def _in_place(
    function: PythonFunction, texts: Mapping[str, str], positions: Mapping[int, int]
) -> dict[int, Change]:
    """Changes that write expressions in place of variables."""
    changes: dict[int, Change] = {}
    for node in _reads(function):
        if node.id in texts:
            text = _resolved(node.id, texts)
            changes[positions[id(node)]] = lambda _, text=text: expression(text)  # type: ignore[misc]
    return changes


@dataclass(frozen=True, slots=True)
class Propagations:
    """What a variable was set to, in place of the variable: names and numbers, short expressions.

    Only where it is set once, and an expression only where it is read once.
    """

    name: str = "propagations"

    def opportunities(self, document: PythonFile) -> Sequence[Edit]:
        """Positions of the assignments."""
        positions = positions_of(document)
        return [
            positions[id(statement)]
            for function in document.functions.values()
            for statement in _set_once(function)
        ]

    def mark(self, document: PythonFile, edit: Edit) -> Hashable:
        """The assignment in words."""
        return document.words(edit_position(edit))

    def apply(self, document: PythonFile, chosen: Sequence[Edit]) -> PythonFile | None:
        """Without these assignments."""
        gone = {id(document.nodes[edit_position(position)]) for position in chosen}
        positions = positions_of(document)
        changes: dict[int, Change] = {positions[statement]: nothing for statement in gone}
        for function in document.functions.values():
            texts = {
                _target(each): ast.unparse(each.value)
                for each in _set_once(function)
                if id(each) in gone
            }
            changes |= _in_place(function, texts, positions)
        return document.rewrite(changes)


def _set_once(function: PythonFunction) -> Iterator[ast.Assign]:
    counts = Counter(name for each in function.statements for name in stores(each))
    reads = Counter(
        node.id
        for node in ast.walk(function.node)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    )
    for each in function.statements:
        if not isinstance(each, ast.Assign) or not isinstance(each.targets[0], ast.Name):
            continue
        name, value = _target(each), each.value
        if counts[name] > 1 or name in function.parameters or name in loads(each):
            continue
        if any(counts[read] > 1 for read in loads(each)):
            continue
        is_plain = isinstance(value, ast.Name | ast.Constant)
        is_short = reads[name] == 1 and len(ast.unparse(value)) <= _SHORT
        if is_plain or is_short:
            yield each


def _target(statement: ast.Assign) -> str:
    target = statement.targets[0]
    assert isinstance(target, ast.Name)
    return target.id


def _resolved(name: str, texts: Mapping[str, str]) -> str:
    """The expression for a variable, in which no variable is left that goes too."""
    tree = ast.parse(texts[name], mode="eval")
    inner = {
        node.id: _resolved(node.id, texts)
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and node.id in texts
    }

    class _Inner(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return expression(inner[node.id]) if node.id in inner else node

    return ast.unparse(_Inner().visit(tree)) if inner else texts[name]
