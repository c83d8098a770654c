"""Tells all that a recorded launch is made of, so that it can be written as one file.

That is the function that launches it, with every kernel, helper and global that this names, and
what stands for its arguments: tensors without data, of the same type to the compiler.
"""

# ruff: noqa: ANN401 - records hold values of CuTe DSL

from __future__ import annotations

import ast
import contextlib
import enum
import inspect
import re
import sys
import textwrap
from typing import Any

import cutlass
import cutlass.cute
from cutlass._mlir import ir
from cutlass.cute import runtime
from cutlass.cutlass_dsl import JitArgAdapterRegistry

from harness.io.children.definitions import Definitions, ExportError

_BROUGHT = {"cuda", "cutlass", *sys.stdlib_module_names}
_OBJECT = "launcher"
_TENSOR = re.compile(
    r'!cute\.memref<\w+, (?P<space>\w+), (?:align<(?P<align>\d+)>, )?"\((?P<shape>[^()]*)\):'
    r'\((?P<stride>[^()]*)\)"'
)
_DYNAMIC = re.compile(r"\?(?:\{(?:i(\d+))? ?(?:div=(\d+))?\})?")


def export(record: Any, target: str) -> dict[str, Any]:
    """The export of a record, and what its file needs to know besides.

    Raises:
        ExportError: something of it cannot be written down.
    """
    launched = record.launched
    if launched is None:
        message = "no function that launches it was seen"
        raise ExportError(message)
    given = _bound(launched)
    definitions = _Definitions(launched.states)
    if _is_method(launched):
        given = {_OBJECT: next(iter(given.values())), **dict(list(given.items())[1:])}
        definitions.add_caller(launched.function)
    else:
        definitions.add(launched.function)
    calls = {name: text for name, value in given.items() if (text := _stand_in(value))}
    made = definitions.export(
        given,
        {name: value for name, value in given.items() if name not in calls},
        options={"options": launched.options} if launched.options else {},
        source_class={"value": "compile"},
        target=[target],
    )
    return {"export": made, "arguments": calls}


def _is_method(launched: Any) -> bool:
    """Whether the function is one of a class, and its first argument of that class."""
    owner = type(launched.arguments[0]) if launched.arguments else None
    return inspect.unwrap(getattr(owner, launched.function.__name__, print)) is launched.function


def made(kind: Any, **attributes: Any) -> Any:
    """An object of a class with these attributes, whatever its `__init__` does."""
    thing = object.__new__(kind)
    vars(thing).update(attributes)
    return thing


def _bound(launched: Any) -> dict[str, Any]:
    """The arguments of the function by name, those that have a default too.

    Raises:
        ExportError: not all of them can be given by their place.
    """
    signature = inspect.signature(launched.function)
    kinds = {each.kind for each in signature.parameters.values()}
    if not kinds <= {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}:
        message = "the function that launches it takes arguments that have no place of their own"
        raise ExportError(message)
    words = {
        name: value for name, value in launched.keywords.items() if name in signature.parameters
    }
    bound = signature.bind(*launched.arguments, **words)
    bound.apply_defaults()
    return dict(bound.arguments)


def _stand_in(value: Any) -> str | None:
    """A call that makes what is the same to the compiler and has no data; None for a constant.

    Raises:
        ExportError: there is no such call.
    """
    if type(value).__name__ in ("CUstream", "_FakeStream"):
        return "runtime.make_fake_stream()"
    if isinstance(value, cutlass.Numeric):
        return f"cutlass.{type(value).__name__}({value.value!r})"
    adapter = JitArgAdapterRegistry.get_registered_adapter(type(value))
    if adapter and type(value) not in (bool, int, float, list, tuple):
        value = adapter(value)
    if not hasattr(type(value), "mlir_type"):
        return None
    with ir.Context(), ir.Location.unknown():
        text = str(value.mlir_type)
        made = _tensor(value, text) or _pointer(value)
        roots = {"cutlass": cutlass, "cute": cutlass.cute, "runtime": runtime}
        same = made and eval(made, roots)  # noqa: S307 - its text is ours
        if not same or str(same.mlir_type) != text:
            message = f"nothing without data is of the type {text}"
            raise ExportError(message)
    return made


def _tensor(value: Any, text: str) -> str | None:
    found = _TENSOR.match(text)
    if found is None:
        return None
    words = [f"cutlass.{value.element_type.__name__}"]
    for name in ("shape", "stride"):
        items = [_extent(item) for item in found[name].split(",")]
        words.append(f"({', '.join(items)}{',' if len(items) == 1 else ''})")
    if found["space"] != "gmem":
        words.append(f"memspace=cute.AddressSpace.{found['space']}")
    if found["align"]:
        words.append(f"assumed_align={found['align']}")
    return f"runtime.make_fake_tensor({', '.join(words)})"


def _extent(item: str) -> str:
    """A size or a stride: a number, or one that is known when the kernel is launched."""
    found = _DYNAMIC.fullmatch(item.strip())
    if found is None:
        return item.strip()
    by = f"divisibility={found[2]}" if found[2] else ""
    return f"cute.sym_int{found[1] or 32}({by})"


def _pointer(value: Any) -> str | None:
    kind, align = getattr(value, "dtype", None), getattr(value, "_assumed_align", None)
    if kind is None:
        return None
    space = f"cute.AddressSpace.{value.memspace.name}"
    words = [f"cutlass.{kind.__name__}", "16", space, f"assumed_align={align}"]
    return f"runtime.make_ptr({', '.join(words)})"


class _Definitions(Definitions):
    """`states` are the attributes of objects, by id, before the kernel was traced."""

    def __init__(self, states: dict[int, dict[str, Any]]) -> None:
        super().__init__()
        self._states = states

    def add_caller(self, method: Any) -> None:
        """A function that calls a method: of the file, it is what is compiled."""
        code, _ = self.source(method)
        function = ast.parse(code).body[0]
        assert isinstance(function, ast.FunctionDef)
        _, *others = function.args.args
        given = ", ".join(each.arg for each in others)
        called = _OBJECT if method.__name__ == "__call__" else f"{_OBJECT}.{method.__name__}"
        words = ", ".join([f"{_OBJECT}: cutlass.Constexpr", *map(ast.unparse, others)])
        text = f"@cute.jit\ndef launched({words}):\n    {called}({given})\n"
        roots = {"cute": cutlass.cute, "cutlass": cutlass}
        self.add_text(text, {**self._scope(method), **roots})

    def is_brought(self, module: str) -> bool:
        return module.partition(".")[0] in _BROUGHT

    def source(self, thing: Any) -> tuple[str, tuple[str, Any] | None]:
        code, decorator = super().source(thing)
        function = self.python(thing)
        if isinstance(function, type) or code.lstrip().startswith("@"):
            return code, decorator
        # What was traced is CuTe DSL's copy, which begins below its decorators.
        lines, _ = inspect.findsource(function)
        above = function.__code__.co_firstlineno
        for node in ast.walk(ast.parse("".join(lines))):
            if isinstance(node, ast.FunctionDef) and node.lineno == above and node.decorator_list:
                first = min(each.lineno for each in node.decorator_list)
                code = textwrap.dedent("".join(lines[first - 1 : node.end_lineno]))
        return code, decorator

    def own_text(self, value: Any, names: dict[str, dict[str, Any]]) -> str | None:
        kind = type(value)
        if (
            self.has_source(kind)
            and not self.is_brought(kind.__module__)
            and hasattr(value, "__dict__")
        ):
            return self._object(value, names)
        name = getattr(value, "__name__", "")
        if isinstance(value, type) and getattr(cutlass, name, None) is value:
            names["cutlass"] = {"module": "cutlass"}
            return f"cutlass.{name}"
        place = self._place(type(value)) if isinstance(value, enum.Enum) else None
        if place is None:
            return None
        names[place[1]] = {"module": place[0], "attribute": place[1]}
        return f"{place[1]}.{value.name}"

    def _object(self, value: Any, names: dict[str, dict[str, Any]]) -> str:
        """An object of a user's class by what it holds; what has no text is left out."""
        kind = type(value)
        names |= {
            made.__name__: {"definition": self.add(made)},
            kind.__name__: {"definition": self.add(kind)},
        }
        words = [kind.__name__]
        for name, each in self._states.get(id(value), vars(value)).items():
            with contextlib.suppress(ExportError):
                words.append(f"{name}={self.expression(each, names)}")
        return f"{made.__name__}({', '.join(words)})"
