"""A kernel of TileLang and its launch as the text of one Python file, and back.

`python FILE` lowers the kernel to CUDA C++, on a machine without a GPU and without nvcc.

Pure.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator

from harness.frontends.one_file import (
    GUARD,
    LINE,
    StandaloneError,
    code_before,
    filled,
    mapping_lines,
    must_be,
    quoted,
    spelled_node,
    texts_of,
    values_of,
)
from harness.values.standalone import Dialect, FileLaunch, Standalone

_IMPORTS = ("import tilelang", "import tilelang.language as T", "from tilelang import tvm")
DIALECT = Dialect(always=frozenset(_IMPORTS))


def render(standalone: Standalone, *, header: str = "") -> str:
    """The file; `header` becomes its docstring."""
    docstring = f'"""{header.strip()}\n"""\n\n' if header else ""
    code = standalone.code.strip("\n")
    body = textwrap.indent("\n".join(_launch_lines(standalone.launch)), "    ")
    return docstring + "\n".join(_IMPORTS) + f"\n{code}\n\n\n{GUARD}{body}\n"


def _launch_lines(launch: FileLaunch) -> Iterator[str]:
    given = [f"{path[0]}={value}" for path, value in launch.constants.items()]
    line = f"kernel = {launch.kernel}({', '.join(given)})"
    if len(line) <= LINE - 4:
        yield line
    else:
        yield f"kernel = {launch.kernel}("
        yield from filled(given, "    ")
        yield ")"
    kind, arch = launch.target
    yield f'target = tvm.target.Target({{"kind": "{kind}", "arch": "{arch}"}})'
    yield from mapping_lines("options = ", quoted(launch.options), end="")
    yield "with tvm.transform.PassContext(opt_level=3, config=options), target:"
    yield "    lowered = tilelang.lower(kernel, target=target)"
    yield "print(lowered.kernel_source)"


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
    kernel = must_be(ast.Call, values["kernel"])
    words = ast.literal_eval(must_be(ast.Call, values["target"]).args[0])
    launch = FileLaunch(
        kernel=must_be(ast.Name, kernel.func).id,
        signature=dict.fromkeys([str(each.arg) for each in kernel.keywords], '"argument"'),
        constants={(str(each.arg),): spelled_node(each.value) for each in kernel.keywords},
        attributes={},
        options=texts_of(values["options"]),
        target=(words["kind"], words["arch"]),
    )
    return Standalone(code=code_before(text, tree, set(_IMPORTS)), launch=launch)
