"""A kernel of CuTe DSL and its launch as the text of one Python file, and back.

`python FILE` compiles the function that launches the kernel as far as PTX, which it prints, on a
machine without a GPU.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import replace

from harness.frontends.one_file import (
    GUARD,
    LINE,
    StandaloneError,
    code_before,
    filled,
    must_be,
    spelled,
    spelled_node,
    values_of,
)
from harness.values.standalone import Dialect, FileLaunch, Standalone

_IMPORTS = ("import cutlass", "from cutlass import cute", "from cutlass.cute import runtime")
ROOTS = frozenset({"cutlass", "cute", "runtime"})
DIALECT = Dialect(always=frozenset(_IMPORTS))
_CONSTANT = '"argument"'
# What every file asks for: PTX for this target.
_OPTIONS = "--gpu-arch {} --keep-ptx"


def with_arguments(launch: FileLaunch, calls: Mapping[str, str]) -> FileLaunch:
    """The launch with what stands for arguments that are not constants: a call for each."""
    made = {name: spelled(text) for name, text in calls.items()}
    return replace(launch, signature={**launch.signature, **made})


def render(standalone: Standalone, *, header: str = "") -> str:
    """The file; `header` becomes its docstring."""
    docstring = f'"""{header.strip()}\n"""\n\n' if header else ""
    code = standalone.code.strip("\n")
    # Two blank lines go before a function.
    code = f"\n\n{code}" if code.startswith(("@", "def ", "class ")) else code
    body = textwrap.indent("\n".join(_launch_lines(standalone.launch)), "    ")
    return docstring + "\n".join(_IMPORTS) + f"\n{code}\n\n\n{GUARD}{body}\n"


def _launch_lines(launch: FileLaunch) -> Iterator[str]:
    entries = [
        line for name, kind in launch.signature.items() for line in _entry(launch, name, kind)
    ]
    yield from ["arguments = {", *entries, "}"] if entries else ["arguments = {}"]
    words = [_OPTIONS.format(launch.target[0]), *map(ast.literal_eval, launch.options.values())]
    yield f"options = {spelled(repr(' '.join(words)))}"
    yield f"compiled = cute.compile({launch.kernel}, *arguments.values(), options=options)"
    yield "print(compiled.__ptx__)"


def _entry(launch: FileLaunch, name: str, kind: str) -> Iterator[str]:
    """An argument: its value, or what stands for one that has none."""
    value = launch.constants.get((name,), kind)
    line = f'    "{name}": {value},'
    call = ast.parse(value, mode="eval").body
    if len(line) <= LINE - 4 or not isinstance(call, ast.Call):
        yield line
        return
    words = [f"{each.arg}={spelled_node(each.value)}" for each in call.keywords]
    yield f'    "{name}": {spelled_node(call.func)}('
    yield from filled([*map(spelled_node, call.args), *words], "        ")
    yield "    ),"


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
    arguments = must_be(ast.Dict, values["arguments"])
    given = {
        str(must_be(ast.Constant, key or arguments).value): value
        for key, value in zip(arguments.keys, arguments.values, strict=True)
    }
    gpu, arch, _, *words = str(ast.literal_eval(values["options"])).split(" ", 3)
    if gpu != _OPTIONS.split(" ", maxsplit=1)[0]:
        raise ValueError(f"its options begin with {gpu}")
    compiled = must_be(ast.Call, values["compiled"])
    launch = FileLaunch(
        kernel=must_be(ast.Name, compiled.args[0]).id,
        signature={
            name: spelled_node(value) if _is_made(value) else _CONSTANT
            for name, value in given.items()
        },
        constants={
            (name,): spelled_node(value) for name, value in given.items() if not _is_made(value)
        },
        attributes={},
        options={"options": spelled(repr(words[0]))} if words else {},
        target=(arch,),
    )
    return Standalone(code=code_before(text, tree, set(_IMPORTS)), launch=launch)


def _is_made(value: ast.expr) -> bool:
    """Whether it stands for data: that is a call of what the file's imports give."""
    root = value.func if isinstance(value, ast.Call) else None
    while isinstance(root, ast.Attribute):
        root = root.value
    return isinstance(root, ast.Name) and root.id in ROOTS
