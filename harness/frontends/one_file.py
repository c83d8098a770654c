"""What is alike in the files that a kernel is written to: how their launch is spelled, and read.

Each front end lays its files out in its own way (`harness.frontends.source_form`).

Pure.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

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


def mapping_lines(start: str, entries: Sequence[str], *, end: str = ",") -> Iterator[str]:
    """`start{entries}` on one line, or filled lines of entries."""
    line = f"{start}{{{', '.join(entries)}}}{end}"
    if len(line) <= LINE - 4:
        yield line
        return
    indent = " " * (len(start) - len(start.lstrip()) + 4)
    yield f"{start}{{"
    yield from filled(entries, indent)
    yield f"{indent[4:]}}}{end}"


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
            return "\n".join(code.splitlines()[_first_line(node) - 1 :]).strip("\n")
    return ""


def _first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(each.lineno for each in decorators)])


def entries_of(node: ast.expr) -> Iterable[tuple[ast.expr, ast.expr]]:
    """Keys and values of a dictionary, without what is unpacked into it."""
    node = must_be(ast.Dict, node)
    # A key is None before `**`.
    return [(key, value) for key, value in zip(node.keys, node.values, strict=True) if key]


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
