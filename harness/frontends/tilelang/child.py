"""The child of one TileLang: records every kernel that running code has compiled, by config.

TileLang's own decorators and its builder run as they are; two ends are replaced: where a function
would be compiled (`cached`), and where its tuner would time what it compiled (`AutoTuner.run`). A
job lowers a record to CUDA C++, or exports the function that builds it.

`python .../enter.py harness.frontends.tilelang.child SOCKET NAME`
"""

# ruff: noqa: ANN401 - values of TileLang, torch and the user have types that we cannot name

from __future__ import annotations

import contextlib
import inspect
import json
import math
import os
import sys
import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tilelang
import tilelang.contrib.nvcc
import tilelang.profiler
import torch
import tvm
from tilelang.autotuner import AutoTuner

from harness.frontends.pretend.recorded import (
    OURS,
    Injected,
    NotCompiled,
    Record,
    RecordedSession,
    Recorder,
    Replaced,
    asked_configs,
    file_of,
    hash_of,
    method,
    plain,
    raised,
)
from harness.io.children.captures import serve_captures
from harness.io.children.definitions import Definitions, ExportError
from harness.io.children.supervisor import Message

# `import tilelang.jit as x` gives the function of that name.
_JIT = sys.modules["tilelang.jit"]


@dataclass(kw_only=True)
class KernelRecord(Record):
    """One kernel with one config: what TileLang would compile, or what kept it from being built.

    `built_by` is the function that returned it, with its arguments, where its call was seen.
    """

    function: Any = None
    pass_configs: dict[str, Any] = field(default_factory=dict)
    target: str | None = None
    built_by: tuple[Any, tuple[Any, ...], dict[str, Any]] | None = None


class KernelRecorder(Recorder):
    """Collects kernels; configs are injected by the name of the function that builds one, too."""

    def __init__(self, injected: Injected) -> None:
        super().__init__(injected)
        self._building: tuple[Any, tuple[Any, ...], dict[str, Any]] | None = None

    def replaced(self) -> Replaced:
        places = [_JIT, sys.modules["tilelang.cache"], tilelang]
        return [
            *((place, "cached", self._cached) for place in places if hasattr(place, "cached")),
            *((place, "par_compile", _one_by_one) for place in (_JIT, tilelang)),
            (tilelang, "lower", self._lowered),
            (_JIT.JITImpl, "__call__", method(self._called, _JIT.JITImpl.__call__)),
            (AutoTuner, "run", method(self._searched)),
            (tilelang.profiler, "do_bench", _bench_once),
        ]

    def _cached(
        self,
        func: Any,
        out_idx: Any = None,
        *_: Any,
        target: Any = None,
        pass_configs: Mapping[Any, Any] | None = None,
        compile_flags: Any = None,
        **__: Any,
    ) -> StandIn:
        """In place of a compilation: note what would be compiled."""
        passes = dict(pass_configs or {})
        passes = {getattr(name, "value", name): value for name, value in passes.items()}
        if compile_flags is not None:
            flags = passes.get("tl.device_compile_flags")
            passes["tl.device_compile_flags"] = [*_words(flags), *_words(compile_flags)]
        built_by = None
        # A function that is the kernel itself cannot be called.
        if self._building and self._building[0].mode != "eager":
            impl, args, kwargs = self._building
            built_by = getattr(impl.func, "orig_func", impl.func), args, kwargs
        kernel = str(func.attrs["global_symbol"])
        self._keep(
            kernel=kernel,
            file=_file_of_caller(),
            function=func,
            pass_configs=passes,
            target=_other_target(target),
            built_by=built_by,
        )
        return StandIn(kernel, func, out_idx)

    def _keep(self, **facts: Any) -> None:
        record = KernelRecord(**self.tuning, **facts)
        function = record.function
        passes = sorted((str(name), str(value)) for name, value in record.pass_configs.items())
        # The whole function, layouts too, which its script leaves out.
        text = None if function is None else str(tvm.ir.save_json(function))
        record.key = hash_of(record.kernel, text, passes, record.target, record.refusal)
        for parameter in function.params if function is not None else ():
            buffer = function.buffer_map.get(parameter)
            shape = [str(size) for size in buffer.shape] if buffer is not None else None
            kind = buffer if buffer is not None else parameter
            name = str(getattr(kind, "name", parameter))
            record.arguments.append({"name": name, "dtype": str(kind.dtype), "shape": shape})
        self.keep(record)

    def _lowered(self, func_or_mod: Any, target: Any = None, *_: Any, **__: Any) -> Any:
        """In place of `tilelang.lower`: note what would be lowered, and with which passes."""
        passes = dict(tvm.transform.PassContext.current().config)
        self._cached(func_or_mod, target=target, pass_configs=passes)
        return types.SimpleNamespace(kernel_source="")

    def _called(self, original: Any, impl: Any, /, *args: Any, **kwargs: Any) -> Any:
        """What a decorated function does when it is called, and is refused."""
        function = getattr(impl.func, "orig_func", impl.func)
        around, self._building = self._building, (impl, args, dict(kwargs))
        try:
            return original(impl, *args, **kwargs)
        except OURS:
            raise
        except Exception as error:  # noqa: BLE001 - whatever is raised is the evidence
            code = getattr(function, "__code__", None)
            name = _kernel_within(code) or str(getattr(function, "__name__", "kernel"))
            self._keep(kernel=name, file=file_of(function), error=raised(error))
            return StandIn(name)
        finally:
            self._building = around

    def _searched(self, tuner: Any, *_: Any, **__: Any) -> Any:
        """In place of a tuner at work: build its function with each config, and time nothing."""
        fn = getattr(tuner.fn, "orig_func", tuner.fn)
        name = str(getattr(fn, "__name__", ""))
        names = name, f"{name}_kernel"
        configs = asked_configs(self.injected, *names, otherwise=tuner.configs)
        configs = list(configs() if callable(configs) else configs)
        build = tuner.jit_compile
        if build is None:

            def build(**config: Any) -> Any:
                options = tuner.compile_args
                return tilelang.compile(
                    tuner.fn(**config), out_idx=options.out_idx, pass_configs=options.pass_configs
                )

        kernels, call = [], object()
        for config in configs:
            named = {name: plain(value) for name, value in config.items()}
            with self.tuned_to(named, call):
                try:
                    kernels.append(build(**config))
                except OURS:
                    raise
                except Exception as error:  # noqa: BLE001 - as TileLang does: the next config
                    self._keep(kernel=fn.__name__, file=file_of(fn), error=raised(error))
        kernel = kernels[0] if kernels else StandIn("none")
        config = dict(configs[0]) if configs else {}
        return types.SimpleNamespace(
            kernel=kernel, config=config, latency=0.0, ref_latency=None, libcode="", func=None
        )


def _words(options: Any) -> list[Any]:
    """Options of a compiler that are given as one, as several or not at all."""
    return [options] if isinstance(options, str) else list(options or ())


def _kernel_within(code: types.CodeType | None) -> str | None:
    """The kernel that a function builds: the one function within it, if there is one."""
    parts = code.co_consts if code else ()
    names = [part.co_name for part in parts if isinstance(part, types.CodeType)]
    names = [name for name in names if not name.startswith("<")]
    return names[0] if len(names) == 1 else None


def _one_by_one(funcs: Any, *args: Any, num_workers: Any = None, **kwargs: Any) -> list[Any]:  # noqa: ARG001
    """`par_compile` in the order of its functions."""
    kwargs.pop("ignore_error", None)
    return [_JIT.compile(func, *args, **kwargs) for func in funcs]


def _bench_once(function: Any, *_: Any, **__: Any) -> float:
    """A benchmark where nothing can be timed: calls once, so that every launch is seen."""
    function()
    return 0.0


def _other_target(target: Any) -> str | None:
    """What the launch compiles for, where that is not a plain CUDA target."""
    words = "" if target is None else str(target)
    kind = getattr(getattr(target, "kind", None), "name", words.split(" ")[0])
    return None if kind in ("", "auto", "cuda") or words.startswith("{") else words


def _file_of_caller() -> str:
    """The file of the code that has a kernel compiled: the nearest that is not TileLang's."""
    frame = sys._getframe(1)  # noqa: SLF001 - there is no other way to ask
    inside = str(tilelang.__path__[0])
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith((inside, "<")) and name != __file__:
            return name
        frame = frame.f_back  # type: ignore[assignment]
    return ""


_DTYPES = {
    "bool": "bool",
    "float8_e4m3": "float8_e4m3fn",
    "e4m3_float8": "float8_e4m3fn",
    "e5m2_float8": "float8_e5m2",
}


class StandIn(NotCompiled):
    """Nothing is compiled yet, so nothing can be read off; a call gives outputs of the right shape.

    `out_idx` are the parameters that a caller does not pass, as TileLang has it.
    """

    def __init__(self, kernel: str, function: Any = None, out_idx: Any = None) -> None:
        super().__init__(kernel)
        self.kernel = kernel
        self.prim_func = function
        self.latency = self.ref_latency = 0.0
        self.config: dict[str, Any] = {}
        indices = [] if out_idx is None else [out_idx] if isinstance(out_idx, int) else out_idx
        count = len(function.params) if function is not None else 0
        self.out_idx = [int(index) % count if count else int(index) for index in indices]

    def __call__(self, *args: Any, **_: Any) -> Any:
        """What the kernel would return: tensors of the shapes that follow from the arguments."""
        if self.prim_func is None or not self.out_idx:
            return None
        outputs = _outputs(self.prim_func, self.out_idx, args)
        return outputs[0] if len(outputs) == 1 else outputs

    def get_kernel_source(self, *_: Any, **__: Any) -> str:
        """There is none yet."""
        return ""

    show_source = get_host_source = get_kernel_source

    def get_profiler(self, *_: Any, **__: Any) -> Any:
        """Compares nothing, and times nothing: there is no GPU."""
        names = ("assert_allclose", "manual_assert_close", "assert_consistent", "run_once")
        nothing: dict[str, Any] = dict.fromkeys(names, lambda *_, **__: None)
        return types.SimpleNamespace(**nothing, do_bench=lambda *_, **__: 0.0)


def _outputs(function: Any, out: list[int], args: tuple[Any, ...]) -> list[torch.Tensor]:
    sizes: dict[str, int] = {}
    values = iter(args)
    buffers = [function.buffer_map.get(parameter) for parameter in function.params]
    for index, buffer in enumerate(buffers):
        if index in out:
            continue
        value = next(values, None)
        if buffer is None or not isinstance(value, torch.Tensor):
            continue
        for dimension, size in zip(buffer.shape, value.shape, strict=False):
            if hasattr(dimension, "name"):
                sizes[dimension.name] = int(size)
    outputs = []
    for index in out:
        buffer = buffers[index]
        shape = [_size(dimension, sizes) for dimension in buffer.shape]
        name = str(buffer.dtype)
        dtype = getattr(torch, _DTYPES.get(name, name))
        outputs.append(torch.empty(shape, dtype=dtype, device="cuda"))
    return outputs


def _size(dimension: Any, sizes: dict[str, int]) -> int:
    """A dimension as a number: a constant, a variable that an argument fixes, or made of both."""
    if hasattr(dimension, "name"):
        return sizes[dimension.name]
    if not hasattr(dimension, "value") and not isinstance(dimension, int):
        values = {
            variable: TIR.IntImm(variable.dtype, sizes[variable.name])
            for variable in TIR.analysis.undefined_vars(dimension)
        }
        whole = TIR.stmt_functor.substitute(dimension, values)
        dimension = tvm.arith.Analyzer().simplify(whole)
    return int(dimension)


TIR: Any = tvm.tirx if hasattr(tvm, "tirx") else tvm.tir


def _facts(function: Any) -> dict[str, Any]:
    """A kernel's name, its dynamic shared memory in bytes and its threads: only TileLang knows."""
    attributes = function.attrs
    name = "dyn_shared_memory_buf"
    shared = attributes[name] if name in attributes else 0  # noqa: SIM401 - it is TVM's
    extents = attributes["thread_extent"].items() if "thread_extent" in attributes else ()
    threads = [int(size) for axis, size in extents if str(axis).startswith("threadIdx")]
    return {
        "entry": str(attributes["global_symbol"]),
        "shared": int(getattr(shared, "value", shared)),
        "threads": math.prod(threads) if threads else None,
    }


class _Definitions(Definitions):
    """The file calls what builds the kernel as it is: it is lowered, not compiled and launched."""

    brought = frozenset({"tilelang", "tvm", "torch", *sys.stdlib_module_names})

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


class _Session(RecordedSession):
    packages = ("tilelang", "tvm", "tvm_ffi", "z3")
    first, next = "tir", "cuda"

    def settle(self, ask: Message) -> None:
        os.environ["TILELANG_CACHE_DIR"] = str(self.folder / "cache")
        os.environ["TILELANG_TMP_DIR"] = str(self.folder / "cache" / "tmp")
        # What a kernel asks of its target while it is built; until 0.1.11, and from 0.1.12 on.
        words = json.dumps({"kind": "cuda", "arch": ask["settings"]["target"]})
        os.environ["TILELANG_TARGET"] = os.environ["TILELANG_DEFAULT_TARGET"] = words

    def recorder(self, ask: Message, log: Path) -> Recorder:
        return KernelRecorder(ask["injected"])

    def lowered(self, record: Any, folder: Path, request: Message, result: dict[str, Any]) -> None:
        """Leave `kernel.tir`, `kernel.cu` and `kernel.device`; `result` gets nvcc's options."""
        os.environ["TILELANG_CACHE_DIR"] = str(folder / "cache")
        with contextlib.suppress(Exception):  # for people to read, and no part of the work
            (folder / "kernel.tir").write_text(record.function.script())
        if record.target is not None:
            message = f"the launch compiles for {record.target}, and CUDA was asked for"
            raise NotImplementedError(message)
        calls: list[dict[str, Any]] = []

        def compile_cuda(
            code: str,
            target_format: str = "ptx",  # noqa: ARG001
            arch: Any = None,
            options: Any = None,
            *_: Any,
            **__: Any,
        ) -> bytearray:
            """In place of nvcc: note how it would be called."""
            words = [*map(str, _words(arch)), *map(str, _words(options))]
            calls.append({"code": code, "options": words})
            return bytearray(b"\0")

        tilelang.contrib.nvcc.compile_cuda = compile_cuda
        target = tvm.target.Target({"kind": "cuda", "arch": self.target})
        with tvm.transform.PassContext(opt_level=3, config=record.pass_configs), target:
            artifact = tilelang.lower(record.function, target=target, enable_device_compile=True)
        with contextlib.suppress(Exception):
            (folder / "kernel.device").write_text(artifact.device_mod.script())
        (folder / "kernel.cu").write_text(calls[-1]["code"] if calls else artifact.kernel_source)
        kernels = [_facts(function) for function in artifact.device_mod.functions.values()]
        # One function may hold several kernels; the one that takes most of an SM stands for it.
        kernels.sort(key=lambda kernel: (kernel["shared"], kernel["entry"]), reverse=True)
        result["options"] = calls[-1]["options"] if calls else []
        names = [kernel["entry"] for kernel in kernels]
        result["metadata"] = {**(kernels[0] if kernels else {}), "kernels": names}

    def described(self, error: BaseException, record: Any) -> dict[str, Any]:
        return raised(error)

    def exported(self, record: Any) -> dict[str, Any]:
        if record.built_by is None:
            message = "no call of a decorated function builds it, one that returns a kernel"
            raise ExportError(message)
        function, args, kwargs = record.built_by
        definitions = _Definitions(function)
        definitions.add(function)
        bound = inspect.signature(function).bind(*args, **kwargs)
        bound.apply_defaults()
        export = definitions.export(
            bound.arguments,
            bound.arguments,
            options=record.pass_configs,
            source_class={"value": "lower"},
            target=["cuda", self.target],
        )
        return {"export": export}


if __name__ == "__main__":
    serve_captures(_Session, {"tilelang": tilelang.__version__}, _Session.compile_file)
