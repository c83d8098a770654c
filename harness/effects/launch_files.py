"""Launch code read without running it: its functions, their keyword parameters and defaults."""

from __future__ import annotations

import ast
from pathlib import Path

from harness.values.errors import ConfigurationError, UsageError
from harness.values.kernel import LaunchSpec, Parameter

__all__ = ["launches_of_repro", "launches_of_script"]

_MAX_BYTES = 4 << 20


def launches_of_repro(path: Path) -> tuple[LaunchSpec, ...]:
    """Every public top-level function of a repro's launch file, in order; the first is the default.

    Raises:
        ConfigurationError: not Python, no function, or a function with a parameter without default.
    """
    found = tuple(
        _spec(path, node)
        for node in _parse(path).body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and not _is_jit(node)
    )
    if not found:
        raise ConfigurationError(f"{path}:1: no launch function; write `def default(): ...`")
    return found


def launches_of_script(path: Path) -> tuple[LaunchSpec, ...]:
    """`launch()` of any Python file, else the whole file as `__main__`.

    Raises:
        UsageError: not Python, or neither `launch()` nor code that runs as `__main__`.
    """
    tree = _parse(path)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "launch":
            return (_spec(path, node),)
    if any(_is_main_guard(node) or isinstance(node, ast.Expr | ast.For | ast.With) for node in tree.body):
        return (LaunchSpec(name="main", function=None),)
    raise UsageError(
        f"{path}: launches nothing: it has no launch() function and no code under "
        '`if __name__ == "__main__"`'
    )


def _parse(path: Path) -> ast.Module:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    if len(data) > _MAX_BYTES:
        raise UsageError(f"{path}: {len(data):,} bytes is too large for a Python file")
    try:
        return ast.parse(data, filename=str(path))
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        raise UsageError(f"{path}:{line}: not Python: {getattr(error, 'msg', error)}") from error


def _is_jit(node: ast.FunctionDef) -> bool:
    """Decorated functions of a launch file are kernels or helpers, not launches."""
    return bool(node.decorator_list)


def _is_main_guard(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Compare)
        and isinstance(node.test.left, ast.Name)
        and node.test.left.id == "__name__"
    )


def _spec(path: Path, node: ast.FunctionDef) -> LaunchSpec:
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
    pairs = [
        *zip(positional, [*defaults, *arguments.defaults], strict=True),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    parameters = []
    for argument, default in pairs:
        if default is None:
            raise ConfigurationError(
                f"{path}:{argument.lineno}: {node.name}: parameter {argument.arg!r} has no default; "
                "give it one, so that the launch runs by itself"
            )
        parameters.append(Parameter(name=argument.arg, default=_literal(default)))
    return LaunchSpec(
        name=node.name, function=node.name, parameters=tuple(parameters), line=node.lineno
    )


def _literal(node: ast.expr) -> bool | int | float | str | None:
    """The default's value where it is a literal; an expression counts as text."""
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return ast.unparse(node)
    return value if isinstance(value, bool | int | float | str) or value is None else ast.unparse(node)
