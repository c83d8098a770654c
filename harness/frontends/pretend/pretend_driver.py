"""Triton's driver of a CUDA device that is not there: it knows the target and launches nothing."""

# ruff: noqa: ANN401 - values of torch, Triton and the user have types that we cannot name

from __future__ import annotations

import itertools
import types
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.testing
from triton._C import libtriton
from triton.backends.compiler import GPUTarget

from harness.frontends.pretend.gpu import (
    NOT_TIMED,
    DriverProperties,
    backing,
    executes,
    idle,
    pretend_cuda,
)
from harness.frontends.pretend.passed_over import Anything, pass_over


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


def bench_once(
    function: Callable[[], Any],
    *_: Any,
    quantiles: Any = None,
    return_mode: str = "mean",
    **__: Any,
) -> Any:
    """`do_bench` where nothing can be timed: calls once, so that every launch is seen."""
    pass_over("do_bench")
    function()
    if return_mode == "all":
        return [NOT_TIMED]
    return [NOT_TIMED] * len(quantiles) if quantiles is not None else NOT_TIMED


def run_benchmarks(mark: Any, *_: Any, **kwargs: Any) -> Any:
    """`run` of a `perf_report`: every launch of it is made, nothing is printed or plotted.

    Where they are executed, those of the first size are enough: the others are there to be timed.
    """
    pass_over("perf_report")
    options = {"show_plots", "print_data", "save_path", "return_df", "diff_col", "save_precision"}
    more = {name: value for name, value in kwargs.items() if name not in options}
    benchmarks = mark.benchmarks
    for bench in benchmarks if isinstance(benchmarks, list | tuple) else [benchmarks]:
        sizes = list(bench.x_vals)[: 1 if executes() else None]
        for x, line in itertools.product(sizes, bench.line_vals):
            values = x if isinstance(x, list | tuple) else [x] * len(bench.x_names)
            named = dict(zip(bench.x_names, values, strict=False))
            mark.fn(**named, **{bench.line_arg: line}, **bench.args, **more)
    # A table of pandas, where it is asked for.
    return Anything()


def pretend_triton(
    properties: dict[str, Any],
    *,
    values: str = "",
    is_capture: bool = False,
    on_empty: Callable[[torch.Tensor], None] | None = None,
) -> Any:
    """As `pretend_cuda`; Triton gets this driver, and a benchmark that runs what it times once."""
    mode = pretend_cuda(properties, values=values, is_capture=is_capture, on_empty=on_empty)
    triton.runtime.driver.set_active(PretendDriver(properties))
    triton.testing.do_bench = bench_once
    triton.testing.do_bench_cudagraph = bench_once
    triton.testing.Mark.run = run_benchmarks
    # What launch code compares with; not in every Triton.
    if hasattr(cublas := getattr(libtriton.nvidia, "cublas", None), "CublasLt"):
        cublas.CublasLt = Anything()  # type: ignore[union-attr]
    return mode
