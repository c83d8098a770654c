"""Launch code read without running it: its functions, their keyword parameters and defaults."""

from __future__ import annotations

import ast
import contextlib
from pathlib import Path

from harness.io.files.reading import read_regular
from harness.values.errors import ConfigurationError, UsageError
from harness.values.kernel import LaunchParameter, LaunchSpec

_MAX_BYTES = 4 << 20


def launches_of_repro(path: Path) -> tuple[LaunchSpec, ...]:
    """Every public top-level function of a repro's launch file, in order; the first is the default.

    Raises:
        ConfigurationError: not Python, no function, or a function with a parameter without default.
    """
    # As in Python, the last definition of a name counts.
    functions = {
        node.name: node
        for node in _parse(path).body
        if isinstance(node, ast.FunctionDef)
        and not node.name.startswith("_")
        # Decorated functions of a launch file are kernels or helpers, not launches.
        and not node.decorator_list
    }
    specs = tuple(_spec(path, node) for node in functions.values())
    if not specs:
        raise ConfigurationError(f"{path}:1: no launch function; write `def default(): ...`")
    return specs


def launches_of_script(path: Path) -> tuple[LaunchSpec, ...]:
    """`launch()` of any Python file, else the whole file as `__main__`.

    Raises:
        UsageError: not Python, or neither `launch()` nor code that runs as `__main__`.
    """
    body = _parse(path).body
    for node in reversed(body):
        if isinstance(node, ast.FunctionDef) and node.name == "launch":
            return (_spec(path, node),)
    if any(_runs(node) for node in body):
        return (LaunchSpec(name="main", function=None),)
    raise UsageError(
        f"{path}: launches nothing: it has no launch() function and no code under "
        '`if __name__ == "__main__"`'
    )


def imported_modules(path: Path) -> set[str]:
    """The modules that a file imports, in functions too, by their dotted names.

    Raises:
        UsageError: not Python.
    """
    modules: set[str] = set()
    for node in ast.walk(_parse(path)):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            modules |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return modules


def _parse(path: Path) -> ast.Module:
    data = read_regular(path, _MAX_BYTES)
    try:
        return ast.parse(data, filename=str(path))
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        raise UsageError(f"{path}:{line}: not Python: {getattr(error, 'msg', error)}") from error
    except (MemoryError, RecursionError) as error:
        raise UsageError(f"{path}:1: not Python: nested too deeply") from error


def _runs(node: ast.stmt) -> bool:
    """Whether a statement of a module can launch something; definitions and docstrings cannot."""
    if isinstance(node, ast.Expr):
        return not isinstance(node.value, ast.Constant)
    if isinstance(node, ast.If):
        return _is_main_guard(node.test) or any(map(_runs, [*node.body, *node.orelse]))
    if isinstance(node, ast.Try):
        return any(map(_runs, [*node.body, *node.orelse, *node.finalbody]))
    if isinstance(node, ast.Assign | ast.AnnAssign):
        return isinstance(node.value, ast.Call)
    return isinstance(node, ast.For | ast.While | ast.With)


def _is_main_guard(test: ast.expr) -> bool:
    if not isinstance(test, ast.Compare):
        return False
    sides = [test.left, *test.comparators]
    return any(isinstance(side, ast.Name) and side.id == "__name__" for side in sides)


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
                f"{path}:{argument.lineno}: {node.name}: parameter {argument.arg!r} "
                "has no default; give it one, so that the launch runs by itself"
            )
        parameters.append(_parameter(argument.arg, default))
    return LaunchSpec(
        name=node.name, function=node.name, parameters=tuple(parameters), line=node.lineno
    )


def _parameter(name: str, node: ast.expr) -> LaunchParameter:
    """A keyword and its default; what is not a number, text or truth value cannot be overridden."""
    with contextlib.suppress(ValueError, TypeError, RecursionError):
        value = ast.literal_eval(node)
        if value is None or isinstance(value, bool | int | float | str):
            return LaunchParameter(name=name, default=value)
    source = "..."
    with contextlib.suppress(RecursionError):
        source = ast.unparse(node)
    return LaunchParameter(name=name, default=source, settable=False)
