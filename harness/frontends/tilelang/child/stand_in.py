"""What launch code gets in place of a compiled kernel: it can be called, and gives its outputs."""

# ruff: noqa: ANN401 - values of TileLang, torch and the user have types that we cannot name

from __future__ import annotations

from typing import Any

import torch
import tvm

_DTYPES = {
    "bool": "bool",
    "float8_e4m3": "float8_e4m3fn",
    "e4m3_float8": "float8_e4m3fn",
    "e5m2_float8": "float8_e5m2",
}


class StandIn:
    """Nothing is compiled yet, so nothing can be read off; a call gives outputs of the right shape.

    `out_idx` are the parameters that a caller does not pass, as TileLang has it.
    """

    def __init__(self, kernel: str, function: Any = None, out_idx: Any = None) -> None:
        self.kernel = kernel
        self.prim_func = function
        self.latency = self.ref_latency = 0.0
        self.config: dict[str, Any] = {}
        listed = [] if out_idx is None else [out_idx] if isinstance(out_idx, int) else out_idx
        count = len(function.params) if function is not None else 0
        self.out_idx = [int(each) % count if count else int(each) for each in listed]

    def __call__(self, *args: Any, **_: Any) -> Any:
        """What the kernel would return: tensors of the shapes that follow from the arguments."""
        if self.prim_func is None or not self.out_idx:
            return None
        made = _outputs(self.prim_func, self.out_idx, args)
        return made[0] if len(made) == 1 else made

    def get_kernel_source(self, *_: Any, **__: Any) -> str:
        """There is none yet."""
        return ""

    show_source = get_host_source = get_kernel_source

    def get_profiler(self, *_: Any, **__: Any) -> Profiler:
        """One that times nothing."""
        return Profiler()

    def __getattr__(self, name: str) -> Any:
        """Anything else is not there before the kernel is compiled."""
        message = f"the launch code reads .{name} of the compiled kernel {self.kernel}"
        raise AttributeError(message)


class NotLowered:
    """What `tilelang.lower` returns: nothing is lowered yet."""

    kernel_source = ""


class Profiler:
    """Compares nothing, and times nothing: there is no GPU."""

    def do_bench(self, *_: Any, **__: Any) -> float:
        """Zero: nothing is timed."""
        return 0.0

    def assert_allclose(self, *_: Any, **__: Any) -> None:
        """Nothing was computed."""

    manual_assert_close = assert_consistent = run_once = assert_allclose


def _outputs(function: Any, out: list[int], args: tuple[Any, ...]) -> list[torch.Tensor]:
    sizes: dict[str, int] = {}
    given = iter(args)
    buffers = [function.buffer_map.get(parameter) for parameter in function.params]
    for index, buffer in enumerate(buffers):
        if index in out:
            continue
        value = next(given, None)
        if buffer is None or not isinstance(value, torch.Tensor):
            continue
        for dimension, size in zip(buffer.shape, value.shape, strict=False):
            if hasattr(dimension, "name"):
                sizes[dimension.name] = int(size)
    made = []
    for index in out:
        buffer = buffers[index]
        shape = [_size(each, sizes) for each in buffer.shape]
        name = str(buffer.dtype)
        dtype = getattr(torch, _DTYPES.get(name, name))
        made.append(torch.empty(shape, dtype=dtype, device="cuda"))
    return made


def _size(dimension: Any, sizes: dict[str, int]) -> int:
    """A dimension as a number: a constant, a variable that an argument fixes, or made of both."""
    if hasattr(dimension, "name"):
        return sizes[dimension.name]
    if not hasattr(dimension, "value") and not isinstance(dimension, int):
        known = {
            each: TIR.IntImm(each.dtype, sizes[each.name])
            for each in TIR.analysis.undefined_vars(dimension)
        }
        whole = TIR.stmt_functor.substitute(dimension, known)
        dimension = tvm.arith.Analyzer().simplify(whole)
    return int(dimension)


TIR: Any = tvm.tirx if hasattr(tvm, "tirx") else tvm.tir
