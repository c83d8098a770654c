"""A case whose PTX is executed, or whose cubins are launched on a GPU: its rows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from harness.bisect.axes import plan_cells
from harness.cells.places import CompileOptions, open_bench
from harness.frontends.base import Selection
from harness.io.processes.hub import Hub
from harness.run.executing import Executed, keep_execution
from harness.run.gpu.evaluating import OnGpu
from harness.run.gpu.places import place_of
from harness.run.raw_ptx import RawInputs
from harness.run.same_inputs import SameInputs
from harness.store.store import Store
from harness.values.errors import UsageError


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


async def launched_rows(
    selection: Selection,
    inputs: RawInputs,
    store: Store,
    how: CompileOptions,
    tell: Callable[[str], None],
    runner: str | None,
) -> tuple[Executed, ...]:
    """A file of PTX by every selected ptxas, launched on a GPU in one trip and kept.

    Raises:
        UsageError: it is not a file of PTX, or the inputs do not fit.
        InfrastructureError: there is no GPU, or no results came back.
        TriageError: nothing could be assembled.
    """
    if selection.repro.ptx is None:
        raise UsageError(
            f"{selection.repro.name}: --on gpu reports a file of PTX; `triage show --stage ptx` "
            "prints that of a kernel"
        )
    run = store.begin_run(how.command)
    async with Hub() as hub:
        bench = open_bench(hub, store, how)
        plan = await plan_cells(bench, selection, None)
        launched = OnGpu(
            bench=bench,
            selection=selection,
            inputs=inputs,
            destination=place_of(runner),
            tell=tell,
            command=how.command,
        )
        found = await asyncio.gather(*(launched.execute(bench, cell) for cell in plan.cells))
        for each in found:
            keep_execution(store, run, each)
    store.finish_run(run)
    return tuple(found)
