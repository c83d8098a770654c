"""Lowers one recorded launch to the bytecode of Tile IR, as cuTile would."""

# ruff: noqa: ANN401 - records hold values of cuTile

from __future__ import annotations

import os
import re
import tempfile
import time
import traceback
from json import dumps
from pathlib import Path
from typing import Any

import cuda.tile._compile as compiling

from harness.io.children.captures import leave
from harness.io.children.launch_code import describe_error

# What cuTile's own IR is written out by.
_WRITER = "_ir2bytecode"


def gpu_of(target: str) -> str:
    """A target as cuTile spells it: its letter is left to tileiras."""
    return target.rstrip("af")


def newest_bytecode(most: str | None = None) -> Any:
    """The newest version of the bytecode that this cuTile writes, or (`most`) none newer."""
    every = list(compiling._SUPPORTED_VERSIONS)  # noqa: SLF001 - there is no public name
    if most is None:
        return every[-1]
    limit = _numbers(most)
    return max(
        (each for each in every if _numbers(each.as_string()) <= limit),
        key=lambda each: _numbers(each.as_string()),
        default=every[0],
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))[:2]


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


def lower(record: Any, folder: Path, target: str, bytecode: str) -> None:
    """Lower `record` in this (forked) process, for the tileiras of a release.

    All is left in `folder`. `result.json`: error or None, the stage, metadata, the options for
    tileiras. `kernel.cutile` is cuTile's own IR as text, `kernel.tileir` the bytecode.
    """
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    (folder / "progress.json").write_text(dumps({"stage": "cutile"}))
    gpu = gpu_of(target)
    result: dict[str, Any] = {"error": None, "stage": "cutile"}
    result["metadata"] = {"entry": record.signature.symbol}
    started = time.perf_counter()
    try:
        made = lowered(record, gpu, newest_bytecode(bytecode))
        text = "\n".join(block.to_string(include_loc=False) for block in made.final_ir)
        (folder / "kernel.cutile").write_text(f"{text}\n")
        (folder / "kernel.tileir").write_bytes(made.bytecode)
        result["stage"] = "tileir"
        result["options"] = ["--gpu-name", gpu, f"-O{_level(record.options, gpu)}", "--lineinfo"]
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever is raised is the evidence
        result["error"] = describe_error(error, record.file)
        frames = traceback.extract_tb(error.__traceback__)
        if any(_WRITER in frame.filename for frame in frames):
            result["stage"] = "tileir"
    result["seconds"] = {result["stage"]: time.perf_counter() - started}
    leave(result, folder)


def _level(options: Any, gpu: str) -> int:
    """The level of optimisation that tileiras is asked for."""
    if hasattr(options, "opt_level_for_target"):
        return int(options.opt_level_for_target(gpu))
    return int(options.specialize_for_target(gpu).opt_level)
