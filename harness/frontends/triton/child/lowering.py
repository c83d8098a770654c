"""Compiles one recorded launch as far as PTX, and notes how Triton would have called ptxas."""

# ruff: noqa: ANN401 - values of torch, Triton and the user have types that we cannot name

from __future__ import annotations

import hashlib
import importlib.metadata
import inspect
import os
import re
import subprocess
import tempfile
import time
import traceback
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from json import dumps
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import triton
from triton.backends import backends
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

from harness.frontends.pretend.pretend_driver import pretend_triton
from harness.frontends.triton.child.recording import Recorder
from harness.io.children.launch_code import run_launch, stand_aside

# The class that compiles, and the globals that its methods see. Until 3.3 Triton loads the module
# by path, under another name: importing it would give a copy that is not used.
_BACKEND: Any = backends["nvidia"].compiler
_NAMESPACE: dict[str, Any] = _BACKEND.add_stages.__globals__


class ProgressFile:
    """Keeps `progress.json` true at any moment, so that a process that dies says where it was."""

    def __init__(self, folder: Path, first: str) -> None:
        self._path = folder / "progress.json"
        self.stages: dict[str, float] = {}
        self.stage = first
        self.enter(first)

    def enter(self, stage: str) -> None:
        """Say that a stage begins."""
        self.stage = stage
        self._path.write_text(dumps({"stage": stage, "seconds": self.stages}))


def _record_ptxas(calls: list[list[str]]) -> None:
    """Let the backend assemble nothing: note its ptxas command line, leave an empty cubin."""

    def run(command: list[str], *args: Any, **kwargs: Any) -> Any:
        if "-o" not in command:
            return subprocess.run(command, *args, **kwargs)  # noqa: PLW1510 - as the caller says
        calls.append([str(word) for word in command])
        Path(command[command.index("-o") + 1]).write_bytes(b"")
        return subprocess.CompletedProcess(command, 0)

    names = {
        name: getattr(subprocess, name) for name in dir(subprocess) if not name.startswith("__")
    }
    _NAMESPACE["subprocess"] = types.SimpleNamespace(**{**names, "run": run})


class _PastError(Exception):
    """The last stage that is asked for has succeeded."""


def _watch_stages(backend_class: Any, progress: ProgressFile, until: str | None) -> None:
    original = backend_class.add_stages

    def add_stages(self: Any, stages: dict[str, Callable[..., Any]], *args: Any) -> Any:
        result = original(self, stages, *args)
        for name, function in list(stages.items()):
            stages[name] = _timed(name, function, progress, is_last=name == until)
        return result

    backend_class.add_stages = add_stages


def _timed(
    name: str, function: Callable[..., Any], progress: ProgressFile, *, is_last: bool
) -> Callable[..., Any]:
    def stage(source: Any, metadata: Any) -> Any:
        progress.enter(name)
        started = time.perf_counter()
        result = function(source, metadata)
        progress.stages[name] = time.perf_counter() - started
        if is_last:
            raise _PastError
        return result

    return stage


def _error(error: BaseException) -> dict[str, Any]:
    return {
        "type": type(error).__name__,
        "kinds": [kind.__name__ for kind in type(error).__mro__],
        "message": str(error)[:100_000],
        "traceback": "".join(traceback.format_exception(error))[-100_000:],
    }


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    return str(value)


def lower(
    record: Any,
    run: Callable[..., Any],
    folder: Path,
    ptxas: str | None,
    *,
    dump: bool = False,
    until: str | None = None,
) -> None:
    """Compile `record` in this (forked) process; everything is left in `folder`.

    With `dump`, MLIR prints the module before every pass. With `until`, it is over once this stage
    has succeeded.

    `result.json`: error or None, metadata, ptxas flags and gpu name, seconds by stage; `is_past`
    where it was over early.
    `cache/`: what Triton stored of each finished stage, also when a later one failed.
    """
    os.environ["TRITON_CACHE_DIR"] = str(folder / "cache")
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    if dump:
        os.environ["MLIR_ENABLE_DUMP"] = "1"
    if ptxas:
        os.environ["TRITON_PTXAS_PATH"] = os.environ["TRITON_PTXAS_BLACKWELL_PATH"] = ptxas
        _forget_answers()

    progress = ProgressFile(folder, record.first_stage)
    calls: list[list[str]] = []
    _record_ptxas(calls)
    _watch_stages(_BACKEND, progress, until)
    result: dict[str, Any] = {"error": None, "metadata": {}, "ptxas_command": None}
    result["first_stage"] = record.first_stage
    try:
        result["metadata"] = _metadata(record.compile(run))
    except _PastError:
        result["is_past"] = True
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever is raised is the evidence
        result["error"] = _error(error)
    if calls:
        result["ptxas_command"] = _flags(calls[-1])
    result["stage"] = progress.stage
    result["seconds"] = progress.stages
    result["triton"] = importlib.metadata.version("triton")
    partial = folder / "result.json.tmp"
    partial.write_text(dumps(result))
    partial.rename(folder / "result.json")


def _forget_answers() -> None:
    """Drop what the backend remembers of the ptxas that it saw during the capture."""
    for value in _NAMESPACE.values():
        if callable(getattr(value, "cache_clear", None)):
            value.cache_clear()


def picked_ptxas(capability: int) -> str:
    """The ptxas that this Triton would run for a target, by its own rules."""
    pick = _NAMESPACE.get("get_ptxas")
    if pick is None:
        # Triton 3.2 has one ptxas, and no other way to ask for it.
        return str(_NAMESPACE["_path_to_binary"]("ptxas")[0])
    # Until 3.6 there was one ptxas on some versions, and the function took no target.
    tool = pick(capability) if inspect.signature(pick).parameters else pick()
    return str(tool[0] if isinstance(tool, tuple) else tool.path)


def _metadata(kernel: Any) -> dict[str, Any]:
    metadata = kernel.metadata
    values = metadata._asdict() if hasattr(metadata, "_asdict") else vars(metadata)
    return {name: _plain(value) for name, value in {**values, **_signature(kernel.src)}.items()}


def _signature(source: Any) -> dict[str, Any]:
    """Which arguments the compiled kernel takes: names with types, in order.

    Until 3.2 what became a constant is named in it too, and by name among the constants; from 3.3
    on its type says so.
    """
    signature = getattr(source, "signature", None) or {}
    constants = getattr(source, "constants", None) or {}
    return {
        "signature": list(signature.items()),
        "constants": [name for name in constants if isinstance(name, str)],
    }


def _flags(command: list[str]) -> dict[str, Any]:
    """The command without its files: the executable, and the flags in their order."""
    output = command.index("-o")
    words = [*command[1:output], *command[output + 2 :]]
    flags = [word for word in words if not word.endswith(".ptx")]
    return {"executable": command[0], "flags": flags}


@dataclass
class _Nothing:
    """Stands in for the record of a file that did not come to compile anything."""

    first_stage: ClassVar[str] = "capture"
    error: BaseException

    def compile(self, run: Any) -> NoReturn:
        raise self.error


def compile_standalone(message: Mapping[str, Any], folder: Path) -> None:
    """Lower the first kernel of a file in this (forked) process: `lower` says what it leaves."""
    ask = message["capture"]
    mode = pretend_triton(ask["device"])
    if is_ir(ask["file"]):
        record: Any = read_ir(ask["file"], ask["overrides"], ask["device"]["capability"])
        run = JITFunction.run
    else:
        stand_aside(ask)
        os.environ["TRITON_CACHE_DIR"] = str(folder / "cache")
        recorder = Recorder()
        run = recorder.original_run
        with mode, recorder.active():
            record = _first_record(recorder, ask)
    with mode:
        lower(record, run, folder, message["ptxas"], until=message["until"])


def _first_record(recorder: Recorder, ask: Mapping[str, Any]) -> Any:
    error: BaseException = RuntimeError("the file compiles no kernel")
    try:
        run_launch(ask["file"], ask["function"], ask["overrides"])
    except (Exception, SystemExit) as raised:  # noqa: BLE001 - the file's code raises anything
        error = raised
    return next(iter(recorder.records.values()), _Nothing(error))


_SUFFIXES = (".ttir", ".ttgir")
_KERNEL = re.compile(r'tt\.func public @(?:"([^"\n]{1,500})"|([\w.$-]{1,500}))\s{0,9}\(')


@dataclass
class IrRecord:
    """A file of IR, the options to compile it with, and the target."""

    # Triton reads it before any stage begins.
    first_stage: ClassVar[str] = "capture"
    path: str
    kernel: str
    key: str
    options: dict[str, Any]
    capability: int

    def describe(self) -> dict[str, Any]:
        """As a capture tells of a launch; a file has no arguments and no grid."""
        default = {"num_ctas": 1}
        return {
            "key": self.key,
            "kernel": self.kernel,
            "config": {n: v for n, v in self.options.items() if default.get(n) != v},
            "autotuned": False,
            "arguments": [],
            "grid": None,
            "file": self.path,
        }

    def compile(self, run: Any) -> Any:
        """Go on from the file to the end."""
        target = GPUTarget("cuda", self.capability, 32)
        return triton.compile(self.path, target=target, options=dict(self.options))


def is_ir(file: str) -> bool:
    """Whether this is a file of Triton's IR, by its name."""
    return file.endswith(_SUFFIXES)


def read_ir(file: str, options: dict[str, Any], capability: int) -> IrRecord:
    """The record of a file; what it is good for, Triton will say."""
    data = Path(file).read_bytes()
    named = _KERNEL.search(data.decode(errors="replace"))
    body = [hashlib.sha256(data).hexdigest(), Path(file).suffix, sorted(options.items())]
    return IrRecord(
        path=file,
        kernel=(named[1] or named[2]) if named else "",
        key=hashlib.sha256(dumps(body).encode()).hexdigest(),
        options=options,
        capability=capability,
    )
