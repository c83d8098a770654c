"""Executes one launch on the emulator.

Reads `job.json` there and leaves `run-N.json` for each of its runs as it ends, and the bytes of
every buffer afterwards in a file named by their sha256. A process of its own, under limits: what
executes foreign code may need any time and memory (`harness.run.child.serving` forks it).
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from gpu_emulator.api import origins, run, trace
from gpu_emulator.values import Allocation, Budget, Cubin, Launch, Schedule
from harness.run.emulator_jobs import (
    BESIDE,
    OF_OUTCOME,
    PROGRESS,
    PTX,
    TRACE,
    Emulation,
    EmulatorJob,
    JobBuffer,
    Ran,
    RunTrial,
)


def _allocation(buffer: JobBuffer, folder: Path) -> Allocation:
    if buffer.file is None:
        data: npt.NDArray[np.uint8] = np.zeros(buffer.size, np.uint8)
    else:
        data = np.fromfile(folder / f"{buffer.file}.bin", np.uint8)
    unwritten = buffer.unwritten or buffer.file is None
    written = np.zeros(len(data), np.bool_) if unwritten else None
    return Allocation(name=buffer.name, data=data, written=written)


def _launch(job: Emulation, folder: Path, ptx: str = PTX) -> Launch:
    """The launch, with what its buffers held when they were recorded."""
    cubin = None
    if job.cubin:
        elf, listing = (folder / f"{sha256}.bin" for sha256 in (job.cubin, job.listing))
        cubin = Cubin(elf=elf.read_bytes(), listing=listing.read_text())
    return Launch(
        cubin=cubin,
        ptx=(folder / ptx).read_text(),
        entry=job.entry,
        grid=job.grid,
        block=job.block,
        cluster=job.cluster,
        dynamic_shared=job.dynamic_shared,
        allocations=tuple(_allocation(buffer, folder) for buffer in job.buffers),
        arguments=tuple(passed.argument for passed in job.arguments),
    )


def _as_scheduled(launch: Launch, schedule: Schedule) -> Launch:
    """The launch; with garbage, with other bytes in the buffers that nothing has written to."""
    if not schedule.garbage:
        return launch
    draw = np.random.default_rng(schedule.garbage)
    allocations = (
        buffer
        if buffer.written is None
        else replace(buffer, data=draw.integers(0, 256, len(buffer.data), np.uint8))
        for buffer in launch.allocations
    )
    return replace(launch, allocations=tuple(allocations))


class _Progress:
    def __init__(self, folder: Path, trial: RunTrial, job: Emulation) -> None:
        self._path = folder / PROGRESS
        self._place = f"run {job.trials.index(trial) + 1} of {len(job.trials)}"
        self._started = self._last = time.perf_counter()

    def __call__(self, executed: int) -> None:
        now = time.perf_counter()
        if now < self._last + 1:
            return
        self._last = now
        rate = executed / (now - self._started) / 1e6
        words = f"{self._place}, {executed:,} instructions, {rate:.1f} million a second"
        self._path.with_suffix(".tmp").write_text(words)
        self._path.with_suffix(".tmp").rename(self._path)


def _ran(launch: Launch, trial: RunTrial, job: Emulation, folder: Path) -> tuple[Ran, bool]:
    """The run, and whether any order of warps comes to the same."""
    started = time.perf_counter()
    scheduled, progress = _as_scheduled(launch, trial.schedule), _Progress(folder, trial, job)
    outcome = run(scheduled, trial.schedule, job.budget, trial.checks, progress)
    buffers = []
    for after, before in zip(outcome.allocations, launch.allocations, strict=False):
        # What nothing has written is as it was, and no garbage.
        written = after.written
        values = after.data if written is None else np.where(written, after.data, before.data)
        data = values.tobytes()
        buffers.append(hashlib.sha256(data).hexdigest())
        path = folder / f"{buffers[-1]}.bin"
        if not path.exists():
            path.write_bytes(data)
    ran = Ran(
        trial=trial,
        buffers=tuple(buffers),
        seconds=time.perf_counter() - started,
        **{name: getattr(outcome, name) for name in OF_OUTCOME},
    )
    return ran, outcome.is_ordered


def _same_run(trial: RunTrial, runs: Sequence[Ran]) -> Ran | None:
    """What a trial comes to, by another one that differs only in which warps run first.

    `runs` are those in which no order of warps matters.
    """
    checks = trial.checks
    for ran in runs:
        if trial.schedule != replace(ran.trial.schedule, warps=trial.schedule.warps):
            continue
        if ran.trial.checks.races >= checks.races and ran.trial.checks.validity >= checks.validity:
            races = ran.races if checks.races else ()
            missing = ran.uninitialised if checks.validity else ()
            return replace(ran, trial=trial, races=races, uninitialised=missing, seconds=0.0)
    return None


def _is_enough(faulty: Ran, trial: RunTrial, budget: Budget) -> bool:
    """Whether a fault says enough: other orders are run, not where it takes the whole budget."""
    others = (faulty.trial.schedule, trial.schedule)
    is_order = not any(schedule.garbage or schedule.resident for schedule in others)
    return not is_order or faulty.executed > budget.max_instructions


def work(folder: Path) -> None:
    """Do what `job.json` in the folder asks for."""
    message = msgspec.json.decode((folder / "job.json").read_bytes(), type=EmulatorJob)
    job, launch = message.emulation, _launch(message.emulation, folder)
    if message.element is not None:
        first, second = (trial.schedule for trial in job.trials)
        follow = origins if message.beside else trace
        beside = _launch(message.beside, folder, BESIDE) if message.beside else launch
        launches = (_as_scheduled(launch, first), _as_scheduled(beside, second))
        steps = follow(launches, (first, second), job.budget, message.element)
        (folder / TRACE).write_bytes(msgspec.json.encode(steps))
        return
    ordered: list[Ran] = []
    faulty: Ran | None = None
    for number, trial in enumerate(job.trials):
        if faulty and _is_enough(faulty, trial, job.budget):
            return
        ran = _same_run(trial, ordered)
        if ran is None:
            ran, is_ordered = _ran(launch, trial, job, folder)
            ordered += [ran] * is_ordered
        path = folder / f"run-{number}.json"
        unfinished = path.with_suffix(".tmp")
        unfinished.write_bytes(msgspec.json.encode(ran))
        unfinished.rename(path)
        if ran.not_run:
            return
        faulty = ran if ran.faults else faulty
