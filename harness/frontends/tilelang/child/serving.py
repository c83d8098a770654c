"""The child of one TileLang: a session for each capture, a job for each kernel of it."""

# ruff: noqa: ANN401 - records hold values of TileLang

from __future__ import annotations

import ast
import contextlib
import inspect
import json
import math
import os
import sys
import tempfile
import time
import traceback
from json import dumps
from pathlib import Path
from typing import Any

import tilelang
import tilelang.contrib.nvcc
import torch
import tvm

from harness.frontends.pretend.recorded import RecordedSession, Recorder
from harness.frontends.tilelang.child.recording import TIR, KernelRecorder
from harness.io.children.captures import leave, serve_captures
from harness.io.children.definitions import Definitions, ExportError
from harness.io.children.supervisor import Message


class _Session(RecordedSession):
    packages = ("tilelang", "tvm", "tvm_ffi", "z3")
    first = "tir"

    def settle(self, ask: Message) -> None:
        os.environ["TILELANG_CACHE_DIR"] = str(self.folder / "cache")
        os.environ["TILELANG_TMP_DIR"] = str(self.folder / "cache" / "tmp")
        # What a kernel asks of its target while it is built; until 0.1.11, and from 0.1.12 on.
        words = json.dumps({"kind": "cuda", "arch": ask["settings"]["target"]})
        os.environ["TILELANG_TARGET"] = os.environ["TILELANG_DEFAULT_TARGET"] = words

    def recorder(self, ask: Message, log: Path) -> Recorder:
        return KernelRecorder(ask["injected"])

    def lower(self, record: Any, folder: Path, asked: Message) -> None:
        lower(record, folder, self.target)

    def exported(self, record: Any) -> dict[str, Any]:
        return {"export": export(record, self.target)}


def main() -> None:
    """Say hello, and serve captures until the caller hangs up."""
    serve_captures(_Session, {"tilelang": tilelang.__version__}, _Session.compile_file)


def lower(record: Any, folder: Path, target: str) -> None:
    """Lower `record` for `target` in this (forked) process; everything is left in `folder`.

    `result.json`: error or None, the stage, metadata, and nvcc's options. `kernel.tir`, `kernel.cu`
    and `kernel.device` hold what each stage gave.
    """
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    os.environ["TILELANG_CACHE_DIR"] = str(folder / "cache")
    progress = folder / "progress.json"
    progress.write_text(dumps({"stage": "tir" if record.error else "cuda"}))
    result: dict[str, Any] = {"error": record.error, "stage": "tir", "metadata": {}}
    started = time.perf_counter()
    if record.error is None:
        result["stage"] = "cuda"
        with contextlib.suppress(Exception):  # for people to read, and no part of the work
            (folder / "kernel.tir").write_text(record.function.script())
        try:
            result |= _lowered(record, folder, target)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever is raised is the evidence
            result["error"] = {
                "type": type(error).__name__,
                "kinds": [kind.__name__ for kind in type(error).__mro__],
                "message": str(error)[:100_000],
                "traceback": "".join(traceback.format_exception(error))[-100_000:],
            }
    result["seconds"] = {result["stage"]: time.perf_counter() - started}
    leave(result, folder)


def _lowered(record: Any, folder: Path, arch: str) -> dict[str, Any]:
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
        words = [arch] if isinstance(arch, str) else list(arch or ())
        more = [options] if isinstance(options, str) else list(options or ())
        calls.append({"code": code, "options": [*map(str, words), *map(str, more)]})
        return bytearray(b"\0")

    tilelang.contrib.nvcc.compile_cuda = compile_cuda
    target = tvm.target.Target({"kind": "cuda", "arch": arch})
    with tvm.transform.PassContext(opt_level=3, config=record.pass_configs), target:
        artifact = tilelang.lower(record.function, target=target, enable_device_compile=True)
    with contextlib.suppress(Exception):
        (folder / "kernel.device").write_text(artifact.device_mod.script())
    code = calls[-1]["code"] if calls else artifact.kernel_source
    (folder / "kernel.cu").write_text(code)
    kernels = [_facts(function) for function in artifact.device_mod.functions.values()]
    # One function may hold several kernels; the one that takes most of an SM stands for it.
    kernels.sort(key=lambda each: (each["shared"], each["entry"]), reverse=True)
    return {
        "options": calls[-1]["options"] if calls else [],
        "metadata": {
            **(kernels[0] if kernels else {}),
            "kernels": [each["entry"] for each in kernels],
        },
    }


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


_BROUGHT = {"tilelang", "tvm", "torch", *sys.stdlib_module_names}


def export(record: Any, target: str) -> dict[str, Any]:
    """The export of a record.

    Raises:
        ExportError: something of it cannot be written down.
    """
    if record.built_by is None:
        message = "no call of a decorated function builds it, one that returns a kernel"
        raise ExportError(message)
    function, args, kwargs = record.built_by
    definitions = _Definitions()
    definitions.builder = function
    definitions.add(function)
    given = inspect.signature(function).bind(*args, **kwargs)
    given.apply_defaults()
    return definitions.export(
        given.arguments,
        given.arguments,
        options=record.pass_configs,
        source_class={"value": "lower"},
        target=["cuda", target],
    )


class _Definitions(Definitions):
    builder: Any = None

    def is_brought(self, module: str) -> bool:
        return module.partition(".")[0] in _BROUGHT

    def source(self, thing: Any) -> tuple[str, tuple[str, Any] | None]:
        code, decorator = super().source(thing)
        if thing is self.builder:
            # The file calls it as it is: what it builds is lowered, not compiled and launched.
            node = ast.parse(code).body[0]
            code = "".join(code.splitlines(keepends=True)[node.lineno - 1 :])
        return code, decorator

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
