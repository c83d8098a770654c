"""Lowers one recorded kernel to CUDA C++, and notes how TileLang would have called nvcc."""

# ruff: noqa: ANN401 - records hold values of TileLang

from __future__ import annotations

import contextlib
import math
import os
import tempfile
import time
import traceback
from json import dumps
from pathlib import Path
from typing import Any

import tilelang
import tilelang.contrib.nvcc
import tvm

from harness.io.children.captures import leave


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
