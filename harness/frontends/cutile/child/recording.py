"""Records every kernel that running code launches with cuTile, one record for each config.

cuTile's own `launch` checks the arguments and finds what to compile for them (which sizes are
multiples of 16, say); where it would compile that, it is noted, and the launch goes no further. The
tuner's search, which would time what it launches, is replaced by one that launches each config.
What is exported ahead of a launch is noted, too.
"""

# ruff: noqa: ANN401 - values of cuTile, torch and the user have types that we cannot name

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import inspect
import os
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from json import dumps
from pathlib import Path
from typing import Any

import cuda.tile
import cuda.tile._cext
import cuda.tile.tune
from cuda.tile import compilation

from harness.frontends.cutile.child.lowering import lowered, newest_bytecode
from harness.frontends.pretend.recorded import OURS, Record, Recorder, Replaced, label_of, plain
from harness.io.children.supervisor import split, wait_until

# For what takes a fraction of a second: time of the processor, so that a busy machine counts alike.
_CPU_SECONDS = 5
_SECONDS = 120


@dataclass(kw_only=True)
class LaunchRecord(Record):
    """One kernel with one config, as it was launched.

    `signature` is what cuTile makes of the arguments; its symbol is the kernel's name from then on.
    """

    function: Any
    signature: Any
    options: Any
    grid: tuple[int, ...]
    config: dict[str, Any] = field(default_factory=dict)
    autotuned: bool = False

    def describe(self) -> dict[str, Any]:
        """What a capture tells of it."""
        return {**super().describe(), "autotuned": self.autotuned, "grid": list(self.grid)}

    @property
    def settings(self) -> dict[str, Any]:
        return self.config

    def sign(self, content: str) -> None:
        """Set the key: a hash of all that decides what comes of it, `content` among it."""
        parts = [self.kernel, self.signature.symbol, str(self.options), content, self.source()]
        self.key = hashlib.sha256(dumps(parts).encode()).hexdigest()

    def source(self) -> str:
        """The text of the kernel, as far as there is one."""
        try:
            return inspect.getsource(self.function.pyfunc)
        except (OSError, TypeError):
            return ""


class _NotedError(BaseException):
    """Ends a launch where its kernel would be compiled; no launch code is to catch it."""

    def __init__(self, signature: Any) -> None:
        super().__init__()
        self.signature = signature


def _note_signature(_kernel: Any, signature: Any, *_: Any, **__: Any) -> None:
    """In place of a compilation for what cuTile makes of the arguments."""
    raise _NotedError(signature)


class LaunchRecorder(Recorder):
    """Collects launches.

    `gpu` is the target as cuTile spells it, and `folder` is for our files. `injected` are
    configs (options, and arguments by name) in place of those that launch code or a tuner has.
    Without a folder, nothing is lowered for a record's key.
    """

    def __init__(
        self, gpu: str, folder: Path | None, injected: Mapping[str, Sequence[Mapping[str, Any]]]
    ) -> None:
        super().__init__()
        self._gpu = gpu
        self._folder = folder
        self._injected = injected
        # With the function, whose place no other may take.
        self._contents: dict[tuple[int, str, str], tuple[Any, str]] = {}
        self._config: dict[str, Any] | None = None
        self._real = cuda.tile.launch

    def replaced(self) -> Replaced:
        tune = cuda.tile.tune
        exporting = sys.modules[compilation.export_kernel.__module__]
        return [
            (compilation, "export_kernel", self._export),
            (exporting, "export_kernel", self._export),
            (cuda.tile.kernel, "_compile", _note_signature),
            (cuda.tile, "launch", self._launch),
            (cuda.tile._cext, "launch", self._launch),  # noqa: SLF001 - it is imported from there
            (tune, "exhaustive_search", self._search),
            (sys.modules[tune.exhaustive_search.__module__], "exhaustive_search", self._search),
        ]

    def _launch(self, _stream: Any, grid: Any, kernel: Any, args: Any, /, **_: Any) -> None:
        """In place of a launch: note it, with each of the configs that are asked for."""
        for config in self._configs(kernel):
            self._note(grid, *_with(config, kernel, args))

    def _export(self, kernel: Any, signatures: Sequence[Any], *_: Any, **__: Any) -> None:
        """In place of an export: note each signature; what is asked for decides the target."""
        for signature in signatures:
            for config in self._configs(kernel):
                own, given, label = _with(config, kernel, signature.parameters)
                changed = dataclasses.replace(signature, parameters=given)
                self._keep_launch(own, changed, (), label)

    def _configs(self, kernel: Any) -> Sequence[Mapping[str, Any]]:
        for pattern, configs in self._injected.items():
            if fnmatchcase(_name(kernel), pattern):
                return [dict(each) for each in configs]
        return [{}]

    def _note(self, grid: Any, kernel: Any, args: Any, config: dict[str, Any]) -> None:
        """Launch a kernel for real, up to where it would be compiled."""
        try:
            self._real(0, grid, kernel, args)
        except _NotedError as noted:
            self._keep_launch(kernel, noted.signature, grid, config)

    def _keep_launch(self, kernel: Any, signature: Any, grid: Any, config: dict[str, Any]) -> None:
        """Note a kernel, with what cuTile makes of its arguments."""
        function = kernel._annotated_function  # noqa: SLF001 - there is no public name
        record = LaunchRecord(
            kernel=_name(kernel),
            file=function.pyfunc.__code__.co_filename,
            function=function,
            signature=signature
            if signature.symbol
            else signature.with_mangled_symbol(function.pyfunc.__name__),
            options=kernel._compiler_options,  # noqa: SLF001
            grid=tuple(int(size) for size in grid),
            config={**(self._config or {}), **config},
            autotuned=self._config is not None,
        )
        # As cuTile does, which compiles a kernel for such arguments once.
        known = (id(function.pyfunc), record.signature.symbol, str(record.options))
        if known not in self._contents:
            self._contents[known] = function, self._content(record)
        record.sign(self._contents[known][1])
        self.keep(record)

    def _content(self, record: LaunchRecord) -> str:
        """What cuTile makes of a record, as a hash; empty where it dies or does not end.

        A process of its own does it: what a kernel does to cuTile is not harm to its neighbours.
        """
        if self._folder is None:
            return ""
        left = self._folder / "content"
        left.write_text("")
        if child := split():
            wait_until(child, time.monotonic() + _SECONDS)
            return left.read_text()
        with contextlib.suppress(BaseException):
            resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS))
            try:
                content = lowered(record, self._gpu, newest_bytecode()).bytecode
            except Exception as error:  # noqa: BLE001 - it is lowered again, and its evidence kept
                content = f"{type(error).__name__}: {error}".encode()
            left.write_text(hashlib.sha256(content).hexdigest())
        os._exit(0)

    def _search(
        self,
        search_space: Sequence[Any],
        stream: Any,
        grid_fn: Callable[[Any], Any],
        kernel: Any,
        args_fn: Callable[[Any], Any],
        hints_fn: Callable[[Any], Mapping[str, Any]] | None = None,
        **_: Any,
    ) -> Any:
        """In place of a search: note each config, and time nothing; the first is called the best.

        As in cuTile, one that cannot be launched is a failure of that config alone.
        """
        # It may be an iterator, which can be read once.
        configs, failures, launched = list(search_space), [], []
        for config in configs:
            self._config = _plain_config(config)
            try:
                own = kernel if hasattr(kernel, "_pyfunc") else kernel(config)
                own = own.replace_hints(**hints_fn(config)) if hints_fn else own
                self._launch(stream, grid_fn(config), own, args_fn(config))
            except OURS:
                raise
            except Exception as error:  # noqa: BLE001 - as cuTile does: the next config
                failures.append((config, type(error), str(error)))
            else:
                launched.append(config)
            finally:
                self._config = None
        tune = sys.modules[cuda.tile.tune.TuningResult.__module__]
        if not launched:
            why = f"; the last: {failures[-1][2]}" if failures else ""
            raise ValueError(f"none of {len(configs)} configs can be launched{why}")
        measured = [_measured(tune.Measurement, config) for config in launched]
        return tune.TuningResult(best=measured[0], successes=measured, failures=failures)


def _with(
    config: Mapping[str, Any], kernel: Any, args: tuple[Any, ...]
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The kernel and its arguments with a config in place of its options and constants."""
    names = list(inspect.signature(kernel._pyfunc).parameters)  # noqa: SLF001
    hints = {name: value for name, value in config.items() if name not in names}
    given = [config.get(name, value) for name, value in zip(names, args, strict=False)]
    return kernel.replace_hints(**hints) if hints else kernel, tuple(given), dict(config)


def _measured(kind: Any, config: Any) -> Any:
    """A measurement of what was not measured."""
    names = [each.name for each in dataclasses.fields(kind)]
    return kind(**{name: config if name == "config" else 0 for name in names})


def _name(kernel: Any) -> str:
    return label_of(kernel._pyfunc)  # noqa: SLF001 - there is no public name


def _plain_config(config: Any) -> dict[str, Any]:
    """A config of a tuner by name: what it lists may be anything."""
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        config = dataclasses.asdict(config)
    if hasattr(config, "_asdict"):
        config = config._asdict()
    if hasattr(config, "__dict__") and not isinstance(config, dict):
        config = vars(config)
    if isinstance(config, tuple | list):
        config = {f"config{index}": value for index, value in enumerate(config)}
    if not isinstance(config, dict):
        config = {"config": config}
    return {str(name): plain(value) for name, value in config.items()}
