"""What may go from a Triton kernel: statements, branches, arguments, operands, numbers. Pure.

Each transformation only says what it could do. An edit names the node by its position.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass

from harness.minimize.python.tree import (
    PythonFile,
    PythonFunction,
    Replacement,
    loads,
    names_in,
    names_of_launch,
    stores,
)
from harness.minimize.reduction.driver import Edit

Change = Callable[[ast.AST], Replacement]


def edit_position(edit: Edit) -> int:
    """The position that an edit names."""
    assert isinstance(edit, int)
    return edit


def nothing(node: ast.AST) -> Replacement:  # noqa: ARG001
    """Leaves a node out."""
    return None


def positions_of(source: PythonFile) -> dict[int, int]:
    """The position of each node, by its id."""
    return {id(node): position for position, node in enumerate(source.nodes)}


@dataclass(frozen=True, slots=True)
class Statements:
    """Statements, each with all that needs what it sets: what is left still makes sense."""

    name: str = "statements"

    def opportunities(self, document: PythonFile) -> Sequence[Edit]:
        """Every statement of every function, by position."""
        positions = positions_of(document)
        return [
            positions[id(statement)]
            for function in document.functions.values()
            for statement in function.statements
        ]

    def mark(self, document: PythonFile, edit: Edit) -> Hashable:
        """All that would go, in words."""
        statement = document.nodes[edit_position(edit)]
        assert isinstance(statement, ast.stmt)
        function = document.function_of(statement)
        gone = function.closure([statement])
        return tuple(ast.unparse(each) for each in function.statements if id(each) in gone)

    def apply(self, document: PythonFile, chosen: Sequence[Edit]) -> PythonFile | None:
        """Without these and what depends on them."""
        gone = {id(document.nodes[edit_position(position)]) for position in chosen}
        positions = positions_of(document)
        changes: dict[int, Change] = {}
        for function in document.functions.values():
            mine = [each for each in function.statements if id(each) in gone]
            changes |= {positions[lost]: nothing for lost in function.closure(mine)}
        return document.rewrite(changes)


@dataclass(frozen=True, slots=True)
class Methods:
    """Methods of classes as a whole."""

    name: str = "methods"

    def opportunities(self, document: PythonFile) -> Sequence[Edit]:
        """Every method, by position."""
        positions = positions_of(document)
        found = document.functions.items()
        return [positions[id(each.node)] for name, each in found if "." in name]

    def mark(self, document: PythonFile, edit: Edit) -> Hashable:
        """The method in words."""
        return ast.unparse(document.nodes[edit_position(edit)])

    def apply(self, document: PythonFile, chosen: Sequence[Edit]) -> PythonFile | None:
        """Without these."""
        return document.rewrite({edit_position(position): nothing for position in chosen})


@dataclass(frozen=True, slots=True)
class Unused:
    """What is never read: variables, helpers, imports, constants, empty loops."""

    name: str = "unused"

    def opportunities(self, document: PythonFile) -> Sequence[Edit]:
        """Positions of statements; those too that are unused once later ones are gone."""
        positions = positions_of(document)
        found = [*_unused_globals(document)]
        for function in document.functions.values():
            found += _unused_statements(function)
        return sorted(positions[id(statement)] for statement in found)

    def mark(self, document: PythonFile, edit: Edit) -> Hashable:
        """The statement in words."""
        return document.words(edit_position(edit))

    def apply(self, document: PythonFile, chosen: Sequence[Edit]) -> PythonFile | None:
        """Without these."""
        return document.rewrite({edit_position(position): nothing for position in chosen})


def _unused_statements(function: PythonFunction) -> list[ast.stmt]:
    found: list[ast.stmt] = []
    while True:
        gone = {id(each) for each in found}
        living = [each for each in function.statements if id(each) not in gone]
        more = [each for each in living if _is_unused(each, living, gone)]
        if not more:
            return found
        found += more


def _is_unused(statement: ast.stmt, living: Sequence[ast.stmt], gone: set[int]) -> bool:
    if isinstance(statement, ast.If | ast.For | ast.While):
        inner = [*statement.body, *statement.orelse]
        return all(id(each) in gone or isinstance(each, ast.Pass) for each in inner)
    if not isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
        return False
    names = stores(statement)
    return bool(names) and not any(
        names & loads(other) for other in living if other is not statement
    )


def _unused_globals(source: PythonFile) -> list[ast.stmt]:
    """Functions, imports and constants of the module that nothing living names."""
    found: list[ast.stmt] = []
    named = {source.launch.kernel, *names_of_launch(source.launch)}
    while True:
        living = [each for each in source.tree.body if each not in found]
        more = [
            each
            for each in living
            if not _global_names(each)
            & (named | names_in(other for other in living if other is not each))
        ]
        if not more:
            return found
        found += more


def _global_names(statement: ast.stmt) -> set[str]:
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {each.asname or each.name.partition(".")[0] for each in statement.names}
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return {statement.name}
    return stores(statement)


@dataclass(frozen=True, slots=True)
class Rewrites:
    """Nodes that can be written in a simpler way; `offer` says how, for those that it knows."""

    name: str
    offer: Callable[[PythonFile, ast.AST], Change | None]

    def opportunities(self, document: PythonFile) -> Sequence[Edit]:
        """Positions, within functions; like beside like, since they tend to share their fate."""
        found = [
            position
            for position, node in enumerate(document.nodes)
            if id(node) in document.inside and self.offer(document, node)
        ]
        return sorted(found, key=lambda position: (_kind(document.nodes[position]), position))

    def mark(self, document: PythonFile, edit: Edit) -> Hashable:
        """The statement in words, and where in it."""
        return document.words(edit_position(edit))

    def apply(self, document: PythonFile, chosen: Sequence[Edit]) -> PythonFile | None:
        """With these written in the simpler way."""
        changes = {}
        for position in map(edit_position, chosen):
            change = self.offer(document, document.nodes[position])
            if change:
                changes[position] = change
        return document.rewrite(changes)


def _kind(node: ast.AST) -> str:
    if isinstance(node, ast.Call):
        return f"call {ast.unparse(node.func)}"
    if isinstance(node, ast.keyword):
        return f"keyword {node.arg}"
    return type(node).__name__


def branches(which: str) -> Rewrites:
    """The body, or the `else`, in place of a whole `if` or loop; a loop runs once."""

    def offer(_: PythonFile, node: ast.AST) -> Change | None:
        if isinstance(node, ast.If | ast.For | ast.While):
            return lambda new: _arm(new, which)
        return None

    return Rewrites(f"{which} of branches", offer)


def _arm(node: ast.AST, which: str) -> Replacement:
    assert isinstance(node, ast.If | ast.For | ast.While)
    if which == "else":
        return list(node.orelse)
    if not isinstance(node, ast.For):
        return list(node.body)
    start: ast.expr = ast.Constant(0)
    is_single = isinstance(node.target, ast.Name)
    if is_single and isinstance(node.iter, ast.Call) and len(node.iter.args) > 1:
        start = node.iter.args[0]
    names = node.target.elts if isinstance(node.target, ast.Tuple) else [node.target]
    first = [ast.Assign(targets=[name], value=start, lineno=0) for name in names]
    return [*first, *node.body]


def operands(index: int) -> Rewrites:
    """One operand of an expression in place of the whole."""

    def offer(source: PythonFile, node: ast.AST) -> Change | None:
        found = list(_operands(source, node))
        return (lambda new: list(_operands(source, new))[index]) if index < len(found) else None

    return Rewrites(f"operand {index + 1}", offer)


def _operands(source: PythonFile, node: ast.AST) -> Iterator[ast.expr]:
    """Parts of an expression that may have its type."""
    if isinstance(node, ast.BinOp):
        yield from (node.left, node.right)
    elif isinstance(node, ast.BoolOp):
        yield from node.values
    elif isinstance(node, ast.UnaryOp):
        yield node.operand
    elif isinstance(node, ast.IfExp):
        yield from (node.body, node.orelse)
    elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        yield node.value
    elif isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and not _is_of_module(source, node.func):
            yield node.func.value
        yield from (each for each in node.args if not isinstance(each, ast.Starred))


def _is_of_module(source: PythonFile, node: ast.expr) -> bool:
    """`tl.dot`, `tl.math.exp2`."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and node.id in source.imported


def constants(value: float) -> Rewrites:
    """A number in place of an expression."""

    def offer(source: PythonFile, node: ast.AST) -> Change | None:
        if not isinstance(node, ast.expr) or isinstance(node, ast.Constant):
            return None
        return (lambda _: ast.Constant(value)) if id(node) in source.values else None

    return Rewrites(f"{value} for an expression", offer)


def keywords() -> Rewrites:
    """Keyword arguments of calls, left out: masks, what is loaded beyond them, dtypes."""

    def offer(_: PythonFile, node: ast.AST) -> Change | None:
        return nothing if isinstance(node, ast.keyword) else None

    return Rewrites("keywords", offer)


def plain_assignments() -> Rewrites:
    """`x = y` in place of `x += y`."""

    def offer(_: PythonFile, node: ast.AST) -> Change | None:
        return _plain if isinstance(node, ast.AugAssign) else None

    return Rewrites("plain assignments", offer)


def bare_expressions() -> Rewrites:
    """`f(x)` in place of `y = f(x)`."""

    def offer(_: PythonFile, node: ast.AST) -> Change | None:
        is_call = isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        return _bare if is_call else None

    return Rewrites("bare expressions", offer)


def _bare(node: ast.AST) -> Replacement:
    assert isinstance(node, ast.Assign)
    return ast.Expr(node.value)


def _plain(node: ast.AST) -> Replacement:
    assert isinstance(node, ast.AugAssign)
    return ast.Assign(targets=[node.target], value=node.value, lineno=0)


def parameters() -> Rewrites:
    """Parameters of functions within functions, left out where nothing reads them."""

    def offer(source: PythonFile, node: ast.AST) -> Change | None:
        return nothing if id(node) in source.unread else None

    return Rewrites("parameters", offer)


def trailing_arguments() -> Rewrites:
    """The last argument of a call, left out."""

    def offer(_: PythonFile, node: ast.AST) -> Change | None:
        return _shorter if isinstance(node, ast.Call) and node.args else None

    return Rewrites("trailing arguments", offer)


def _shorter(node: ast.AST) -> Replacement:
    assert isinstance(node, ast.Call)
    node.args = node.args[:-1]
    return node
