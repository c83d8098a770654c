"""Cells one by one, launched on a GPU many at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from gpu_emulator.values import Budget
from harness.cells.evaluate import Evaluated
from harness.frontends.base import PlannedCell, Selection
from harness.frontends.bench.bench import Workbench
from harness.run.executing import Executed
from harness.run.gpu.gathering import Gathering, RawTripLaunch, add_cells, leveled, raw_trip_launch
from harness.run.gpu.gathering_launches import launch_of
from harness.run.gpu.places import Destination, travel
from harness.run.gpu.rows import judge_trip, keep_trip
from harness.run.gpu.together import Together
from harness.run.gpu.trip import LIMIT, TripLaunch
from harness.run.raw_ptx import RawInputs
from harness.run.same_inputs import SameInputs
from harness.run.schedules import DEFAULT, INSTRUCTIONS, read_schedules, trials_of

_Asked = tuple[Workbench, PlannedCell]


@dataclass(slots=True, kw_only=True)
class OnGpu:
    """Launches the cubins of cells: of a file of PTX on its inputs, of a kernel on recorded ones.

    Each cell has a witness beside it, which is launched once however many cells share it. `device`
    is the GPU's name, once one was reached.
    """

    bench: Workbench
    selection: Selection
    inputs: RawInputs
    destination: Destination
    tell: Callable[[str], None]
    command: str
    device: str = ""
    _together: Together[_Asked, Executed] = field(init=False)
    _raw: RawTripLaunch | None = None
    _same: SameInputs | None = None

    def __post_init__(self) -> None:
        """What all cells share.

        Raises:
            UsageError: the inputs do not fit, or launches of its compiler cannot be run.
        """
        self._together = Together(trip=self._trip)
        if self.selection.repro.ptx is None:
            small = SameInputs.small(self.selection)
            self._same = SameInputs(bench=self.bench, selection=small, tell=self.tell)
        else:
            trials = trials_of(read_schedules(DEFAULT), races=True)
            budget = Budget(max_instructions=INSTRUCTIONS)
            self._raw = raw_trip_launch(self.bench, self.selection, self.inputs, trials, budget)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was guessed of the inputs."""
        return self._raw.notes if self._raw else ()

    def sessions(self) -> set[str]:
        """The captures that were opened: to be closed when all is done."""
        return self._same.sessions() if self._same else set()

    async def evaluate(self, bench: Workbench, cell: PlannedCell) -> Evaluated:
        """As `execute`; what came out as a result like a compile's.

        Raises:
            TriageError: no results came back.
        """
        return (await self.execute(bench, cell)).done

    async def execute(self, bench: Workbench, cell: PlannedCell) -> Executed:
        """Assemble a cell on `bench`, launch its cubin and judge it.

        Raises:
            TriageError: no results came back.
        """
        return await self._together.ask((bench, cell))

    async def _trip(self, asked: Sequence[_Asked]) -> list[Executed]:
        gathering = Gathering(command=self.command, limit=LIMIT)
        launches = await asyncio.gather(*(self._launch(bench, cell) for bench, cell in asked))
        witnesses: set[str] = set()
        for (bench, cell), launch in zip(asked, launches, strict=True):
            number = launch if isinstance(launch, str) else gathering.launch(launch)
            named = replace(cell, cell=self._raw.named(cell.cell)) if self._raw else cell
            wanted = []
            # What is asked for at a level of its own is asked for at others, too.
            for one, is_witness in [(named, False)] if named.change else leveled(named, ()):
                if is_witness and str(one.cell) in witnesses:
                    continue
                witnesses |= {str(one.cell)} if is_witness else set()
                wanted.append((one, is_witness))
            await add_cells(bench, gathering, wanted, [number] * len(wanted))
        trip = gathering.trip()
        keep_trip(self.bench.store, trip)
        self.tell(f"{len(trip.carried)} cubins on {self.destination.name}")
        answers = await travel(self.bench, trip, self.destination)
        self.device = answers.gpu.name
        return await judge_trip(self.bench, trip, answers, lambda _: None)

    async def _launch(self, bench: Workbench, cell: PlannedCell) -> TripLaunch | str:
        if self._raw:
            return self._raw.launch
        assert self._same is not None
        return await launch_of(bench, self._same, cell)
