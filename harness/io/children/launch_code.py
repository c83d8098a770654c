"""Finds and runs the launch code that a capture asks for."""

# ruff: noqa: ANN401 - values of torch, Triton and the user have types that we cannot name

from __future__ import annotations

import ast
import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import shlex
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any


class _BareLoader(importlib.abc.Loader):
    def __init__(self, init: Path, *, lazy: bool) -> None:
        self._init = init
        self._lazy = lazy

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:  # noqa: ARG002
        return None

    def exec_module(self, module: ModuleType) -> None:
        state = {"ran": not self._lazy}

        def missing(name: str) -> Any:
            # What an `__init__` assigns that can be read without running it: `__version__`, for
            # one.
            constants = {}
            for node in ast.parse(self._init.read_bytes()).body:
                if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                    with contextlib.suppress(ValueError, TypeError):
                        constants[node.targets[0].id] = ast.literal_eval(node.value)
            if name in constants:
                return constants[name]
            if name.startswith("__"):
                raise AttributeError(name)
            submodule = f"{module.__name__}.{name}"
            if importlib.util.find_spec(submodule) is not None:
                return importlib.import_module(submodule)
            if not state["ran"]:
                state["ran"] = True
                code = compile(self._init.read_bytes(), str(self._init), "exec")
                exec(code, module.__dict__)  # noqa: S102 - the package's own __init__
                if name in module.__dict__:
                    return module.__dict__[name]
            message = f"module {module.__name__!r} has no attribute {name!r}"
            raise AttributeError(message)

        module.__getattr__ = missing  # type: ignore[method-assign]


class BareParents(importlib.abc.MetaPathFinder):
    """Finds packages below the fetched sources without running their `__init__`.

    A package of GPU kernels imports its compiled extension in `__init__`, which was not built
    here. The top package's never runs; a subpackage's runs when a name it defines is asked for.
    """

    def __init__(self, roots: Sequence[str]) -> None:
        self._roots = [str(Path(root).resolve()) for root in roots]

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """As the standard finder, but with our own loader for packages of the fetched sources."""
        spec = importlib.machinery.PathFinder.find_spec(
            fullname, path if path is not None else self._roots, target
        )
        if spec is None or not spec.origin or not spec.submodule_search_locations:
            return spec
        init = Path(spec.origin)
        if init.name != "__init__.py" or not any(
            str(init.resolve()).startswith(r + "/") for r in self._roots
        ):
            return spec
        spec.loader = _BareLoader(init, lazy="." in fullname)
        return spec


def run_launch(file: str, function: str | None, overrides: dict[str, Any]) -> Any:
    """What `function(**overrides)` of `file` returns; where it is None, run the file as `__main__`.

    A file that imports from its own package by dots runs as its module (`python -m`).
    The module stays loaded: its kernels are compiled later. `json` is put back: compilers use it.
    Where it is `TESTS`, pytest runs the tests of the file, by the words of the override `pytest`.
    """
    sys.argv = [file]
    source = Path(file).read_bytes()
    package, folder = _package_of(file, source)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    if function == TESTS:
        # A program of unittest can do without pytest.
        if b"unittest.main" not in source or importlib.machinery.PathFinder.find_spec("pytest"):
            return _run_tests(file, shlex.split(overrides.get("pytest", "")))
        function = None
    name = "triage_launch" if function else "__main__"
    module = ModuleType(name)
    module.__file__ = file
    sys.modules[name] = module
    code = compile(source, file, "exec", dont_inherit=True)
    own = dict(vars(json))
    try:
        if package:
            module.__package__ = package
            importlib.import_module(package)
        exec(code, module.__dict__)  # noqa: S102 - this is what the user asked for
        return getattr(module, function)(**overrides) if function else None
    finally:
        vars(json).update(own)


def _package_of(file: str, source: bytes) -> tuple[str, str]:
    """The package whose module a file is, where it imports by dots, and the folder it is found in.

    Others are programs: of no package, with what lies beside them on the module path.
    """
    folder = Path(file).parent
    names: list[str] = []
    with contextlib.suppress(SyntaxError, ValueError):
        nodes = ast.walk(ast.parse(source))
        if any(isinstance(node, ast.ImportFrom) and node.level for node in nodes):
            while (folder / "__init__.py").is_file():
                names.insert(0, folder.name)
                folder = folder.parent
    return ".".join(names), str(folder)


class TimeUpError(KeyboardInterrupt):
    """Launch code takes too long: handlers of exceptions let it through, and pytest ends.

    `line` is that of the test at work, where the error was raised outside the launch code.
    """

    line: int | None = None


TESTS = "::tests"
"""In place of a function: the tests of the file."""
TESTED: list[str] = []
"""What came of tests, in sentences."""
TESTS_ENDED: list[tuple[str, BaseException | None]] = []
"""Each test that was run, in their order, and what it has raised."""
SEEN: list[dict[str, Any]] = []
"""Each test that began, as `harness.values.outcome.TestFacts` has it."""


class _Outcomes:
    """A plugin of pytest that counts what comes of tests."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.raised: BaseException | None = None
        self._line: int | None = None

    def pytest_runtest_logstart(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        self._line = None if location[1] is None else location[1] + 1
        name = nodeid.partition("::")[2]
        facts: dict[str, Any] = {"outcome": "not ended", "launches": 0, "refused": {}}
        SEEN.append({"name": name, "line": self._line, "records": set(), **facts})

    def pytest_collectreport(self, report: Any) -> None:
        if report.skipped:
            self.counts[f"skipped ({report.longrepr[2]})"] = 1

    def pytest_runtest_makereport(self, item: Any, call: Any) -> None:
        error = call.excinfo.value if call.excinfo else None
        outcome, words = "to the end", ""
        if type(error).__name__ == "Skipped":
            outcome = f"skipped ({error})"
        elif getattr(error, "ends_capture", False):
            outcome, words = "until a value is needed", str(error)
        elif error is not None:
            outcome, words = f"until {type(error).__name__}", _message(error)
            # An assertion that fails says the least.
            if self.raised is None or isinstance(self.raised, AssertionError):
                self.raised = error
        is_known = error is not None or call.when == "call"
        if is_known and SEEN and SEEN[-1]["outcome"] == "not ended":
            line = next(filter(None, map(str.strip, words.splitlines())), "")
            SEEN[-1] |= {"outcome": outcome, "reason": line[:300]}
        if call.when == "call":
            TESTS_ENDED.append((item.name, error))
        elif outcome == "to the end":
            return
        self.counts[outcome] = self.counts.get(outcome, 0) + 1

    def pytest_load_initial_conftests(self) -> Iterator[None]:
        outcome: Any = yield
        if outcome.excinfo:
            self.raised = getattr(outcome.excinfo[1], "cause", outcome.excinfo[1])

    def pytest_keyboard_interrupt(self, excinfo: Any) -> None:
        # pytest has another, for errors of the collection.
        if isinstance(excinfo.value, TimeUpError):
            self.raised = excinfo.value
            self.raised.line = self._line

    def pytest_exception_interact(self, call: Any) -> None:
        # What the import of the file raised; what a test did is counted above.
        if call.when == "collect":
            error = call.excinfo.value
            self.raised = self.raised or error.__cause__ or error


def _run_tests(file: str, words: list[str]) -> None:
    """Run all tests of a file; the first error that has nothing to do with values is raised.

    Of the words that pytest gets besides, those that begin with `::` name tests of the file.
    """
    # It may not be installed: its absence is the launch code's error.
    pytest = importlib.import_module("pytest")
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    outcomes = _Outcomes()
    pytest.hookimpl(hookwrapper=True)(_Outcomes.pytest_load_initial_conftests)
    without = [f"-pno:{name}" for name in ("cacheprovider", "faulthandler")]
    # To show where a test failed, pytest parses every file on the way: most of a capture's time.
    options = ["-q", "-s", "--tb=no", "-o", "addopts=", "--rootdir", str(Path(file).parent)]
    words = [f"{file}{word}" if word.startswith("::") else word for word in words]
    files = [] if any(word.startswith(f"{file}::") for word in words) else [file]
    code = pytest.main([*without, *options, *words, *files], plugins=[outcomes])
    counts = [f"{count} {outcome}" for outcome, count in outcomes.counts.items()]
    counted = ", ".join(counts) or f"none (pytest: {code!r})"
    TESTED.append(f"{Path(file).name}: tests: {counted}")
    if outcomes.raised:
        raise outcomes.raised


def stand_aside(ask: Mapping[str, Any]) -> None:
    """Leave the launch code the module path and working folder that it would have without us."""
    ours = {str(Path(__file__).parents[3]), str(Path.cwd()), ""}
    site = {path for path in sys.path if path.endswith("-packages")}
    sys.path[:] = [path for path in sys.path if path not in ours or path in site]
    # Where Python itself puts what PYTHONPATH names: before what is installed.
    sys.path[:0] = [*ask["paths"], *ask["user_paths"]]
    for name in [name for name in sys.modules if name.partition(".")[0] == "harness"]:
        del sys.modules[name]
    if ask["bare"]:
        sys.meta_path.insert(0, BareParents(ask["bare"]))
    os.chdir(Path(ask["file"]).parent)


def describe_error(error: BaseException, file: str = "", *, most: int = 10_000) -> dict[str, Any]:
    """What the launch code in a file, or a compiler, raised, and at which line of the file.

    The message has at most so many characters, and the traceback twice as many.
    """
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == file]
    if isinstance(error, SyntaxError) and error.filename == file:
        lines.append(error.lineno)
    return {
        "type": type(error).__name__,
        "kinds": [kind.__name__ for kind in type(error).__mro__],
        "message": _message(error)[:most],
        "line": lines[-1] if lines else error.line if isinstance(error, TimeUpError) else None,
        "traceback": "".join(traceback.format_exception(error))[-2 * most :],
    }


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as other:  # noqa: BLE001 - the launch code's own exception class
        return f"(its message cannot be read: {type(other).__name__})"
