"""A kernel of cuTile and its launch as the text of one Python file, and back.

`python FILE` compiles the kernel as far as a cubin, with the tileiras beside that cuTile, on a
machine without a GPU.

Pure.
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
from harness.values.standalone import Dialect, FileLaunch, Path, Standalone

_IMPORTS = ("import os", "import cuda.tile as ct", "from cuda.tile import compilation")
ROOTS = frozenset({"os", "ct", "compilation"})
DIALECT = Dialect(always=frozenset(_IMPORTS))
# What each constraint must say, as it is for tensors that do not overlap.
_REQUIRED = {
    "ArrayConstraint": {
        "index_dtype": "ct.int32",
        "stride_lower_bound_incl": "0",
        "alias_groups": "()",
        "may_alias_internally": "False",
    },
    "ListConstraint": {"alias_groups": "()", "elements_may_alias": "False"},
}
_CONSTANT = '"argument"'


def with_constraints(
    launch: FileLaunch, calls: Mapping[str, str], keywords: Mapping[str, Mapping[str, str]]
) -> FileLaunch:
    """The launch with what is assumed of its arguments: for each a call, and its keywords."""
    attributes: dict[Path, str] = {}
    for name, text in calls.items():
        required = _required(must_be(ast.Call, ast.parse(text, mode="eval").body))
        words = {key: spelled(value) for key, value in keywords[name].items()}
        attributes |= {(name, k): v for k, v in words.items() if required.get(k) != v}
    signature = {**launch.signature, **{name: spelled(text) for name, text in calls.items()}}
    return replace(launch, signature=signature, attributes=attributes)


def render(standalone: Standalone, *, header: str = "") -> str:
    """The file; `header` becomes its docstring."""
    docstring = f'"""{header.strip()}\n"""\n\n' if header else ""
    code = standalone.code.strip("\n")
    # Two blank lines go before a function.
    code = f"\n\n{code}" if code.startswith(("@", "def ")) else code
    body = textwrap.indent("\n".join(_launch_lines(standalone.launch)), "    ")
    return docstring + "\n".join(_IMPORTS) + f"\n{code}\n\n\n{GUARD}{body}\n"


def _launch_lines(launch: FileLaunch) -> Iterator[str]:
    entries = [
        line for name, kind in launch.signature.items() for line in _entry(launch, name, kind)
    ]
    yield from ["parameters = {", *entries, "}"] if entries else ["parameters = {}"]
    yield f"convention = compilation.CallingConvention.{launch.source_class}()"
    yield "signature = compilation.KernelSignature(parameters.values(), convention)"
    hints = ", ".join(f"{name}={value}" for name, value in launch.options.items())
    yield f"kernel = {launch.kernel}" + (f".replace_hints({hints})" if hints else "")
    yield f'gpu_code = "{launch.target[0]}"'
    yield "compilation.export_kernel("
    yield '    kernel, [signature], os.devnull, gpu_code=gpu_code, output_format="cubin"'
    yield ")"


def _entry(launch: FileLaunch, name: str, kind: str) -> Iterator[str]:
    """What is known of an argument: its value, or what is assumed of it."""
    value = launch.constants.get((name,))
    if value is not None:
        yield f'    "{name}": {value},'
        return
    call = must_be(ast.Call, ast.parse(kind, mode="eval").body)
    mine = {str(path[1]): text for path, text in launch.attributes.items() if path[0] == name}
    words = [f"{key}={value}" for key, value in {**_required(call), **mine}.items()]
    given = [*map(spelled_node, call.args), *words]
    line = f'    "{name}": {spelled_node(call.func)}({", ".join(given)}),'
    if len(line) <= LINE - 4:
        yield line
        return
    yield f'    "{name}": {spelled_node(call.func)}('
    yield from filled(given, "        ")
    yield "    ),"


def _required(call: ast.Call) -> dict[str, str]:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    return _REQUIRED.get(name, {})


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
    signature: dict[str, str] = {}
    constants: dict[Path, str] = {}
    attributes: dict[Path, str] = {}
    parameters = must_be(ast.Dict, values["parameters"])
    for key, value in zip(parameters.keys, parameters.values, strict=True):
        name = str(must_be(ast.Constant, key or parameters).value)
        if not isinstance(value, ast.Call):
            signature[name], constants[(name,)] = _CONSTANT, spelled_node(value)
            continue
        required = _required(value)
        words = {str(each.arg): spelled_node(each.value) for each in value.keywords}
        attributes |= {(name, k): v for k, v in words.items() if required.get(k) != v}
        signature[name] = spelled_node(ast.Call(func=value.func, args=value.args, keywords=[]))
    kernel = values["kernel"]
    options = {}
    if isinstance(kernel, ast.Call):
        options = {str(each.arg): spelled_node(each.value) for each in kernel.keywords}
        kernel = must_be(ast.Attribute, kernel.func).value
    convention = must_be(ast.Call, values["convention"]).func
    launch = FileLaunch(
        kernel=must_be(ast.Name, kernel).id,
        signature=signature,
        constants=constants,
        attributes=attributes,
        options=options,
        target=(str(ast.literal_eval(values["gpu_code"])),),
        source_class=must_be(ast.Attribute, convention).attr,
    )
    return Standalone(code=code_before(text, tree, set(_IMPORTS)), launch=launch)
