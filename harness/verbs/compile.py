"""`triage compile`: every config of the kernels on every toolchain and target selected."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
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
from harness.verbs.planning import Plan, plan_launch, plan_ptx
from harness.verbs.selection import PlannedLaunch, Selection

__all__ = ["CompileOptions", "CompileReport", "Progress", "compile_selections"]

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where one kernel of a selection is captured; both are None for raw PTX."""

    selection: Selection
    target: Target
    triton: Triton | None = None
    launch: PlannedLaunch | None = None

    @property
    def capture(self) -> object:
        """Equal for the kernels that one capture serves."""
        if self.launch is None:
            return self.selection.repro.name, self.target
        file, launch = self.selection.repro.file, self.launch
        return file, launch.spec.name, launch.label, self.target, self.triton


@dataclass(slots=True, kw_only=True)
class _Run:
    bench: Workbench
    run: int
    progress: Progress
    failures: list[TriageError] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    configs: list[Config] = field(default_factory=list)


async def compile_selections(
    selections: Sequence[Selection], store: Store, options: CompileOptions, progress: Progress
) -> CompileReport:
    """Compile all cells of the selections; each is stored as soon as it is known.

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
        run = _Run(bench=bench, run=run_id, progress=progress)
        run.notes.extend(note for selection in selections for note in selection.notes)
        rows = await _every_place(run, selections)
        if not rows:
            raise _nothing(run, selections[0])
        cpu_seconds = bench.cpu_seconds
    store.finish_run(run_id)
    return CompileReport(
        rows=tuple(rows),
        failures=tuple(dict.fromkeys(str(error) for error in run.failures)),
        notes=tuple(dict.fromkeys(run.notes)),
        wall_seconds=time.monotonic() - started,
        cpu_seconds=cpu_seconds,
    )


async def _every_place(run: _Run, selections: Sequence[Selection]) -> list[Row]:
    """The rows of all places in their order, worked on capture by capture."""
    places = [place for selection in selections for place in _places(selection)]
    by_capture: dict[object, list[int]] = {}
    for index, place in enumerate(places):
        by_capture.setdefault(place.capture, []).append(index)
    # An open session holds memory: just enough of them to keep every worker busy.
    turns = asyncio.Semaphore(run.bench.jobs + 1)

    async def one_capture(indices: Sequence[int]) -> list[list[Row]]:
        async with turns:
            return await _captured_together(run, [places[index] for index in indices])

    done = await _all([one_capture(indices) for indices in by_capture.values()])
    rows: dict[int, list[Row]] = {}
    for indices, groups in zip(by_capture.values(), done, strict=True):
        rows.update(zip(indices, groups, strict=True))
    return [row for index in range(len(places)) for row in rows[index]]


async def _all(jobs: Iterable[Coroutine[None, None, T]]) -> list[T]:
    """As `asyncio.gather`, but when one fails, or we are stopped, the others end too."""
    tasks = [asyncio.ensure_future(job) for job in jobs]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _places(selection: Selection) -> list[_Place]:
    if selection.repro.ptx:
        return [_Place(selection=selection, target=target) for target in selection.targets]
    return [
        _Place(selection=selection, target=target, triton=triton, launch=launch)
        for launch in selection.launches
        for target in selection.targets
        for triton in selection.tritons
    ]


async def _captured_together(run: _Run, places: Sequence[_Place]) -> list[list[Row]]:
    """The rows of each place that one capture serves; its session ends with the last of them."""
    plans = await _all([_plan(run, place) for place in places])
    rows = await _all([_all(_one(run, cell) for cell in plan.cells) for plan in plans])
    for session in {plan.session for plan in plans if plan.session}:
        await run.bench.sessions.close(session)
    return rows


async def _plan(run: _Run, place: _Place) -> Plan:
    """The cells of one place; none where the capture failed."""
    try:
        if place.triton is None or place.launch is None:
            plan = plan_ptx(run.bench, place.selection, place.target)
        else:
            plan = await plan_launch(
                run.bench, place.selection, place.target, place.triton, place.launch
            )
    except TriageError as error:
        run.failures.append(error)
        return Plan(cells=())
    run.notes.extend(plan.notes)
    run.failures.extend(CaptureError(failure) for failure in plan.failures)
    run.configs.extend(plan.configs)
    run.progress.planned(len(plan.cells))
    return plan


async def _one(run: _Run, plan: PlannedCell) -> Row:
    done = await evaluate(run.bench, plan)
    run.bench.store.put_result(run.run, _record(done))
    run.progress.done(done.row)
    if done.note:
        run.notes.append(f"instructions are not counted for {done.row.target}: {done.note}")
    return done.row


def _nothing(run: _Run, selection: Selection) -> TriageError:
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
