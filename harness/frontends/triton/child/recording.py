"""Records every Triton launch that running code makes, one record for each config.

Triton's own `Autotuner`, `Heuristics` and pruning functions run as they are; only two ends are
replaced: benchmarking (calls each config once) and `JITFunction.run` (notes the call).
"""

# ruff: noqa: ANN401 - values of torch, Triton and the user have types that we cannot name

from __future__ import annotations

import contextlib
import hashlib
import inspect
import operator
from dataclasses import dataclass, field, fields, is_dataclass
from json import dumps
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from harness.frontends.triton.child.compile_calls import SourceRecord, compile_calls
from harness.frontends.triton.child.injected_configs import (
    OPTIONS,
    Injected,
    injected_configs,
    injected_options,
)
from harness.frontends.triton.child.partial_tiles import suspicion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Record", "Recorder", "config_of"]

_DEFAULTS = {
    "num_ctas": 1,
    # Triton 3.2 only.
    "num_buffers_warp_spec": 0,
    "num_consumer_groups": 0,
    "reg_dec_producer": 0,
    "reg_inc_consumer": 0,
}


@dataclass
class Record:
    """One launch of one kernel with one config, ready to be compiled."""

    first_stage: ClassVar[str] = "ttir"
    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    config: dict[str, Any]
    autotuned: bool
    grid: Any
    key: str = ""
    suspect: str = ""
    arguments: list[dict[str, Any]] = field(default_factory=list)

    @property
    def kernel(self) -> str:
        """The name of the kernel's function."""
        return str(self.function.fn.__name__)

    def describe(self) -> dict[str, Any]:
        """What a capture tells of this launch."""
        return {
            "key": self.key,
            "kernel": self.kernel,
            "config": self.config,
            "autotuned": self.autotuned,
            "arguments": self.arguments,
            "grid": self.grid,
            "suspect": self.suspect,
            "file": self.function.fn.__code__.co_filename,
        }

    def compile(self, run: Callable[..., Any]) -> Any:
        """Compile the launch, which `run` (Triton's own) would otherwise launch."""
        grid = tuple(self.grid) if self.grid else (1,)
        return run(self.function, *self.args, grid=grid, warmup=True, **self.kwargs)


class RecordedKernel:
    """What a launch returns under capture: nothing is compiled yet, so nothing can be read off."""

    def __init__(self, kernel: str) -> None:
        self._kernel = kernel

    def __getitem__(self, grid: Any) -> Any:
        """A kernel from `warmup()` is launched like this; the launch is recorded already."""
        return lambda *_, **__: None

    def __getattr__(self, name: str) -> Any:
        if name in {"_init_handles", "run"}:
            return lambda *_, **__: None
        message = f"the launch code reads .{name} of the compiled kernel {self._kernel}"
        raise AttributeError(message)


@dataclass
class _Tuning:
    """An autotuner at work: on one config, or (None) between them; `seen` once one was tried."""

    tuner: Any
    config: dict[str, Any] | None = None
    seen: bool = False


class Recorder:
    """Collects records while `active()`; equal launches of one config are kept once.

    Two configs that come to the same code (a heuristic overrides what they differ in) are both
    kept, with one key. `dropped` counts what was over the limit. `injected` configs take the place
    of those that a kernel's tuner lists; a kernel without one is recorded with them too.
    """

    def __init__(self, limit: int = 5000, injected: Injected | None = None) -> None:
        self.records: dict[tuple[str, str], Record | SourceRecord] = {}
        self.dropped = 0
        self.pruned: dict[str, tuple[int, int]] = {}
        self._limit = limit
        self._injected = injected or {}
        self._tuning: list[_Tuning] = []
        self.original_run = JITFunction.run

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Replace Triton's two ends for the time of the `with` block."""
        launch = JITFunction.run
        saved = {name: getattr(Autotuner, name) for name in ("run", "_bench", "prune_configs")}
        recorder = self

        def run(function: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:  # noqa: ARG001
            return recorder._launched(function, args, grid, kwargs)

        def tune(tuner: Any, *args: Any, **kwargs: Any) -> Any:
            tuner.cache.clear()
            # Timings of an earlier run, kept on disk, would hide every config but one.
            tuner.cache_results = False
            recorder._tuning.append(_Tuning(tuner))
            listed = tuner.configs
            tuner.configs = injected_configs(tuner, recorder._injected) or listed
            try:
                return saved["run"](tuner, *args, **kwargs)
            finally:
                tuner.configs = listed
                recorder._tuning.pop()

        def bench(tuner: Any, *args: Any, config: Any, **meta: Any) -> Any:
            return recorder._benched(tuner, args, config, meta)

        def prune(tuner: Any, kwargs: dict[str, Any]) -> Any:
            kept = saved["prune_configs"](tuner, kwargs)
            recorder.pruned[tuner.base_fn.__name__] = (len(kept), len(tuner.configs))
            return kept

        replacements: dict[str, Callable[..., Any]] = {
            "run": tune,
            "_bench": bench,
            "prune_configs": prune,
        }
        JITFunction.run = run
        for name, replacement in replacements.items():
            setattr(Autotuner, name, replacement)
        try:
            with compile_calls(self._keep):
                yield
        finally:
            JITFunction.run = launch
            for name, original in saved.items():
                setattr(Autotuner, name, original)

    def _benched(self, tuner: Any, args: tuple[Any, ...], config: Any, meta: dict[str, Any]) -> Any:
        clash = meta.keys() & config.kwargs.keys()
        if clash:
            message = f"conflicting meta-parameters: {', '.join(sorted(clash))}"
            raise ValueError(message)
        current = {**meta, **config.all_kwargs()}
        named = {**_by_name(tuner.arg_names, args), **current}
        if config.pre_hook:
            config.pre_hook(named)
        tuner.pre_hook(named)
        self._tuning[-1].seen = True
        self._tuning.append(_Tuning(tuner, config_of(config)))
        try:
            tuner.fn.run(*args, **current)
        finally:
            self._tuning.pop()
        tuner.post_hook(named, exception=None)
        return [0.0, 0.0, 0.0]

    def _launched(
        self, function: Any, args: tuple[Any, ...], grid: Any, kwargs: dict[str, Any]
    ) -> Any:
        tuning = self._tuning[-1] if self._tuning else None
        if tuning is None:
            for options in injected_options(function.fn.__name__, self._injected):
                changed = {**kwargs, **options}
                config = _plain_config(function, args, changed)
                self._record(function, args, grid, changed, config, autotuned=False)
            config = _plain_config(function, args, kwargs)
        elif tuning.config is not None:
            config = tuning.config
        elif tuning.seen:
            # The winner's launch, after every config has been seen.
            return RecordedKernel(function.fn.__name__)
        else:
            config = config_of(tuning.tuner.best_config)
        self._record(function, args, grid, kwargs, config, autotuned=tuning is not None)
        return RecordedKernel(function.fn.__name__)

    def _record(
        self,
        function: Any,
        args: tuple[Any, ...],
        grid: Any,
        kwargs: dict[str, Any],
        config: dict[str, Any],
        *,
        autotuned: bool,
    ) -> None:
        record = Record(
            function=function,
            args=args,
            kwargs=kwargs,
            config=config,
            autotuned=autotuned,
            grid=grid,
        )
        record.arguments = _describe_arguments(function, args, kwargs)
        record.key = _key(record)
        if self._keep(record):
            # Like Triton, which asks for the grid once the kernel is compiled: where it raises,
            # the launch does, and what was compiled until then stays.
            record.grid, grid = None, record.grid
            record.grid = _grid_dims(record, grid)
            record.suspect = suspicion(
                function.fn, {**_by_name(function.arg_names, args), **kwargs}
            )

    def _keep(self, record: Record | SourceRecord) -> bool:
        """Keep a record unless it is known, or one too many; whether it was kept."""
        name = (record.key, dumps(record.config))
        if name in self.records:
            return False
        if len(self.records) >= self._limit:
            self.dropped += 1
            return False
        self.records[name] = record
        return True


def _by_name(names: list[str], args: tuple[Any, ...]) -> dict[str, Any]:
    # The names of those given by keyword are left over.
    return dict(zip(names, args, strict=False))


def config_of(config: Any) -> dict[str, Any]:
    """A tuner's config by name, options among them; the same in all versions of Triton."""
    values = dict(config.all_kwargs())
    for option in OPTIONS:
        value = getattr(config, option, None)
        if value is not None:
            values.setdefault(option, value)
    # What every config has unless it says otherwise: the same config has one name in all versions.
    for option, default in _DEFAULTS.items():
        if values.get(option) == default:
            del values[option]
    return {name: _plain(value) for name, value in values.items() if value is not None}


def _plain_config(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The config of a launch without a tuner: its meta-parameters, and the options it gives."""
    given = {**_by_name(function.arg_names, args), **kwargs}
    names = [parameter.name for parameter in function.params if parameter.is_constexpr]
    values = {name: getattr(given.get(name), "value", given.get(name)) for name in names}
    config = {
        name: value for name, value in values.items() if isinstance(value, bool | int | float | str)
    }
    options = {name: _plain(kwargs[name]) for name in OPTIONS if kwargs.get(name) is not None}
    return {**config, **options}


def _plain(value: Any) -> Any:
    value = getattr(value, "value", value)
    return value if isinstance(value, bool | int | float | str) else repr(value)


def _describe_arguments(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[dict[str, Any]]:
    """What Triton specialises on, argument by argument (never finer than needed to be safe)."""
    bound = {**_by_name(function.arg_names, args), **kwargs}
    described = []
    for parameter in function.params:
        if parameter.name in bound:
            value = bound[parameter.name]
        else:
            value = getattr(parameter, "default", None)
        described.append(
            {"name": parameter.name, **_describe(value, constexpr=parameter.is_constexpr)}
        )
    return described


def _describe(value: Any, *, constexpr: bool) -> dict[str, Any]:
    if constexpr:
        inner = getattr(value, "value", value)
        key = getattr(inner, "cache_key", None)
        return {"constexpr": _stable(inner) if key is None else f"{inner.fn.__name__}:{key}"}
    if value is None:
        return {"none": True}
    if isinstance(value, torch.Tensor):
        return {
            "tensor": str(value.dtype).removeprefix("torch."),
            "shape": list(value.shape),
            "aligned": value.data_ptr() % 16 == 0,
        }
    if isinstance(value, bool | float):
        return {"scalar": type(value).__name__}
    if isinstance(value, int):
        width = "i32" if -(2**31) <= value < 2**31 else "i64" if value < 2**63 else "u64"
        return {"integer": width, "value": value, "one": value == 1, "divisible": value % 16 == 0}
    if isinstance(value, tuple):
        return {"tuple": [_describe(item, constexpr=False) for item in value]}
    if hasattr(value, "block_shape"):
        return _describe_descriptor(value)
    return {"object": _stable(value)}


def _describe_descriptor(value: Any) -> dict[str, Any]:
    """A tensor descriptor: whatever it has beside a tensor's own is part of its type."""
    names = [each.name for each in fields(value)] if is_dataclass(value) else ["layout"]
    more = {
        name: _stable(getattr(value, name, None))
        for name in names
        if name not in {"base", "shape", "strides", "block_shape"}
    }
    return {
        "descriptor": str(value.base.dtype).removeprefix("torch."),
        "block": list(value.block_shape),
        "rank": len(value.shape),
        **more,
    }


def _stable(value: Any) -> str:
    """A repr without memory addresses."""
    text = repr(value)
    return f"{type(value).__module__}.{type(value).__qualname__}" if " at 0x" in text else text


def _specialization(described: dict[str, Any]) -> dict[str, Any]:
    """The part of a description that can change the code: not the exact shape or integer."""
    hidden = {"shape", "value"}
    return {name: item for name, item in described.items() if name not in hidden}


def _source_key(function: Any) -> str:
    """Triton's own hash of the kernel, the helpers it calls and the globals it reads.

    Where Triton cannot even read the source (it uses a name that this version does not have), the
    failure belongs to the compilation, so the text alone has to do here.
    """
    try:
        return str(function.cache_key)
    except Exception:  # noqa: BLE001 - the same error comes back when the config is compiled
        return hashlib.sha256(inspect.getsource(function.fn).encode()).hexdigest()


def _key(record: Record) -> str:
    names = {parameter.name for parameter in record.function.params}
    options = {n: _stable(v) for n, v in sorted(record.kwargs.items()) if n not in names}
    body = {
        "source": _source_key(record.function),
        "arguments": [_specialization(argument) for argument in record.arguments],
        "options": options,
    }
    return hashlib.sha256(dumps(body, sort_keys=True).encode()).hexdigest()


def _grid_dims(record: Record, grid: Any) -> list[int]:
    """The sizes of the grid; a function is asked for it with what Triton binds: all parameters."""
    if callable(grid):
        names = {parameter.name for parameter in record.function.params}
        given = {**_by_name(record.function.arg_names, record.args), **record.kwargs}
        bound = {name: value for name, value in given.items() if name in names}
        grid = grid({**_defaults(record.function), **bound})
    grid = grid if isinstance(grid, tuple | list) else (grid,)
    return [operator.index(size) for size in grid]


def _defaults(function: Any) -> dict[str, Any]:
    parameters = inspect.signature(function.fn).parameters.values()
    return {each.name: each.default for each in parameters if each.default is not each.empty}
