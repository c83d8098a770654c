"""Inductor and Helion, which generate Triton, under capture: each of their configs is recorded.

Files that Inductor wrote (`output_code.py`, a kernel's file of its cache) define kernels by
`torch._inductor.runtime.triton_heuristics`, which compiles them for the GPU that the machine has;
here it only asks for the compilation. A kernel of Helion generates a Triton kernel for each config;
here it launches each once, on the tensors that it is called with.
"""

# ruff: noqa: ANN401 - values of torch, Triton and Helion have types that we cannot name

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from harness.frontends.pretend import gpu
from harness.frontends.pretend.passed_over import ADAPTED
from harness.frontends.pretend.small import plain_torch
from harness.frontends.triton.child.answers import NotCompiledError, RecordedKernel

TunedTo = Callable[[dict[str, Any], object], contextlib.AbstractContextManager[None]]
"""What is launched in the context is of this config, in this call of a tuner."""


def stand_by(tuned_to: TunedTo) -> None:
    """Adapt the generators when launch code imports them; each config is launched in `tuned_to`."""
    # Else a pool of processes compiles, which knows nothing of the capture.
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    # Generated code imports it from a torch that was built with CUDA.
    if not hasattr(torch._C, "_cuda_getCurrentRawStream"):  # noqa: SLF001
        torch._C._cuda_getCurrentRawStream = lambda device: 0  # noqa: ARG005, SLF001
    ADAPTED["torch._inductor.runtime.triton_heuristics"] = _adapt_inductor
    ADAPTED["helion.runtime.kernel"] = lambda module: _adapt_helion(module, tuned_to)


def _adapt_inductor(heuristics: ModuleType) -> None:
    RecordedKernel.compiles = False
    tuner = heuristics.CachingAutotuner
    initialise = tuner.__init__

    def initialise_and_compile(self: Any, *args: Any, **kwargs: Any) -> None:
        initialise(self, *args, **kwargs)
        for config in self.configs:
            try:
                # It goes on to read what only a compiled kernel has, which is of no use here.
                with contextlib.suppress(NotCompiledError):
                    self._precompile_config(config)
            except AttributeError as error:
                message = f"Inductor does not come to compile {self.fn.__name__} with {config}"
                raise RuntimeError(f"{message}: {error}") from error

    tuner.__init__ = initialise_and_compile
    tuner.precompile = lambda *_, **__: None
    tuner.run = lambda _, *args, **kwargs: gpu.wrote([args, kwargs])
    heuristics.triton_helpers.set_driver_to_gpu = lambda: None
    # What such a file does as a program: it times the kernels, which are known by now.
    benchmark = importlib.import_module("torch._inductor.wrapper_benchmark")
    benchmark.compiled_module_main = lambda *_, **__: None  # type: ignore[attr-defined]


def _adapt_helion(kernels: ModuleType, tuned_to: TunedTo) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: PLC0415 - slow, and rare

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        values = self.normalize_args(*args, **kwargs)
        # Helion asks torch for more than the pretended tensors know, and fake ones know it.
        with plain_torch(), FakeTensorMode():
            bound = self.bind(tuple(map(_fake, values)))
        result, of_call = None, object()
        for config in self.configs or [bound.config_spec.default_config()]:
            with tuned_to(_flat(config.config), of_call):
                result = bound.compile_config(config)(*values)
        return result

    kernels.Kernel.__call__ = call


def _fake(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="cuda")


def _flat(config: dict[str, Any]) -> dict[str, Any]:
    """A config of Helion as one of Triton's: `block_sizes=[64, 32]` are two values."""
    flat: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, list):
            flat |= {f"{name}_{index}": element for index, element in enumerate(value)}
        else:
            flat[name] = value
    # What is off, and lists that are empty, only make the name long.
    return {n: v for n, v in flat.items() if v and isinstance(v, bool | int | float | str)}
