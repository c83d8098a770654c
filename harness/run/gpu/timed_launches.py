"""Launches at their own shapes, timed in turns: what a ranking and a workaround are held to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from harness.frontends.assemble import keep_times
from harness.frontends.bench import Workbench
from harness.frontends.plan import PlannedCell
from harness.run.gpu.cubin_judging import digest_of, judge_digests, numbers_of
from harness.run.gpu.evaluating import find_gpu_batch, keep_batch
from harness.run.gpu.gpu_batch import GpuBatch, ShapedLaunches
from harness.run.gpu.measured import GpuFacts, Measured
from harness.run.gpu.packing import Answers, GpuWay, head_of_file, read_results, write_pack
from harness.run.launch import Launch
from harness.store.store import Store
from harness.values.errors import EmptySelectionError, TriageError
from harness.values.row import Row
from harness.values.timing import TimeMs, time_of
from harness.values.verdict import VerdictKind


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedLaunch:
    """What a GPU did with one cubin; `problem` says why it has no time.

    `digest` is of all memory that the launch was given, None where its runs differ. `finite` is the
    fraction of numbers among those that were looked at afterwards which are finite. `samples` are
    milliseconds. `driver` is its version, `day` the date there.
    """

    device: str
    time: TimeMs | None
    problem: str | None = None
    digest: tuple[str, ...] | None = None
    finite: float | None = None
    samples: tuple[float, ...] = ()
    bytes: int = 0
    driver: str | None = None
    day: str | None = None


CubinGroups = Sequence[Sequence[tuple[PlannedCell, Row]]]
"""Groups of cells whose launch is captured, each with the row of the cubin that is launched."""


async def time_by(
    bench: Workbench,
    way: GpuWay,
    groups: CubinGroups,
    command: str,
    digest: Literal["whole", "windows"],
    tell: Callable[[str], None],
) -> dict[str, TimedLaunch] | str:
    """What a GPU did with these cubins, by their sha256; the name of the pack that they went into.

    Cells of one group are timed in turns.

    Raises:
        EmptySelectionError: nothing can be launched.
        InfrastructureError: there is no GPU, or no results came back.
        UsageError: results are of no pack of this store.
    """
    if way.results:
        return imported_times(way.results, bench.store)
    gpu_batch = await _batch_of(bench, groups, command, digest, tell)
    name = keep_batch(bench.store, gpu_batch)
    if way.pack:
        write_pack(gpu_batch, bench.store.artifacts.get, way.pack)
        return name
    assert way.place is not None
    tell(f"{len(gpu_batch.carried)} cubins are timed on {way.place.name}")
    return _timed(gpu_batch, await way.place.answers(bench, gpu_batch), bench.store)


async def _batch_of(
    bench: Workbench,
    groups: CubinGroups,
    command: str,
    digest: Literal["whole", "windows"],
    tell: Callable[[str], None],
) -> GpuBatch:
    gpu_batch, source = GpuBatch(command=command), ShapedLaunches(digest=digest)
    why = "nothing is selected"
    for group in groups:
        for cell, row in group:
            if not row.cubin_sha256:
                continue
            try:
                gpu_batch = gpu_batch.with_case(
                    cell.cell, row, await source.launch_for(bench, cell)
                )
            except TriageError as error:
                why = str(error)
                tell(f"{row.short} cannot be launched: {why}")
        gpu_batch = gpu_batch.timed()
    if not gpu_batch.carried:
        raise EmptySelectionError(f"no cubin to launch: {why}")
    return gpu_batch


def imported_times(paths: Sequence[Path], store: Store) -> dict[str, TimedLaunch]:
    """What a GPU did with the cubins of packs of this store, by their sha256.

    Raises:
        UsageError: these are not results, or of no pack of this store.
    """
    launches: dict[str, TimedLaunch] = {}
    for path in paths:
        gpu_batch = find_gpu_batch(store, head_of_file(path))
        launches |= _timed(gpu_batch, read_results(path, gpu_batch, store.artifacts.get), store)
    return launches


def _timed(gpu_batch: GpuBatch, answers: Answers, store: Store) -> dict[str, TimedLaunch]:
    launches: dict[str, TimedLaunch] = {}
    times = []
    for case, measured in zip(gpu_batch.carried, answers.measured, strict=True):
        assert case.cubin is not None
        assert case.launch is not None
        timed = _timed_launch(measured, gpu_batch.launches[case.launch], answers.gpu, store)
        launches[case.cubin] = timed
        if timed.time:
            times.append((case.compiled, timed.time))
    keep_times(store, answers.gpu.name, times)
    return launches


def _timed_launch(measured: Measured, launch: Launch, gpu: GpuFacts, store: Store) -> TimedLaunch:
    times, buffers = measured.times, launch.emulation.buffers
    text = store.artifacts.get(launch.emulation.ptx).decode(errors="replace")
    judgement = judge_digests(measured, buffers, text, gpu)
    problem = None
    if judgement.verdict is not VerdictKind.RAN:
        problem = judgement.reason.removeprefix("measured: ")
    elif times is None or not times.ms:
        problem = times.words if times else "its machine gave no time for it"
    digests = {digest_of(run, buffers) for run in measured.ended}
    glimpses = measured.ended[0].glimpses if measured.ended else ()
    arrays = [array for _, array in numbers_of(glimpses, launch.tensors, buffers).values()]
    numbers = np.concatenate(arrays) if arrays else np.empty(0)
    return TimedLaunch(
        device=gpu.name,
        time=None if problem or times is None else time_of(times.ms, times.sm_mhz),
        problem=problem,
        digest=digests.pop() if len(digests) == 1 else None,
        finite=float(np.isfinite(numbers).mean()) if numbers.size else None,
        samples=times.ms if times else (),
        bytes=sum(buffer.size for buffer in buffers if buffer.file),
        driver=gpu.driver,
        day=gpu.day,
    )
