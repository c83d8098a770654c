"""Tells all that a recorded launch is made of, so that it can be written as one file.

That is its kernel, with every helper and global that this names, and what cuTile made of the
arguments.
"""

# ruff: noqa: ANN401 - records hold values of cuTile

from __future__ import annotations

import ast
import dataclasses
import enum
import inspect
import sys
import typing
from typing import Any

import cuda.tile
import torch
from cuda.tile.compilation import ConstantConstraint

from harness.io.children.definitions import Definitions, ExportError

_BROUGHT = "cuda.tile"
# Of constraints: what is given by place, in this order.
_BY_PLACE = ("dtype", "ndim", "element", "items")


def export(record: Any, gpu: str) -> dict[str, Any]:
    """The export of a record, and what its file needs to know besides.

    Raises:
        ExportError: something of it cannot be written down.
    """
    definitions = _Definitions(record.function.pyfunc)
    definitions.add(record.function.pyfunc)
    names = list(inspect.signature(record.function.pyfunc).parameters)
    given = dict(zip(names, record.signature.parameters, strict=True))
    constants = {n: each.value for n, each in given.items() if isinstance(each, ConstantConstraint)}
    spelled = {n: definitions.constraint(given[n]) for n in names if n not in constants}
    made = definitions.export(
        given,
        constants,
        options=_options(record.options, gpu),
        source_class={
            "module": "cuda.tile.compilation",
            "attribute": record.signature.calling_convention.name,
        },
        target=[gpu],
    )
    return {
        "export": made,
        "parameters": {name: call for name, (call, _) in spelled.items()},
        "keywords": {name: words for name, (_, words) in spelled.items()},
    }


def _options(options: Any, gpu: str) -> dict[str, Any]:
    """The options of a kernel that are not cuTile's own, as they are for this target."""
    found = {}
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        by_target = getattr(value, "_by_target", None)
        if by_target is not None:
            value = by_target.get(gpu, value._default)  # noqa: SLF001 - there is no public name
        # An object stands for no value at all.
        if isinstance(value, int) and value != field.default:
            found[field.name] = value
    return found


class _Definitions(Definitions):
    def __init__(self, kernel: Any) -> None:
        super().__init__()
        self._kernel = kernel

    def is_brought(self, module: str) -> bool:
        is_tile = module == _BROUGHT or module.startswith(f"{_BROUGHT}.")
        return is_tile or module.partition(".")[0] in sys.stdlib_module_names

    def source(self, thing: Any) -> tuple[str, tuple[str, Any] | None]:
        code, decorator = super().source(thing)
        if thing is not self._kernel:
            return code, decorator
        # Its options are those of the launch.
        node = ast.parse(code).body[0]
        return "".join(code.splitlines(keepends=True)[node.lineno - 1 :]), ("ct.kernel", cuda.tile)

    def _place(self, value: Any) -> tuple[str, str] | None:
        found = super()._place(value)
        is_public = found and getattr(cuda.tile, found[1], None) is value
        return (_BROUGHT, found[1]) if found and is_public else found

    def own_text(self, value: Any, names: dict[str, dict[str, Any]]) -> str | None:
        text = _own_text(value)
        if text is not None:
            names["ct"] = {"module": _BROUGHT}
        return text

    def constraint(self, value: Any) -> tuple[str, dict[str, str]]:
        """What cuTile assumes of an argument: a call, and by name what it does not by itself."""
        if not dataclasses.is_dataclass(value):
            message = f"what cuTile makes of an argument of type {type(value)} has no text"
            raise ExportError(message)
        fields = [each.name for each in dataclasses.fields(value)]
        places = [getattr(value, name) for name in fields if name in _BY_PLACE]
        words = {name: getattr(value, name) for name in fields if name not in _BY_PLACE}
        for name, each in tuple(words.items()):
            fewer = {key: one for key, one in words.items() if key != name}
            if _is_made(value, places, fewer):
                words = fewer
            elif isinstance(each, tuple) and each:
                plain = {**words, name: each[0]}
                words = plain if _is_made(value, places, plain) else words
        call = f"compilation.{type(value).__name__}({', '.join(map(self._assumed, places))})"
        return call, {name: self._assumed(each) for name, each in words.items()}

    def _assumed(self, value: Any) -> str:
        """A value within a constraint."""
        if isinstance(value, ConstantConstraint):
            return self.expression(value.value, {})
        if isinstance(value, tuple) and any(map(dataclasses.is_dataclass, value)):
            return f"({', '.join(map(self._assumed, value))},)"
        if dataclasses.is_dataclass(value):
            call, words = self.constraint(value)
            return f"{call[:-1]}{''.join(f', {name}={text}' for name, text in words.items())})"
        return self.expression(value, {})


def _is_made(value: Any, places: list[Any], words: dict[str, Any]) -> bool:
    """Whether these words make the same of it."""
    try:
        return bool(type(value)(*places, **words) == value)
    except (TypeError, ValueError):
        return False


def _own_text(value: Any) -> str | None:
    """A value of cuTile's as users write it: a type, an option, an annotation."""
    if isinstance(value, torch.dtype):
        value = getattr(cuda.tile, str(value).rpartition(".")[2], None)
    if isinstance(value, enum.Enum) and getattr(cuda.tile, type(value).__name__, None):
        return f"ct.{type(value).__name__}.{value.name}"
    public = {name: each for name, each in vars(cuda.tile).items() if not name.startswith("_")}
    if isinstance(value, cuda.tile.DType):
        return next((f"ct.{name}" for name, each in public.items() if each is value), None)
    if typing.get_origin(value) is not typing.Annotated:
        return None
    for name, each in public.items():
        if typing.get_origin(each) is not typing.Annotated:
            continue
        if each == value:
            return f"ct.{name}"
        kind = typing.get_args(value)[0]
        if isinstance(kind, type) and each.__parameters__ and each[kind] == value:
            return f"ct.{name}[{kind.__name__}]"
    return None
