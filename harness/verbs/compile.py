"""`triage compile`: every config of one kernel on every toolchain and target that is selected."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeVar

import msgspec

from harness.effects import machine, toolchains
from harness.effects.lowering import CapturedLaunch, capture, fetch_launch_code
from harness.effects.process import Hub, ResourceLimits
from harness.effects.store import ResultRecord, Store
from harness.effects.triton_sessions import TritonSessions
from harness.effects.workbench import Workbench
from harness.values.cell import CellId
from harness.values.errors import CaptureError, EmptySelectionError, TriageError
from harness.values.kernel import Config, Repro
from harness.values.limits import Limits, limits_of
from harness.values.outcome import Capture, LaunchFacts
from harness.values.row import Row
from harness.values.target import Target
from harness.values.toolchain import BUNDLED, Ptxas, Tool, Triton
from harness.verbs.cells import Evaluated, PlannedCell, evaluate
from harness.verbs.selection import PlannedLaunch, Selection

__all__ = ["CompileOptions", "CompileReport", "Progress", "compile_selection"]

T = TypeVar("T")

_CAPTURE_SECONDS = 120.0
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
    seen_configs: list[Config] = field(default_factory=list)
    launched: set[str] = field(default_factory=set)


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
            sessions=TritonSessions(hub, capture_timeout=min(_CAPTURE_SECONDS, options.timeout)),
            jobs=options.workers,
            limits=options.limits,
            use_cache=options.use_cache,
        )
        run = _Run(selection=selection, bench=bench, run=run_id, progress=progress)
        run.notes.extend(selection.notes)
        groups = await _all([_group(run, *key) for key in _coordinates(run)])
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


def _coordinates(run: _Run) -> list[tuple[Target, Triton | None, PlannedLaunch | None]]:
    selection = run.selection
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
    limits = limits_of(target.capability)
    captured = None
    if triton is None or launch is None:
        cells = _raw_cells(run, target, limits)
    else:
        assert limits is not None
        try:
            captured = await _capture(run, target, triton, launch, limits)
        except TriageError as error:
            run.failures.append(error)
            return []
        cells = _cells(run, captured, target, launch, limits)
    run.progress.planned(len(cells))
    rows = await _gather_rows(run, cells)
    if captured:
        await run.bench.sessions.close(captured.capture.key)
    return rows


async def _gather_rows(run: _Run, cells: Sequence[PlannedCell]) -> list[Row]:
    async def one(plan: PlannedCell) -> Row:
        done = await evaluate(run.bench, plan)
        run.bench.store.put_result(run.run, _record(done))
        run.progress.done(done.row)
        if done.note:
            run.notes.append(f"instructions are not counted for {done.row.target}: {done.note}")
        return done.row

    return await _all(one(plan) for plan in cells)


async def _capture(
    run: _Run, target: Target, triton: Triton, launch: PlannedLaunch, limits: Limits
) -> CapturedLaunch:
    repro = run.selection.repro
    code = fetch_launch_code(repro, launch.spec, launch.overrides)
    captured = await capture(run.bench, code, target=target, triton=triton, limits=limits)
    value = captured.capture.value
    where = f"{repro.name}, launch {launch.label}, Triton {triton.version}, {target}"
    mine = [record for record in value.records if _is_wanted(repro, record)]
    if value.error and not mine:
        line = f":{value.error.line}" if value.error.line else ""
        said = value.error.message.strip().splitlines() or [""]
        raise CaptureError(
            f"{repro.file}{line}: the launch raised {value.error.type}: {said[-1][:300]} ({where})"
        )
    if value.error:
        run.notes.append(
            f"{where}: the code raised {value.error.type} after the launches that are shown"
        )
    if not mine:
        raise _never_launched(repro, value, where)
    run.launched.update(record.kernel for record in mine)
    for kernel, (kept, declared) in value.pruned.items():
        if kept < declared and any(record.kernel == kernel for record in mine):
            run.notes.append(
                f"{where}: the kernel's own pruning leaves {kept} of {declared} configs"
            )
    return captured


def _nvdisasms(selection: Selection, triton: Triton | None) -> tuple[Tool, ...]:
    """The newest first; the one that a Triton bundles still reads what the newest has dropped."""
    tools = (selection.nvdisasm, toolchains.bundled_nvdisasm(triton))
    return tuple(tool for tool in tools if tool)


def _is_wanted(repro: Repro, record: LaunchFacts) -> bool:
    return repro.kernel is None or fnmatchcase(record.kernel, repro.kernel)


def _never_launched(repro: Repro, capture: Capture, where: str) -> CaptureError:
    names = sorted({record.kernel for record in capture.records})
    if not names:
        return CaptureError(f"{repro.file}: no Triton kernel is launched ({where})")
    return CaptureError(
        f"{repro.file}: kernel {repro.kernel!r} is never launched; "
        f"launched are {', '.join(names)} ({where})"
    )


def _nothing(run: _Run) -> TriageError:
    """Why there is not one cell."""
    if run.failures:
        return run.failures[0]
    values: dict[str, set[str]] = {}
    for config in run.seen_configs:
        for name, value in config.items:
            values.setdefault(name, set()).add(str(value))
    known = "; ".join(f"{name}: {', '.join(sorted(found))}" for name, found in values.items())
    wanted = ",".join(
        f"{name}={'|'.join(allowed)}" for name, allowed in run.selection.config.wanted
    )
    return EmptySelectionError(f"--config {wanted} matches none of the configs, which have {known}")


def _raw_cells(run: _Run, target: Target, limits: Limits | None) -> list[PlannedCell]:
    repro = run.selection.repro
    assert repro.ptx is not None
    raw = run.bench.store.artifacts.put_file(repro.ptx)
    cells = []
    for ptxas in run.selection.ptxas:
        assert ptxas is not None
        cell = CellId(
            kernel=repro.name,
            launch="ptx",
            config=Config(),
            target=target,
            triton=None,
            ptxas=ptxas.label,
        )
        cells.append(
            PlannedCell(
                cell=cell,
                ptxas=ptxas,
                limits=limits,
                nvdisasms=_nvdisasms(run.selection, None),
                raw_ptx=raw,
                entry=repro.kernel,
            )
        )
    return cells


def _cells(
    run: _Run, captured: CapturedLaunch, target: Target, launch: PlannedLaunch, limits: Limits
) -> list[PlannedCell]:
    selection = run.selection
    value = captured.capture.value
    bundled = toolchains.describe_ptxas(Path(value.ptxas), BUNDLED)
    counts: Counter[tuple[str, str]] = Counter()
    cells = []
    for record in value.records:
        if not _is_wanted(selection.repro, record):
            continue
        config = Config.of(record.config)
        run.seen_configs.append(config)
        counts[record.kernel, config.label] += 1
        if not selection.config.matches(config):
            continue
        nth = counts[record.kernel, config.label]
        label = f"{launch.label}#{nth}" if nth > 1 else launch.label
        for chosen in selection.ptxas:
            ptxas = chosen or bundled
            cell = CellId(
                kernel=_cell_kernel(selection.repro, record),
                launch=label,
                config=config,
                target=target,
                triton=captured.triton.version,
                ptxas=ptxas.label + ("-frozen" if _freezes(selection, ptxas, bundled) else ""),
            )
            cells.append(
                PlannedCell(
                    cell=cell,
                    ptxas=ptxas,
                    limits=limits,
                    nvdisasms=_nvdisasms(selection, captured.triton),
                    launch=captured,
                    record=record,
                    bundled=bundled,
                    freeze_ptx=selection.freeze_ptx,
                )
            )
    return cells


def _freezes(selection: Selection, ptxas: Ptxas, bundled: Ptxas) -> bool:
    return selection.freeze_ptx and ptxas.origin != bundled.origin


def _cell_kernel(repro: Repro, record: LaunchFacts) -> str:
    """A file that launches several kernels names each; a repro is one kernel by definition."""
    return f"{repro.name}::{record.kernel}" if repro.kernel is None else repro.name


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
