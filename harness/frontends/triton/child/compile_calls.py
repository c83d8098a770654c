"""Launch code that launches nothing and asks Triton's compiler itself: `triton.compile(source)`.

That is how a reproducer is written that needs neither a GPU nor torch.
"""

# ruff: noqa: ANN401 - values of Triton have types that we cannot name

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from json import dumps
from typing import Any

import triton
import triton.compiler
from triton.runtime import driver

from harness.frontends.triton.child.describing import first_stage

_COMPILE = triton.compile
_OPTIONS = {"num_warps": None, "num_stages": None, "num_ctas": 1, "maxnreg": None}


@dataclass
class SourceRecord:
    """A kernel with signature, constants, attributes and options, ready to be compiled.

    The target that the code names is not kept: it is compiled for the one that was asked for.
    """

    source: Any
    options: dict[str, Any]
    key: str = ""

    def __post_init__(self) -> None:
        # Triton's own hash has the kernel, its helpers, the signature, constants and attributes.
        body = [_source_hash(self.source), sorted((n, repr(v)) for n, v in self.options.items())]
        self.key = hashlib.sha256(dumps(body).encode()).hexdigest()

    @property
    def kernel(self) -> str:
        """The name of the kernel's function."""
        return str(self.source.fn.fn.__name__)

    @property
    def first_stage(self) -> str:
        """Where its compilation begins."""
        return first_stage(self.source.fn)

    @property
    def config(self) -> dict[str, Any]:
        """Its meta-parameters, and the options that were given."""
        function = self.source.fn
        values = {
            function.arg_names[key[0]] if isinstance(key, tuple) else key: value
            for key, value in self.source.constants.items()
        }
        wanted = [parameter.name for parameter in function.params if parameter.is_constexpr]
        config = {name: getattr(values.get(name), "value", values.get(name)) for name in wanted}
        given = {n: self.options.get(n, default) for n, default in _OPTIONS.items()}
        config |= {n: value for n, value in given.items() if value != _OPTIONS[n]}
        return {n: v for n, v in config.items() if isinstance(v, bool | int | float | str)}

    def describe(self) -> dict[str, Any]:
        """As a capture tells of a launch; its grid is not known."""
        return {
            "key": self.key,
            "kernel": self.kernel,
            "config": self.config,
            "autotuned": False,
            "arguments": [
                {"name": name, "type": str(kind)} for name, kind in self.source.signature.items()
            ],
            "grid": None,
            "suspect": "",
            "file": self.source.fn.fn.__code__.co_filename,
        }

    def compile(self, run: Any) -> Any:
        """Compile it for the target of the capture."""
        target = driver.active.get_current_target()
        return _COMPILE(self.source, target=target, options=dict(self.options))


def _source_hash(source: Any) -> str:
    """Without a source that Triton can read, the text alone has to do: the failure comes later."""
    try:
        return str(source.hash())
    except Exception:  # noqa: BLE001 - the same error comes back when it is compiled
        parts = [source.fn.src, source.signature, source.constants, source.attrs]
        return hashlib.sha256(repr(parts).encode()).hexdigest()


class _Later:
    """What only a compilation would tell: it can be printed, not read."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"<{self._name}: not compiled yet>"


class _RecordedCompilation:
    """What `triton.compile` returns under capture."""

    def __init__(self, kernel: str) -> None:
        self._kernel = kernel
        self.metadata = _Later("metadata")
        self.asm = _Later("asm")

    def __getattr__(self, name: str) -> Any:
        message = f"the launch code reads .{name} of the compiled kernel {self._kernel}"
        raise AttributeError(message)


@contextlib.contextmanager
def compile_calls(hear: Callable[[SourceRecord], object]) -> Iterator[None]:
    """For the time of the `with` block, tell of calls of Triton's compiler in place of making them.

    A call with a file of IR is made as it is.
    """

    def compile_source(src: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(src, triton.compiler.ASTSource):
            return _COMPILE(src, *args, **kwargs)
        options = kwargs.get("options", args[1] if len(args) > 1 else None)
        record = SourceRecord(source=src, options=dict(options or {}))
        hear(record)
        return _RecordedCompilation(record.kernel)

    triton.compile = triton.compiler.compile = compile_source
    try:
        yield
    finally:
        triton.compile = triton.compiler.compile = _COMPILE
