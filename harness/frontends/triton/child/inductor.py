"""Files that Inductor wrote, under capture: each config of its heuristics is a compilation.

`output_code.py`, a kernel's file of its cache, and what a debug folder has of both: they define
kernels by `torch._inductor.runtime.triton_heuristics`, which compiles them for the GPU that the
machine has. Here it only asks for the compilation, of which a record is kept.
"""

# ruff: noqa: ANN401 - values of torch and Triton have types that we cannot name

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import torch

_HEURISTICS = "torch._inductor.runtime.triton_heuristics"


def stand_by() -> None:
    """Adapt Inductor's heuristics when launch code imports them."""
    # Else a pool of processes compiles, which knows nothing of the capture.
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    if not hasattr(torch._C, "_cuda_getCurrentRawStream"):  # noqa: SLF001 - its code imports it
        torch._C._cuda_getCurrentRawStream = lambda device: 0  # noqa: ARG005, SLF001
    sys.meta_path.insert(0, _Finder())


class _Finder:
    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        if name != _HEURISTICS:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.loader is not None
        run = spec.loader.exec_module

        def run_and_adapt(module: ModuleType) -> None:
            run(module)
            _adapt(module)

        spec.loader.exec_module = run_and_adapt  # type: ignore[method-assign]
        return spec


def _adapt(heuristics: ModuleType) -> None:
    tuner = heuristics.CachingAutotuner
    initialise = tuner.__init__

    def initialise_and_compile(self: Any, *args: Any, **kwargs: Any) -> None:
        initialise(self, *args, **kwargs)
        for config in self.configs:
            # It goes on to read what only a compiled kernel has.
            with contextlib.suppress(AttributeError):
                self._precompile_config(config)

    tuner.__init__ = initialise_and_compile
    tuner.precompile = tuner.run = lambda *_, **__: None
    heuristics.triton_helpers.set_driver_to_gpu = lambda: None
    # What such a file does as a program: it times the kernels, which are known by now.
    benchmark = importlib.import_module("torch._inductor.wrapper_benchmark")
    benchmark.compiled_module_main = lambda *_, **__: None  # type: ignore[attr-defined]
