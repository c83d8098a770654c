"""From a selection to a trip: cubins are assembled, and each PTX gets its inputs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from gpu_emulator.values import Budget
from harness.cells.evaluate import Evaluated, evaluate, with_flags
from harness.frontends.base import PlannedCell, Selection
from harness.frontends.bench.bench import Workbench
from harness.frontends.registry import plan_launch
from harness.judging.ptxas.options import level_change
from harness.run.evidence import Trusted
from harness.run.gpu.trip import REPEATS, KeptTrusted, Trip, TripCase, TripLaunch
from harness.run.jobs import RunTrial
from harness.run.raw_ptx import RawInputs, raw_launch
from harness.store.store import Store
from harness.values.cell import CellId
from harness.values.row import Row
from harness.values.toolchain import GPU

_PLAIN, _FULL = 0, 3


@dataclass(slots=True, kw_only=True)
class Gathering:
    """A trip that is being put together."""

    command: str
    limit: float
    repeats: int = REPEATS
    launches: list[TripLaunch] = field(default_factory=list)
    cases: list[TripCase] = field(default_factory=list)
    timings: list[tuple[int, ...]] = field(default_factory=list)
    sanitize: bool = False

    def time_new(self) -> None:
        """Have the cases that were added since the last time timed in turns."""
        first = max((number + 1 for group in self.timings for number in group), default=0)
        self.timings.append(tuple(range(first, len(self.cases))))

    def launch(self, launch: TripLaunch) -> int:
        """The number of a launch; one that is there already is not taken twice."""
        if launch not in self.launches:
            self.launches.append(launch)
        return self.launches.index(launch)

    def trip(self) -> Trip:
        """All of it."""
        return Trip(
            launches=tuple(self.launches),
            cases=tuple(self.cases),
            command=self.command,
            limit=self.limit,
            repeats=self.repeats,
            timings=tuple(self.timings),
            sanitize=self.sanitize,
        )


def leveled(cell: PlannedCell, levels: Sequence[int]) -> list[tuple[PlannedCell, bool]]:
    """A cell at each optimisation level, or as it is; and whether it is only there as a witness.

    One level alone has no witness of the same ptxas: then the farthest other one is added.
    """
    wanted = [(with_flags(cell, level_change(level)), False) for level in levels]
    if not levels:
        wanted = [(cell, False)]
    if len(wanted) == 1:
        other = _FULL if tuple(levels) == (_PLAIN,) else _PLAIN
        wanted.append((with_flags(cell, level_change(other)), True))
    return wanted


def kept(trusted: Trusted, store: Store) -> KeptTrusted:
    """A reference with its buffers as artifacts."""
    return KeptTrusted(
        words=trusted.words,
        buffers=tuple(
            None if data is None else store.artifacts.put(data) for data in trusted.buffers
        ),
        is_final=trusted.is_final,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RawTripLaunch:
    """What a file of PTX is launched with; `named` puts a name for the inputs into a cell."""

    launch: TripLaunch
    notes: tuple[str, ...]
    named: Callable[[CellId], CellId]


def raw_trip_launch(
    bench: Workbench,
    selection: Selection,
    inputs: RawInputs,
    trials: Sequence[RunTrial],
    budget: Budget,
) -> RawTripLaunch:
    """The launch of a file of PTX.

    Raises:
        UsageError: the inputs do not fit the entry's parameters.
    """
    path = selection.repro.ptx
    assert path is not None
    raw = raw_launch(Path(path), selection.repro.kernel, inputs, bench.store)
    emulation, notes = raw.prepare(trials, budget)
    return RawTripLaunch(
        launch=TripLaunch(
            emulation=emulation,
            tensors=tuple(raw.tensors),
            trusted=tuple(kept(each, bench.store) for each in raw.trusted()),
        ),
        notes=tuple(notes),
        named=partial(raw.inputs_named, emulation=emulation),
    )


async def gather_ptx(
    bench: Workbench,
    selection: Selection,
    inputs: RawInputs,
    levels: Sequence[int],
    trials: Sequence[RunTrial],
    budget: Budget,
    gathering: Gathering,
    tell: Callable[[str], None],
) -> None:
    """Add a file of PTX to a trip: every ptxas, target and level that is selected, one launch.

    Raises:
        UsageError: the inputs do not fit the entry's parameters.
        TriageError: a toolchain cannot be used.
    """
    raw = raw_trip_launch(bench, selection, inputs, trials, budget)
    for note in raw.notes:
        tell(note)
    launch = gathering.launch(raw.launch)
    cells: list[tuple[PlannedCell, bool]] = []
    for target in selection.targets:
        plan = await plan_launch(bench, selection.place(target=target))
        for cell in plan.cells:
            cells += leveled(replace(cell, cell=raw.named(cell.cell)), levels)
    await add_cells(bench, gathering, cells, [launch] * len(cells))


async def add_cells(
    bench: Workbench,
    gathering: Gathering,
    cells: Sequence[tuple[PlannedCell, bool]],
    launches: Sequence[int | str],
) -> None:
    """Assemble cells and add them; each has the number of its launch, or why it has none."""
    done = await asyncio.gather(*(evaluate(bench, cell) for cell, _ in cells))
    for (cell, is_witness), launch, found in zip(cells, launches, done, strict=True):
        gathering.cases.append(_case(cell, found, launch, is_witness=is_witness))


def _case(cell: PlannedCell, found: Evaluated, launch: int | str, *, is_witness: bool) -> TripCase:
    named = replace(cell.cell, on=GPU)
    problem = launch if isinstance(launch, str) else _no_cubin(found.row)
    return TripCase(
        cell=named,
        compiled=found.row,
        launch=None if problem else int(launch),
        problem=problem,
        is_witness=is_witness,
    )


def _no_cubin(row: Row) -> str | None:
    if row.cubin_sha256:
        return None
    return f"it does not compile: {row.verdict}, {row.reason}"
