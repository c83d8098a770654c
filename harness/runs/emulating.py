"""Has a launch executed by a worker process, and keeps what came out by content."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

import harness
from harness.bench.bench import Kept, Workbench, content_key
from harness.emulator.values import Budget
from harness.files.own_code import code_sha256
from harness.processes.hub import FILE_SIZE, ResourceLimits, scratch_disk
from harness.runs.jobs import PROGRESS, EmulatorJob, JobBuffer, Passed, Ran, RunTrial
from harness.values.outcome import ProcessEnd

__all__ = ["Emulated", "Emulation", "emulate", "emulator_sha256"]

_LARGEST_RESULT = 1 << 30
_PATIENCE = 10.0
"""Seconds until a run says how far it is, and from then on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Emulation:
    """A launch with its PTX and buffers as artifacts, and the runs that it is to have.

    `files` are the sha256 of the buffers' bytes, None where nothing wrote them.
    """

    ptx: str
    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    dynamic_shared: int
    buffers: tuple[JobBuffer, ...]
    arguments: tuple[Passed, ...]
    trials: tuple[RunTrial, ...]
    budget: Budget


@dataclass(frozen=True, slots=True, kw_only=True)
class Emulated:
    """The runs that came to an end; `problem` says why not all of them did."""

    runs: tuple[Ran, ...]
    problem: str | None = None


@functools.cache
def emulator_sha256() -> str:
    """Hash of the code that executes: part of the key of everything that it made."""
    return code_sha256("emulator", "ptx", "runs/jobs.py", "runs/worker.py")


async def emulate(
    bench: Workbench,
    wanted: Emulation,
    tell: Callable[[str], None] = lambda text: None,  # noqa: ARG005
) -> Kept[Emulated]:
    """Execute a launch once for each trial, in a process with the limits of a compiler run.

    What was found is kept by content, unless the limits ended it. `tell` hears how far it is where
    it takes long.

    Raises:
        InfrastructureError: the worker cannot be started.
        UnusableArtifactError: the PTX or a buffer is damaged.
    """
    key = content_key(job=msgspec.to_builtins(wanted), emulator=emulator_sha256())
    async with bench.once(key):
        kept = bench.find("run", key, Emulated)
        if kept:
            return kept
        folder = bench.hub.new_folder("run")
        try:
            with scratch_disk():
                _prepare(bench, wanted, folder)
            limits = ResourceLimits(
                timeout=bench.limits.timeout,
                memory=bench.limits.memory,
                file_size=max(FILE_SIZE, _LARGEST_RESULT),
            )
            argv = [sys.executable, "-m", "harness.runs.worker", str(folder)]
            async with bench.slot():
                telling = asyncio.ensure_future(_tell(folder / PROGRESS, tell))
                try:
                    end = await bench.hub.execute(
                        argv, folder=folder, limits=limits, env=_environment()
                    )
                finally:
                    telling.cancel()
            bench.cpu_seconds += end.cpu
            return _collect(bench, key, wanted, folder, end)
        finally:
            bench.hub.drop_folder(folder)


async def _tell(path: Path, tell: Callable[[str], None]) -> None:
    while True:
        await asyncio.sleep(_PATIENCE)
        with contextlib.suppress(OSError):
            tell(path.read_text())


def _environment() -> Mapping[str, str]:
    """One thread for each worker: several of them run at once."""
    root = str(Path(harness.__file__).parent.parent)
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    return {
        **os.environ,
        "PYTHONPATH": path,
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }


def _prepare(bench: Workbench, wanted: Emulation, folder: Path) -> None:
    artifacts = bench.store.artifacts
    (folder / "kernel.ptx").write_bytes(artifacts.get(wanted.ptx))
    buffers = []
    for buffer in wanted.buffers:
        name = None
        if buffer.file is not None:
            name = f"{buffer.file}.bin"
            if not (folder / name).exists():
                (folder / name).write_bytes(artifacts.get(buffer.file))
        buffers.append(replace(buffer, file=name))
    job = EmulatorJob(
        ptx="kernel.ptx",
        entry=wanted.entry,
        grid=wanted.grid,
        block=wanted.block,
        cluster=wanted.cluster,
        dynamic_shared=wanted.dynamic_shared,
        buffers=tuple(buffers),
        arguments=wanted.arguments,
        trials=wanted.trials,
        budget=wanted.budget,
    )
    (folder / "job.json").write_bytes(msgspec.json.encode(job))


def _collect(
    bench: Workbench, key: str, wanted: Emulation, folder: Path, end: ProcessEnd
) -> Kept[Emulated]:
    runs = []
    for number in range(len(wanted.trials)):
        path = folder / f"run-{number}.json"
        if not path.is_file():
            break
        runs.append(msgspec.json.decode(path.read_bytes(), type=Ran))
    names = {sha256 for ran in runs for sha256 in ran.buffers}
    for sha256 in names:
        bench.store.artifacts.put_file(folder / f"{sha256}.bin")
    found = Emulated(runs=tuple(runs), problem=None if end.ok else _how_it_ended(folder, end))
    if found.problem:
        return Kept(value=found, key=key, artifacts={}, cached=False)
    return bench.keep("run", key, found, {sha256: sha256 for sha256 in names})


def _how_it_ended(folder: Path, end: ProcessEnd) -> str:
    hint = ""
    if end.timed_out:
        hint = ", see --timeout; a smaller launch (--set) takes less"
    elif end.over_memory:
        hint = ", see --memory; a smaller launch (--set) takes less"
    log = folder / "stderr"
    lines = log.read_text(errors="replace").strip().splitlines() if log.is_file() else []
    said = f": {lines[-1][:300]}" if lines and not end.killed_by_us else ""
    return f"the emulator's process: {end.words}{hint}{said}"
