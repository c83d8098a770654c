"""A case whose PTX is executed: its rows, and those of the attached file."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from harness.bisect.axes import plan_cells
from harness.cells.compile import CompileOptions
from harness.cells.run import open_bench
from harness.frontends.base import Selection
from harness.processes.hub import Hub
from harness.runs.executing import Executed, keep_execution
from harness.runs.same_inputs import SameInputs
from harness.store.store import Store

__all__ = ["executed_rows"]


async def executed_rows(
    selection: Selection, store: Store, how: CompileOptions, tell: Callable[[str], None]
) -> tuple[Executed, ...]:
    """Every selected config, executed on the same inputs and kept.

    Raises:
        UsageError: it is a file of PTX.
        TriageError: the launch cannot be captured, or run with values.
    """
    selection = SameInputs.small(selection)
    run = store.begin_run(how.command)
    async with Hub() as hub:
        bench = open_bench(hub, store, how)
        plan = await plan_cells(bench, selection, None)
        same = SameInputs(bench=bench, selection=selection, tell=tell)
        found = await asyncio.gather(*(same.execute(bench, cell) for cell in plan.cells))
        for each in found:
            keep_execution(store, run, each)
    store.finish_run(run)
    return tuple(found)
