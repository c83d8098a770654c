"""Launch code read without running it: its functions, their keyword parameters and defaults."""

from __future__ import annotations

import ast
import contextlib
import itertools
import shlex
from collections.abc import Collection
from pathlib import Path

from harness.io.children.launch_code import TESTS
from harness.io.files.reading import read_regular
from harness.values.errors import ConfigurationError, TriageError, UsageError
from harness.values.kernel import LaunchParameter, LaunchSpec

# As a tree, a file takes up to 600 times its size.
_MAX_BYTES = 1 << 20
# Folders above a file in which its tests are looked for: those of `pkg/ops/k.py` are `pkg/tests`.
_TESTS_ABOVE = 3
OF_TESTS = LaunchSpec(
    name="tests", function=TESTS, parameters=(LaunchParameter(name="pytest", default=""),)
)
"""The tests of a file; `pytest` are words for it: `-k float16`, `::test_forward`."""


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
    """`launch()` of any Python file, its tests, or the whole file as `__main__`.

    Raises:
        UsageError: not Python, or none of them.
    """
    tree = _parse(path)
    body = tree.body
    for node in reversed(body):
        if isinstance(node, ast.FunctionDef) and node.name == "launch":
            return (_spec(path, node),)
    if _is_of_tests(path, body):
        return (OF_TESTS,)
    if any(_runs(node) for node in body):
        return (LaunchSpec(name="main", function=None),)
    raise UsageError(
        f"{path}: launches nothing: it has no launch() function, no tests and no code under "
        f'`if __name__ == "__main__"`{_tests_of(path)}',
        advice=launch_to_paste(tree),
    )


def _tests_of(path: Path) -> str:
    """The command for the first tests that import a file; empty where none near to it do."""
    folders = [path.parent, *(folder / "tests" for folder in [*path.parents][:_TESTS_ABOVE])]
    for test in itertools.chain.from_iterable(sorted(f.glob("test_*.py")) for f in folders):
        with contextlib.suppress(OSError, UsageError):
            if path.stem in ".".join(imported_modules(test)).split("."):
                return f"; tests import it: `triage compile {shlex.quote(str(test))}`"
    return ""


def _is_of_tests(path: Path, body: list[ast.stmt]) -> bool:
    """Whether pytest finds tests here, and nothing else is to be run."""
    guards = [node for node in body if isinstance(node, ast.If) and _is_main_guard(node.test)]
    runners = ("pytest", "unittest.main")
    if any(not any(word in ast.unparse(node) for word in runners) for node in guards):
        return False
    is_named = path.name.startswith("test_") or path.stem.endswith("_test") or bool(guards)
    return is_named and any(
        node.name.lower().startswith("test") or "TestCase" in ast.unparse(node)
        for node in body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    )


def launch_to_paste(tree: ast.Module) -> str:
    """A launch() for the first kernel of a file, guessed from its signature; empty without one."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    kernel = next((f for f in functions if "jit" in map(_last_word, f.decorator_list)), None)
    if kernel is None:
        return ""
    tuned = _tuned(tree, kernel)
    pointers = _pointers(kernel)
    arguments = [*kernel.args.posonlyargs, *kernel.args.args, *kernel.args.kwonlyargs]
    lines, words = [], []
    by_name = ""
    for argument in arguments:
        name = argument.arg
        if argument.annotation is not None and "constexpr" in ast.unparse(argument.annotation):
            words += [] if name in tuned else [f"{name}=64"]
            by_name = "{}="
        elif name in pointers:
            lines.append(f'    {name} = torch.randn(1024, 1024, device="cuda")')
            words.append(by_name.format(name) + name)
        else:
            words.append(by_name.format(name) + ("1" if "stride" in name else "1024"))
    call = f"    {kernel.name}[(1024,)]({', '.join(words)})"
    return "\n".join(["def launch():", "    import torch", "", *lines, call])


def _tuned(tree: ast.Module, kernel: ast.FunctionDef) -> set[str]:
    """The parameters that a launch leaves out: a default, a config or a heuristic gives them."""
    arguments = [*kernel.args.posonlyargs, *kernel.args.args]
    with_default = arguments[len(arguments) - len(kernel.args.defaults) :]
    with_default += [
        argument
        for argument, default in zip(kernel.args.kwonlyargs, kernel.args.kw_defaults, strict=True)
        if default
    ]
    givers: list[ast.AST] = [*kernel.decorator_list]
    if "autotune" in map(_last_word, kernel.decorator_list):
        calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
        givers += [call for call in calls if _last_word(call) == "Config"]
    nodes = itertools.chain.from_iterable(map(ast.walk, givers))
    keys = itertools.chain.from_iterable(node.keys for node in nodes if isinstance(node, ast.Dict))
    given = {str(key.value) for key in keys if isinstance(key, ast.Constant)}
    return given | {argument.arg for argument in with_default}


def _last_word(node: ast.expr) -> str:
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _pointers(kernel: ast.FunctionDef) -> set[str]:
    """The parameters that loads and stores begin with."""
    begins: dict[str, str] = {}
    found = set()
    for node in ast.walk(kernel):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            begins.setdefault(node.targets[0].id, _beginning(node.value))
    for node in ast.walk(kernel):
        if isinstance(node, ast.Call) and node.args and _last_word(node) in _OF_MEMORY:
            name = _beginning(node.args[0])
            while name and begins.get(name, name) != name:
                name = begins.pop(name)
            found.add(name)
    return found


_OF_MEMORY = frozenset(
    {"load", "store", "make_block_ptr", "make_tensor_descriptor"}
    | {f"atomic_{name}" for name in ("add", "and", "cas", "max", "min", "or", "xchg", "xor")}
)


def _beginning(node: ast.expr) -> str:
    while isinstance(node, ast.BinOp):
        node = node.left
    return node.id if isinstance(node, ast.Name) else ""


def find_launch_files(folder: Path, compilers: Collection[str]) -> list[Path]:
    """The Python files of a folder that launch kernels, in order of their names.

    Each has a launch(), tests or code to run, and imports a module of `compilers`, itself or by
    another file of the folder. Hidden folders and installed packages are not looked at.
    """
    imported: dict[Path, set[str]] = {}
    for path in sorted(folder.rglob("*.py")):
        within = path.relative_to(folder).parts
        if not any(part.startswith(".") or part == "site-packages" for part in within):
            with contextlib.suppress(OSError, UsageError):
                words = (module.split(".") for module in imported_modules(path))
                imported[path] = set(itertools.chain.from_iterable(words))
    names = set(compilers)
    reaching: set[Path] = set()
    while more := {path for path in imported.keys() - reaching if imported[path] & names}:
        reaching |= more
        names |= {path.parent.name if path.stem == "__init__" else path.stem for path in more}
    found = []
    for path in sorted(reaching):
        with contextlib.suppress(TriageError):
            launches_of_script(path)
            found.append(path)
    return found


def imported_modules(path: Path) -> set[str]:
    """The modules that a file imports, in functions too, by their dotted names.

    Those of relative imports begin with a dot.

    Raises:
        UsageError: not Python.
    """
    modules: set[str] = set()
    for node in ast.walk(_parse(path)):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = "." * bool(node.level) + (node.module or "")
            modules |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
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
