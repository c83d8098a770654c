"""Cells that were executed, executed again: from nothing, into results of their own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from harness.cells.places import CompileOptions, at_bench
from harness.frontends.base import LaunchCode, Plan, PlannedCell, PlannedLaunch, Selection
from harness.frontends.bench.bench import TimeIsUpError, Workbench
from harness.frontends.registry import front_end
from harness.run.executing import Executed
from harness.run.recorded_launch import small_selection
from harness.store.store import Store
from harness.values.cell import LaunchLabel
from harness.values.errors import TriageError
from harness.values.kernel import Config, ConfigFilter
from harness.values.row import Row
from harness.values.target import Target
from harness.values.verdict import VerdictKind
from harness.workaround.executed import Executions


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrial:
    """What is executed: the kernel of a selection with this compiler, for this target.

    `launch` is the label of the launch, `config` what the kernel is launched with; None: those of
    the selection, of which the first config is meant where none is as `like`.
    """

    compiler: str
    target: str
    launch: str | None = None
    config: Config | None = None
    like: Config | None = None


def retrial_of(row: Row) -> Retrial:
    """How a stored result came about."""
    return Retrial(
        compiler=row.compiler_version or "",
        target=row.target,
        launch=row.launch,
        config=Config.of(row.config),
    )


async def execute_again(
    selection: Selection,
    points: Iterable[Retrial],
    store: Store,
    how: CompileOptions,
    *,
    seconds: float,
) -> dict[Retrial, Executed | str]:
    """What comes out at each point, all on inputs that are recorded once; the first ones first.

    Where it cannot be tried, or not in these seconds: why.

    Raises:
        UsageError: the kernel has no launch that can be run with values.
    """
    selection = small_selection(selection)
    groups: dict[Retrial, list[Retrial]] = {}
    for point in dict.fromkeys(points):
        groups.setdefault(replace(point, config=None), []).append(point)
    found: dict[Retrial, Executed | str] = {}
    async with at_bench(store, replace(how, use_cache=False)) as bench:
        bench.deadline = time.monotonic() + seconds
        executions = Executions(bench=bench, selection=selection, tell=lambda _: None)
        # Few at once: each holds a compiler's process with its launch.
        turns = asyncio.Semaphore(bench.jobs)

        async def one(group: Sequence[Retrial]) -> None:
            async with turns:
                try:
                    await _execute(bench, selection, executions, group, found)
                except (TriageError, TimeIsUpError) as error:
                    is_late = isinstance(error, TimeIsUpError)
                    why = (
                        f"the {seconds:.0f} s for all of them were over" if is_late else str(error)
                    )
                    for point in group:
                        found.setdefault(point, why)

        await asyncio.gather(*map(one, groups.values()))
    return found


async def _execute(
    bench: Workbench,
    selection: Selection,
    executions: Executions,
    group: Sequence[Retrial],
    found: dict[Retrial, Executed | str],
) -> None:
    """Points of one compiler, target and launch: of its own configs, then of others."""
    for adapts in (False, True):
        missing = [point for point in group if point not in found]
        if not missing:
            return
        plan = await _plan(bench, selection, missing, adapts=adapts)
        try:
            for point in missing:
                if cell := _meant(plan.cells, point):
                    executed = await executions.execute(bench, cell)
                    row = executed.done.row
                    is_told = row.verdict != VerdictKind.INFRA.value
                    found[point] = executed if is_told else row.reason
        finally:
            if plan.session:
                await bench.sessions.close(plan.session)
    for point in group:
        found.setdefault(point, "the launch has no such config there")


async def _plan(
    bench: Workbench, selection: Selection, group: Sequence[Retrial], *, adapts: bool
) -> Plan:
    first, end = group[0], front_end(selection.repro.front_end)
    compiler = await asyncio.to_thread(end.install, first.compiler)
    launch = _launch(selection.launches[0], first.launch)
    every = replace(
        selection, config=ConfigFilter(), compilers=(compiler,), launches=(launch,), ptxas=(None,)
    )
    configs = [point.config.as_dict() for point in group if point.config]

    def adapted(code: LaunchCode) -> LaunchCode:
        return code.with_configs(selection.repro.kernel or "*", configs)

    target, adapt = Target.parse(first.target), adapted if adapts else None
    return await end.plan(bench, every.place(target=target, adapt=adapt))


def _launch(launch: PlannedLaunch, label: str | None) -> PlannedLaunch:
    if label is None:
        return launch
    known = {parameter.name: parameter for parameter in launch.spec.parameters}
    words = (text.partition("=") for text in LaunchLabel.parse(label).overrides)
    return replace(launch, overrides={name: known[name].read(value) for name, _, value in words})


def _meant(cells: Sequence[PlannedCell], point: Retrial) -> PlannedCell | None:
    if point.config:
        return next((cell for cell in cells if cell.cell.config == point.config), None)
    same = [cell for cell in cells if cell.cell.config == point.like]
    return next(iter(same or cells), None)
