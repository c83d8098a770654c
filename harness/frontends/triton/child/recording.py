"""Records every Triton launch that running code makes, one record for each config.

Triton's own `Autotuner`, `Heuristics` and pruning functions run as they are; only two ends are
replaced: benchmarking (calls each config once) and `JITFunction.run` (notes the call).
"""

# ruff: noqa: ANN401 - values of torch, Triton and the user have types that we cannot name

from __future__ import annotations

import contextlib
import copy
import hashlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, is_dataclass
from json import dumps
from typing import Any

import torch
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from harness.frontends.triton.child.compile_calls import SourceRecord, compile_calls
from harness.frontends.triton.child.describing import (
    by_name,
    config_of,
    describe_arguments,
    describe_views,
    first_stage,
    grid_dims,
    plain_config,
    specialization,
    stable,
)
from harness.frontends.triton.child.injected_configs import (
    Injected,
    injected_configs,
    injected_options,
)
from harness.frontends.triton.child.partial_tiles import suspicion


@dataclass
class Record:
    """One launch of one kernel with one config, ready to be compiled."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    config: dict[str, Any]
    autotuned: bool
    grid: Any
    key: str = ""
    suspect: str = ""
    arguments: list[dict[str, Any]] = field(default_factory=list)
    given: dict[str, Any] = field(default_factory=dict)

    @property
    def kernel(self) -> str:
        """The name of the kernel's function."""
        return str(self.function.fn.__name__)

    @property
    def first_stage(self) -> str:
        """Where its compilation begins."""
        return first_stage(self.function)

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
            **self.given,
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
        named = {**by_name(tuner.arg_names, args), **current}
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
                config = plain_config(function, args, changed)
                self._record(function, args, grid, changed, config, autotuned=False)
            config = plain_config(function, args, kwargs)
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
            args=_as_they_are(args),
            kwargs=_as_they_are(kwargs),
            config=config,
            autotuned=autotuned,
            grid=grid,
        )
        record.arguments = describe_arguments(function, args, kwargs)
        record.key = _key(record)
        if self._keep(record):
            # Like Triton, which asks for the grid once the kernel is compiled: where it raises,
            # the launch does, and what was compiled until then stays.
            record.grid, grid = None, record.grid
            record.grid = grid_dims(function, args, kwargs, grid)
            record.given = _given(function, args, kwargs)
            record.suspect = suspicion(function.fn, {**by_name(function.arg_names, args), **kwargs})

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


def _as_they_are(value: Any) -> Any:
    """Arguments as they are at this launch: a later hook may write to what all launches share.

    Tensor descriptors, dataclasses and containers are copied, and what is in them. Tensors are not:
    the code depends on none of their values.
    """
    if isinstance(value, dict):
        return {name: _as_they_are(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        make = getattr(value, "_make", type(value))
        return make([_as_they_are(each) for each in value])
    is_value = is_dataclass(value) or hasattr(value, "block_shape")
    if not is_value or isinstance(value, type | torch.Tensor) or not hasattr(value, "__dict__"):
        return value
    copied = copy.copy(value)
    vars(copied).update(_as_they_are(vars(value)))
    return copied


def _source_key(function: Any) -> str:
    """Triton's own hash of the kernel, the helpers it calls and the globals it reads.

    Where Triton cannot even read the source (it uses a name that this version does not have), the
    failure belongs to the compilation, so the text alone has to do here.
    """
    try:
        return str(function.cache_key)
    except Exception:  # noqa: BLE001 - the same error comes back when the config is compiled
        return hashlib.sha256(inspect.getsource(function.fn).encode()).hexdigest()


def _given(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments as views of storages; nothing where torch does not tell them of these tensors."""
    given = {**by_name(function.arg_names, args), **kwargs}
    bound = {
        each.name: given.get(each.name, getattr(each, "default", None)) for each in function.params
    }
    constexprs = {each.name for each in function.params if each.is_constexpr}
    with contextlib.suppress(RuntimeError, NotImplementedError, TypeError, AttributeError):
        return describe_views(bound, constexprs)
    return {}


def _key(record: Record) -> str:
    names = {parameter.name for parameter in record.function.params}
    options = {n: stable(v) for n, v in sorted(record.kwargs.items()) if n not in names}
    body = {
        "source": _source_key(record.function),
        "arguments": [specialization(argument) for argument in record.arguments],
        "options": options,
    }
    return hashlib.sha256(dumps(body, sort_keys=True).encode()).hexdigest()
