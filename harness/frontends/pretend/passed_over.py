"""What launch code does with results, which are not there while it is captured.

Comparing, timing, printing and plotting decide no launch: they are passed over, and named in
one line. Where a number is needed to go on, the capture ends.
"""

# ruff: noqa: ANN401 - stands for values of any type

from __future__ import annotations

import ast
import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import torch

from harness.io.children.writes import WRITTEN

# Packages that decide no launch: for plots and profiles; and, where they are not installed, others.
_NEVER_READ = frozenset({"matplotlib", "plotly", "seaborn", "triton.profiler"})
_IF_MISSING = frozenset({"IPython", "pandas", "parameterized", "pytest", "tabulate", "tqdm"})


class _PassedOver:
    """What was passed over, by its first line in the launch code; which values it asked for."""

    file = ""
    lines: ClassVar[dict[str, int | None]] = {}
    needs = ""


def begin(file: str) -> None:
    """Pass over what does not matter in this launch code from now on."""
    _PassedOver.file, _PassedOver.lines, _PassedOver.needs = file, {}, ""
    WRITTEN[:] = [lambda: pass_over("writing files")]


def needs() -> str:
    """How to get the first value that launch code did not get; empty if it got all.

    `computed`: by torch, for launch code makes it; `interpreted`: a kernel leaves it.
    """
    return _PassedOver.needs


def got(needs: str) -> None:
    """Say that launch code got the value that was asked for since `needs()` gave this."""
    _PassedOver.needs = needs


def pass_over(action: str) -> None:
    """Note what launch code does, and does in vain."""
    frame: Any = sys._getframe(1)  # noqa: SLF001 - nothing else tells
    while frame is not None and frame.f_code.co_filename != _PassedOver.file:
        frame = frame.f_back
    _PassedOver.lines.setdefault(action, frame and frame.f_lineno)


def sentence() -> str:
    """What was passed over; empty if nothing was."""
    if not _PassedOver.lines:
        return ""
    places = [f"{a} (line {n})" if n else a for a, n in _PassedOver.lines.items()]
    file = Path(_PassedOver.file).name
    return f"{file}: nothing is executed here; skipped {', '.join(places)}"


def asserted() -> bool | None:
    """The truth that an `assert` needs which is at work in launch code; None where none is.

    What a function computes that it calls decides more than the assertion.
    """
    frame: Any = sys._getframe(1)  # noqa: SLF001 - nothing else tells
    own = (str(Path(__file__).parent), str(Path(torch.__file__).parent))
    while frame is not None and frame.f_code.co_filename.startswith(own):
        frame = frame.f_back
    return frame and assert_lines(frame.f_code.co_filename).get(frame.f_lineno)


@cache
def assert_lines(file: str) -> dict[int, bool]:
    """The lines of a file that belong to an `assert`, each with the truth that it needs."""
    lines: dict[int, bool] = {}
    with contextlib.suppress(SyntaxError, ValueError, OSError):
        for node in ast.walk(ast.parse(Path(file).read_bytes())):
            if isinstance(node, ast.Assert):
                is_denied = isinstance(node.test, ast.UnaryOp) and isinstance(node.test.op, ast.Not)
                span = range(node.lineno, (node.end_lineno or node.lineno) + 1)
                lines |= dict.fromkeys(span, not is_denied)
    return lines


class NeedsValuesError(RuntimeError):
    """The launch code asks for a value that lives in a GPU tensor; `needs` as in `needs()`."""

    ends_capture = True

    def __init__(self, message: str, needs: str = "") -> None:
        super().__init__(message)
        _PassedOver.needs = _PassedOver.needs or needs

    @classmethod
    def of(cls, action: str, needs: str) -> NeedsValuesError:
        """Of what asks for it."""
        return cls(f"{action} asks for the values of a GPU tensor, and there is no GPU", needs)


class UnknownNumber:
    """A number out of a GPU tensor: it can be shown, and nothing can be decided by it."""

    def __init__(self, action: str, needs: str) -> None:
        self.action, self.needs = action, needs

    def _show(self, *_: Any) -> str:
        pass_over("showing values")
        return "?"

    def _compute(self, *_: Any) -> UnknownNumber:
        return self

    def _compare(self, _: Any) -> bool:
        truth = asserted()
        if truth is None:
            raise NeedsValuesError.of(self.action, self.needs)
        pass_over("assert")
        return truth

    def _decide(self) -> Any:
        raise NeedsValuesError.of(self.action, self.needs)

    __repr__ = __str__ = __format__ = _show
    __add__ = __sub__ = __mul__ = __truediv__ = __floordiv__ = __mod__ = __pow__ = _compute
    __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __rfloordiv__ = __rmod__ = __rpow__ = _compute
    __neg__ = __abs__ = __round__ = _compute
    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _compare
    __bool__ = __int__ = __float__ = __index__ = __hash__ = _decide


class Anything:
    """Whatever a package has that decides no launch: takes every call, and decorates nothing."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __mro_entries__(self, _: Any) -> tuple[type]:
        # `class Graph(torch.cuda.CUDAGraph)`
        return (Anything,)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        is_decorator = len(args) == 1 and not kwargs and callable(args[0])
        return args[0] if is_decorator else self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __iter__(self) -> Any:
        # `figure, axes = plt.subplots()`
        return iter((self, self))

    def __getitem__(self, key: Any) -> Any:
        return self

    # In an annotation: `torch.cuda.CUDAGraph | None`.
    __or__ = __ror__ = __getitem__

    def __setitem__(self, key: Any, value: Any) -> None: ...
    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None: ...


class _NotBuilt:
    """A C++ extension: to build it takes minutes, and on a CPU it runs no kernel of a GPU."""

    def __init__(self, name: str, *_: Any, **__: Any) -> None:
        self._name = name
        pass_over("building a C++ extension")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def call(*_: Any, **__: Any) -> Any:
            message = f"{self._name}.{name}() is of a C++ extension, and none is built here"
            raise NeedsValuesError(message)

        return call


ADAPTED: dict[str, Callable[[types.ModuleType], None]] = {
    "torch.utils.cpp_extension": lambda built: vars(built).update(
        load=_NotBuilt, load_inline=_NotBuilt
    )
}
"""Modules that are changed once they have run, by their names."""


class _StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds packages that are not read, and modules that are changed."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if adapt := ADAPTED.pop(name, None):
            spec = importlib.util.find_spec(name)
            if spec is None or spec.loader is None:
                return None
            run = spec.loader.exec_module

            def run_and_adapt(module: types.ModuleType) -> None:
                run(module)
                adapt(module)

            spec.loader.exec_module = run_and_adapt  # type: ignore[method-assign]
            return spec
        top, _, below = name.partition(".")
        package = f"{top}.{below.partition('.')[0]}" if top == "triton" else top
        is_missing = top in _IF_MISSING and importlib.machinery.PathFinder.find_spec(top) is None
        if (package not in _NEVER_READ and not is_missing) or not _is_launch_code():
            return None
        pass_over(package)
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: Any) -> Any:
        return None

    def exec_module(self, module: types.ModuleType) -> None:
        anything = Anything()
        module.__getattr__ = lambda name: getattr(anything, name)  # type: ignore[method-assign]


def _is_launch_code() -> bool:
    """Whether what imports is no installed package, which may do without the other."""
    frame: Any = sys._getframe(2)  # noqa: SLF001 - nothing else tells
    while frame is not None and "importlib" in frame.f_code.co_filename:
        frame = frame.f_back
    return frame is not None and "-packages/" not in frame.f_code.co_filename


def stand_in_for_packages() -> None:
    """Let launch code import packages that decide no launch, whether they are there or not."""
    if not any(isinstance(finder, _StandIns) for finder in sys.meta_path):
        sys.meta_path.insert(0, _StandIns())
