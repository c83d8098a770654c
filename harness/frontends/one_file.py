"""What is alike in the files that a kernel is written to: how they are spelled, read and reduced.

Each front end lays its files out in its own way (`harness.frontends.base`). The syntax of a
language other than Python is data.

Pure.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from harness.values.standalone import FileLaunch

N = TypeVar("N", bound=ast.AST)

LINE = 100
"""Characters of a line of such a file."""
GUARD = 'if __name__ == "__main__":\n'
"""What stands between the code and its launch."""
_PLAIN = re.compile(r"[^\\\"\x00-\x1f]*").fullmatch


class StandaloneError(ValueError):
    """A file is not laid out as its front end does."""


def quoted(values: Mapping[str, str]) -> list[str]:
    """Entries of a dictionary whose keys are strings."""
    return [f'"{name}": {value}' for name, value in values.items()]


def wrapped(opening: str, entries: Sequence[str], closing: str) -> Iterator[str]:
    """All on one line, or filled lines of entries between the first and the last."""
    line = f"{opening}{', '.join(entries)}{closing}"
    if len(line) <= LINE - 4:
        yield line
        return
    indent = " " * (len(opening) - len(opening.lstrip()))
    yield opening
    yield from filled(entries, f"{indent}    ")
    yield f"{indent}{closing}"


def mapping_lines(start: str, entries: Sequence[str], *, closing: str = ",") -> Iterator[str]:
    """`start{entries}` on one line, or filled lines of entries."""
    return wrapped(f"{start}{{", entries, f"}}{closing}")


def call_lines(name: str, call: ast.Call, more: Mapping[str, str]) -> Iterator[str]:
    """A call as an entry of a dictionary, with its own arguments by place and `more` by name."""
    words = [*map(spelled_node, call.args), *(f"{key}={value}" for key, value in more.items())]
    return wrapped(f'    "{name}": {spelled_node(call.func)}(', words, "),")


def filled(entries: Sequence[str], indent: str) -> Iterator[str]:
    """As many entries on a line as fit; none is broken."""
    line = indent
    for entry in entries:
        if line != indent and len(line) + len(entry) + 1 > LINE - 4:
            yield line.rstrip()
            line = indent
        line += f"{entry}, "
    yield line.rstrip()


def without_argument(launch: FileLaunch, name: str) -> FileLaunch:
    """The launch of a kernel that no longer has this argument."""
    return replace(
        launch,
        signature={key: value for key, value in launch.signature.items() if key != name},
        constants={path: value for path, value in launch.constants.items() if path[0] != name},
        attributes={path: value for path, value in launch.attributes.items() if path[0] != name},
    )


def must_be(kind: type[N], node: ast.AST) -> N:
    """The node, which is of this kind.

    Raises:
        TypeError: it is of another.
    """
    if not isinstance(node, kind):
        raise TypeError(f"line {getattr(node, 'lineno', 1)} is not a {kind.__name__}")
    return node


def values_of(tree: ast.Module) -> dict[str, ast.expr]:
    """What the names of the launch are set to, the first time each."""
    block = must_be(ast.If, tree.body[-1])
    return {
        node.targets[0].id: node.value  # type: ignore[attr-defined]
        for node in reversed(block.body)
        if isinstance(node, ast.Assign)
    }


def code_before(text: str, tree: ast.Module, ours: set[str]) -> str:
    """The code before the launch, without the docstring and the imports that are written first."""
    code, _, _ = text.rpartition(GUARD)
    first = 1 if ast.get_docstring(tree) is not None else 0
    for node in tree.body[first:]:
        if ast.unparse(node) not in ours:
            decorators: list[ast.expr] = getattr(node, "decorator_list", [])
            line = min([node.lineno, *(decorator.lineno for decorator in decorators)])
            return "\n".join(code.splitlines()[line - 1 :]).strip("\n")
    return ""


def entries_of(node: ast.expr) -> Iterable[tuple[ast.expr, ast.expr]]:
    """Keys and values of a dictionary, without what is unpacked into it: a key is None there."""
    node = must_be(ast.Dict, node)
    return [(key, value) for key, value in zip(node.keys, node.values, strict=True) if key]


def keywords_of(call: ast.Call) -> dict[str, str]:
    """The arguments that a call gives by name, as they are spelled."""
    return {str(keyword.arg): spelled_node(keyword.value) for keyword in call.keywords}


def texts_of(node: ast.expr) -> dict[str, str]:
    """The values of a dictionary whose keys are strings, as they are spelled."""
    return {ast.literal_eval(key): spelled_node(value) for key, value in entries_of(node)}


def spelled(expression: str) -> str:
    """An expression as these files spell it: a plain string has double quotes."""
    return spelled_node(ast.parse(expression, mode="eval").body)


def spelled_node(node: ast.expr) -> str:
    """The same, of its tree."""
    if isinstance(node, ast.Tuple):
        items = [spelled_node(item) for item in node.elts]
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and _PLAIN(node.value):
        return f'"{node.value}"'
    return ast.unparse(node)


def commas(items: Iterable[str | int]) -> str:
    """Items of a list in words: strings have double quotes."""
    return ", ".join(f'"{item}"' if isinstance(item, str) else str(item) for item in items)


def spelled_words(words: Sequence[Sequence[str | int]]) -> str:
    """What a compiler knows of an argument, as the value of an entry of `attributes`."""
    return f"[{', '.join(f'[{commas(word)}]' for word in words)}]"


class SyntaxNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node of a parsed text, at `start` to `end` in characters.

    `parent` is its position in the list of all nodes (-1: it is the root), which is in order of the
    text, a parent before its children; `last` is the position after its last descendant. `field` is
    what its parent calls it. A token that stands for itself (`{`) is not `is_named`.
    """

    kind: str
    field: str | None
    start: int
    end: int
    parent: int
    last: int
    is_named: bool
    is_error: bool


class Syntax(msgspec.Struct, frozen=True, kw_only=True):
    """What of a language decides what can go from a text of it.

    All are kinds of nodes, or names of fields, of the grammar that `parse` reads with. The tree of
    a text may be wrong in places (macros): it only says what is worth trying.

    Attributes:
        parse: the nodes of a text.
        comments: kinds that are comments.
        blocks: their named children are items, each of which may go.
        scopes: a name that an item in one of them defines means nothing outside.
        namespaces: blocks whose `name` is part of other names; `qualified` are those names.
        bodies: by kind, the fields of which one may take the place of the whole; with several names
            joined by `+`, all of these. `*` is every item.
        lists: their named children stand between separators, and each may go.
        optional: kinds that may go from where they are.
        optional_fields: by kind, the field that may go with the token before it.
        expressions: kinds that have a value; any may take the place of another.
        types: kinds of types; `plain_type` may take the place of any.
        numbers: kinds of literals that are numbers.
        names: kinds of leaves that are names.
        defining: fields that lead from an item to the name that it defines.
        transparent: kinds whose named children define what the whole defines.
        undefined: kinds of items that define nothing, whatever they name.
        macros: kinds of items that give a name (`name`) a text (`value`).
        variables: kinds of declarations of variables; `initialised` are declarators with a value.
        functions: kinds that name a function (`declarator`) beside its `parameters`.
        calls: kinds that name a function or a template beside its `arguments`, by the field of the
            name.
        templates: kinds with `parameters` of the template that they define.
    """

    parse: Callable[[str], Sequence[SyntaxNode]]
    comments: frozenset[str]
    blocks: frozenset[str]
    scopes: frozenset[str]
    namespaces: frozenset[str]
    qualified: frozenset[str]
    bodies: dict[str, tuple[str, ...]]
    lists: frozenset[str]
    optional: frozenset[str]
    optional_fields: dict[str, str]
    expressions: frozenset[str]
    types: frozenset[str]
    plain_type: str
    numbers: frozenset[str]
    names: frozenset[str]
    defining: frozenset[str]
    transparent: frozenset[str]
    undefined: frozenset[str]
    macros: frozenset[str]
    variables: frozenset[str]
    initialised: frozenset[str]
    functions: frozenset[str]
    calls: dict[str, str]
    templates: frozenset[str]
