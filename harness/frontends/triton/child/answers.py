"""What launch code reads off a compiled kernel, which is compiled for that, in a fork, once."""

# ruff: noqa: ANN401 - values of Triton have types that we cannot name

from __future__ import annotations

import contextlib
import operator
import os
import pickle
import re
import subprocess
import tempfile
import time
import types
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import triton
import triton.compiler
from triton.backends import backends

from harness.frontends.pretend import gpu
from harness.frontends.pretend.passed_over import NeedsValuesError
from harness.io.children.supervisor import forked, wait_until

COMPILE = triton.compile
"""As it is while nothing is recorded."""
BACKEND: Any = backends["nvidia"].compiler
"""The class that compiles. Until 3.3 Triton loads its module by path, under another name."""
NAMESPACE: dict[str, Any] = BACKEND.add_stages.__globals__
"""The globals that its methods see."""
_MOST_SECONDS = 120
# What is known of records, by their keys.
_COMPILED: dict[str, dict[str, Any]] = {}
_REGISTERS = re.compile(r"Used (\d+) registers")
_STACK = re.compile(r"(\d+) bytes stack frame")


def assemble_by(assemble: Callable[[list[str], Callable[..., Any]], Any]) -> None:
    """Have the backend assemble by this function, for good.

    It gets the command line, and what would start it as the backend does.
    """

    def run(command: list[str], *args: Any, **kwargs: Any) -> Any:
        start = partial(subprocess.run, command, *args, **kwargs)
        return assemble(command, start) if "-o" in command else start()

    NAMESPACE["subprocess"] = types.SimpleNamespace(**{**vars(subprocess), "run": run})


class NotCompiledError(AttributeError):
    """Nothing is compiled for launch code of this kind."""


class RecordedKernel:
    """What a launch, or a compilation, returns under capture; `record` is what was recorded."""

    compiles = True

    def __init__(self, record: Any) -> None:
        self._record = record
        self.metadata, self.asm = _Later(self, "metadata"), _Later(self, "asm")

    def __getitem__(self, grid: Any) -> Any:
        # A kernel from `warmup()` is launched like this: the launch is recorded, but for its grid.
        with contextlib.suppress(TypeError):
            self._record.grid = [operator.index(size) for size in grid]
        return self.run

    def _init_handles(self) -> None:
        """Triton loads the cubin here."""

    def run(self, *args: Any, **kwargs: Any) -> None:
        """The launch is recorded already; nothing executes it."""
        gpu.compute(whether=False)
        gpu.wrote([args, kwargs])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        facts = self.compiled()
        if name not in facts:
            message = f"the launch code reads .{name} of the compiled kernel {self._record.kernel}"
            raise NeedsValuesError(message)
        return facts[name]

    def compiled(self) -> dict[str, Any]:
        """What a compilation tells.

        Raises:
            NeedsValuesError: it tells nothing, for it fails.
            NotCompiledError: nothing is, for this launch code.
        """
        if not self.compiles:
            raise NotCompiledError(self._record.kernel)
        key = self._record.key
        if key not in _COMPILED:
            folder = tempfile.mkdtemp()
            path = Path(folder) / "facts"

            def compile_there() -> None:
                os.environ |= {"TMPDIR": folder, "TRITON_CACHE_DIR": folder}
                tempfile.tempdir = folder
                partial_file = path.with_suffix(".partial")
                partial_file.write_bytes(pickle.dumps(_compile(self._record)))
                partial_file.rename(path)

            wait_until(forked(compile_there), time.monotonic() + _MOST_SECONDS)
            # Of our own fork.
            _COMPILED[key] = pickle.loads(path.read_bytes()) if path.exists() else {}  # noqa: S301
        if not _COMPILED[key]:
            kernel = self._record.kernel
            message = f"the launch code reads what {kernel} compiles to, and it does not compile"
            raise NeedsValuesError(message)
        return _COMPILED[key]


def _compile(record: Any) -> dict[str, Any]:
    triton.compile = triton.compiler.compile = COMPILE
    logs: list[str] = []

    def assemble(_: list[str], start: Any) -> None:
        start()
        logs.append(Path(start.keywords["stderr"].name).read_text())

    assemble_by(assemble)
    kernel = record.compile()
    metadata = kernel.metadata
    facts = dict(metadata._asdict() if hasattr(metadata, "_asdict") else vars(metadata))
    facts = {n: v for n, v in facts.items() if isinstance(v, bool | int | float | str | tuple)}
    registers = [int(count) for count in _REGISTERS.findall(logs[-1] if logs else "")]
    if registers:
        facts["n_regs"] = max(registers)
        # Of the driver: words of local memory.
        facts["n_spills"] = max(map(int, _STACK.findall(logs[-1])), default=0) // 4
        facts["n_max_threads"] = 32 * facts["num_warps"]
    return {**facts, "metadata": types.SimpleNamespace(**facts), "asm": dict(kernel.asm)}


class _Later:
    """A part of a compiled kernel: it can be printed without a compilation, not read."""

    def __init__(self, kernel: RecordedKernel, name: str) -> None:
        self._kernel, self._name = kernel, name

    def __repr__(self) -> str:
        return f"<{self._name}: not compiled yet>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._kernel.compiled()[self._name], name)

    def __getitem__(self, key: Any) -> Any:
        return self._kernel.compiled()[self._name][key]

    def __iter__(self) -> Any:
        return iter(self._kernel.compiled()[self._name])
