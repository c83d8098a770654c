"""Records every Triton launch that running code makes, one record for each config.

Triton's own `Autotuner`, `Heuristics` and pruning functions run as they are; only two ends are
replaced: benchmarking (calls each config once) and `JITFunction.run` (notes the call). Launch code
that launches nothing may ask Triton's compiler itself: `triton.compile(source)` is noted, too. That
is how a reproducer is written that needs neither a GPU nor torch.
"""

# ruff: noqa: ANN401 - values of torch, Triton and the user have types that we cannot name

from __future__ import annotations

import contextlib
import copy
import hashlib
import inspect
from dataclasses import dataclass, field, is_dataclass
from json import dumps
from typing import Any

import torch
import triton
import triton.compiler
from triton.runtime import driver
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from harness.frontends.pretend.recorded import Record, Recorder, Replaced, hash_of
from harness.frontends.triton.child.describing import (
    Injected,
    by_name,
    config_of,
    describe_arguments,
    describe_views,
    first_stage,
    grid_dims,
    injected_configs,
    injected_options,
    plain_config,
    specialization,
    stable,
    suspicion,
)

# As they are while nothing is recorded.
_LAUNCH, _COMPILE = JITFunction.run, triton.compile


@dataclass(kw_only=True)
class LaunchRecord(Record):
    """One launch of one kernel with one config, ready to be compiled."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    config: dict[str, Any]
    autotuned: bool
    grid: Any
    suspect: str = ""
    arguments: list[dict[str, Any]] = field(default_factory=list)
    given: dict[str, Any] = field(default_factory=dict)

    @property
    def settings(self) -> dict[str, Any]:
        return self.config

    @property
    def first_stage(self) -> str:
        return first_stage(self.function)

    def describe(self) -> dict[str, Any]:
        own = ("autotuned", "arguments", "grid", "suspect")
        return {**super().describe(), **{name: getattr(self, name) for name in own}, **self.given}

    def compile(self) -> Any:
        grid = tuple(self.grid) if self.grid else (1,)
        return _LAUNCH(self.function, *self.args, grid=grid, warmup=True, **self.kwargs)


class RecordedKernel:
    """What a launch returns under capture: nothing is compiled yet, so nothing can be read off."""

    def __init__(self, kernel: str) -> None:
        self._kernel = kernel

    def __getitem__(self, grid: Any) -> Any:
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


class LaunchRecorder(Recorder):
    """Collects records while `active()`; equal launches of one config are kept once.

    Two configs that come to the same code (a heuristic overrides what they differ in) are both
    kept, with one key. `injected` configs take the place of those that a kernel's tuner lists; a
    kernel without one is recorded with them too.
    """

    silenced = ()

    def __init__(self, injected: Injected | None = None) -> None:
        super().__init__()
        self._injected = injected or {}
        self._tuning: list[_Tuning] = []

    def replaced(self) -> Replaced:
        tune, prune = Autotuner.run, Autotuner.prune_configs
        recorder = self

        def run(function: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:  # noqa: ARG001
            return recorder._launched(function, args, grid, kwargs)

        def tuned(tuner: Any, *args: Any, **kwargs: Any) -> Any:
            tuner.cache.clear()
            # Timings of an earlier run, kept on disk, would hide every config but one.
            tuner.cache_results = False
            recorder._tuning.append(_Tuning(tuner))
            listed = tuner.configs
            tuner.configs = injected_configs(tuner, recorder._injected) or listed
            try:
                return tune(tuner, *args, **kwargs)
            finally:
                tuner.configs = listed
                recorder._tuning.pop()

        def bench(tuner: Any, *args: Any, config: Any, **meta: Any) -> Any:
            return recorder._benched(tuner, args, config, meta)

        def pruned(tuner: Any, kwargs: dict[str, Any]) -> Any:
            kept = prune(tuner, kwargs)
            recorder.pruned[tuner.base_fn.__name__] = (len(kept), len(tuner.configs))
            return kept

        return [
            (JITFunction, "run", run),
            (Autotuner, "run", tuned),
            (Autotuner, "_bench", bench),
            (Autotuner, "prune_configs", pruned),
            (triton, "compile", self._compiled),
            (triton.compiler, "compile", self._compiled),
        ]

    def _compiled(self, src: Any, *args: Any, **kwargs: Any) -> Any:
        """In place of a call of the compiler: note it. One with a file of IR is made as it is."""
        if not isinstance(src, triton.compiler.ASTSource):
            return _COMPILE(src, *args, **kwargs)
        options = kwargs.get("options", args[1] if len(args) > 1 else None)
        record = SourceRecord.of(src, dict(options or {}))
        self.keep(record)
        return _RecordedCompilation(record.kernel)

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
        record = LaunchRecord(
            kernel=str(function.fn.__name__),
            file=function.fn.__code__.co_filename,
            function=function,
            args=_as_they_are(args),
            kwargs=_as_they_are(kwargs),
            config=config,
            autotuned=autotuned,
            grid=grid,
        )
        record.arguments = describe_arguments(function, args, kwargs)
        record.key = _key(record)
        if self.keep(record):
            # Like Triton, which asks for the grid once the kernel is compiled: where it raises,
            # the launch does, and what was compiled until then stays.
            record.grid, grid = None, record.grid
            record.grid = grid_dims(function, args, kwargs, grid)
            record.given = _given(function, args, kwargs)
            record.suspect = suspicion(function.fn, {**by_name(function.arg_names, args), **kwargs})


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


def _key(record: LaunchRecord) -> str:
    names = {parameter.name for parameter in record.function.params}
    options = {n: stable(v) for n, v in sorted(record.kwargs.items()) if n not in names}
    body = {
        "source": _source_key(record.function),
        "arguments": [specialization(argument) for argument in record.arguments],
        "options": options,
    }
    return hashlib.sha256(dumps(body, sort_keys=True).encode()).hexdigest()


_OPTIONS = {"num_warps": None, "num_stages": None, "num_ctas": 1, "maxnreg": None}


@dataclass(kw_only=True)
class SourceRecord(Record):
    """A kernel with signature, constants, attributes and options, ready to be compiled.

    The target that the code names is not kept: it is compiled for the one that was asked for.
    """

    source: Any
    options: dict[str, Any]

    @classmethod
    def of(cls, source: Any, options: dict[str, Any]) -> SourceRecord:
        # Triton's own hash has the kernel, its helpers, the signature, constants and attributes.
        key = hash_of(_source_hash(source), sorted((n, repr(v)) for n, v in options.items()))
        function = source.fn.fn
        return cls(
            kernel=str(function.__name__),
            file=function.__code__.co_filename,
            key=key,
            source=source,
            options=options,
        )

    @property
    def first_stage(self) -> str:
        return first_stage(self.source.fn)

    @property
    def settings(self) -> dict[str, Any]:
        function = self.source.fn
        values = {
            function.arg_names[key[0]] if isinstance(key, tuple) else key: value
            for key, value in self.source.constants.items()
        }
        names = [parameter.name for parameter in function.params if parameter.is_constexpr]
        config = {name: getattr(values.get(name), "value", values.get(name)) for name in names}
        given = {n: self.options.get(n, default) for n, default in _OPTIONS.items()}
        config |= {n: value for n, value in given.items() if value != _OPTIONS[n]}
        return {n: v for n, v in config.items() if isinstance(v, bool | int | float | str)}

    def describe(self) -> dict[str, Any]:
        kinds = self.source.signature.items()
        arguments = [{"name": name, "type": str(kind)} for name, kind in kinds]
        return {**super().describe(), "arguments": arguments}

    def compile(self) -> Any:
        target = driver.active.get_current_target()
        return _COMPILE(self.source, target=target, options=dict(self.options))


def _source_hash(source: Any) -> str:
    """Without a source that Triton can read, the text alone has to do: the failure comes later."""
    try:
        return str(source.hash())
    except Exception:  # noqa: BLE001 - the same error comes back when it is compiled
        parts = [source.fn.src, source.signature, source.constants, source.attrs]
        return hashlib.sha256(repr(parts).encode()).hexdigest()


class _Later:
    """What only a compilation would tell: it can be printed, not read."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"<{self._name}: not compiled yet>"


class _RecordedCompilation:
    """What `triton.compile` returns under capture."""

    def __init__(self, kernel: str) -> None:
        self._kernel = kernel
        self.metadata = _Later("metadata")
        self.asm = _Later("asm")

    def __getattr__(self, name: str) -> Any:
        message = f"the launch code reads .{name} of the compiled kernel {self._kernel}"
        raise AttributeError(message)
