"""Triton's driver of a CUDA device that is not there: it knows the target and launches nothing."""

# ruff: noqa: ANN401 - values of torch, Triton and the user have types that we cannot name

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.testing
from triton.backends.compiler import GPUTarget

from harness.frontends.pretend.gpu import DriverProperties, backing, idle, pretend_cuda


class PretendDriver:
    """Stands in for Triton's CUDA driver: knows the target, launches nothing."""

    def __init__(self, properties: dict[str, Any]) -> None:
        self._target = GPUTarget("cuda", properties["capability"], 32)
        self._properties = properties
        self.utils = types.SimpleNamespace(
            get_device_properties=lambda device: DriverProperties(properties),  # noqa: ARG005
            # Triton 3.2 and 3.3 fill the descriptors of tl's experimental TMA from the host.
            fill_1d_tma_descriptor=idle(),
            fill_2d_tma_descriptor=idle(),
        )

    @staticmethod
    def is_active() -> bool:
        return True

    def get_current_target(self) -> Any:
        return self._target

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        """Only one device exists."""

    def get_current_stream(self, device: int | None = None) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cuda", 0)

    def get_device_interface(self) -> Any:
        return torch.cuda

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        major, minor = divmod(self._properties["capability"], 10)
        return int(major), int(minor)

    def get_benchmarker(self) -> Any:
        return bench_once

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        return torch.empty(1, device=backing())

    def clear_cache(self, cache: Any) -> None:
        """There is nothing to clear."""

    def assemble_tensormap_to_arg(self, *args: Any) -> Any:
        return args


def bench_once(function: Callable[[], Any], *_: Any, quantiles: Any = None, **__: Any) -> Any:
    """`do_bench` where nothing can be timed: calls once, so that every launch is seen."""
    function()
    return [0.0] * len(quantiles) if quantiles is not None else 0.0


def pretend_triton(
    properties: dict[str, Any],
    *,
    with_values: bool = False,
    on_empty: Callable[[torch.Tensor], None] | None = None,
) -> Any:
    """As `pretend_cuda`; Triton gets this driver, and a benchmark that runs what it times once."""
    mode = pretend_cuda(properties, with_values=with_values, on_empty=on_empty)
    triton.runtime.driver.set_active(PretendDriver(properties))
    triton.testing.do_bench = bench_once
    triton.testing.do_bench_cudagraph = bench_once
    return mode
