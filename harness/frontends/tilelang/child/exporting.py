"""Tells all that a recorded kernel is made of, so that it can be written as one file.

That is the function that built it, with its arguments, and every helper and global that it names.
"""

# ruff: noqa: ANN401 - records hold values of TileLang

from __future__ import annotations

import ast
import inspect
import sys
from typing import Any

import torch

from harness.frontends.tilelang.child.stand_in import TIR
from harness.io.children.definitions import Definitions, ExportError

_BROUGHT = {"tilelang", "tvm", "torch", *sys.stdlib_module_names}


def export(record: Any, target: str) -> dict[str, Any]:
    """The export of a record.

    Raises:
        ExportError: something of it cannot be written down.
    """
    if record.built_by is None:
        message = "no call of a decorated function builds it, one that returns a kernel"
        raise ExportError(message)
    function, args, kwargs = record.built_by
    definitions = _Definitions()
    definitions.builder = function
    definitions.add(function)
    given = inspect.signature(function).bind(*args, **kwargs)
    given.apply_defaults()
    return {
        "signature": dict.fromkeys(given.arguments, "argument"),
        "constants": [
            {"path": [index], **definitions.spell(value)}
            for index, value in enumerate(given.arguments.values())
        ],
        "attributes": [],
        "options": {
            str(name): definitions.spell(value) for name, value in record.pass_configs.items()
        },
        "source_class": {"value": "lower"},
        "target": ["cuda", target],
        "definitions": definitions.all(),
    }


class _Definitions(Definitions):
    builder: Any = None

    def is_brought(self, module: str) -> bool:
        return module.partition(".")[0] in _BROUGHT

    def source(self, thing: Any) -> tuple[str, tuple[str, Any] | None]:
        code, decorator = super().source(thing)
        if thing is self.builder:
            # The file calls it as it is: what it builds is lowered, not compiled and launched.
            node = ast.parse(code).body[0]
            code = "".join(code.splitlines(keepends=True)[node.lineno - 1 :])
        return code, decorator

    def python(self, thing: Any) -> Any:
        return inspect.unwrap(getattr(thing, "orig_func", thing))

    def has_source(self, value: Any) -> bool:
        return super().has_source(getattr(value, "orig_func", value))

    def own_text(self, value: Any, names: dict[str, dict[str, Any]]) -> str | None:
        if isinstance(value, TIR.Var):
            names["T"] = {"module": "tilelang.language"}
            dtype = "" if str(value.dtype) == "int32" else f", {str(value.dtype)!r}"
            return f"T.dynamic({value.name!r}{dtype})"
        if isinstance(value, torch.dtype):
            names["torch"] = {"module": "torch"}
            return str(value)
        if isinstance(value, TIR.IntImm | TIR.FloatImm):
            return repr(value.value)
        # TileLang's own types are strings, and types of Python.
        return repr(str(value)) if type(value) is not str and isinstance(value, str) else None
