"""Launches at their own shapes, timed in turns: what a ranking and a workaround are held to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from harness.frontends.base import PlannedCell
from harness.frontends.bench.assemble import keep_times
from harness.frontends.bench.bench import Workbench
from harness.run.gpu.evaluating import find_trip, keep_trip
from harness.run.gpu.judging import digest_of, judge_digests, numbers_of
from harness.run.gpu.measured import GpuRun, Measured
from harness.run.gpu.packing import (
    Answers,
    Destination,
    head_of_file,
    read_results,
    travel,
    write_pack,
)
from harness.run.gpu.trip import Gathering, ShapedLaunches, Trip, TripCase
from harness.run.launch import Launch
from harness.store.store import Store
from harness.values.errors import EmptySelectionError, TriageError
from harness.values.execution import RunVerdict
from harness.values.row import Row
from harness.values.timing import TimeMs, time_of
from harness.values.toolchain import GPU


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


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuWay:
    """How a GPU is reached: a place, a pack that goes there, or the results of such packs."""

    place: Destination | None = None
    pack: Path | None = None
    results: tuple[Path, ...] = ()


Wanted = Sequence[Sequence[tuple[PlannedCell, Row]]]
"""Groups of cells whose launch is captured, each with the row of the cubin that is launched."""


async def time_by(
    bench: Workbench,
    way: GpuWay,
    wanted: Wanted,
    command: str,
    digest: Literal["whole", "windows"],
    tell: Callable[[str], None],
) -> dict[str, TimedLaunch] | str:
    """What a GPU did with these cubins, by their sha256; the name of the pack that they went into.

    Cells that stand together in `wanted` are timed in turns.

    Raises:
        EmptySelectionError: nothing can be launched.
        InfrastructureError: there is no GPU, or no results came back.
        UsageError: results are of no pack of this store.
    """
    if way.results:
        return imported_times(way.results, bench.store)
    trip = await _trip(bench, wanted, command, digest, tell)
    name = keep_trip(bench.store, trip)
    if way.pack:
        write_pack(trip, bench.store, way.pack)
        return name
    assert way.place is not None
    tell(f"{len(trip.carried)} cubins are timed on {way.place.name}")
    return _timed(trip, await travel(bench, trip, way.place), bench.store)


async def _trip(
    bench: Workbench,
    wanted: Wanted,
    command: str,
    digest: Literal["whole", "windows"],
    tell: Callable[[str], None],
) -> Trip:
    gathering, source = Gathering(how=Trip(command=command)), ShapedLaunches(digest=digest)
    why = "nothing is selected"
    for group in wanted:
        for cell, row in group:
            if not row.cubin_sha256:
                continue
            try:
                launch = await source.launch_for(bench, cell)
            except TriageError as error:
                why = str(error)
                tell(f"{row.short} cannot be launched: {why}")
                continue
            named = replace(cell.cell, on=GPU)
            number = gathering.launch(launch)
            gathering.cases.append(TripCase(cell=named, compiled=row, launch=number))
        gathering.time_new()
    trip = gathering.trip()
    if not trip.carried:
        raise EmptySelectionError(f"no cubin to launch: {why}")
    return trip


def imported_times(paths: Sequence[Path], store: Store) -> dict[str, TimedLaunch]:
    """What a GPU did with the cubins of packs of this store, by their sha256.

    Raises:
        UsageError: these are not results, or of no pack of this store.
    """
    found: dict[str, TimedLaunch] = {}
    for path in paths:
        trip = find_trip(store, head_of_file(path))
        found |= _timed(trip, read_results(path, trip, store), store)
    return found


def _timed(trip: Trip, answers: Answers, store: Store) -> dict[str, TimedLaunch]:
    found: dict[str, TimedLaunch] = {}
    for number, case in enumerate(trip.carried):
        assert case.cubin is not None
        assert case.launch is not None
        found[case.cubin] = _one(case, trip.launches[case.launch], number, answers, store)
    timed = [(case.compiled, found[case.cubin].time) for case in trip.carried if case.cubin]
    keep_times(store, answers.gpu.name, [(row, time) for row, time in timed if time])
    return found


def _one(
    case: TripCase, launch: Launch, number: int, answers: Answers, store: Store
) -> TimedLaunch:
    times = answers.times.get(number)
    measured = Measured(words=case.words, runs=tuple(answers.runs.get(number, ())), times=times)
    text = store.artifacts.get(launch.emulation.ptx).decode(errors="replace")
    judgement = judge_digests(measured, launch.emulation.buffers, text, answers.gpu)
    problem = None
    if judgement.verdict is not RunVerdict.RAN:
        problem = judgement.reason.removeprefix("measured: ")
    elif times is None or not times.ms:
        problem = times.words if times else "its machine gave no time for it"
    digests = {digest_of(run, launch.emulation.buffers) for run in measured.ended}
    return TimedLaunch(
        device=answers.gpu.name,
        time=None if problem or times is None else time_of(times.ms, times.sm_mhz),
        problem=problem,
        digest=digests.pop() if len(digests) == 1 else None,
        finite=_finite(measured.ended[0], launch) if measured.ended else None,
        samples=times.ms if times else (),
        bytes=sum(each.size for each in launch.emulation.buffers if each.file),
        driver=answers.gpu.driver,
        day=answers.gpu.day,
    )


def _finite(run: GpuRun, launch: Launch) -> float | None:
    numbers = [
        values
        for _, values in numbers_of(run.glimpses, launch.tensors, launch.emulation.buffers).values()
    ]
    total = sum(values.size for values in numbers)
    return sum(int(np.isfinite(values).sum()) for values in numbers) / total if total else None
