"""Follows a definition to everything that it names, so that it can be written as one file.

What a compiler brings is imported, what else a kernel reaches is spelled out. Each front end says
what is its own, and which functions have a source.
"""

# ruff: noqa: ANN401 - values of the compiler and the user have types that we cannot name

from __future__ import annotations

import ast
import enum
import inspect
import math
import symtable
import sys
import textwrap
from collections.abc import Container, Iterator, Mapping, Sequence
from types import FunctionType, ModuleType
from typing import Any

Names = dict[str, dict[str, Any]]


class ExportError(Exception):
    """Something of the launch has no text."""


class Definitions:
    """Everything that a kernel reaches and that its compiler does not bring, each once.

    A definition's `names` say what its free names, and dotted ones that lead out of a module, are
    bound to: a `module` (with an `attribute`), another `definition`, or a `value` in words.
    `brought` are the packages that a file may import. Of `undecorated` the file has no decorator:
    its own launch stands for it.
    """

    brought: Container[str]

    def __init__(self, undecorated: Any = None) -> None:
        self._undecorated = undecorated
        # In the order in which they were reached.
        self.found: list[dict[str, Any]] = []
        # By identity: a factory makes many functions of one name. Kept alive, or ids come again.
        self._indices: dict[int, tuple[int, Any]] = {}

    def is_brought(self, module: str) -> bool:
        """Whether a file may import this module."""
        return module.partition(".")[0] in self.brought

    def source(self, thing: Any) -> tuple[str, tuple[str, Any] | None]:
        """A definition's text, and the decorator that it gets, with what that begins with.

        Raises:
            ExportError: Python does not have its text.
        """
        try:
            code = textwrap.dedent(inspect.getsource(self.python(thing)))
        except (OSError, TypeError) as error:
            message = f"the source of {getattr(thing, '__qualname__', thing)} cannot be read"
            raise ExportError(message) from error
        if thing is self._undecorated:
            node = ast.parse(code).body[0]
            code = "".join(code.splitlines(keepends=True)[node.lineno - 1 :])
        return code, None

    def own_text(self, value: Any, names: Names) -> str | None:
        """A value of the compiler's as an expression, whose names are added; None for another."""
        raise NotImplementedError

    def python(self, thing: Any) -> Any:
        """The function or class as Python knows it, below what decorators made of it."""
        return inspect.unwrap(thing)

    def has_source(self, value: Any) -> bool:
        """Whether it is a function or class whose text is spelled out."""
        return isinstance(value, FunctionType | type)

    def add(self, thing: Any) -> int:
        """The index of a function or class.

        Raises:
            ExportError: Python does not have its text.
        """
        entry = self._indices.get(id(thing))
        if entry:
            return entry[0]
        index = len(self.found)
        self._indices[id(thing)] = index, thing
        code, decorator = self.source(thing)
        self.add_text(code, self._scope(thing), decorator)
        return index

    def add_text(
        self, code: str, scope: dict[str, Any], decorator: tuple[str, Any] | None = None
    ) -> None:
        """A definition by its text, whose free names mean what they do in `scope`."""
        definition: dict[str, Any] = {"source": code, "names": {}, "decorator": None}
        self.found.append(definition)
        if decorator:
            text, root = decorator
            definition["decorator"] = text
            definition["names"][text.partition(".")[0]] = self.bind(root)
        for parts in _free_names(code):
            bound = self._resolve(parts, scope)
            if bound:
                path, binding = bound
                definition["names"][path] = binding

    def _resolve(
        self, parts: list[str], scope: dict[str, Any]
    ) -> tuple[str, dict[str, Any]] | None:
        if parts[0] not in scope:
            return None
        value, used = scope[parts[0]], 1
        while used < len(parts) and self._leads_on(value):
            if not hasattr(value, parts[used]):
                return None
            value, used = getattr(value, parts[used]), used + 1
        try:
            return ".".join(parts[:used]), self.bind(value)
        except ExportError:
            # Perhaps nothing but a branch that is not taken names it.
            return None

    def bind(self, value: Any) -> dict[str, Any]:
        """What a name stands for.

        Raises:
            ExportError: it has no text.
        """
        if isinstance(value, ModuleType):
            if not self.is_brought(value.__name__):
                message = f"module {value.__name__} is not the compiler's"
                raise ExportError(message)
            return {"module": value.__name__}
        place = self._place(value)
        if place:
            return {"module": place[0], "attribute": place[1]}
        if self.has_source(value):
            return {"definition": self.add(value)}
        return self.spell(value)

    def spell(self, value: Any) -> dict[str, Any]:
        """A value as an expression.

        Raises:
            ExportError: it has no text.
        """
        names: Names = {}
        return {"value": self.expression(value, names), "names": names}

    def export(
        self,
        arguments: Mapping[str, Any],
        constants: Mapping[str, Any],
        *,
        options: Mapping[str, Any],
        source_class: Mapping[str, Any],
        target: Sequence[str],
    ) -> dict[str, Any]:
        """A launch with the arguments `given`, of which some are constants, and all definitions.

        Raises:
            ExportError: a constant or an option has no text.
        """
        return {
            "signature": dict.fromkeys(arguments, "argument"),
            "constants": [
                {"path": [index], **self.spell(constants[name])}
                for index, name in enumerate(arguments)
                if name in constants
            ],
            "attributes": [],
            "options": {str(name): self.spell(value) for name, value in options.items()},
            "source_class": source_class,
            "target": list(target),
            "definitions": self.found,
        }

    def expression(self, value: Any, names: Names) -> str:
        """A value in words; what they name is added.

        Raises:
            ExportError: it has no text.
        """
        own = self.own_text(value, names)
        if own is not None:
            return own
        if isinstance(value, enum.Enum) and isinstance(value, int | str):
            return repr(value.value)
        if value is None or type(value) in (bool, int, str):
            return repr(value)
        if type(value) is float:
            return repr(value) if math.isfinite(value) else f'float("{value}")'
        if type(value) in (tuple, list):
            items = [self.expression(item, names) for item in value]
            comma = "," if type(value) is tuple and len(items) == 1 else ""
            left, right = "()" if type(value) is tuple else "[]"
            return f"{left}{', '.join(items)}{comma}{right}"
        if type(value) is dict:
            pairs = value.items()
            text = (f"{self.expression(k, names)}: {self.expression(v, names)}" for k, v in pairs)
            return f"{{{', '.join(text)}}}"
        message = f"a value of type {type(value).__module__}.{type(value).__qualname__} has no text"
        raise ExportError(message)

    def _leads_on(self, value: Any) -> bool:
        if isinstance(value, ModuleType):
            return not self.is_brought(value.__name__)
        return isinstance(value, type) and issubclass(value, enum.Enum)

    def _place(self, value: Any) -> tuple[str, str] | None:
        """Module and name under which the compiler itself has this very thing."""
        inner = getattr(value, "fn", value)
        module, name = getattr(inner, "__module__", None), getattr(inner, "__qualname__", None)
        if not isinstance(module, str) or not isinstance(name, str) or not self.is_brought(module):
            return None
        thing = getattr(sys.modules.get(module), name, None)
        return (module, name) if thing is value else None

    def _scope(self, thing: Any) -> dict[str, Any]:
        """What the free names of a definition mean: globals, and what a factory closed over."""
        function = self.python(thing)
        if isinstance(function, type):
            return vars(sys.modules[function.__module__])
        return {**function.__globals__, **inspect.getclosurevars(function).nonlocals}


def _free_names(code: str) -> list[list[str]]:
    """Names that are read and not local, as dotted paths, each once."""
    tree = ast.parse(code)
    # A default is read outside of the function, and a comprehension has names of its own: which
    # name means what is Python's to say. A definition may name itself, in its annotations say.
    own = {getattr(node, "name", "") for node in tree.body}
    outer = set(_outer_names(symtable.symtable(code, "definition", "exec"))) - own
    names: dict[str, list[str]] = {}
    for node in ast.walk(tree):
        parts = _dotted(node)
        if parts and parts[0] in outer:
            names.setdefault(".".join(parts), parts)
    return list(names.values())


def _outer_names(table: symtable.SymbolTable) -> Iterator[str]:
    is_top = table.get_type() == "module"
    for symbol in table.get_symbols():
        if symbol.is_referenced() and (symbol.is_global() or is_top):
            yield symbol.get_name()
    for child in table.get_children():
        yield from _outer_names(child)


def _dotted(node: ast.AST) -> list[str] | None:
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute) and (parts := _dotted(node.value)):
        return [*parts, node.attr]
    return None
