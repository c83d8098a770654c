"""A kernel and its launch as the text of one Python file, and back.

`python FILE` compiles the kernel, on a machine without a GPU; nothing but Triton is imported.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from harness.values.standalone import FileLaunch, Path, Standalone

__all__ = [
    "StandaloneError",
    "read_standalone",
    "render",
    "spelled",
    "spelled_words",
    "without_argument",
]

N = TypeVar("N", bound=ast.AST)

_WIDTH = 100
_PLAIN = re.compile(r"[^\\\"\x00-\x1f]*").fullmatch
_GUARD = 'if __name__ == "__main__":\n'
_IMPORTS = {
    "triton": "import triton",
    "GPUTarget": "from triton.backends.compiler import GPUTarget",
    "ASTSource": "from triton.compiler import ASTSource",
    "GluonASTSource": "from triton.experimental.gluon._runtime import GluonASTSource",
}
# Triton 3.2 takes an object in place of the attributes by path: arguments by property.
_FOR_3_2 = """\
if hasattr(triton.backends.compiler, "AttrsDescriptor"):  # Triton 3.2
    properties = {}
    for (index,), words in attrs.items():
        for name, _ in words:
            properties.setdefault(name, []).append(index)
    described = {"cls": "AttrsDescriptor", "arg_properties": properties}
    attrs = triton.backends.compiler.AttrsDescriptor.from_dict(described)
""".splitlines()


class StandaloneError(ValueError):
    """A file is not laid out as `render` does."""


def render(standalone: Standalone, *, header: str = "") -> str:
    """The file; `header` becomes its docstring."""
    launch = standalone.launch
    imports = [_IMPORTS[name] for name in ("triton", "GPUTarget", launch.source_class)]
    docstring = f'"""{header.strip()}\n"""\n\n' if header else ""
    code = standalone.code.strip("\n")
    body = textwrap.indent("\n".join(_launch_lines(launch)), "    ")
    return docstring + "\n".join(imports) + f"\n{code}\n\n\n{_GUARD}{body}\n"


def _launch_lines(launch: FileLaunch) -> Iterator[str]:
    """The same lines for every Triton: by position, because 3.2 has another name for constants."""
    if launch.attributes:
        yield from _attributes(launch)
        yield from _FOR_3_2
    yield f"source = {launch.source_class}("
    yield f"    {launch.kernel},"
    yield from _mapping("    ", _quoted(launch.signature))
    yield from _mapping("    ", _paths(launch, launch.constants))
    yield from ["    attrs,"] if launch.attributes else []
    yield ")"
    yield f"target = GPUTarget({_commas(launch.target)})"
    yield from _mapping("options = ", _quoted(launch.options), end="")
    yield "compiled = triton.compile(source, target=target, options=options)"
    yield "print(compiled.metadata)"


def _quoted(values: Mapping[str, str]) -> list[str]:
    return [f'"{name}": {value}' for name, value in values.items()]


def _paths(launch: FileLaunch, values: Mapping[Path, str]) -> list[str]:
    return [f"{_path(launch, path)}: {value}" for path, value in values.items()]


def _path(launch: FileLaunch, path: Path) -> str:
    """An argument by its name; an item of a tuple by positions, as Triton wants it."""
    name, *rest = path
    if not rest:
        return f'"{name}"'
    return f"({_index(launch, name)}, {', '.join(map(str, rest))})"


def _index(launch: FileLaunch, name: object) -> str:
    return f'{launch.kernel}.arg_names.index("{name}")'


def _mapping(start: str, entries: Sequence[str], *, end: str = ",") -> Iterator[str]:
    """`start{entries}` on one line, or filled lines of entries."""
    line = f"{start}{{{', '.join(entries)}}}{end}"
    if len(line) <= _WIDTH - 4:
        yield line
        return
    indent = " " * (len(start) - len(start.lstrip()) + 4)
    yield f"{start}{{"
    yield from _filled(entries, indent)
    yield f"{indent[4:]}}}{end}"


def _filled(entries: Sequence[str], indent: str) -> Iterator[str]:
    """As many entries on a line as fit; none is broken."""
    line = indent
    for entry in entries:
        if line != indent and len(line) + len(entry) + 1 > _WIDTH - 4:
            yield line.rstrip()
            line = indent
        line += f"{entry}, "
    yield line.rstrip()


def _by_words(launch: FileLaunch) -> dict[str, list[str]]:
    """Whole arguments by what Triton knows of them."""
    found: dict[str, list[str]] = {}
    for path, words in launch.attributes.items():
        if len(path) == 1:
            found.setdefault(words, []).append(str(path[0]))
    return found


def _attributes(launch: FileLaunch) -> Iterator[str]:
    """What Triton knows of arguments, by path."""
    groups = _by_words(launch)
    nested = {path: words for path, words in launch.attributes.items() if len(path) > 1}
    is_one = len(groups) == 1 and not nested
    yield "attrs = {"
    for words, names in groups.items():
        yield from [] if is_one else ["    **{"]
        indent = " " * (4 if is_one else 8)
        yield f"{indent}({launch.kernel}.arg_names.index(name),): {words}"
        yield from _loop(names, indent)
        yield from [] if is_one else ["    },"]
    yield from (f"    {_path(launch, path)}: {words}," for path, words in nested.items())
    yield "}"


def _loop(names: Sequence[str], indent: str) -> Iterator[str]:
    """The end of a comprehension over names of arguments."""
    quoted = [f'"{name}"' for name in names]
    line = f"{indent}for name in [{', '.join(quoted)}]"
    if len(line) <= _WIDTH - 4:
        yield line
        return
    yield f"{indent}for name in ["
    yield from _filled(quoted, f"{indent}    ")
    yield f"{indent}]"


def without_argument(launch: FileLaunch, name: str) -> FileLaunch:
    """The launch of a kernel that no longer has this argument."""
    return replace(
        launch,
        signature={key: value for key, value in launch.signature.items() if key != name},
        constants={path: value for path, value in launch.constants.items() if path[0] != name},
        attributes={path: value for path, value in launch.attributes.items() if path[0] != name},
    )


def read_standalone(text: str) -> Standalone:
    """The two parts of a file that `render` made.

    Raises:
        StandaloneError: it is laid out in another way.
    """
    try:
        return _read(text)
    except (SyntaxError, ValueError, KeyError, AttributeError, IndexError, TypeError) as error:
        message = f"not a standalone file as this program writes it: {error}"
        raise StandaloneError(message) from error


def _read(text: str) -> Standalone:
    code, _, _ = text.rpartition(_GUARD)
    tree = ast.parse(text)
    block = _must_be(ast.If, tree.body[-1])
    # The first time that a name gets its value.
    values = {
        node.targets[0].id: node.value  # type: ignore[attr-defined]
        for node in reversed(block.body)
        if isinstance(node, ast.Assign)
    }
    source = _must_be(ast.Call, values["source"])
    kernel, signature, constants = source.args[:3]
    launch = FileLaunch(
        kernel=_must_be(ast.Name, kernel).id,
        signature=_texts(signature),
        constants={_read_path(key): _text(value) for key, value in _items(constants)},
        attributes=dict(_read_attributes(values.get("attrs"))),
        options=_texts(values["options"]),
        target=tuple(map(ast.literal_eval, _must_be(ast.Call, values["target"]).args)),
        source_class=_must_be(ast.Name, source.func).id,
    )
    return Standalone(code=_without_imports(code, tree), launch=launch)


def _must_be(kind: type[N], node: ast.AST) -> N:
    if not isinstance(node, kind):
        raise TypeError(f"line {getattr(node, 'lineno', 1)} is no {kind.__name__}")
    return node


def _without_imports(code: str, tree: ast.Module) -> str:
    """The code without the docstring and the imports that `render` writes."""
    ours = set(_IMPORTS.values())
    first = 1 if ast.get_docstring(tree) is not None else 0
    for node in tree.body[first:]:
        if ast.unparse(node) not in ours:
            return "\n".join(code.splitlines()[_first_line(node) - 1 :]).strip("\n")
    return ""


def _first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(each.lineno for each in decorators)])


def _items(node: ast.expr) -> Iterable[tuple[ast.expr, ast.expr]]:
    node = _must_be(ast.Dict, node)
    # A key is None before `**`.
    return [(key, value) for key, value in zip(node.keys, node.values, strict=True) if key]


def _texts(node: ast.expr) -> dict[str, str]:
    return {ast.literal_eval(key): _text(value) for key, value in _items(node)}


def spelled(expression: str) -> str:
    """An expression as this module spells it: a plain string has double quotes."""
    return _text(ast.parse(expression, mode="eval").body)


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Tuple):
        items = [_text(item) for item in node.elts]
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and _PLAIN(node.value):
        return f'"{node.value}"'
    return ast.unparse(node)


def _read_path(key: ast.expr) -> Path:
    if isinstance(key, ast.Constant):
        return (str(key.value),)
    index, *rest = _must_be(ast.Tuple, key).elts
    name = index.args[0].value  # type: ignore[attr-defined]
    return (str(name), *(ast.literal_eval(item) for item in rest))


def _read_attributes(node: ast.expr | None) -> Iterator[tuple[Path, str]]:
    if node is None:
        return
    if isinstance(node, ast.DictComp):
        for name in ast.literal_eval(node.generators[0].iter):
            yield (name,), spelled_words(ast.literal_eval(node.value))
    else:
        entries = _must_be(ast.Dict, node)
        for key, value in zip(entries.keys, entries.values, strict=True):
            if key is None:
                yield from _read_attributes(value)
            else:
                yield _read_path(key), spelled_words(ast.literal_eval(value))


def spelled_words(words: Sequence[Sequence[str | int]]) -> str:
    """What Triton knows of an argument, as the value of an entry of `Launch.attributes`."""
    return f"[{', '.join(f'[{_commas(word)}]' for word in words)}]"


def _commas(items: Iterable[str | int]) -> str:
    return ", ".join(f'"{item}"' if isinstance(item, str) else str(item) for item in items)
