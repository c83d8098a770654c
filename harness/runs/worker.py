"""Executes one launch on the emulator: `python -m harness.runs.worker FOLDER`.

Reads `job.json` there and leaves `run-N.json` for each of its runs as it ends, and the bytes of
every buffer afterwards in a file named by their sha256. A process of its own, under limits: what
executes foreign code may need any time and memory.
"""

from __future__ import annotations

import hashlib
import sys
import time
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np

from harness.emulator.machine.launching import run
from harness.emulator.values import Allocation, Launch
from harness.runs.jobs import PROGRESS, EmulatorJob, JobBuffer, Ran, RunTrial

__all__ = ["main"]


def _allocation(buffer: JobBuffer, folder: Path) -> Allocation:
    if buffer.file is None:
        data = np.zeros(buffer.size, np.uint8)
    else:
        data = np.fromfile(folder / buffer.file, np.uint8)
    unwritten = buffer.unwritten or buffer.file is None
    written = np.zeros(len(data), np.bool_) if unwritten else None
    return Allocation(name=buffer.name, data=data, written=written)


def _launch(job: EmulatorJob, folder: Path) -> Launch:
    """The launch, with what its buffers held when they were recorded."""
    return Launch(
        ptx=(folder / job.ptx).read_text(),
        entry=job.entry,
        grid=job.grid,
        block=job.block,
        cluster=job.cluster,
        dynamic_shared=job.dynamic_shared,
        allocations=tuple(_allocation(buffer, folder) for buffer in job.buffers),
        arguments=tuple(passed.given() for passed in job.arguments),
    )


def _after(allocation: Allocation, before: Allocation) -> bytes:
    """A buffer after the run; what nothing has written is as it was, and no garbage."""
    if allocation.written is None:
        return allocation.data.tobytes()
    return np.where(allocation.written, allocation.data, before.data).tobytes()


def _keep(data: bytes, folder: Path) -> str:
    sha256 = hashlib.sha256(data).hexdigest()
    path = folder / f"{sha256}.bin"
    if not path.exists():
        path.write_bytes(data)
    return sha256


def _with_garbage(launch: Launch, garbage: int) -> Launch:
    """The launch with other bytes in the buffers that nothing has written to."""
    draw = np.random.default_rng(garbage)
    allocations = (
        each
        if each.written is None
        else replace(each, data=draw.integers(0, 256, len(each.data), np.uint8))
        for each in launch.allocations
    )
    return replace(launch, allocations=tuple(allocations))


class _Progress:
    """Leaves how far a run is in a file, at most once a second."""

    def __init__(self, folder: Path, trial: RunTrial, job: EmulatorJob) -> None:
        self._path = folder / PROGRESS
        self._place = f"run {job.trials.index(trial) + 1} of {len(job.trials)}"
        self._started = self._last = time.perf_counter()

    def __call__(self, executed: int) -> None:
        now = time.perf_counter()
        if now < self._last + 1:
            return
        self._last = now
        each = executed / (now - self._started) / 1e6
        words = f"{self._place}, {executed:,} instructions, {each:.1f} million a second"
        self._path.with_suffix(".tmp").write_text(words)
        self._path.with_suffix(".tmp").rename(self._path)


def _ran(launch: Launch, trial: RunTrial, job: EmulatorJob, folder: Path) -> Ran:
    started = time.perf_counter()
    garbage = trial.schedule.garbage
    given = _with_garbage(launch, garbage) if garbage else launch
    outcome = run(given, trial.schedule, job.budget, trial.checks, _Progress(folder, trial, job))
    return Ran(
        trial=trial,
        buffers=tuple(
            _keep(_after(each, before), folder)
            for each, before in zip(outcome.allocations, launch.allocations, strict=False)
        ),
        faults=outcome.faults,
        races=outcome.races,
        uninitialised=outcome.uninitialised,
        not_run=outcome.not_run,
        unknown=outcome.unknown,
        executed=outcome.executed,
        ctas=outcome.ctas,
        ctas_of=outcome.ctas_of,
        is_sample=outcome.is_sample,
        seconds=time.perf_counter() - started,
    )


def main() -> None:
    """Do what `job.json` asks for."""
    folder = Path(sys.argv[1])
    job = msgspec.json.decode((folder / "job.json").read_bytes(), type=EmulatorJob)
    launch = _launch(job, folder)
    for number, trial in enumerate(job.trials):
        ran = _ran(launch, trial, job, folder)
        path = folder / f"run-{number}.json"
        unfinished = path.with_suffix(".tmp")
        unfinished.write_bytes(msgspec.json.encode(ran))
        unfinished.rename(path)
        if ran.not_run or ran.faults:
            # One fault is enough; an endless loop takes its whole budget each time.
            return


if __name__ == "__main__":
    main()
