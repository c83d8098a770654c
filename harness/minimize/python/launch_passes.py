"""What may go from the launch of a standalone file, and from the code with it. Pure."""

from __future__ import annotations

import ast
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

from harness.frontends.one_file import without_argument
from harness.minimize.python.tree import (
    PythonFile,
    Replacement,
    expression,
    names_in,
    preorder,
    stores,
)
from harness.minimize.reduction.driver import Edit

Change = Callable[[ast.AST], Replacement]


@dataclass(frozen=True, slots=True)
class Arguments:
    """Arguments of the kernel that are not read, and those that a constant can stand in for.

    They leave the launch too. A number at run time may be any number: 1 will do.
    """

    is_inlining: bool

    @property
    def name(self) -> str:
        """What the ledger calls it."""
        return "inlined arguments" if self.is_inlining else "unused arguments"

    def opportunities(self, document: PythonFile) -> Sequence[Edit]:
        """Names."""
        kernel = document.kernel
        read = names_in(kernel.node.body)
        if not self.is_inlining:
            return [name for name in kernel.parameters if name not in read]
        values = {name: _value(document, name) for name in kernel.parameters if name in read}
        changed = {name for each in kernel.statements for name in stores(each)}
        return [name for name, value in values.items() if value and name not in changed]

    def mark(self, document: PythonFile, edit: Edit) -> Hashable:  # noqa: ARG002
        """What the edit names."""
        return edit

    def apply(self, document: PythonFile, chosen: Sequence[Edit]) -> PythonFile | None:
        """Without these arguments."""
        names = {str(name) for name in chosen}
        launch = document.launch
        for name in names:
            launch = without_argument(launch, name)
        changes: dict[int, Change] = {}
        inside = set(map(id, preorder(document.kernel.node)))
        for position, node in enumerate(document.nodes):
            if id(node) not in inside:
                continue
            if isinstance(node, ast.arguments):
                changes[position] = lambda old: _without_parameters(old, names)
            elif isinstance(node, ast.Name) and node.id in names and self.is_inlining:
                text = _value(document, node.id)
                changes[position] = lambda _, text=text: expression(text)  # type: ignore[misc]
        return document.rewrite(changes, launch)


def _value(source: PythonFile, name: str) -> str | None:
    """A constant that can stand in for an argument."""
    constant = source.launch.constants.get((name,))
    if constant is not None:
        return constant
    kind = source.launch.signature.get(name, "").strip('"')
    if kind.startswith(("i", "u")):
        return "1"
    return "1.0" if kind.startswith(("fp", "bf")) else None


def _without_parameters(node: ast.AST, names: set[str]) -> ast.AST:
    assert isinstance(node, ast.arguments)
    positional = [*node.posonlyargs, *node.args]
    defaults = dict(zip(reversed(positional), reversed(node.defaults), strict=False))
    keyword_defaults = dict(zip(node.kwonlyargs, node.kw_defaults, strict=True))
    node.posonlyargs = [each for each in node.posonlyargs if each.arg not in names]
    node.args = [each for each in node.args if each.arg not in names]
    node.kwonlyargs = [each for each in node.kwonlyargs if each.arg not in names]
    kept = [*node.posonlyargs, *node.args]
    node.defaults = [defaults[each] for each in kept if each in defaults]
    node.kw_defaults = [keyword_defaults[each] for each in node.kwonlyargs]
    return node


@dataclass(frozen=True, slots=True)
class Options:
    """Options and attributes of the launch, each back to what Triton takes by itself."""

    name: str = "launch"

    def opportunities(self, document: PythonFile) -> Sequence[Edit]:
        """What is named in the launch."""
        launch = document.launch
        return [("attribute", path) for path in launch.attributes] + [
            ("option", name) for name in launch.options
        ]

    def mark(self, document: PythonFile, edit: Edit) -> Hashable:  # noqa: ARG002
        """What the edit names."""
        return edit

    def apply(self, document: PythonFile, chosen: Sequence[Edit]) -> PythonFile | None:
        """Without these."""
        gone = set(chosen)
        launch = document.launch
        options = {n: v for n, v in launch.options.items() if ("option", n) not in gone}
        attributes = {p: v for p, v in launch.attributes.items() if ("attribute", p) not in gone}
        return document.rewrite({}, replace(launch, options=options, attributes=attributes))


@dataclass(frozen=True, slots=True)
class Numbers:
    """Whole numbers, halved wherever they stand: a block size has the same value in many places."""

    name: str = "halved numbers"

    def opportunities(self, document: PythonFile) -> Sequence[Edit]:
        """Values in the code, and constants and options of the launch by name."""
        values = {
            node.value
            for node in document.nodes
            if isinstance(node, ast.Constant) and _can_be_halved(node.value)
        }
        launch = document.launch
        return (
            [("value", value) for value in sorted(values, key=str)]
            + [("constant", p) for p, text in launch.constants.items() if _number(text)]
            + [("option", n) for n, text in launch.options.items() if _number(text)]
        )

    def mark(self, document: PythonFile, edit: Edit) -> Hashable:
        """What the edit names, and the number that it is now."""
        assert isinstance(edit, tuple)
        kind, name = edit
        launch = document.launch
        numbers = {"constant": launch.constants.get(name), "option": launch.options.get(name)}
        return edit, numbers.get(kind)

    def apply(self, document: PythonFile, chosen: Sequence[Edit]) -> PythonFile | None:
        """With these halved."""
        picked = set(chosen)
        launch = document.launch
        constants = {
            path: _halved(text) if ("constant", path) in picked else text
            for path, text in launch.constants.items()
        }
        options = {
            name: _halved(text) if ("option", name) in picked else text
            for name, text in launch.options.items()
        }
        changes: dict[int, Change] = {
            position: lambda _, value=node.value: ast.Constant(value // 2)  # type: ignore[misc]
            for position, node in enumerate(document.nodes)
            if isinstance(node, ast.Constant)
            and _can_be_halved(node.value)
            and ("value", node.value) in picked
        }
        return document.rewrite(changes, replace(launch, constants=constants, options=options))


def _can_be_halved(value: object) -> bool:
    return type(value) is int and value > 1


def _number(text: str) -> bool:
    return text.isdigit() and int(text) > 1


def _halved(text: str) -> str:
    return str(int(text) // 2)
