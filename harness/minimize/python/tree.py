"""A standalone file as a tree: what stands where, which names mean what, how large it is. Pure.

Nodes are named by their position in preorder, which is true of one tree and of every copy of it.
"""

from __future__ import annotations

import ast
import builtins
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from harness.values.standalone import FileLaunch, FileLayout, Standalone

_BUILTINS = frozenset(dir(builtins))
Replacement = ast.AST | list[ast.AST] | None


@dataclass(frozen=True, eq=False)
class PythonFile:
    """A standalone file whose code is spelled as `ast.unparse` does: one line a statement."""

    code: str
    launch: FileLaunch
    form: FileLayout

    @classmethod
    def of(cls, standalone: Standalone, form: FileLayout) -> PythonFile:
        """The same program, without comments and docstrings, each variable set by itself.

        Raises:
            SyntaxError: the code is not Python.
        """
        tree = ast.parse(standalone.code)
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node):
                node.body = node.body[1:] or [ast.Pass()]
            if isinstance(node, ast.FunctionDef):
                node.returns = None
        _Apart().visit(tree)
        return cls(code=ast.unparse(tree), launch=standalone.launch, form=form)

    @property
    def standalone(self) -> Standalone:
        """As a file has it, with blank lines around functions."""
        parts = [ast.unparse(node) for node in self.tree.body]
        text = ""
        for node, part in zip(self.tree.body, parts, strict=True):
            text += f"\n\n{part}\n" if _is_block(node) else f"{part}\n"
        return Standalone(code=text, launch=self.launch)

    @property
    def text(self) -> str:
        """The whole file."""
        return self.form.render(self.standalone)

    @cached_property
    def tree(self) -> ast.Module:
        """The code, not to be changed."""
        return ast.parse(self.code)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes by position."""
        return list(preorder(self.tree))

    @cached_property
    def positions(self) -> dict[int, int]:
        """The position of each node, by its id."""
        return {id(node): position for position, node in enumerate(self.nodes)}

    @cached_property
    def functions(self) -> dict[str, PythonFunction]:
        """The kernel and its helpers by name, and methods as `Class.method`."""
        by_name: dict[str, PythonFunction] = {}
        for top in self.tree.body:
            place = f"{top.name}." if isinstance(top, ast.ClassDef) else ""
            inner = top.body if isinstance(top, ast.ClassDef) else [top]
            functions = (fn for fn in inner if isinstance(fn, ast.FunctionDef))
            by_name |= {f"{place}{fn.name}": PythonFunction(fn) for fn in functions}
        return by_name

    @property
    def kernel(self) -> PythonFunction:
        """The function that is compiled."""
        return self.functions[self.launch.kernel]

    @cached_property
    def imported(self) -> set[str]:
        """Names of the module that are imports."""
        imports = (stmt for stmt in self.tree.body if isinstance(stmt, ast.Import | ast.ImportFrom))
        return {*self.form.roots, *(name for stmt in imports for name in defined_by(stmt))}

    @cached_property
    def inside(self) -> set[int]:
        """The ids of all nodes in the bodies of functions."""
        return {
            id(node)
            for function in self.functions.values()
            for statement in function.node.body
            for node in ast.walk(statement)
        }

    @cached_property
    def unread(self) -> set[int]:
        """The ids of parameters that functions within functions never read."""
        ids = set()
        for fn in self.functions.values():
            for inner in fn.statements:
                if isinstance(inner, ast.FunctionDef) and not inner.args.defaults:
                    read = names_in(inner.body)
                    ids |= {id(arg) for arg in inner.args.args if arg.arg not in read}
        return ids

    @cached_property
    def values(self) -> set[int]:
        """The ids of expressions that a number could stand in for."""
        ids = set()
        for node in self.nodes:
            if isinstance(node, ast.BinOp):
                ids |= {id(node.left), id(node.right)}
            elif isinstance(node, ast.Compare):
                ids |= {id(node.left), *map(id, node.comparators)}
            elif isinstance(node, ast.Call):
                ids |= {*map(id, node.args), *(id(word.value) for word in node.keywords)}
            elif isinstance(node, ast.Assign | ast.AugAssign | ast.List | ast.Tuple):
                parts = node.elts if isinstance(node, ast.List | ast.Tuple) else [node.value]
                ids |= {id(part) for part in parts if not isinstance(part, ast.Slice)}
        return ids & self.inside

    @cached_property
    def _statements(self) -> dict[int, tuple[ast.stmt, int]]:
        """The innermost statement that each node is in, and the position of that."""
        innermost: dict[int, tuple[ast.stmt, int]] = {}
        position = -1
        for top in preorder(self.tree):
            position += 1
            if isinstance(top, ast.stmt):
                innermost |= {id(node): (top, position) for node in _own(top)}
        return innermost

    def words(self, position: int) -> tuple[str, int]:
        """A node by its statement's own words, and where in it: the same wherever that stands."""
        node = self.nodes[position]
        statement, start = self._statements[id(node)]
        return ast.unparse(statement).partition("\n")[0], position - start

    @cached_property
    def kernel_lines(self) -> int:
        """Lines of all functions and classes."""
        return sum(
            len(ast.unparse(node).splitlines()) for node in self.tree.body if _is_block(node)
        )

    @cached_property
    def size(self) -> int:
        """What a reduction must not let grow: nodes, the bits of numbers, and what is launched."""
        bits = 0
        for node in self.nodes:
            value = node.value if isinstance(node, ast.Constant) else None
            if type(value) is int:
                bits += value.bit_length()
            elif type(value) is float and value:
                bits += 1
        launch = self.launch
        texts = [*launch.constants.values(), *launch.options.values()]
        bits += sum(int(text).bit_length() for text in texts if text.lstrip("-").isdigit())
        entries = len(launch.signature) + len(launch.attributes) + len(launch.options)
        return 8 * len(self.nodes) + bits + 8 * entries + 4 * len(launch.constants)

    def rewrite(
        self,
        changes: Mapping[int, Callable[[ast.AST], Replacement]],
        launch: FileLaunch | None = None,
    ) -> PythonFile | None:
        """The file with nodes replaced, by position; None where that is not a program any more.

        A change is given the node after the changes within it. It returns what comes in its place:
        a node, several statements, or None for nothing.
        """
        tree = ast.parse(self.code)
        by_node = {id(node): changes[n] for n, node in enumerate(preorder(tree)) if n in changes}
        Rewriter(by_node).visit(tree)
        for node in ast.walk(tree):
            for field in ("body", "orelse"):
                _settle(node, field)
        try:
            code = ast.unparse(ast.fix_missing_locations(tree))
            rewritten = replace(self, code=code, launch=launch or self.launch)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                compile(rewritten.tree, "kernel.py", "exec")
        except (SyntaxError, ValueError, TypeError, AttributeError):
            return None
        if self.launch.kernel not in rewritten.functions or undefined(rewritten) - undefined(self):
            return None
        return rewritten if rewritten.text != self.text else None


class PythonFunction:
    """The statements of one function, and what each reads and sets by itself."""

    def __init__(self, node: ast.FunctionDef) -> None:
        self.node = node
        self.parameters = [inner.arg for inner in _parameters(node)]
        self.statements = list(_statements(node.body))
        self.parents = {
            id(child): stmt for stmt in self.statements for body in bodies(stmt) for child in body
        }
        self.globals = {name for inner in self.statements for name in loads(inner)} - {
            *self.parameters,
            *(name for inner in self.statements for name in stores(inner)),
        }

    def closure(self, first: Iterable[ast.stmt]) -> set[int]:
        """The ids of statements that go with these: those within, and those that need them."""
        lost = {id(stmt) for stmt in first}
        while True:
            before = len(lost)
            # In document order, so that what is within a lost statement is lost in one pass.
            lost |= {
                id(inner)
                for inner in self.statements
                if (parent := self.parents.get(id(inner))) is not None and id(parent) in lost
            }
            living = [inner for inner in self.statements if id(inner) not in lost]
            names = self.globals | set(self.parameters)
            # What a statement makes of a name's old value does not give it a first one.
            names |= {name for inner in living for name in stores(inner) - loads(inner)}
            lost |= {id(inner) for inner in living if loads(inner) - names}
            if len(lost) == before:
                return lost


class Rewriter(ast.NodeTransformer):
    """Makes changes, by the ids of nodes."""

    def __init__(self, changes: Mapping[int, Callable[[ast.AST], Replacement]]) -> None:
        self._changes = changes

    def visit(self, node: ast.AST) -> Replacement:
        """Change what is within a node, then the node."""
        change = self._changes.get(id(node))
        self.generic_visit(node)
        return change(node) if change else node


class _Apart(ast.NodeTransformer):
    def visit_Assign(self, node: ast.Assign) -> Replacement:
        """`a, b = x, y` as two statements, unless one changes what the other reads."""
        target, value = node.targets[0], node.value
        if not (isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)):
            return node
        if len(target.elts) != len(value.elts) or stores(node) & loads(node):
            return node
        pairs = zip(target.elts, value.elts, strict=True)
        return [ast.Assign(targets=[name], value=part, lineno=node.lineno) for name, part in pairs]


def preorder(node: ast.AST) -> Iterator[ast.AST]:
    """A node and all within it, in the order of the text."""
    yield node
    for child in ast.iter_child_nodes(node):
        yield from preorder(child)


def bodies(stmt: ast.AST) -> Iterator[list[ast.stmt]]:
    """The lists of statements within one."""
    for field in ("body", "orelse"):
        body = getattr(stmt, field, None)
        if isinstance(body, list):
            yield body


def loads(statement: ast.stmt) -> set[str]:
    """Names that a statement reads, not counting the statements within it."""
    names = {
        node.id
        for node in _own(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    if isinstance(statement, ast.AugAssign):
        names |= stores(statement)
    return names


def stores(stmt: ast.stmt) -> set[str]:
    """Names that a statement sets, not counting the statements within it.

    Of a function within another, these are its name and its parameters.
    """
    names = {
        node.id
        for node in _own(stmt)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    if isinstance(stmt, ast.FunctionDef):
        names |= {stmt.name, *(arg.arg for arg in _parameters(stmt))}
    return names


def undefined(source: PythonFile) -> set[str]:
    """Names that are read somewhere and set nowhere."""
    names = _BUILTINS | source.form.roots
    for node in source.tree.body:
        names |= set(defined_by(node))
    missing: set[str] = {text for text in names_of_launch(source.launch) if text not in names}
    for fn in source.functions.values():
        missing |= fn.globals - names
    return missing


def names_in(statements: Iterable[ast.stmt]) -> set[str]:
    """All names within."""
    return {
        node.id
        for statement in statements
        for node in ast.walk(statement)
        if isinstance(node, ast.Name)
    }


def expression(text: str) -> ast.expr:
    """The tree of an expression."""
    return ast.parse(text, mode="eval").body


def names_of_launch(launch: FileLaunch) -> Iterator[str]:
    """What the values of a launch name."""
    for text in (*launch.constants.values(), *launch.options.values()):
        for node in ast.walk(expression(text)):
            if isinstance(node, ast.Name):
                yield node.id


def defined_by(node: ast.stmt) -> Iterator[str]:
    """The names that a statement of a module gives a meaning."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    else:
        yield from stores(node)


def _own(statement: ast.stmt) -> Iterator[ast.AST]:
    """All nodes of a statement but those of the statements within it."""
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += [
            child
            for child in ast.iter_child_nodes(node)
            if not (isinstance(child, ast.stmt) and node is statement)
        ]


def _statements(body: Collection[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        yield statement
        for inner in bodies(statement):
            yield from _statements(inner)


def _parameters(node: ast.FunctionDef) -> list[ast.arg]:
    return [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]


def _is_block(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.ClassDef)


def _settle(node: ast.AST, field: str) -> None:
    """Put a `pass` where statements must be, and leave an `else` without any out."""
    body = getattr(node, field, None)
    if not isinstance(body, list) or isinstance(node, ast.Module):
        return
    real = [stmt for stmt in body if not isinstance(stmt, ast.Pass)]
    setattr(node, field, real or ([ast.Pass()] if field == "body" else []))
