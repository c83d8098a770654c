"""Tells all that one recorded launch is made of, so that it can be written as one file.

What Triton itself would compile is taken from it at the last moment: the source with signature,
constants and attributes, and the options. Then the kernel's code is followed to every helper and
global that it names.
"""

# ruff: noqa: ANN401 - values of torch, Triton and the user have types that we cannot name

from __future__ import annotations

import ast
import enum
import inspect
import math
import sys
import textwrap
from json import dumps
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

import triton
import triton.compiler
import triton.language as tl
from triton.runtime.jit import JITFunction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path as File

__all__ = ["ExportError", "export", "export_to"]

Names = dict[str, dict[str, Any]]
Path = tuple[int, ...]


class ExportError(Exception):
    """Something of the launch has no text."""


class _CaughtError(BaseException):
    """Carries what Triton was about to compile past everything that catches exceptions."""

    def __init__(self, source: Any, target: Any, options: dict[str, Any]) -> None:
        super().__init__()
        self.compilation = source, target, options


def export_to(record: Any, run: Callable[..., Any], folder: File) -> None:
    """Leave in `folder` a `result.json`: the export, or in words why there is none."""
    try:
        result: dict[str, Any] = {"export": export(record, run), "error": None}
    except ExportError as error:
        result = {"export": None, "error": str(error)}
    except Exception as error:  # noqa: BLE001 - Triton refuses the launch before it compiles
        result = {"export": None, "error": f"{type(error).__name__}: {error}"[:2000]}
    partial = folder / "result.json.tmp"
    partial.write_text(dumps(result))
    partial.rename(folder / "result.json")


def export(record: Any, run: Callable[..., Any]) -> dict[str, Any]:
    """The launch in words: `definitions` (the first is the kernel), and how they are compiled.

    A definition's `names` say what its free names, and dotted ones that lead out of a module, are
    bound to: a Triton `module` (with an `attribute`), another `definition`, or a `value` in words.

    Raises:
        ExportError: something of it has no text.
    """
    source, target, options = _about_to_compile(record, run)
    definitions = _Definitions()
    kernel = definitions.add(source.fn)
    assert kernel == 0
    backend = triton.compiler.make_backend(target)
    defaults = vars(backend.parse_options({}))
    constants = dict(_constants(source))
    return {
        "signature": _signature(source, constants),
        "constants": [
            {"path": list(path), **definitions.spell(value)} for path, value in constants.items()
        ],
        # Triton 3.2 has attributes of constants too, which later ones refuse.
        "attributes": [
            {"path": list(path), "words": [list(word) for word in words]}
            for path, words in _attributes(source.attrs).items()
            if path not in constants
        ],
        "options": {
            name: definitions.spell(value)
            for name, value in options.items()
            if name in defaults and defaults[name] != value
        },
        "source_class": definitions.bind(type(source)),
        "target": [target.backend, target.arch, target.warp_size],
        "definitions": definitions.all(),
    }


def _about_to_compile(record: Any, run: Callable[..., Any]) -> tuple[Any, Any, dict[str, Any]]:
    def caught(source: Any, target: Any = None, options: Any = None, **_: Any) -> NoReturn:
        raise _CaughtError(source, target, dict(options or {}))

    # This process is a fork that ends with the export: nothing is put back.
    triton.compile = triton.compiler.compile = caught
    for each in (record.function, type(record.function)):
        if "compile" in vars(each):
            each.compile = caught
    try:
        record.compile(run)
    except _CaughtError as error:
        return error.compilation
    message = "Triton compiles nothing for this launch"
    raise ExportError(message)


def _signature(source: Any, constants: dict[Path, Any]) -> dict[str, Any]:
    """Argument to type; a tuple has a list of types. Until Triton 3.2, constants have none."""

    def plain(kind: Any) -> Any:
        return [plain(item) for item in kind] if isinstance(kind, list | tuple) else str(kind)

    if isinstance(source.attrs, dict):
        return {name: plain(kind) for name, kind in source.signature.items()}
    return {
        name: "constexpr" if (index,) in constants else plain(source.signature[name])
        for index, name in enumerate(source.fn.arg_names)
    }


def _constants(source: Any) -> Iterator[tuple[Path, Any]]:
    """Values of arguments by their path: the position, and within a tuple the item's."""
    for key, value in (source.constants or {}).items():
        yield (source.fn.arg_names.index(key),) if isinstance(key, str) else tuple(key), value
    if not isinstance(source.attrs, dict):
        # Triton 3.2 keeps an argument that is 1 among the attributes, later ones do not.
        yield from (((index,), value) for index, value in source.attrs.get_constants().items())


def _attributes(attrs: Any) -> dict[Path, Any]:
    """What Triton knows of arguments, by path; an object until Triton 3.2."""
    if isinstance(attrs, dict):
        return attrs
    words_of = attrs.filter_out_constants().get_fn_attrs()
    return {(index,): words for index, words in words_of.items()}


class _Definitions:
    """Everything that the kernel reaches and that Triton does not bring, each once."""

    def __init__(self) -> None:
        self._found: list[dict[str, Any]] = []
        # By identity: a factory makes many functions of one name. Kept alive, or ids come again.
        self._indices: dict[int, tuple[int, Any]] = {}

    def all(self) -> list[dict[str, Any]]:
        """In the order in which they were reached."""
        return self._found

    def add(self, thing: Any) -> int:
        """The index of a function or class."""
        known = self._indices.get(id(thing))
        if known:
            return known[0]
        index = len(self._found)
        self._indices[id(thing)] = index, thing
        code, decorator = _source(thing)
        definition: dict[str, Any] = {"source": code, "names": {}, "decorator": None}
        self._found.append(definition)
        scope = _scope(thing)
        if decorator:
            text, root = decorator
            definition["decorator"] = text
            definition["names"][root] = self.bind(_imported(text.split(".")[0]))
        for parts in _free_names(code):
            bound = self._resolve(parts, scope)
            if bound:
                path, binding = bound
                definition["names"][path] = binding
        return index

    def _resolve(
        self, parts: list[str], scope: dict[str, Any]
    ) -> tuple[str, dict[str, Any]] | None:
        """As much of a dotted name as leads out of modules and classes, and what it is."""
        if parts[0] not in scope:
            return None
        value, used = scope[parts[0]], 1
        while used < len(parts) and _leads_on(value):
            if not hasattr(value, parts[used]):
                return None
            value, used = getattr(value, parts[used]), used + 1
        try:
            return ".".join(parts[:used]), self.bind(value)
        except ExportError:
            # Perhaps nothing but a branch that is not taken names it.
            return None

    def bind(self, value: Any) -> dict[str, Any]:
        """What a name stands for.

        Raises:
            ExportError: it has no text.
        """
        if isinstance(value, ModuleType):
            if not _is_tritons(value.__name__):
                message = f"module {value.__name__} is not Triton's"
                raise ExportError(message)
            return {"module": value.__name__}
        place = _place_in_triton(value)
        if place:
            return {"module": place[0], "attribute": place[1]}
        if _has_source(value):
            return {"definition": self.add(value)}
        return self.spell(value)

    def spell(self, value: Any) -> dict[str, Any]:
        """A value as an expression, and what the names in it are bound to.

        Raises:
            ExportError: it has no text.
        """
        names: Names = {}
        return {"value": self._expression(value, names), "names": names}

    def _expression(self, value: Any, names: Names) -> str:
        if isinstance(value, tl.constexpr):
            names["tl"] = {"module": "triton.language"}
            return f"tl.constexpr({self._expression(value.value, names)})"
        if isinstance(value, tl.dtype):
            names["tl"] = {"module": "triton.language"}
            return _dtype(value)
        if isinstance(value, enum.Enum) and isinstance(value, int):
            return repr(int(value))
        if value is None or type(value) in (bool, int, str):
            return repr(value)
        if type(value) is float:
            return repr(value) if math.isfinite(value) else f'float("{value}")'
        if type(value) in (tuple, list):
            items = [self._expression(item, names) for item in value]
            comma = "," if type(value) is tuple and len(items) == 1 else ""
            left, right = "()" if type(value) is tuple else "[]"
            return f"{left}{', '.join(items)}{comma}{right}"
        if type(value) is dict:
            pairs = value.items()
            text = (f"{self._expression(k, names)}: {self._expression(v, names)}" for k, v in pairs)
            return f"{{{', '.join(text)}}}"
        if isinstance(value, JITFunction):
            names[value.fn.__name__] = self.bind(value)
            return str(value.fn.__name__)
        message = f"a value of type {type(value).__module__}.{type(value).__qualname__} has no text"
        raise ExportError(message)


def _is_tritons(module: str) -> bool:
    return module.partition(".")[0] == "triton"


def _leads_on(value: Any) -> bool:
    """Whether what comes after the dot is looked up in it here, not by Triton."""
    if isinstance(value, ModuleType):
        return not _is_tritons(value.__name__)
    return isinstance(value, type) and issubclass(value, enum.Enum)


def _place_in_triton(value: Any) -> tuple[str, str] | None:
    """Module and name under which Triton itself has this very thing."""
    inner = getattr(value, "fn", value)
    module, name = getattr(inner, "__module__", None), getattr(inner, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or not _is_tritons(module):
        return None
    found = getattr(sys.modules.get(module), name, None)
    return (module, name) if found is value else None


def _imported(name: str) -> Any:
    """The module that a decorator of ours begins with."""
    if name == "triton":
        return triton
    from triton.experimental import gluon  # noqa: PLC0415 - not in every Triton

    return gluon


def _has_source(value: Any) -> bool:
    return isinstance(value, JITFunction | FunctionType | type) or _is_constexpr_function(value)


def _is_constexpr_function(value: Any) -> bool:
    return type(value).__name__ == "ConstexprFunction"


def _source(thing: Any) -> tuple[str, tuple[str, str] | None]:
    """The text of a definition, and for Triton's own kinds of function the decorator to give it.

    Raises:
        ExportError: Python does not have its text.
    """
    if isinstance(thing, JITFunction):
        options = "(noinline=True)" if thing.noinline else ""
        root = "gluon" if "gluon" in type(thing).__module__ else "triton"
        return str(thing.src), (f"{root}.jit{options}", root)
    try:
        return textwrap.dedent(inspect.getsource(_python(thing))), None
    except (OSError, TypeError) as error:
        message = f"the source of {getattr(thing, '__qualname__', thing)} cannot be read"
        raise ExportError(message) from error


def _python(thing: Any) -> Any:
    """The function or class as Python knows it, below what decorators made of it."""
    return inspect.unwrap(thing.fn if _is_constexpr_function(thing) else thing)


def _scope(thing: Any) -> dict[str, Any]:
    """What the free names of a definition mean: globals, and what a factory closed over."""
    function = thing.fn if isinstance(thing, JITFunction) else _python(thing)
    if isinstance(function, type):
        return vars(sys.modules[function.__module__])
    return {**function.__globals__, **inspect.getclosurevars(function).nonlocals}


def _free_names(code: str) -> list[list[str]]:
    """Names that are read and not local, as dotted paths, each once."""
    tree = ast.parse(code)
    local = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    local |= {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
    }
    # A definition may name itself, in its annotations say.
    local |= {getattr(node, "name", "") for node in tree.body}
    found: dict[str, list[str]] = {}
    for node in ast.walk(tree):
        parts = _dotted(node)
        if parts and parts[0] not in local:
            found.setdefault(".".join(parts), parts)
    return list(found.values())


def _dotted(node: ast.AST) -> list[str] | None:
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute) and (parts := _dotted(node.value)):
        return [*parts, node.attr]
    return None


def _dtype(value: Any) -> str:
    for name, each in vars(tl).items():
        if isinstance(each, tl.dtype) and each == value:
            return f"tl.{name}"
    if isinstance(value, tl.pointer_type):
        return f"tl.pointer_type({_dtype(value.element_ty)})"
    message = f"the type {value} has no text"
    raise ExportError(message)
