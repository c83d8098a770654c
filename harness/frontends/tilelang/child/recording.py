"""Records every kernel that running code has TileLang compile, one record for each config.

TileLang's own decorators and its builder run as they are; two ends are replaced: where a function
would be compiled (`cached`), and where its tuner would time what it compiled (`AutoTuner.run`).
"""

# ruff: noqa: ANN401 - values of TileLang, torch and the user have types that we cannot name

from __future__ import annotations

import hashlib
import sys
import traceback
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from json import dumps
from typing import Any

import tilelang
import tilelang.profiler
import torch
import tvm
from tilelang.autotuner import AutoTuner

from harness.frontends.pretend.recorded import OURS, Record, Recorder, Replaced, plain

# `import tilelang.jit as x` gives the function of that name.
_JIT = sys.modules["tilelang.jit"]


@dataclass(kw_only=True)
class KernelRecord(Record):
    """One kernel with one config: what TileLang would compile, or what kept it from being built.

    `built_by` is the function that returned it, with its arguments, where its call was seen.
    """

    config: dict[str, Any]
    autotuned: bool
    function: Any = None
    pass_configs: dict[str, Any] = field(default_factory=dict)
    target: str | None = None
    error: dict[str, Any] | None = None
    built_by: tuple[Any, tuple[Any, ...], dict[str, Any]] | None = None

    def describe(self) -> dict[str, Any]:
        """What a capture tells of it."""
        more = {"autotuned": self.autotuned, "arguments": self._arguments()}
        return {**super().describe(), **more}

    @property
    def settings(self) -> dict[str, Any]:
        return self.config

    def _arguments(self) -> list[dict[str, Any]]:
        found = []
        for parameter in self.function.params if self.function is not None else ():
            buffer = self.function.buffer_map.get(parameter)
            shape = [str(each) for each in buffer.shape] if buffer is not None else None
            kind = buffer if buffer is not None else parameter
            name = str(getattr(kind, "name", parameter))
            found.append({"name": name, "dtype": str(kind.dtype), "shape": shape})
        return found

    def sign(self) -> None:
        """Set the key: a hash of all that decides what comes of it."""
        said = self.error and [self.error["type"], self.error["message"]]
        passes = sorted((str(name), str(value)) for name, value in self.pass_configs.items())
        parts = [self.kernel, _text(self.function), passes, self.target, said]
        self.key = hashlib.sha256(dumps(parts, sort_keys=True).encode()).hexdigest()


def _text(function: Any) -> str | None:
    """The whole function, layouts too, which its script leaves out."""
    return None if function is None else str(tvm.ir.save_json(function))


class KernelRecorder(Recorder):
    """Collects kernels.

    `injected` configs, by the name of a kernel or of the function that builds it, take the place of
    those that its tuner lists.
    """

    def __init__(self, injected: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        super().__init__()
        self._injected = injected
        self._config: dict[str, Any] | None = None
        self._building: tuple[Any, tuple[Any, ...], dict[str, Any]] | None = None

    def replaced(self) -> Replaced:
        calls = _JIT.JITImpl.__call__
        places = [_JIT, sys.modules["tilelang.cache"], tilelang]
        return [
            *((place, "cached", self._cached) for place in places if hasattr(place, "cached")),
            *((place, "par_compile", _one_by_one) for place in (_JIT, tilelang)),
            (tilelang, "lower", self._lowered),
            (_JIT.JITImpl, "__call__", self._calling(calls)),
            (AutoTuner, "run", self._tuning()),
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
        passes = {getattr(name, "value", name): each for name, each in (pass_configs or {}).items()}
        if compile_flags is not None:
            more = [compile_flags] if isinstance(compile_flags, str) else list(compile_flags)
            given = passes.get("tl.device_compile_flags") or []
            flags = [given] if isinstance(given, str) else list(given)
            passes["tl.device_compile_flags"] = [*flags, *more]
        record = KernelRecord(
            kernel=str(func.attrs["global_symbol"]),
            config=self._config or {},
            autotuned=self._config is not None,
            file=_file_of_caller(),
            function=func,
            pass_configs=passes,
            target=_other_target(target),
            built_by=_builder(*self._building) if self._building else None,
        )
        record.sign()
        self.keep(record)
        return StandIn(record.kernel, func, out_idx)

    def _lowered(self, func_or_mod: Any, target: Any = None, *_: Any, **__: Any) -> NotLowered:
        """In place of `tilelang.lower`: note what would be lowered, and with which passes."""
        passes = dict(tvm.transform.PassContext.current().config)
        self._cached(func_or_mod, target=target, pass_configs=passes)
        return NotLowered()

    def _calling(self, original: Any) -> Any:
        """What a decorated function does when it is called, and is refused."""

        def call(impl: Any, *args: Any, **kwargs: Any) -> Any:
            function = getattr(impl.func, "orig_func", impl.func)
            around, self._building = self._building, (impl, args, dict(kwargs))
            try:
                return original(impl, *args, **kwargs)
            except OURS:
                raise
            except Exception as error:  # noqa: BLE001 - whatever is raised is the evidence
                code = getattr(function, "__code__", None)
                name = _kernel_within(code) or str(getattr(function, "__name__", "kernel"))
                self._refused(name, code.co_filename if code else "", error)
                return StandIn(name)
            finally:
                self._building = around

        return call

    def _refused(self, kernel: str, file: str, error: BaseException) -> None:
        described = {
            "type": type(error).__name__,
            "kinds": [kind.__name__ for kind in type(error).__mro__],
            "message": str(error)[:100_000],
            "traceback": "".join(traceback.format_exception(error))[-100_000:],
        }
        record = KernelRecord(
            kernel=kernel,
            config=self._config or {},
            autotuned=self._config is not None,
            file=file,
            error=described,
        )
        record.sign()
        self.keep(record)

    def _tuning(self) -> Any:
        """In place of a tuner at work: build its function with each config, and time nothing."""
        recorder = self

        def run(tuner: Any, *_: Any, **__: Any) -> Any:
            fn = getattr(tuner.fn, "orig_func", tuner.fn)
            listed = recorder._configs(str(getattr(fn, "__name__", "")), tuner)
            build = tuner.jit_compile
            if build is None:

                def build(**config: Any) -> Any:
                    given = tuner.compile_args
                    return tilelang.compile(
                        tuner.fn(**config), out_idx=given.out_idx, pass_configs=given.pass_configs
                    )

            kernels = []
            for config in listed:
                recorder._config = {name: plain(value) for name, value in config.items()}
                try:
                    kernels.append(build(**config))
                except OURS:
                    raise
                except Exception as error:  # noqa: BLE001 - as TileLang does: the next config
                    code = getattr(fn, "__code__", None)
                    recorder._refused(fn.__name__, code.co_filename if code else "", error)
                finally:
                    recorder._config = None
            kernel = kernels[0] if kernels else StandIn("none")
            config = dict(listed[0]) if listed else {}
            return types.SimpleNamespace(
                kernel=kernel, config=config, latency=0.0, ref_latency=None, libcode="", func=None
            )

        return run

    def _configs(self, name: str, tuner: Any) -> list[Mapping[str, Any]]:
        for pattern, configs in self._injected.items():
            if fnmatchcase(name, pattern) or fnmatchcase(f"{name}_kernel", pattern):
                return list(configs)
        listed = tuner.configs
        return list(listed() if callable(listed) else listed)


def _builder(
    impl: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, tuple[Any, ...], dict[str, Any]] | None:
    """The function that returns a kernel; one that is the kernel itself cannot be called."""
    if impl.mode == "eager":
        return None
    return getattr(impl.func, "orig_func", impl.func), args, kwargs


def _kernel_within(code: types.CodeType | None) -> str | None:
    """The kernel that a function builds: the one function within it, if there is one."""
    parts = code.co_consts if code else ()
    names = [each.co_name for each in parts if isinstance(each, types.CodeType)]
    found = [name for name in names if not name.startswith("<")]
    return found[0] if len(found) == 1 else None


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
