"""`triage matrix run`: every cell of a matrix, distinct work only, and what changed since."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

import msgspec
from packaging.version import Version

from harness.effects.lowering import fetch_launch_code, lowering_key, stored_capture
from harness.effects.process import Hub
from harness.effects.shards import NightPart
from harness.effects.store import Store
from harness.effects.triton_sessions import TritonSessions
from harness.effects.workbench import Workbench
from harness.logic.expectations import Expectations, happened
from harness.logic.matrix import Rules, Shard
from harness.logic.workaround_expiry import is_known
from harness.values.change import Changes, Facts
from harness.values.errors import EmptySelectionError, TriageError
from harness.values.limits import limits_of
from harness.values.matrix import Matrix, Selector
from harness.values.verdict import VerdictKind
from harness.verbs.cells import PlannedCell
from harness.verbs.diff import compare_runs, previous_run
from harness.verbs.matrix_plan import MatrixPlan, plan_matrix
from harness.verbs.matrix_steering import MatrixSteering
from harness.verbs.work import (
    CompileOptions,
    Place,
    Progress,
    Run,
    captures_of,
    plan_place,
    work_off,
)

__all__ = [
    "Estimate",
    "Listing",
    "MatrixOptions",
    "MatrixReport",
    "list_matrix",
    "make_plan",
    "run_matrix",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixOptions:
    """Which part of a matrix, and how to work: `max_time` is in seconds.

    Shards with the same `night` are one run, and compared with others when they are merged.
    """

    only: Sequence[Selector] = ()
    shard: Shard = field(default_factory=Shard)
    night: str | None = None
    max_time: float | None = None
    work: CompileOptions = field(default_factory=CompileOptions)

    @property
    def part(self) -> NightPart | None:
        """Which part of which night this is, if it is one."""
        if self.night is None:
            return None
        return NightPart(night=self.night, number=self.shard.number, of=self.shard.of)


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixReport:
    """What became of a run.

    `verdicts` counts its cells; `unexpected` those that fail and no expectation says so; `carried`
    those that needed no work. `skipped` cells and `skipped_captures` were not begun, for want of
    time. `changes` is None where the run did not come to its end.
    """

    run: int
    verdicts: Counter[str]
    unexpected: int
    carried: int
    excluded: int
    skipped: int
    skipped_captures: int
    changes: Changes | None
    failures: tuple[str, ...]
    warnings: tuple[str, ...]
    wall_seconds: float
    cpu_seconds: float

    @property
    def is_complete(self) -> bool:
        """Whether every cell was told of."""
        infra = self.verdicts[VerdictKind.INFRA.value]
        return not (self.skipped or self.skipped_captures or self.failures or infra)

    def exit_code(self, *, strict_fixed: bool) -> int:
        """As the command line: 1 not as expected, 4 incomplete, 5 fixes where that is strict."""
        code = self.changes.exit_code(strict_fixed=strict_fixed) if self.changes else 0
        if self.unexpected or code == 1:
            return 1
        return code if self.is_complete else 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What a run would do; `seconds` is None without any history to go by.

    `assemblies` is the most there can be: different lowerings may give the same PTX.
    """

    cells: int
    carried: int
    excluded: int
    lowerings: int
    lowerings_stored: int
    assemblies: int
    seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The cells of a matrix and those that are left out, with the reason."""

    cells: tuple[str, ...]
    excluded: tuple[tuple[str, str], ...]
    estimate: Estimate
    failures: tuple[str, ...]
    warnings: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class _Matter:
    """A planned matrix on its bench."""

    options: MatrixOptions
    plan: MatrixPlan
    run: Run
    steering: MatrixSteering

    @property
    def failures(self) -> tuple[str, ...]:
        every = (*self.plan.failures, *(str(error) for error in self.run.failures))
        return tuple(dict.fromkeys(every))

    @property
    def warnings(self) -> tuple[str, ...]:
        unmatched: list[str] = []
        rules = self.plan.rules
        # A part of a matrix cannot tell what the whole of it would match.
        is_part = self.options.shard.of > 1 or self.steering.skipped_captures
        if self.options.only and not is_part:
            unmatched = [f"--only: the {n}. matches no cell" for n in rules.unmatched_only()]
        elif not is_part:
            ptxas = {*self.plan.versions["ptxas"], *map(Version, self.steering.versions)}
            versions = {**self.plan.versions, "ptxas": sorted(ptxas)}
            unmatched = rules.unmatched(versions)
        every = (*self.plan.warnings, *unmatched, *self.run.notes)
        return tuple(dict.fromkeys(every))

    @property
    def excluded(self) -> int:
        return len(self.steering.excluded)


async def run_matrix(
    matrix: Matrix,
    store: Store,
    options: MatrixOptions,
    progress: Progress,
    plan: MatrixPlan,
) -> MatrixReport:
    """Run the cells of a planned matrix; each result is stored as soon as it is known.

    Raises:
        EmptySelectionError: no cell is left.
        StorageError: results cannot be kept.
    """
    started = time.monotonic()
    run_id = store.begin_run(options.work.command, options.part)
    async with _bench(store, options, matrix) as bench:
        if options.max_time is not None:
            bench.deadline = started + options.max_time
        matter = _matter(bench, plan, options, progress, run_id)
        captures = await _in_order(matter)
        await work_off(matter.run, plan.places, captures)
    verdicts, unexpected = _counts(store, run_id, matrix)
    steering = matter.steering
    is_whole = not (steering.skipped or steering.skipped_captures)
    if not verdicts and is_whole and options.shard.of == 1 and not matter.failures:
        raise _nothing(matter)
    changes = None
    if is_whole:
        store.finish_run(run_id)
    # A part of a night lacks the cells of the others.
    if is_whole and (options.night is None or options.shard.of == 1):
        older = previous_run(store, run_id)
        changes = compare_runs(store, older.id if older else None, run_id, matrix.expect)
    return MatrixReport(
        run=run_id,
        verdicts=verdicts,
        unexpected=unexpected,
        carried=steering.carried,
        excluded=matter.excluded,
        skipped=steering.skipped,
        skipped_captures=steering.skipped_captures,
        changes=changes,
        failures=matter.failures,
        warnings=matter.warnings,
        wall_seconds=time.monotonic() - started,
        cpu_seconds=bench.cpu_seconds,
    )


async def list_matrix(
    matrix: Matrix, store: Store, options: MatrixOptions, progress: Progress, plan: MatrixPlan
) -> Listing:
    """The cells, and what running them would take; captures what has not been captured.

    Raises:
        StorageError: what was captured cannot be kept.
    """
    async with _bench(store, options, matrix) as bench:
        matter = _matter(bench, plan, options, progress, None)
        cells: dict[str, PlannedCell] = {}
        places = plan.places
        for indices in captures_of(places):
            sessions = set()
            for index in indices:
                found = await plan_place(matter.run, places[index])
                sessions.add(found.session)
                chosen = matter.steering.look(places[index], found)
                cells.update((str(cell.cell), cell) for cell in chosen.cells)
            for session in sessions - {None}:
                await bench.sessions.close(str(session))
        estimate = _estimate(matter, list(cells.values()))
    steering = matter.steering
    return Listing(
        cells=tuple(sorted({*cells, *steering.settled})),
        excluded=(
            *((str(place), place.reason) for place in plan.dropped),
            *sorted(steering.excluded.items()),
        ),
        estimate=estimate,
        failures=matter.failures,
        warnings=matter.warnings,
    )


@contextlib.asynccontextmanager
async def _bench(store: Store, options: MatrixOptions, matrix: Matrix) -> AsyncIterator[Workbench]:
    work = options.work
    # Launch code is given as long as the compilers, wherever they are given more.
    capture_timeout = max([matrix.timeout, *(each.timeout or 0 for each in matrix.overrides)])
    async with Hub() as hub:
        yield Workbench(
            hub=hub,
            store=store,
            sessions=TritonSessions(hub, capture_timeout=capture_timeout),
            jobs=work.workers,
            limits=work.limits,
            use_cache=work.use_cache,
        )


def _matter(
    bench: Workbench,
    plan: MatrixPlan,
    options: MatrixOptions,
    progress: Progress,
    run_id: int | None,
) -> _Matter:
    steering = MatrixSteering(
        bench=bench, plan=plan, progress=progress, run=run_id, use_cache=bench.use_cache
    )
    run = Run(bench=bench, run=run_id or 0, progress=progress, steering=steering)
    return _Matter(options=options, plan=plan, run=run, steering=steering)


async def _in_order(matter: _Matter) -> list[list[int]]:
    """The captures that have work left, in the order of the most telling cell of each.

    What is known of a capture needs no child, and what needs no work is taken over on the way.
    """
    ranked: list[tuple[tuple[object, ...], int, list[int]]] = []
    for number, indices in enumerate(captures_of(matter.plan.places)):
        ranks = [rank for index in indices if (rank := await _look(matter, index)) is not None]
        if ranks:
            ranked.append((min(ranks), number, indices))
    return [indices for _, _, indices in sorted(ranked)]


async def _look(matter: _Matter, index: int) -> tuple[object, ...] | None:
    """The rank of what is left at a place, None where nothing is; one unheard of comes first."""
    place = matter.plan.places[index]
    if not _is_known(matter.run.bench, place):
        return (0, False, ())
    plan = await plan_place(matter.run, place)
    return matter.steering.look(place, plan).rank or None


def _is_known(bench: Workbench, place: Place) -> bool:
    if place.triton is None:
        return True
    try:
        code = fetch_launch_code(place.selection.repro, place.launch.spec, place.launch.overrides)
    except TriageError:
        return False  # met again, and told, when its turn comes
    limits = limits_of(place.target.capability)
    if limits is None:
        return False
    code = place.adapt(code)
    found = stored_capture(bench, code, target=place.target, triton=place.triton, limits=limits)
    return found is not None


def _counts(store: Store, run: int, matrix: Matrix) -> tuple[Counter[str], int]:
    """The cells of a run by verdict, and how many fail unexpectedly."""
    verdicts: Counter[str] = Counter()
    kept = store.workarounds()
    unexpected = 0
    expectations = Expectations(matrix.expect)
    decode = msgspec.json.Decoder(Facts).decode
    for stored in store.run_bodies(run):
        facts = decode(stored.row)
        verdicts[facts.verdict] += 1
        kind = VerdictKind(facts.verdict)
        if kind.compiles or kind.tells_nothing:
            continue
        expected = expectations.of(facts)
        is_quiet = happened(facts, expected) if expected else is_known(kept, facts)
        unexpected += not is_quiet
    return verdicts, unexpected


def _nothing(matter: _Matter) -> TriageError:
    if matter.options.only:
        return EmptySelectionError("--only matches no cell of the matrix; --list shows them")
    return EmptySelectionError("the matrix has no cells; --list says why each is left out")


def _estimate(matter: _Matter, cells: Sequence[PlannedCell]) -> Estimate:
    steering, store = matter.steering, matter.run.bench.store
    work: dict[str, list[PlannedCell]] = {}
    assemblies = set()
    for cell in cells:
        key = cell.raw_ptx or ""
        if cell.launch and cell.record:
            sees = cell.bundled if cell.freeze_ptx and cell.bundled else cell.ptxas
            key = lowering_key(cell.launch, cell.record, sees)
        work.setdefault(key, []).append(cell)
        assemblies.add((key, cell.ptxas.sha256))
    stored = set(store.get_many("lower", work)) if steering.use_cache else set()
    lowered = [key for key, group in work.items() if group[0].launch]
    return Estimate(
        cells=len(cells) + steering.carried,
        carried=steering.carried,
        excluded=matter.excluded,
        lowerings=sum(key not in stored for key in lowered),
        lowerings_stored=sum(key in stored for key in lowered),
        assemblies=len(assemblies),
        seconds=_seconds(matter, [group for key, group in work.items() if key not in stored]),
    )


def _seconds(matter: _Matter, work: Sequence[Sequence[PlannedCell]]) -> float | None:
    """How long it takes, by what the same cells took, or else others of the kernel, or of any."""
    if not work:
        return 0.0
    took = _took(matter)
    if not took:
        return None
    mean = sum(map(sum, took.values())) / sum(map(len, took.values()))
    total = 0.0
    for group in work:
        known = took.get(str(group[0].cell)) or took.get(group[0].cell.kernel) or [mean]
        total += sum(known) / len(known)
    return total / matter.run.bench.jobs


def _took(matter: _Matter) -> dict[str, list[float]]:
    """Seconds of what has been run, by cell and by kernel."""
    took: dict[str, list[float]] = {}
    decode: Callable[[bytes], _Seconds] = msgspec.json.Decoder(_Seconds).decode
    for record in matter.steering.last.values():
        seconds = decode(record.row).seconds
        if seconds is not None:
            took.setdefault(record.cell, []).append(seconds)
            took.setdefault(record.kernel, []).append(seconds)
    return took


class _Seconds(msgspec.Struct):
    seconds: float | None = None


def make_plan(matrix: Matrix, options: MatrixOptions, store: Store) -> MatrixPlan:
    """Expand the matrix as far as places, installing what is needed.

    What the store has workarounds for takes part as well.

    Raises:
        EmptySelectionError: nothing is left of it.
        TriageError: as `plan_matrix`.
    """
    rules = Rules(matrix=matrix, only=options.only)
    plan = plan_matrix(rules, options.shard, store.workarounds())
    if not plan.places and not plan.dropped and options.shard.of == 1 and not plan.failures:
        said = "; ".join(plan.warnings[:3])
        raise EmptySelectionError(
            "--only matches nothing in the matrix"
            if options.only
            else f"the matrix selects nothing: {said}"
        )
    return plan
