"""Modules of torch, half of a capture's start-up, that launch code leads to but does not need.

On the meta device torch computes shapes in Python. That code asks `torch._dynamo` to stay out of
it, `torch.fx.experimental.symbolic_shapes` for the truth of what may be symbolic, and `sympy`
whether a number is a symbol. Where nothing is being compiled and nothing is symbolic, the answers
are known, and these modules stay unread (with what they import, 800). Anything else that is asked
of one of them runs its code, in place.
"""

# ruff: noqa: ANN401 - wraps functions of any signature

from __future__ import annotations

import functools
import importlib.util
import re
import sys
import threading
from collections.abc import Callable, Mapping
from importlib.machinery import SourceFileLoader
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

_COMPILER = "torch._dynamo"
_SHAPES = "torch.fx.experimental.symbolic_shapes"
_SYMBOLS = "sympy"
_loading = threading.RLock()


class _LazyModule(ModuleType):
    """A module whose code has not run yet."""

    def __getattr__(self, name: str) -> Any:
        if name == "__path__" and _spec(self).submodule_search_locations is None:
            raise AttributeError(name)  # every `from ... import` asks whether this is a package
        _run(self)
        return getattr(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        _run(self)
        setattr(self, name, value)


def _spec(module: ModuleType) -> ModuleSpec:
    assert module.__spec__ is not None
    return module.__spec__


def _run(module: ModuleType) -> None:
    """Make of a lazy module what its import makes of it."""
    with _loading:
        if type(module) is not _LazyModule:
            return
        ModuleType.__setattr__(module, "__class__", ModuleType)
        spec = _spec(module)
        if spec.submodule_search_locations is not None:
            module.__path__ = spec.submodule_search_locations
        try:
            assert spec.loader is not None
            spec.loader.exec_module(module)
        except BaseException:
            sys.modules.pop(spec.name, None)
            raise


def import_later(name: str, answers: Mapping[str, Any]) -> None:
    """Let `import name` succeed without running the module, until more than `answers` is asked.

    A module is left as it is where it is imported already, does not exist or has no source; and an
    answer is left out where the source does not name it.
    """
    if name in sys.modules:
        return
    try:
        spec = importlib.util.find_spec(name)
    except ImportError:
        return
    if spec is None or not isinstance(spec.loader, SourceFileLoader):
        return
    words = set(re.findall(r"\w+", spec.loader.get_source(name) or ""))
    module = importlib.util.module_from_spec(spec)
    # Imports of what lies in a package start with its path.
    module.__dict__.pop("__path__", None)
    module.__dict__.update({key: answers[key] for key in answers.keys() & words})
    module.__class__ = _LazyModule
    sys.modules[name] = module
    package, _, last = name.rpartition(".")
    if package:
        setattr(sys.modules[package], last, module)


def _real(name: str, attribute: str) -> Any:
    module = sys.modules[name]
    _run(module)
    return getattr(module, attribute)


def _disable(fn: Any = None, *args: Any, **kwargs: Any) -> Any:
    """As `torch._dynamo.disable`, which matters from the moment that the compiler is there."""
    if not isinstance(fn, FunctionType):
        return _real(_COMPILER, "disable")(fn, *args, **kwargs)

    disabled: list[Callable[..., Any]] = []

    @functools.wraps(fn)
    def call(*values: Any, **named: Any) -> Any:
        if type(sys.modules.get(_COMPILER)) is _LazyModule:
            return fn(*values, **named)
        if not disabled:
            disabled.append(_real(_COMPILER, "disable")(fn, *args, **kwargs))
        return disabled[0](*values, **named)

    return call


class _Basic:
    """Stands for `sympy.Basic`, of which nothing is an instance as long as sympy is unread."""

    def __instancecheck__(self, value: object) -> bool:
        if type(sys.modules.get(_SYMBOLS)) is _LazyModule:
            return False
        return isinstance(value, _real(_SYMBOLS, "Basic"))

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        return (_real(_SYMBOLS, "Basic"),)

    def __getattr__(self, name: str) -> Any:
        return getattr(_real(_SYMBOLS, "Basic"), name)


# What functions for symbols say of plain truths, and of plain sizes; the same in all versions.
_OF_TRUTHS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("expect_true", "guard_or_false", "guard_or_true"), bool),
    **dict.fromkeys(("guard_size_oblivious", "statically_known_true"), bool),
    "sym_and": lambda *values: all(values),
    "sym_or": lambda *values: any(values),
}
_OF_SIZES: dict[str, Callable[..., Any]] = {
    "guarding_hint_or_throw": lambda size: size,
    "has_guarding_hint": lambda _: True,
    "is_nested_int": lambda _: False,
    # A shape equals a list of the same sizes.
    "sym_eq": lambda a, b: bool(list(a) == list(b) if isinstance(a, tuple | list) else a == b),
}


def _unless_symbolic(name: str, answer: Callable[..., Any], plain: type) -> Callable[..., Any]:
    """The answer where all values, and items of lists, are plain; else what torch says."""

    def answered(*values: Any) -> Any:
        items = [v if isinstance(v, tuple | list) and plain is int else [v] for v in values]
        is_plain = all(type(item) is plain for group in items for item in group)
        return (answer if is_plain else _real(_SHAPES, name))(*values)

    return answered


def leave_torch_unread() -> None:
    """Leave unread what torch's own code for meta tensors imports without need."""
    answers = {name: _unless_symbolic(name, of, bool) for name, of in _OF_TRUTHS.items()}
    answers |= {name: _unless_symbolic(name, of, int) for name, of in _OF_SIZES.items()}
    import_later(_SYMBOLS, {"Basic": _Basic()})
    import_later(_COMPILER, {"disable": _disable})
    import_later(_SHAPES, answers)
