"""`triage compile`: every config of the kernels on every toolchain and target selected."""

from __future__ import annotations

import time
from collections.abc import Sequence

from harness.cells.document import CompileReport
from harness.cells.places import (
    CompileOptions,
    Run,
    RunProgress,
    Steering,
    captures_of,
    places_of,
    work,
    work_off,
)
from harness.frontends.base import Selection
from harness.store.store import Store
from harness.values.errors import EmptySelectionError, TriageError
from harness.values.row import Row


async def compile_selections(
    selections: Sequence[Selection],
    store: Store,
    options: CompileOptions,
    progress: RunProgress,
    steering: Steering | None = None,
) -> CompileReport:
    """Compile the cells of the selections, or those that `steering` chooses, and store each.

    Raises:
        CaptureError: no launch could be captured.
        EmptySelectionError: no config matches the filter.
        StorageError: results cannot be kept.
    """
    started = time.monotonic()
    async with work(store, options) as (bench, run_id):
        run = Run(bench=bench, run=run_id, progress=progress, steering=steering or Steering())
        run.notes.extend(note for selection in selections for note in selection.notes)
        rows = await _every_place(run, selections)
        if not rows:
            raise _nothing(run, selections[0])
        cpu_seconds = bench.cpu_seconds
    return CompileReport(
        rows=tuple(rows),
        failures=tuple(dict.fromkeys(str(error) for error in run.failures)),
        notes=tuple(dict.fromkeys(run.notes)),
        wall_seconds=time.monotonic() - started,
        cpu_seconds=cpu_seconds,
    )


async def _every_place(run: Run, selections: Sequence[Selection]) -> list[Row]:
    """The rows of all places in their order, worked on capture by capture."""
    places = [place for selection in selections for place in places_of(selection)]
    rows: dict[int, list[Row]] = {}
    await work_off(run, places, captures_of(places), keep=rows.__setitem__)
    return [row for index in range(len(places)) for row in rows[index]]


def _nothing(run: Run, selection: Selection) -> TriageError:
    """Why there is not one cell."""
    if run.failures:
        return run.failures[0]
    values: dict[str, set[str]] = {}
    for config in run.configs:
        for name, value in config.items:
            values.setdefault(name, set()).add(str(value))
    known = "; ".join(f"{name}: {', '.join(sorted(found))}" for name, found in values.items())
    wanted = ",".join(f"{name}={'|'.join(allowed)}" for name, allowed in selection.config.wanted)
    return EmptySelectionError(f"--config {wanted} matches none of the configs, which have {known}")
