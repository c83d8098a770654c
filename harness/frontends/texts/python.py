"""Python that users write: tuner configs, decorated functions, tracebacks.

Pure.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Iterator

import msgspec

from harness.values.kernel import Config

OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
"""Of a config, what is said to the compiler; all else are the kernel's own meta-parameters."""


def config_source(config: Config, constructor: str) -> str:
    """A config as a tuner's list spells it."""
    values = config.as_dict()
    meta = {name: value for name, value in values.items() if name not in OPTIONS}
    options = [f"{name}={literal(values[name])}" for name in OPTIONS if name in values]
    return f"{constructor}({', '.join([literal(meta), *options])})"


def literal(value: object) -> str:
    """As most formatters spell it."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{literal(k)}: {literal(v)}' for k, v in value.items())}}}"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)


_PACKAGE = "triton"
_JIT, _TUNED = "jit", "autotune"


class WrittenFunction(msgspec.Struct, frozen=True, kw_only=True):
    """A function that Triton or Gluon compiles; `names` are those that its body mentions."""

    name: str
    line: int
    is_tuned: bool
    names: frozenset[str]


def written_functions(text: str) -> list[WrittenFunction]:
    """The functions of a file with a `jit` decorator of Triton, in order; each name once.

    Raises:
        SyntaxError, ValueError, RecursionError: it cannot be read as Python.
    """
    tree = ast.parse(text)
    origins = dict(_imports(tree))
    functions: dict[str, WrittenFunction] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef):
            continue
        last = [_last_name(decorator, origins) for decorator in node.decorator_list]
        if _JIT in last:
            # As in Python, the last definition of a name counts.
            functions[node.name] = WrittenFunction(
                name=node.name,
                line=node.lineno,
                is_tuned=_TUNED in last,
                names=frozenset(_mentioned(node)),
            )
    return sorted(functions.values(), key=lambda function: function.line)


def _imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """What each imported name stands for, by its dotted name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                yield (alias.asname, alias.name) if alias.asname else (top, top)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _last_name(node: ast.expr, origins: dict[str, str]) -> str:
    """The last part of a decorator's name, where it is Triton's; else nothing."""
    if isinstance(node, ast.Call):
        node = node.func
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    whole = [*origins.get(node.id, "").split("."), *reversed(parts)]
    return whole[-1] if whole[0] == _PACKAGE else ""


def _mentioned(function: ast.FunctionDef) -> Iterator[str]:
    for statement in function.body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name):
                yield node.id
            elif isinstance(node, ast.Attribute):
                yield node.attr


_PLACES = r"(?:io/children|frontends/pretend|frontends/\w+(?:/child(?:/\w+)?)?)"
# Frames of what runs inside a foreign Triton, wherever this program is installed.
_OURS = re.compile(
    rf'  File "[^"\n]*harness/{_PLACES}/[\w.]+", line \d+, in [^\n]*\n'
    r"(?:    [^\n]*\n)*"
)
# What lies before the package in the path of an installed module.
_SITE = re.compile(r'(  File ")[^"\n]*/(?:site-packages|dist-packages|site)/')


def as_the_user_sees_it(traceback: str) -> str:
    """The traceback without our frames, its paths beginning with the name of the package."""
    return _SITE.sub(r"\1", _OURS.sub("", traceback))
