"""What a worker does: one capture with its cells, in a scratch folder that is gone afterwards."""

from __future__ import annotations

import asyncio
import functools
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass

from harness.cells.run import CapturePlace, CompileOptions, Run, RunProgress, open_bench, work_off
from harness.files.own_code import code_sha256
from harness.matrix.rules import Rules
from harness.nights.by_name import place_of_name
from harness.nights.plan import MatrixPlan
from harness.nights.steering import MatrixSteering
from harness.nights.tasks import CaptureAnswer, CaptureTask
from harness.processes.hub import Hub
from harness.store.exchange.parcels import pack
from harness.store.sqlite.records import from_row
from harness.store.store import Store
from harness.values.errors import TriageError

__all__ = ["work_on_capture"]


def work_on_capture(message: bytes) -> bytes:
    """The answer to a `CaptureTask`; what this machine cannot do is said in it."""
    task = CaptureTask.decode(message, _code())
    if task is None:
        said = "its triage is another version than the one that was started"
        return CaptureAnswer(host=platform.node(), failures=(said,)).encode()
    try:
        return asyncio.run(_work(task)).encode()
    except TriageError as error:
        return CaptureAnswer(host=platform.node(), failures=(str(error),)).encode()


@functools.cache
def _code() -> str:
    # Once, near the start: what is on the disk later is not what runs.
    return code_sha256(".")


async def _work(task: CaptureTask) -> CaptureAnswer:
    places = tuple(place_of_name(each) for each in task.places)
    async with Hub() as hub:
        home = hub.new_folder("results")
        with Store.open(home) as store:
            done = await _results(task, places, hub, store)
        return CaptureAnswer(
            host=platform.node(),
            parcel=pack(home),
            failures=tuple(map(str, done.run.failures)),
            notes=tuple(done.run.notes),
            excluded=done.steering.excluded,
            versions=tuple(sorted(done.steering.versions)),
            matched=tuple(done.steering.rules.matched()),
            skipped=done.steering.skipped,
            skipped_captures=done.steering.skipped_captures,
            carried=done.steering.carried,
            cpu_seconds=done.run.bench.cpu_seconds,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Done:
    run: Run
    steering: MatrixSteering


async def _results(
    task: CaptureTask, places: Sequence[CapturePlace], hub: Hub, store: Store
) -> _Done:
    """The cells of these places, worked off into a store."""
    # As many tasks as cores may be at work on this machine.
    memory = task.memory or CompileOptions().limits.memory
    how = CompileOptions(
        jobs=1, timeout=task.timeout, memory=memory, use_cache=task.use_cache, command=task.command
    )
    bench = open_bench(hub, store, how, launch_timeout=task.launch_timeout)
    if task.until is not None:
        bench.deadline = time.monotonic() + task.until - time.time()
    run_id = store.begin_run(task.command, uid=task.run)
    progress = RunProgress()
    steering = MatrixSteering(
        bench=bench,
        plan=MatrixPlan(
            rules=Rules(matrix=task.matrix, only=task.only),
            places=tuple(places),
            extras=frozenset(n for n, each in enumerate(task.places) if each.is_extra),
            dropped=(),
            warnings=(),
            failures=(),
            versions={},
        ),
        progress=progress,
        run=run_id,
        use_cache=task.use_cache,
        past={record.cell: record for record in map(from_row, task.past)},
    )
    steering.settled.update(task.settled)
    run = Run(bench=bench, run=run_id, progress=progress, steering=steering)
    await work_off(run, places, [range(len(places))])
    return _Done(run=run, steering=steering)
