"""What plain Triton gives for each config that a script launches: its PTX, or why there is none.

    python checks/plain_triton.py SCRIPT CAPABILITY MULTIPROCESSORS SHARED_BYTES [WANTED]

Nothing of triage is in here. Triton binds, specialises, prunes and compiles as on a GPU; a driver
that launches nothing stands in for its own, and tensors lie on torch's meta device. A tuner forgets
what it tuned when any plain argument differs, so that each launch shows all its configs, and goes
on where one does not compile. WANTED is JSON: values of a tuner's parameters
(`{"num_warps": ["4"]}`); configs with others are not tried. ptxas is left out. Prints a JSON list
of kernel, config (of a tuner, else null), sha256 of the PTX or null, error or null, each once.
"""

# ruff: noqa: ANN401, SLF001 - it stands in for parts of torch and Triton, whose types have no names

from __future__ import annotations

import hashlib
import itertools
import json
import runpy
import sys
import types
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import torch
import triton
from torch.overrides import TorchFunctionMode
from triton._C import libtriton
from triton.backends import backends
from triton.backends.compiler import GPUTarget
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

ANSWERS = {"allclose": True, "equal": True, "item": 1.0, "tolist": [0.0]}
GPU = {"device": torch.device("cuda", 0), "is_cuda": True}


class Anything(types.ModuleType):
    """Plots, profiles and vendors' libraries: whatever is asked of them is nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *_: Any, **__: Any) -> Any:
        """Itself, whatever it is given."""
        return self

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None: ...


class OnMeta(TorchFunctionMode):  # type: ignore[misc]
    """Puts on the meta device what is to be on a GPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in ANSWERS:
            return ANSWERS[name]
        if name == "__get__" and (attribute := func.__self__.__name__) in GPU:
            return GPU[attribute]
        return func(*map(_on_meta, args), **{n: _on_meta(v) for n, v in (kwargs or {}).items()})


def _on_meta(value: Any) -> Any:
    is_gpu = isinstance(value, str | torch.device) and str(value).startswith("cuda")
    return torch.device("meta") if is_gpu else value


def main(
    script: str, capability: int, multiprocessors: int, shared: int, wanted: Any = None
) -> None:
    """Run the script, and print what its launches come to; `shared` is what a block may have."""
    properties = types.SimpleNamespace(
        name="", multi_processor_count=multiprocessors, major=capability // 10, warp_size=32
    )
    torch.cuda.is_available = lambda: True
    torch.cuda.get_device_capability = lambda *_: divmod(capability, 10)
    torch.cuda.get_device_properties = lambda *_: properties
    torch.cuda.current_device = lambda: 0
    torch.cuda.Stream = torch.cuda.stream = torch.cuda.set_stream = Anything("stream")
    torch.testing.assert_close = lambda *_, **__: None
    limits = {
        "max_shared_mem": shared,
        "max_num_regs": 65536,
        "multiprocessor_count": multiprocessors,
        "warpSize": 32,
    }
    utils = types.SimpleNamespace(
        get_device_properties=lambda _: limits, load_binary=lambda *_: (0, 0, 32, 0, 1024)
    )

    def time(function: Any, *_: Any, quantiles: Any = None, **__: Any) -> Any:
        function()
        return [1.0] * len(quantiles) if quantiles else 1.0

    triton.runtime.driver.set_active(
        types.SimpleNamespace(
            get_current_target=lambda: GPUTarget("cuda", capability, 32),
            get_current_device=lambda: 0,
            get_current_stream=lambda _=None: 0,
            get_active_torch_device=lambda: GPU["device"],
            get_device_interface=lambda: torch.cuda,
            get_benchmarker=lambda: time,
            utils=utils,
            launcher_cls=lambda *_: lambda *_: None,
        )
    )
    triton.testing.do_bench = time

    def benchmark(mark: Any, *_: Any, **__: Any) -> None:
        marks = mark.benchmarks
        for of in marks if isinstance(marks, list) else [marks]:
            for x, line in itertools.product(of.x_vals, of.line_vals):
                sizes = x if isinstance(x, list | tuple) else [x] * len(of.x_names)
                mark.fn(
                    **dict(zip(of.x_names, sizes, strict=True)), **{of.line_arg: line}, **of.args
                )

    triton.testing.Mark.run = benchmark
    libtriton.nvidia.cublas.CublasLt = Anything("cublas")
    for name in (
        *("matplotlib", "matplotlib.pyplot", "tabulate"),
        *("triton.profiler", "triton.profiler.viewer"),
    ):
        sys.modules[name] = Anything(name)
        sys.modules[name].__spec__ = ModuleSpec(name, None)
    # torch joins it to a text when it ends.
    vars(sys.modules["tabulate"])["tabulate"] = lambda *_, **__: ""
    # Where the script asks for its viewer, it gets the profiler.
    profiler = vars(sys.modules["triton.profiler"])
    profiler["parse"] = lambda *_: (Anything("tree"), Anything("metrics"))
    add_stages = backends["nvidia"].compiler.add_stages

    def without_ptxas(backend: Any, stages: Any, *args: Any) -> None:
        add_stages(backend, stages, *args)
        stages["cubin"] = lambda *_: b""

    backends["nvidia"].compiler.add_stages = without_ptxas
    found: dict[str, None] = {}
    tuned: list[Any] = []
    launch, tune, bench = JITFunction.run, Autotuner.run, Autotuner._bench

    def run(function: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:  # noqa: ARG001
        config = (tuned[-1] or None) if tuned else None
        if isinstance(config, Autotuner):
            config = config.best_config
        values = config and {
            **config.kwargs,
            "num_warps": config.num_warps,
            "num_stages": config.num_stages,
        }
        kernel = None
        entry = [function.fn.__name__, values, None, None]
        try:
            kernel = launch(function, *args, grid=grid, warmup=True, **kwargs)
            entry[2] = hashlib.sha256(kernel.asm["ptx"].encode()).hexdigest()
        except Exception as error:  # noqa: BLE001 - whatever Triton raises is an answer
            entry[3] = f"{type(error).__name__}: {error}"
        found.setdefault(json.dumps(entry))
        return kernel

    def run_tuner(tuner: Any, *args: Any, **kwargs: Any) -> Any:
        named = {**dict(zip(tuner.arg_names, args, strict=False)), **kwargs}
        plain = [n for n in tuner.arg_names if isinstance(named.get(n), bool | int | float | str)]
        tuner.keys = plain
        tuned.append(tuner)
        try:
            return tune(tuner, *args, **kwargs)
        finally:
            tuned.pop()

    def run_bench(tuner: Any, *args: Any, config: Any, **meta: Any) -> Any:
        values = config.all_kwargs()
        if any(str(values.get(name)) not in allowed for name, allowed in (wanted or {}).items()):
            return [float("inf")] * 3
        tuned.append(config)
        try:
            return bench(tuner, *args, config=config, **meta)
        finally:
            tuned.pop()

    JITFunction.run, Autotuner.run, Autotuner._bench = run, run_tuner, run_bench
    sys.argv = [script]
    sys.path.insert(0, str(Path(script).parent))
    out, sys.stdout = sys.stdout, sys.stderr
    with OnMeta():
        runpy.run_path(script, run_name="__main__")
    print(json.dumps([json.loads(entry) for entry in found]), file=out)


if __name__ == "__main__":
    path, *numbers = sys.argv[1:5]
    main(str(Path(path).absolute()), *map(int, numbers), *map(json.loads, sys.argv[5:]))
