"""Tells all that one recorded launch is made of, so that it can be written as one file.

What Triton itself would compile is taken from it at the last moment: the source with signature,
constants and attributes, and the options. Then the kernel's code is followed to every helper and
global that it names.
"""

# ruff: noqa: ANN401 - values of torch, Triton and the user have types that we cannot name

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from json import dumps
from pathlib import Path as File
from typing import Any, NoReturn

import triton
import triton.compiler
import triton.language as tl
from triton.runtime.jit import JITFunction

from harness.io.children.definitions import Definitions, ExportError

Names = dict[str, dict[str, Any]]
Path = tuple[int, ...]


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


class _Definitions(Definitions):
    def is_brought(self, module: str) -> bool:
        return module.partition(".")[0] == "triton"

    def source(self, thing: Any) -> tuple[str, tuple[str, Any] | None]:
        if not isinstance(thing, JITFunction):
            return super().source(thing)
        options = "(noinline=True)" if thing.noinline else ""
        root = "gluon" if "gluon" in type(thing).__module__ else "triton"
        return str(thing.src), (f"{root}.jit{options}", _imported(root))

    def own_text(self, value: Any, names: Names) -> str | None:
        if isinstance(value, tl.constexpr):
            names["tl"] = {"module": "triton.language"}
            return f"tl.constexpr({self.expression(value.value, names)})"
        if isinstance(value, tl.dtype):
            names["tl"] = {"module": "triton.language"}
            return _dtype(value)
        if isinstance(value, JITFunction):
            names[value.fn.__name__] = self.bind(value)
            return str(value.fn.__name__)
        return None

    def python(self, thing: Any) -> Any:
        is_wrapped = isinstance(thing, JITFunction) or _is_constexpr_function(thing)
        return inspect.unwrap(thing.fn if is_wrapped else thing)

    def has_source(self, value: Any) -> bool:
        is_tritons = isinstance(value, JITFunction) or _is_constexpr_function(value)
        return is_tritons or super().has_source(value)


def _imported(name: str) -> Any:
    """The module that one of our decorators begins with."""
    if name == "triton":
        return triton
    from triton.experimental import gluon  # noqa: PLC0415 - not in every Triton

    return gluon


def _is_constexpr_function(value: Any) -> bool:
    return type(value).__name__ == "ConstexprFunction"


def _dtype(value: Any) -> str:
    for name, each in vars(tl).items():
        if isinstance(each, tl.dtype) and each == value:
            return f"tl.{name}"
    if isinstance(value, tl.pointer_type):
        return f"tl.pointer_type({_dtype(value.element_ty)})"
    message = f"the type {value} has no text"
    raise ExportError(message)
