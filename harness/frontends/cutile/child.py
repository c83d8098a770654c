"""The child of one cuTile: records every kernel that running code launches, one for each config.

cuTile's own `launch` checks the arguments and finds what to compile for them (which sizes are
multiples of 16, say); where it would compile that, it is noted, and the launch goes no further. The
tuner's search, which would time what it launches, is replaced by one that launches each config.
What is exported ahead of a launch is noted, too. A job lowers a record to the bytecode of Tile IR,
as cuTile would, or exports it: its kernel, with every helper and global that this names, and what
cuTile made of the arguments.

`python .../enter.py harness.frontends.cutile.child SOCKET NAME`
"""

# ruff: noqa: ANN401, E402 - values of cuTile, torch and the user have types that we cannot name

from __future__ import annotations

import contextlib
import dataclasses
import enum
import hashlib
import inspect
import re
import resource
import sys
import time
import traceback
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.frontends.cutile import driver

# Before cuTile is imported, which looks for a driver.
driver.pretend()

# All here, none later: launch code may bring a package of our name, and modules of any.
import cuda.tile
import cuda.tile._cext
import cuda.tile._compile as compiling
import cuda.tile.tune
import torch
from cuda.tile import compilation
from cuda.tile.compilation import ConstantConstraint

from harness.frontends.pretend.recorded import (
    OURS,
    CaughtError,
    Injected,
    Record,
    RecordedSession,
    Recorder,
    Replaced,
    asked_configs,
    hash_of,
    label_of,
    plain,
)
from harness.io.children.captures import serve_captures
from harness.io.children.definitions import Definitions, ExportError
from harness.io.children.supervisor import Message, forked, wait_until

# What cuTile's own IR is written out by.
_WRITER = "_ir2bytecode"


def gpu_of(target: str) -> str:
    """A target as cuTile spells it: its letter is left to tileiras."""
    return target.rstrip("af")


def newest_bytecode(most: str | None = None) -> Any:
    """The newest version of the bytecode that this cuTile writes, or (`most`) none newer."""
    versions = list(compiling._SUPPORTED_VERSIONS)  # noqa: SLF001 - there is no public name
    if most is None:
        return versions[-1]

    def numbers(version: str) -> tuple[int, ...]:
        return tuple(map(int, re.findall(r"\d+", version)))[:2]

    older = [version for version in versions if numbers(version.as_string()) <= numbers(most)]
    return max(older, key=lambda version: numbers(version.as_string()), default=versions[0])


def lowered(record: Any, gpu: str, version: Any) -> Any:
    """What cuTile makes of a record, up to where it would call tileiras."""
    return compiling.compile_tile(
        record.function,
        [record.signature],
        gpu,
        record.options,
        bytecode_version=version,
        return_final_ir=True,
        return_bytecode=True,
        return_cubin=False,
    )


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


def _note_signature(_kernel: Any, signature: Any, *_: Any, **__: Any) -> None:
    """In place of a compilation for what cuTile makes of the arguments."""
    raise CaughtError(signature)


class LaunchRecorder(Recorder):
    """Collects launches.

    `gpu` is the target as cuTile spells it, and `folder` is for our files. What is injected are
    options, and arguments by name. Without a folder, nothing is lowered for a record's key.
    """

    def __init__(self, gpu: str, folder: Path | None, injected: Injected) -> None:
        super().__init__(injected)
        self._gpu = gpu
        self._folder = folder
        # With the function, whose place no other may take.
        self._contents: dict[tuple[int, str, str], tuple[Any, str]] = {}
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
        for config in asked_configs(self.injected, _name(kernel), otherwise=[{}]):
            own, values = _with(config, kernel, args)
            # For real, up to where it would be compiled.
            try:
                self._real(0, grid, own, values)
            except CaughtError as caught:
                self._keep_launch(own, caught.compilation[0], grid, config)

    def _export(self, kernel: Any, signatures: Sequence[Any], *_: Any, **__: Any) -> None:
        """In place of an export: note each signature; what is asked for decides the target."""
        for signature in signatures:
            for config in asked_configs(self.injected, _name(kernel), otherwise=[{}]):
                own, values = _with(config, kernel, signature.parameters)
                changed = dataclasses.replace(signature, parameters=values)
                self._keep_launch(own, changed, (), config)

    def _keep_launch(
        self, kernel: Any, signature: Any, grid: Any, config: Mapping[str, Any]
    ) -> None:
        function = kernel._annotated_function  # noqa: SLF001 - there is no public name
        if not signature.symbol:
            signature = signature.with_mangled_symbol(function.pyfunc.__name__)
        record = LaunchRecord(
            kernel=_name(kernel),
            file=function.pyfunc.__code__.co_filename,
            function=function,
            signature=signature,
            options=kernel._compiler_options,  # noqa: SLF001
            grid=[int(size) for size in grid],
            **self.tuning,
        )
        record.config = {**record.config, **config}
        # As cuTile does, which compiles a kernel for such arguments once.
        key = (id(function.pyfunc), signature.symbol, str(record.options))
        if key not in self._contents:
            self._contents[key] = function, self._content(record)
        source = ""
        with contextlib.suppress(OSError, TypeError):
            source = inspect.getsource(function.pyfunc)
        decides = (signature.symbol, str(record.options), self._contents[key][1], source)
        record.key = hash_of(record.kernel, *decides)
        self.keep(record)

    def _content(self, record: LaunchRecord) -> str:
        """What cuTile makes of a record, as a hash; empty where it dies or does not end.

        A process of its own does it: what a kernel does to cuTile is not harm to its neighbours.
        """
        if self._folder is None:
            return ""
        file = self._folder / "content"
        file.write_text("")

        def lower() -> None:
            resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS))
            try:
                content = lowered(record, self._gpu, newest_bytecode()).bytecode
            except Exception as error:  # noqa: BLE001 - it is lowered again, and its evidence kept
                content = f"{type(error).__name__}: {error}".encode()
            file.write_text(hashlib.sha256(content).hexdigest())

        wait_until(forked(lower), time.monotonic() + _SECONDS)
        return file.read_text()

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
        configs, failures, launched, call = list(search_space), [], [], object()
        for config in configs:
            try:
                with self.tuned_to(_plain_config(config), call):
                    own = kernel if hasattr(kernel, "_pyfunc") else kernel(config)
                    own = own.replace_hints(**hints_fn(config)) if hints_fn else own
                    self._launch(stream, grid_fn(config), own, args_fn(config))
            except OURS:
                raise
            except Exception as error:  # noqa: BLE001 - as cuTile does: the next config
                failures.append((config, type(error), str(error)))
            else:
                launched.append(config)
        tune = sys.modules[cuda.tile.tune.TuningResult.__module__]
        if not launched:
            why = f"; the last: {failures[-1][2]}" if failures else ""
            raise ValueError(f"none of {len(configs)} configs can be launched{why}")
        nothing = dict.fromkeys([field.name for field in dataclasses.fields(tune.Measurement)], 0)
        measured = [tune.Measurement(**{**nothing, "config": config}) for config in launched]
        return tune.TuningResult(best=measured[0], successes=measured, failures=failures)


def _with(
    config: Mapping[str, Any], kernel: Any, args: tuple[Any, ...]
) -> tuple[Any, tuple[Any, ...]]:
    """The kernel and its arguments with a config in place of its options and constants."""
    names = list(inspect.signature(kernel._pyfunc).parameters)  # noqa: SLF001
    hints = {name: value for name, value in config.items() if name not in names}
    values = tuple(config.get(name, value) for name, value in zip(names, args, strict=False))
    return kernel.replace_hints(**hints) if hints else kernel, values


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


_BROUGHT = "cuda.tile"
# Of constraints: what is given by place, in this order.
_BY_PLACE = ("dtype", "ndim", "element", "items")


def _options(options: Any, gpu: str) -> dict[str, Any]:
    """The options of a kernel that are not cuTile's own, as they are for this target."""
    values = {}
    for option in dataclasses.fields(options):
        value = getattr(options, option.name)
        by_target = getattr(value, "_by_target", None)
        if by_target is not None:
            value = by_target.get(gpu, value._default)  # noqa: SLF001 - there is no public name
        # An object stands for no value at all.
        if isinstance(value, int) and value != option.default:
            values[option.name] = value
    return values


class _Definitions(Definitions):
    """The options of the kernel, which is `undecorated`, are those of the launch."""

    brought = sys.stdlib_module_names

    def is_brought(self, module: str) -> bool:
        is_tile = module == _BROUGHT or module.startswith(f"{_BROUGHT}.")
        return is_tile or super().is_brought(module)

    def source(self, thing: Any) -> tuple[str, tuple[str, Any] | None]:
        code, _ = super().source(thing)
        return code, ("ct.kernel", cuda.tile) if thing is self._undecorated else None

    def _place(self, value: Any) -> tuple[str, str] | None:
        place = super()._place(value)
        is_public = place and getattr(cuda.tile, place[1], None) is value
        return (_BROUGHT, place[1]) if place and is_public else place

    def own_text(self, value: Any, names: dict[str, dict[str, Any]]) -> str | None:
        text = _own_text(value)
        if text is not None:
            names["ct"] = {"module": _BROUGHT}
        return text

    def constraint(self, value: Any) -> tuple[str, dict[str, str]]:
        """What cuTile assumes of an argument: a call, and by name what it does not by itself."""
        if not dataclasses.is_dataclass(value):
            message = f"what cuTile makes of an argument of type {type(value)} has no text"
            raise ExportError(message)
        values = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        places = [values.pop(name) for name in tuple(values) if name in _BY_PLACE]
        for name, word in tuple(values.items()):
            fewer = {key: values[key] for key in values if key != name}
            if _is_made(value, places, fewer):
                values = fewer
            elif isinstance(word, tuple) and word:
                plain_word = {**values, name: word[0]}
                values = plain_word if _is_made(value, places, plain_word) else values
        call = f"compilation.{type(value).__name__}({', '.join(map(self._assumed, places))})"
        return call, {name: self._assumed(word) for name, word in values.items()}

    def _assumed(self, value: Any) -> str:
        if isinstance(value, ConstantConstraint):
            return self.expression(value.value, {})
        if isinstance(value, tuple) and any(map(dataclasses.is_dataclass, value)):
            return f"({', '.join(map(self._assumed, value))},)"
        if dataclasses.is_dataclass(value):
            call, words = self.constraint(value)
            return f"{call[:-1]}{''.join(f', {name}={text}' for name, text in words.items())})"
        return self.expression(value, {})


def _is_made(value: Any, places: list[Any], words: dict[str, Any]) -> bool:
    try:
        return bool(type(value)(*places, **words) == value)
    except (TypeError, ValueError):
        return False


def _own_text(value: Any) -> str | None:
    """A value of cuTile's as users write it: a type, an option, an annotation."""
    if isinstance(value, torch.dtype):
        value = getattr(cuda.tile, str(value).rpartition(".")[2], None)
    if isinstance(value, enum.Enum) and getattr(cuda.tile, type(value).__name__, None):
        return f"ct.{type(value).__name__}.{value.name}"
    public = {name: thing for name, thing in vars(cuda.tile).items() if not name.startswith("_")}
    if isinstance(value, cuda.tile.DType):
        return next((f"ct.{name}" for name, thing in public.items() if thing is value), None)
    if typing.get_origin(value) is not typing.Annotated:
        return None
    kind = typing.get_args(value)[0]
    for name, thing in public.items():
        if typing.get_origin(thing) is not typing.Annotated:
            continue
        if thing == value:
            return f"ct.{name}"
        if isinstance(kind, type) and thing.__parameters__ and thing[kind] == value:
            return f"ct.{name}[{kind.__name__}]"
    return None


class _Session(RecordedSession):
    packages = ("cuda", "cutile_cache")
    first = next = "cutile"

    def settle(self, ask: Message) -> None:
        driver.set_capability(ask["device"]["capability"])

    def recorder(self, ask: Message, log: Path) -> Recorder:
        # A file that stands alone is lowered anyway.
        folder = self.folder if self.message["op"] == "open" else None
        return LaunchRecorder(gpu_of(self.target), folder, ask["injected"])

    def lowered(self, record: Any, folder: Path, request: Message, result: dict[str, Any]) -> None:
        """Leave cuTile's own IR as text and the bytecode, for the tileiras of a release."""
        gpu = gpu_of(self.target)
        result["metadata"] = {"entry": record.signature.symbol}
        try:
            program = lowered(record, gpu, newest_bytecode(request["bytecode"]))
            text = "\n".join(block.to_string(include_loc=False) for block in program.final_ir)
            (folder / "kernel.cutile").write_text(f"{text}\n")
            (folder / "kernel.tileir").write_bytes(program.bytecode)
        except (Exception, SystemExit) as error:
            frames = traceback.extract_tb(error.__traceback__)
            if any(_WRITER in frame.filename for frame in frames):
                result["stage"] = "tileir"
            raise
        result["stage"] = "tileir"
        options = record.options
        if hasattr(options, "opt_level_for_target"):
            level = int(options.opt_level_for_target(gpu))
        else:
            level = int(options.specialize_for_target(gpu).opt_level)
        result["flags"] = ["--gpu-name", gpu, f"-O{level}", "--lineinfo"]

    def exported(self, record: Any) -> dict[str, Any]:
        gpu, function = gpu_of(self.target), record.function.pyfunc
        definitions = _Definitions(function)
        definitions.add(function)
        names = inspect.signature(function).parameters
        values = dict(zip(names, record.signature.parameters, strict=True))
        constants = {
            name: value.value
            for name, value in values.items()
            if isinstance(value, ConstantConstraint)
        }
        calls = {n: definitions.constraint(values[n]) for n in names if n not in constants}
        convention = record.signature.calling_convention.name
        export = definitions.export(
            values,
            constants,
            options=_options(record.options, gpu),
            source_class={"module": "cuda.tile.compilation", "attribute": convention},
            target=[gpu],
        )
        return {
            "export": export,
            "parameters": {name: call for name, (call, _) in calls.items()},
            "keywords": {name: words for name, (_, words) in calls.items()},
        }


if __name__ == "__main__":
    serve_captures(_Session, {"cuda.tile": cuda.tile.__version__}, _Session.compile_file)
