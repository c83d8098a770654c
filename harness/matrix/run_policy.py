"""How a matrix steers a run: which cells, in which order, which are taken over, and until when."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec
from packaging.version import Version

from harness.cells.matrix_rules import Rules, by_information
from harness.cells.places import CellOptions, CompileOptions, Run, RunPolicy
from harness.cells.reuse import CELL, LIMITS, carried, identity_of, limits_label
from harness.frontends.plan import CapturePlace, Plan, PlannedCell
from harness.frontends.registry import front_end
from harness.io.processes.hub import ResourceLimits
from harness.matrix.plan import MatrixPlan
from harness.store.schema import ResultRecord
from harness.store.store import Shard
from harness.values.matrix import Coordinates, Matrix, MatrixPlace, Override, Selector
from harness.values.row import Row
from harness.values.toolchain import PTXAS
from harness.values.verdict import VerdictKind

K = TypeVar("K")

_CELLS_A_WORKER = 4
_MOST_HELD = 10_000


class MatrixOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which part of a matrix, and how to work: `max_time` is in seconds; `run` executes, too.

    `on` says what executes, where it is not the emulator; `runner` reaches a GPU. Shards with
    the same night are one run, and compared with others when they are merged. With
    `package_version` it is run over those releases of a package, as `over_releases` reads it.
    """

    only: Sequence[Selector] = ()
    shard: Shard = Shard()
    max_time: float | None = None
    run: bool = False
    on: str | None = None
    runner: str | None = None
    package_version: str | None = None
    work: CompileOptions = CompileOptions()


def launch_timeout(matrix: Matrix) -> float:
    """Seconds that launch code has: as the compilers, wherever they are given more."""
    return max([matrix.timeout, *(override.timeout or 0 for override in matrix.overrides)])


@dataclass(slots=True, kw_only=True)
class MatrixRun(Run, RunPolicy):
    """One run of a planned matrix, which keeps account of every cell of it.

    `run` is 0 where nothing is to be stored. `excluded` has the cells that were left out, with
    the reason, `settled` those that are done; `skipped` cells and `skipped_captures` were not
    started, as the time was up. `versions` are those of every ptxas, the bundled ones too. `past`
    are last results by cell, where those of the store are not meant.
    """

    plan: MatrixPlan
    options: MatrixOptions = field(default_factory=MatrixOptions)
    past: Mapping[str, ResultRecord] | None = None
    excluded: dict[str, str] = field(default_factory=dict)
    carried: int = 0
    planned: int = 0
    skipped: int = 0
    skipped_captures: int = 0
    versions: set[str] = field(default_factory=set)
    last: dict[str, ResultRecord] = field(default_factory=dict)
    at_once: int = field(init=False)
    _owners: dict[str, int] = field(default_factory=dict)
    settled: set[str] = field(default_factory=set)
    _same: list[ResultRecord] = field(default_factory=list)
    _again: list[ResultRecord] = field(default_factory=list)
    _failed: set[str] = field(default_factory=set)
    _shared: dict[str, str] = field(default_factory=dict)
    _extras: set[int] = field(init=False)
    _lowerings: Counter[str] = field(default_factory=Counter)
    _assemblies: Counter[tuple[str, str]] = field(default_factory=Counter)
    _known_limits: dict[tuple[float, int], tuple[ResourceLimits, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Enough for the workers; a run that is stopped has finished cells to show for its time.
        self.at_once = _CELLS_A_WORKER * self.bench.jobs
        self.policy = self
        Run.__post_init__(self)
        self._extras = {id(self.plan.places[index]) for index in self.plan.extras}

    @property
    def rules(self) -> Rules:
        """Those of the matrix."""
        return self.plan.rules

    @property
    def problems(self) -> tuple[str, ...]:
        """What this machine could not provide, and launches that cannot be captured."""
        return tuple(dict.fromkeys((*self.plan.failures, *map(str, self.failures))))

    @property
    def warnings(self) -> tuple[str, ...]:
        """Notes on the matrix and its cells, each once."""
        unmatched: list[str] = []
        # A part of a matrix cannot tell what the whole of it would match.
        is_part = self.options.shard.of > 1 or self.skipped_captures
        if self.options.only and not is_part:
            unmatched = [f"no cell is of {words}" for words in self.rules.unmatched_only()]
        elif not is_part:
            ptxas = self.plan.versions[PTXAS] | set(map(Version, self.versions))
            every = {**self.plan.versions, PTXAS: ptxas}
            unmatched = self.rules.unmatched({tool: sorted(each) for tool, each in every.items()})
        return tuple(dict.fromkeys((*self.plan.warnings, *unmatched, *self.notes)))

    def choose(self, place: CapturePlace, plan: Plan) -> Sequence[PlannedCell]:
        """As `look`; and what is chosen counts as work to be done."""
        cells, _ = self.look(place, plan)
        self.put_again()
        for cell in cells:
            lowering, assembly = _work_of(cell)
            self._lowerings[lowering] += 1
            self._assemblies[assembly] += 1
        self._tell()
        return cells

    def look(self, place: CapturePlace, plan: Plan) -> tuple[list[PlannedCell], tuple[object, ...]]:
        """Take over what needs no work; what is left, in order, and the rank of the first.

        Asking twice does no harm.
        """
        if not plan.cells:
            self.rules.unseen(
                MatrixPlace(
                    kernel=place.selection.repro.name,
                    launch=place.launch.label,
                    target=str(place.target),
                    compiler=place.compiler.kind,
                    version=place.compiler.version or None,
                )
            )
        cells = self._wanted(place, plan.cells)
        to_do = self._carry_over(cells) if self.bench.use_cache else cells
        records = [self.last.get(at.cell) for _, at in to_do]
        for (_, at), last in zip(to_do, records, strict=True):
            if last and not VerdictKind(last.verdict).compiles:
                self._failed.add(at.cell)
        order = by_information(
            [at for _, at in to_do], [record.verdict if record else None for record in records]
        )
        if self.run:
            self.last.clear()
        return [to_do[index][0] for _, index in order], order[0][0][:3] if order else ()

    def _wanted(
        self, place: CapturePlace, cells: Sequence[PlannedCell]
    ) -> list[tuple[PlannedCell, Coordinates]]:
        chosen = []
        for cell in cells:
            at = coordinates_of(cell)
            self.rules.expected(at)
            self.versions.update(filter(None, [at.ptxas]))
            reason = None if id(place) in self._extras else self.rules.excluded(at)
            if not self.rules.is_wanted(at) or at.cell in self.settled:
                continue
            if reason is not None:
                self.excluded[at.cell] = reason
            elif self._owners.setdefault(at.cell, id(place)) == id(place):
                chosen.append((cell, at))
        return chosen

    def _carry_over(
        self, cells: Sequence[tuple[PlannedCell, Coordinates]]
    ) -> list[tuple[PlannedCell, Coordinates]]:
        names = [at.cell for _, at in cells]
        if self.past is None:
            last = self.bench.store.latest_of(names)
        else:
            last = {name: self.past[name] for name in names if name in self.past}
        self.last.update(last)
        to_do: list[tuple[PlannedCell, Coordinates]] = []
        rows: list[Row] = []
        for cell, at in cells:
            record = last.get(at.cell)
            how = self.rules.override_of(at)
            identity = identity_of(cell, at.cell, how.repeat or 1, self._shared)
            result = carried(record, identity, self._limits(how)[1])
            if record is None or result is None:
                to_do.append((cell, at))
                continue
            self.settled.add(at.cell)
            row, taken = result
            rows.append(row)
            (self._same if taken is record else self._again).append(taken)
        if len(self._same) + len(self._again) > _MOST_HELD:
            self.put_again()
        self.carried += len(rows)
        self.progress.planned(len(rows))
        for row in rows:
            self.progress.done(row)
        return to_do

    def put_again(self) -> None:
        """Store what was taken over: many at a time, since each time touches all of an index."""
        if self.run and self._same:
            self.bench.store.put_again(self.run, self._same)
        if self.run and self._again:
            self.bench.store.put_results(self.run, self._again)
        self._same.clear()
        self._again.clear()

    def cell_options(self, cell: PlannedCell) -> CellOptions:
        """Limits and number of runs as the overrides say."""
        at = coordinates_of(cell)
        how = self.rules.override_of(at)
        limits, label = self._limits(how)
        repeat = how.repeat or 1
        identity = identity_of(cell, at.cell, repeat, self._shared)
        return CellOptions(
            limits=None if limits == self.bench.limits else limits,
            repeat=repeat,
            evidence={CELL: identity, LIMITS: label},
            used_to_fail=at.cell in self._failed or self.rules.is_expected(at),
        )

    def _limits(self, how: Override) -> tuple[ResourceLimits, str]:
        mine = self.bench.limits
        key = how.timeout or mine.timeout, how.memory or mine.memory
        if key not in self._known_limits:
            limits = ResourceLimits(timeout=key[0], memory=key[1])
            self._known_limits[key] = limits, limits_label(limits)
        return self._known_limits[key]

    def finished(self, cell: PlannedCell) -> None:
        """One cell less."""
        lowering, assembly = _work_of(cell)
        self.settled.add(str(cell.cell))
        _count_down(self._lowerings, lowering)
        _count_down(self._assemblies, assembly)
        self._tell()

    def _tell(self) -> None:
        self.progress.work(len(self._lowerings), len(self._assemblies))

    def is_time_up(self) -> bool:
        """Whether the bench gives no more slots."""
        return self.bench.deadline is not None and time.monotonic() > self.bench.deadline

    def left(self, cells: Sequence[PlannedCell] | None) -> None:
        """Counted, and reported at the end."""
        if cells is None:
            self.skipped_captures += 1
        else:
            self.skipped += len(cells)


def _count_down(counter: Counter[K], key: K) -> None:
    counter[key] -= 1
    if not counter[key]:
        del counter[key]


def coordinates_of(cell: PlannedCell) -> Coordinates:
    """A cell as selectors see it."""
    name = cell.cell
    return Coordinates(
        cell=str(name),
        kernel=name.kernel,
        launch=name.launch,
        config=name.config,
        target=str(name.target),
        compiler=cell.compiler.kind,
        version=cell.compiler.version or None,
        assembler=cell.ptxas.kind,
        ptxas=cell.ptxas.version or None,
        ptxas_origin=cell.ptxas.origin,
    )


def _work_of(cell: PlannedCell) -> tuple[str, tuple[str, str]]:
    """Keys of its lowering and assembly; cells with equal keys share the work.

    Different lowerings may still give the same PTX, which is then assembled once.
    """
    if cell.launch is None or cell.record is None:
        words = (cell.raw_ptx or "", cell.entry or "", *cell.options)
        return "", (" ".join(words), cell.ptxas.sha256)
    key = front_end(cell.compiler.kind).lowering_key(cell.launch, cell.record, cell.seen_ptxas)
    return key, (key, cell.ptxas.sha256)
