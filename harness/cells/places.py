"""Works off places, capture by capture: plan, evaluate each cell, store each as soon as known.

`triage compile` takes every cell as it comes; a matrix steers (`RunPolicy`): it chooses and orders
cells, gives some other limits, and stops when its time is up.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import msgspec
from msgspec import structs

from harness.cells.evaluate import Evaluated, evaluate, with_flags
from harness.frontends.bench import TimeIsUpError, Workbench
from harness.frontends.plan import CapturePlace, Plan, PlannedCell, Selection
from harness.frontends.registry import OpenSessions, front_end, plan_launch
from harness.io.processes import machine
from harness.io.processes.hub import Hub, ResourceLimits
from harness.io.processes.tasks import in_parallel
from harness.judging.ptxas.ptxas_options import FlagChange
from harness.store.schema import ResultRecord
from harness.store.store import Store
from harness.tables.samples import Sample
from harness.values.errors import CaptureError, TriageError
from harness.values.kernel import Config
from harness.values.row import Row

T = TypeVar("T")

_GIB = 1 << 30


class CompileOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to work: `timeout` is wall seconds for one compiler run, `memory` bytes for one.

    `warn` hears what every command says to its user, and once is enough.
    Where other machines run tools, `here` are as many of the `jobs` as may be on this one; 0: all.
    """

    jobs: int = 0
    here: int = 0
    timeout: float = 300.0
    memory: int = 0
    use_cache: bool = True
    command: str = "triage compile"
    warn: Callable[[str], None] = lambda words: None  # noqa: ARG005

    @property
    def workers(self) -> int:
        """How many compilers may run at once."""
        return self.jobs or machine.cores()

    @property
    def limits(self) -> ResourceLimits:
        """The limits of one compiler run on this machine."""
        # Shared out among the workers, but enough for one large kernel.
        share = max(machine.memory_of_children() // (self.here or self.workers), 2 * _GIB)
        return ResourceLimits(timeout=self.timeout, memory=self.memory or share)


def open_bench(
    hub: Hub, store: Store, how: CompileOptions, *, launch_timeout: float | None = None
) -> Workbench:
    """A bench for one command; launch code has `launch_timeout` seconds (None: as compilers)."""
    timeout = how.timeout if launch_timeout is None else launch_timeout
    return Workbench(
        hub=hub,
        store=store,
        sessions=OpenSessions(hub, timeout=timeout, memory=how.memory),
        jobs=how.workers,
        here=how.here,
        limits=how.limits,
        use_cache=how.use_cache,
        warn=how.warn,
    )


@contextlib.asynccontextmanager
async def at_bench(
    store: Store,
    how: CompileOptions,
    open_hub: Callable[[], Hub] = Hub,
    *,
    launch_timeout: float | None = None,
) -> AsyncIterator[Workbench]:
    """As `open_bench`; every child that is started there is gone after the block."""
    async with open_hub() as hub:
        yield open_bench(hub, store, how, launch_timeout=launch_timeout)


@contextlib.asynccontextmanager
async def work(
    store: Store, how: CompileOptions, open_hub: Callable[[], Hub] = Hub
) -> AsyncIterator[tuple[Workbench, int]]:
    """A bench and a new run of the store, for one command; both end with the block.

    A run whose block raises stays unfinished: `last` and `diff` are about whole runs.
    """
    run = store.begin_run(how.command)
    async with at_bench(store, how, open_hub) as bench:
        yield bench, run
    store.finish_run(run)


class RunProgress(msgspec.Struct, frozen=True, kw_only=True):
    """What a run tells while it works, quickly; `work` is the distinct work that is left.

    `capturing` hears what is captured next, in words; `lowered`, that one more cell is lowered.
    """

    capturing: Callable[[str], None] = lambda words: None  # noqa: ARG005
    planned: Callable[[int], None] = lambda cells: None  # noqa: ARG005
    done: Callable[[Row], None] = lambda row: None  # noqa: ARG005
    work: Callable[[int, int], None] = lambda lowerings, assemblies: None  # noqa: ARG005
    lowered: Callable[[], None] = lambda: None


class CellOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How one cell is run; `evidence` goes into its record beside what it was judged from.

    One that `used_to_fail` and compiles is run once more, from nothing, before that is said.
    """

    limits: ResourceLimits | None = None
    repeat: int = 1
    used_to_fail: bool = False
    evidence: dict[str, str] = {}


class RunPolicy:
    """Takes every cell, as it comes, until the end; `samples` say what it left out then.

    `launches` tell, by cell, the launches of one kernel apart, where their arguments do.
    `at_once` cells may be in the works at a time: without a bound, all are lowered before the first
    is done.
    """

    at_once: int = 1 << 20
    samples: Sequence[Sample] = ()
    launches: Mapping[str, str] = {}

    def choose(self, place: CapturePlace, plan: Plan) -> Sequence[PlannedCell]:  # noqa: ARG002
        """The cells to work on, in order."""
        return plan.cells

    def cell_options(self, cell: PlannedCell) -> CellOptions:  # noqa: ARG002
        """How to run this cell."""
        return CellOptions()

    def finished(self, cell: PlannedCell) -> None:
        """This cell is done and stored, or was left."""

    def is_time_up(self) -> bool:
        """Whether nothing new is to be started."""
        return False

    def left(self, cells: Sequence[PlannedCell] | None) -> None:
        """Not started, as the time was up; None: a capture, whose cells are not known."""


@dataclass(slots=True, kw_only=True)
class Run:
    """A run at work, and what it has to tell besides rows."""

    bench: Workbench
    run: int
    progress: RunProgress
    policy: RunPolicy = field(default_factory=RunPolicy)
    failures: list[TriageError] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    configs: list[Config] = field(default_factory=list)
    turns: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self.turns = asyncio.Semaphore(self.policy.at_once)
        self.bench.lowered = self.progress.lowered


def places_of(selection: Selection) -> list[CapturePlace]:
    """Every launch on every target with every Triton."""
    return [
        selection.place(target=target, compiler=compiler, launch=launch)
        for launch in selection.launches
        for target in selection.targets
        for compiler in selection.compilers
    ]


def captures_of(places: Sequence[CapturePlace]) -> list[list[int]]:
    """The indices of the places that one capture serves, for each, in order of the first."""
    captures: dict[object, list[int]] = {}
    for index, place in enumerate(places):
        captures.setdefault(place.capture, []).append(index)
    return list(captures.values())


async def work_off(
    run: Run,
    places: Sequence[CapturePlace],
    captures: Sequence[Sequence[int]],
    keep: Callable[[int, list[Row]], None] = lambda index, rows: None,  # noqa: ARG005
) -> None:
    """Begin the captures in their order; `keep` is given the rows of each place by its index."""
    # An open session holds memory: just enough of them to keep every worker busy.
    turns = asyncio.Semaphore(run.bench.jobs + 1)

    async def one_capture(indices: Sequence[int]) -> None:
        async with turns:
            if run.policy.is_time_up():
                run.policy.left(None)
                return
            group = [places[index] for index in indices]
            plans = await in_parallel([plan_place(run, place) for place in group])
            # The session ends with the last row of its places.
            async with run.bench.closing(*{plan.session for plan in plans}):
                chosen = list(map(run.policy.choose, group, plans))
                run.progress.planned(sum(map(len, chosen)))
                groups = await in_parallel(
                    in_parallel(_one(run, cell) for cell in cells) for cells in chosen
                )
            for index, rows in zip(indices, groups, strict=True):
                keep(index, [row for row in rows if row])

    await in_parallel([one_capture(indices) for indices in captures])


async def plan_place(run: Run, place: CapturePlace) -> Plan:
    """The cells of one place; none where the capture failed, or there was no time for it."""
    compiler = place.compiler
    if compiler.version:
        run.progress.capturing(f"{compiler.name}, {place.target}")
    try:
        plan = _of_variant(place, await plan_launch(run.bench, place))
    except TimeIsUpError:
        run.policy.left(None)
        return Plan(cells=())
    except TriageError as error:
        run.failures.append(error)
        return Plan(cells=())
    return _noted(run, plan)


def _of_variant(place: CapturePlace, plan: Plan) -> Plan:
    """The cells of the place's variant alone, with what ptxas is given besides."""
    variant = place.variant
    if variant is None:
        return plan
    cells = plan.cells
    if place.selection.repro.ptx is None:
        config = variant.config.as_dict()
        cells = tuple(cell for cell in cells if cell.cell.config.as_dict() == config)
    if variant.options:
        change = FlagChange(label=variant.options, added=tuple(variant.options.split()))
        cells = tuple(with_flags(cell, change) for cell in cells)
    return structs.replace(plan, cells=cells)


def _noted(run: Run, plan: Plan) -> Plan:
    run.notes += filter(None, (plan.passed_over, *plan.notes, *plan.warnings))
    run.failures += map(CaptureError, plan.failures)
    run.configs += plan.configs
    return plan


def stored_place(run: Run, place: CapturePlace) -> Plan | None:
    """The cells of one place, if its capture is stored; no child is started, nothing is fetched."""
    try:
        plan = front_end(place.compiler.kind).stored_plan(run.bench, place)
    except TriageError as error:
        run.failures.append(error)
        return Plan(cells=())
    return _noted(run, _of_variant(place, plan)) if plan else None


async def _one(run: Run, plan: PlannedCell) -> Row | None:
    """The row of one cell; None where there was no time to begin it."""
    cell_options = run.policy.cell_options(plan)
    try:
        async with run.turns:
            result = await _evaluate(run.bench, plan, cell_options)
    except TimeIsUpError:
        run.policy.left([plan])
        run.policy.finished(plan)
        return None
    record = record_of(result)
    if cell_options.evidence:
        record = structs.replace(record, evidence={**result.evidence, **cell_options.evidence})
    run.bench.store.put_result(run.run, record)
    run.policy.finished(plan)
    run.progress.done(result.row)
    if result.note:
        run.notes.append(f"instructions are not counted for {result.row.target}: {result.note}")
    return result.row


async def _evaluate(bench: Workbench, plan: PlannedCell, cell_options: CellOptions) -> Evaluated:
    """Run the cell as often as its options say; runs that disagree make its row flaky."""
    runs: list[Evaluated] = []
    if cell_options.limits is None and cell_options.repeat == 1:
        runs.append(await evaluate(bench, plan))
    while len(runs) < cell_options.repeat or (
        # A fix is confirmed before it is said.
        len(runs) == 1 and cell_options.used_to_fail and runs[0].row.verdict.compiles
    ):
        apart = bench.apart(limits=cell_options.limits, uncached=bool(runs))
        try:
            runs.append(await evaluate(apart, plan))
        finally:
            bench.cpu_seconds += apart.cpu_seconds
    rows = [run.row for run in runs]
    if len({(row.verdict, row.signature, row.cubin_sha256) for row in rows}) == 1:
        return runs[0]
    # The worst of them is shown: a reader wants to see the failure.
    worst = next((run for run in runs if run.row.signature), runs[0])
    return structs.replace(worst, row=structs.replace(worst.row, flaky=True))


def record_of(result: Evaluated) -> ResultRecord:
    """A row as it is kept for history."""
    row = result.row
    return ResultRecord(
        cell=row.cell,
        short=row.short,
        kernel=row.kernel,
        launch=row.launch,
        config=row.config,
        target=row.target,
        triton=row.compiler_version or "",
        ptxas=row.ptxas or "",
        verdict=row.verdict.value,
        signature_key=row.signature,
        row=msgspec.json.encode(row),
        evidence=result.evidence,
        signature=result.signature,
    )


class Elsewhere(Protocol):
    """Machines that make evidence: what is evaluated here afterwards finds it, and makes the rest.

    `at_once` is how many selections they can work on side by side.
    """

    @property
    def at_once(self) -> int:
        """As above."""

    async def make(self, bench: Workbench, selection: Selection) -> Sequence[str]:
        """Have the cells of a selection compiled; what came back is stored. What was in the way.

        Raises:
            InfrastructureError: the machines are lost, or the scheduler is.
            StorageError: the evidence cannot be kept.
        """
