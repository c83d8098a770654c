"""A kernel and its launch as the text of one Python file, and back.

`python FILE` compiles the kernel, on a machine without a GPU; nothing but Triton is imported.

Pure.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator, Mapping, Sequence

from harness.frontends.one_file import (
    GUARD,
    LINE,
    StandaloneError,
    code_before,
    commas,
    entries_of,
    filled,
    mapping_lines,
    must_be,
    quoted,
    spelled_node,
    spelled_words,
    texts_of,
    values_of,
)
from harness.values.standalone import Dialect, FileLaunch, Path, Standalone

DIALECT = Dialect(always=frozenset({"import triton"}), constant=("tl.constexpr", "triton.language"))

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


def render(standalone: Standalone, *, header: str = "") -> str:
    """The file; `header` becomes its docstring."""
    launch = standalone.launch
    imports = [_IMPORTS[name] for name in ("triton", "GPUTarget", launch.source_class)]
    docstring = f'"""{header.strip()}\n"""\n\n' if header else ""
    code = standalone.code.strip("\n")
    body = textwrap.indent("\n".join(_launch_lines(launch)), "    ")
    return docstring + "\n".join(imports) + f"\n{code}\n\n\n{GUARD}{body}\n"


def _launch_lines(launch: FileLaunch) -> Iterator[str]:
    """The same lines for every Triton: by position, because 3.2 has another name for constants."""
    if launch.attributes:
        yield from _attributes(launch)
        yield from _FOR_3_2
    yield f"source = {launch.source_class}("
    yield f"    {launch.kernel},"
    yield from mapping_lines("    ", quoted(launch.signature))
    yield from mapping_lines("    ", _paths(launch, launch.constants))
    yield from ["    attrs,"] if launch.attributes else []
    yield ")"
    yield f"target = GPUTarget({commas(launch.target)})"
    yield from mapping_lines("options = ", quoted(launch.options), end="")
    yield "compiled = triton.compile(source, target=target, options=options)"
    yield "print(compiled.metadata)"


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
    strings = [f'"{name}"' for name in names]
    line = f"{indent}for name in [{', '.join(strings)}]"
    if len(line) <= LINE - 4:
        yield line
        return
    yield f"{indent}for name in ["
    yield from filled(strings, f"{indent}    ")
    yield f"{indent}]"


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
    tree = ast.parse(text)
    values = values_of(tree)
    source = must_be(ast.Call, values["source"])
    kernel, signature, constants = source.args[:3]
    launch = FileLaunch(
        kernel=must_be(ast.Name, kernel).id,
        signature=texts_of(signature),
        constants={_read_path(key): spelled_node(value) for key, value in entries_of(constants)},
        attributes=dict(_read_attributes(values.get("attrs"))),
        options=texts_of(values["options"]),
        target=tuple(map(ast.literal_eval, must_be(ast.Call, values["target"]).args)),
        source_class=must_be(ast.Name, source.func).id,
    )
    return Standalone(code=code_before(text, tree, set(_IMPORTS.values())), launch=launch)


def _read_path(key: ast.expr) -> Path:
    if isinstance(key, ast.Constant):
        return (str(key.value),)
    index, *rest = must_be(ast.Tuple, key).elts
    name = index.args[0].value  # type: ignore[attr-defined]
    return (str(name), *(ast.literal_eval(item) for item in rest))


def _read_attributes(node: ast.expr | None) -> Iterator[tuple[Path, str]]:
    if node is None:
        return
    if isinstance(node, ast.DictComp):
        for name in ast.literal_eval(node.generators[0].iter):
            yield (name,), spelled_words(ast.literal_eval(node.value))
    else:
        entries = must_be(ast.Dict, node)
        for key, value in zip(entries.keys, entries.values, strict=True):
            if key is None:
                yield from _read_attributes(value)
            else:
                yield _read_path(key), spelled_words(ast.literal_eval(value))
