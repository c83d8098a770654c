"""Has a launch executed by a worker process, and keeps what came out by content."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from gpu_emulator.values import Element, Trace
from harness.frontends.bench import Kept, Workbench, content_key
from harness.io.files.own_code import code_sha256, import_path
from harness.io.files.writing import scratch_disk
from harness.io.processes.hub import FILE_SIZE, Hub, ResourceLimits
from harness.run.emulator_jobs import (
    BESIDE,
    EMULATE,
    PROGRESS,
    PTX,
    TRACE,
    Emulated,
    Emulation,
    EmulatorJob,
    Ran,
)
from harness.run.launch import Launch, RunEvidence, evidence_of
from harness.values.outcome import ProcessEnd

_LARGEST_RESULT = 1 << 30
_PATIENCE = 10.0
"""Seconds until a run says how far it is, and from then on."""


@functools.cache
def emulator_sha256() -> str:
    """Hash of the code that executes: part of the key of everything that it made."""
    return code_sha256("gpu_emulator", "run/emulator_jobs.py", "run/child/worker.py")


async def emulate(
    bench: Workbench,
    emulation: Emulation,
    tell: Callable[[str], None] = lambda text: None,  # noqa: ARG005
) -> Kept[Emulated]:
    """Execute a launch once for each trial, in a process with the limits of a compiler run.

    What came out is kept by content, unless the limits ended it. `tell` hears how far it is where
    it takes long.

    Raises:
        InfrastructureError: the emulator cannot be started.
        UnusableArtifactError: the PTX or a buffer is damaged.
    """
    key = content_key(job=msgspec.to_builtins(emulation), emulator=emulator_sha256())
    async with bench.once(key):
        stored = bench.find("run", key, Emulated)
        if stored:
            return stored
        artifacts, job = bench.store.artifacts, EmulatorJob(emulation=emulation)
        texts = [artifacts.get(emulation.ptx) if emulation.ptx else b""]
        async with _executed(bench, job, texts, artifacts.get, tell) as (folder, emulated):
            names = {sha256 for ran in emulated.runs for sha256 in ran.buffers}
            for sha256 in names:
                artifacts.put_file(folder / f"{sha256}.bin")
        if emulated.problem:
            return Kept(value=emulated, key=key)
        return bench.keep("run", key, emulated, {sha256: sha256 for sha256 in names})


async def emulate_once(
    bench: Workbench, launch: Launch, ptx: str, contents: Mapping[str, bytes]
) -> RunEvidence:
    """As `emulate`, of PTX that is in no store; nothing is kept.

    `contents` are all bytes that the launch begins with and is held to.

    So candidates of a reduction are executed: there are thousands, and none is asked for again.

    Raises:
        InfrastructureError: the emulator cannot be started.
    """
    job = EmulatorJob(emulation=launch.emulation)
    async with _executed(bench, job, [ptx.encode()], contents.__getitem__) as (folder, emulated):
        names = {sha256 for ran in emulated.runs for sha256 in ran.buffers}
        after = {sha256: (folder / f"{sha256}.bin").read_bytes() for sha256 in names}
    return evidence_of(launch, emulated, {**contents, **after}.__getitem__)


async def trace_once(
    bench: Workbench, emulation: Emulation, element: Element, beside: Emulation | None
) -> Trace:
    """Follow an element back to where the two runs of a launch first differ; nothing is kept.

    With `beside`, a launch of another PTX on the same buffers, the second run is of that.

    Raises:
        InfrastructureError: the emulator cannot be started.
    """
    get = bench.store.artifacts.get
    job = EmulatorJob(emulation=emulation, element=element, beside=beside)
    texts = [get(program.ptx) for program in (emulation, beside) if program]
    async with _executed(bench, job, texts, get) as (folder, emulated):
        path = folder / TRACE
        if not path.is_file():
            return Trace(not_run=emulated.problem or "the emulator left no trace")
        return msgspec.json.decode(path.read_bytes(), type=Trace)


@contextlib.asynccontextmanager
async def _executed(
    bench: Workbench,
    job: EmulatorJob,
    texts: Sequence[bytes],
    get: Callable[[str], bytes],
    tell: Callable[[str], None] | None = None,
) -> AsyncIterator[tuple[Path, Emulated]]:
    folder = bench.hub.new_folder("run")
    try:
        with scratch_disk():
            for name, text in zip((PTX, BESIDE), texts, strict=False):
                (folder / name).write_bytes(text)
            for emulation in filter(None, (job.emulation, job.beside)):
                for sha256 in emulation.files:
                    (folder / f"{sha256}.bin").write_bytes(get(sha256))
            (folder / "job.json").write_bytes(msgspec.json.encode(job))
        limits = ResourceLimits(
            timeout=bench.limits.timeout,
            memory=bench.limits.memory,
            file_size=max(FILE_SIZE, _LARGEST_RESULT),
        )
        async with bench.slot():
            telling = asyncio.ensure_future(_tell(folder / PROGRESS, tell)) if tell else None
            try:
                process = await execute_job(bench.hub, folder, limits)
            finally:
                if telling:
                    telling.cancel()
        bench.cpu_seconds += process.cpu
        runs = []
        for number in range(len(job.emulation.trials)):
            path = folder / f"run-{number}.json"
            if not path.is_file():
                break
            runs.append(msgspec.json.decode(path.read_bytes(), type=Ran))
        problem = None if process.ok else _how_it_ended(folder, process)
        yield folder, Emulated(runs=tuple(runs), problem=problem)
    finally:
        bench.hub.drop_folder(folder)


async def execute_job(
    hub: Hub, folder: Path, limits: ResourceLimits, module: str = "harness.run.child.worker"
) -> ProcessEnd:
    """Have the job in a folder done by a fork of the emulator's process, where the hub says.

    The `module` of ours that has the function `work` is that of launches, if none is named.

    Raises:
        InfrastructureError: it cannot be started.
    """
    return await hub.do(module, folder, limits, lambda: _forked(hub, folder, limits, module))


async def _forked(hub: Hub, folder: Path, limits: ResourceLimits, module: str) -> ProcessEnd:
    message = {"op": EMULATE, "folder": str(folder), "limits": limits.message(), "module": module}
    argv = [sys.executable, "-m", "harness.run.child.serving"]
    path = os.pathsep.join(filter(None, (import_path(), os.environ.get("PYTHONPATH"))))
    # One thread for each worker: several of them run at once.
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    env = {**os.environ, "PYTHONPATH": path, **threads}
    return await hub.serve("emulator", argv, env, message, "the emulator")


async def _tell(path: Path, tell: Callable[[str], None]) -> None:
    while True:
        await asyncio.sleep(_PATIENCE)
        with contextlib.suppress(OSError):
            tell(path.read_text())


def _how_it_ended(folder: Path, process: ProcessEnd) -> str:
    if process.timed_out or process.over_memory:
        option, far = "--timeout" if process.timed_out else "--memory", ""
        with contextlib.suppress(OSError):
            far = f" in {(folder / PROGRESS).read_text()}"
        killed = f"the emulator's process was {process.words}{far}"
        return f"not finished: {killed}; run it with a larger {option}, or fewer --programs"
    log = folder / "stderr"
    lines = log.read_text(errors="replace").strip().splitlines() if log.is_file() else []
    error = f": {lines[-1][:300]}" if lines and not process.killed_by_us else ""
    return f"the emulator's process: {process.words}{error}"
