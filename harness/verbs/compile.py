"""`triage compile`: every config of one kernel on every toolchain and target that is selected."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from harness.effects import machine
from harness.effects.process import Hub, ResourceLimits
from harness.effects.store import ResultRecord, Store
from harness.effects.triton_sessions import TritonSessions
from harness.effects.workbench import Workbench
from harness.values.errors import CaptureError, EmptySelectionError, TriageError
from harness.values.kernel import Config
from harness.values.row import Row
from harness.values.target import Target
from harness.values.toolchain import Triton
from harness.verbs.cells import Evaluated, PlannedCell, evaluate
from harness.verbs.planning import plan_launch, plan_ptx
from harness.verbs.selection import PlannedLaunch, Selection

__all__ = ["CompileOptions", "CompileReport", "Progress", "compile_selection"]

T = TypeVar("T")

_GIB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileOptions:
    """How to work: `timeout` is wall seconds for one compiler run, `memory` bytes for one."""

    jobs: int = 0
    timeout: float = 300.0
    memory: int = 0
    use_cache: bool = True
    command: str = "triage compile"

    @property
    def workers(self) -> int:
        """How many compilers may run at once."""
        return self.jobs or machine.cores()

    @property
    def limits(self) -> ResourceLimits:
        """The limits of one compiler run on this machine."""
        total = machine.memory()
        # Most of the machine, shared out among the workers, but enough for one large kernel.
        share = max(int(total * 0.8 / self.workers), 2 * _GIB)
        return ResourceLimits(timeout=self.timeout, memory=self.memory or share)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileReport:
    """The rows in plan order, and what else a reader should know.

    `failures` are the captures that failed where others succeeded. `cpu_seconds` is what the
    compilers used in this run, `wall_seconds` the run as a whole.
    """

    rows: tuple[Row, ...]
    failures: tuple[str, ...]
    notes: tuple[str, ...]
    wall_seconds: float
    cpu_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What a run tells while it works; both take no time."""

    planned: Callable[[int], None] = lambda cells: None  # noqa: ARG005
    done: Callable[[Row], None] = lambda row: None  # noqa: ARG005


@dataclass(slots=True, kw_only=True)
class _Run:
    selection: Selection
    bench: Workbench
    run: int
    progress: Progress
    failures: list[TriageError] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    configs: list[Config] = field(default_factory=list)


async def compile_selection(
    selection: Selection, store: Store, options: CompileOptions, progress: Progress
) -> CompileReport:
    """Compile all cells of a selection; each is stored as soon as it is known.

    Raises:
        CaptureError: no launch could be captured.
        EmptySelectionError: no config matches the filter.
        StorageError: results cannot be kept.
    """
    started = time.monotonic()
    run_id = store.begin_run(options.command)
    async with Hub() as hub:
        bench = Workbench(
            hub=hub,
            store=store,
            sessions=TritonSessions(hub, capture_timeout=options.timeout),
            jobs=options.workers,
            limits=options.limits,
            use_cache=options.use_cache,
        )
        run = _Run(selection=selection, bench=bench, run=run_id, progress=progress)
        run.notes.extend(selection.notes)
        groups = await _all([_group(run, *key) for key in _coordinates(selection)])
        if not any(groups):
            raise _nothing(run)
        cpu_seconds = bench.cpu_seconds
    store.finish_run(run_id)
    return CompileReport(
        rows=tuple(row for group in groups for row in group),
        failures=tuple(str(error) for error in run.failures),
        notes=tuple(dict.fromkeys(run.notes)),
        wall_seconds=time.monotonic() - started,
        cpu_seconds=cpu_seconds,
    )


async def _all(jobs: Iterable[Coroutine[None, None, T]]) -> list[T]:
    """As `asyncio.gather`, but when one fails, or we are stopped, the others end too."""
    tasks = [asyncio.ensure_future(job) for job in jobs]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _coordinates(
    selection: Selection,
) -> list[tuple[Target, Triton | None, PlannedLaunch | None]]:
    if selection.repro.ptx:
        return [(target, None, None) for target in selection.targets]
    return [
        (target, triton, launch)
        for launch in selection.launches
        for target in selection.targets
        for triton in selection.tritons
    ]


async def _group(
    run: _Run, target: Target, triton: Triton | None, launch: PlannedLaunch | None
) -> list[Row]:
    """All cells of one launch, target and Triton; none where the capture failed."""
    try:
        if triton is None or launch is None:
            plan = plan_ptx(run.bench, run.selection, target)
        else:
            plan = await plan_launch(run.bench, run.selection, target, triton, launch)
    except TriageError as error:
        run.failures.append(error)
        return []
    run.notes.extend(plan.notes)
    run.failures.extend(CaptureError(failure) for failure in plan.failures)
    run.configs.extend(plan.configs)
    run.progress.planned(len(plan.cells))
    rows = await _all(_one(run, cell) for cell in plan.cells)
    if plan.session:
        await run.bench.sessions.close(plan.session)
    return rows


async def _one(run: _Run, plan: PlannedCell) -> Row:
    done = await evaluate(run.bench, plan)
    run.bench.store.put_result(run.run, _record(done))
    run.progress.done(done.row)
    if done.note:
        run.notes.append(f"instructions are not counted for {done.row.target}: {done.note}")
    return done.row


def _nothing(run: _Run) -> TriageError:
    """Why there is not one cell."""
    if run.failures:
        return run.failures[0]
    values: dict[str, set[str]] = {}
    for config in run.configs:
        for name, value in config.items:
            values.setdefault(name, set()).add(str(value))
    known = "; ".join(f"{name}: {', '.join(sorted(found))}" for name, found in values.items())
    wanted = ",".join(
        f"{name}={'|'.join(allowed)}" for name, allowed in run.selection.config.wanted
    )
    return EmptySelectionError(f"--config {wanted} matches none of the configs, which have {known}")


def _record(done: Evaluated) -> ResultRecord:
    row = done.row
    return ResultRecord(
        cell=row.cell,
        short=row.short,
        kernel=row.kernel,
        launch=row.launch,
        config=row.config,
        target=row.target,
        triton=row.triton or "",
        ptxas=row.ptxas,
        verdict=row.verdict,
        signature_key=row.signature,
        row=msgspec.json.encode(row),
        evidence=done.evidence,
    )
