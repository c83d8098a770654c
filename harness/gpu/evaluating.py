"""Cells one by one, launched on a GPU many at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from harness.bench.bench import Workbench
from harness.cells.evaluate import Evaluated
from harness.emulator.values import Budget
from harness.frontends.base import PlannedCell, Selection
from harness.gpu.gathering import Gathering, add_cells, leveled, raw_trip_launch
from harness.gpu.places import Destination, travel
from harness.gpu.run import judge_trip, keep_trip
from harness.gpu.together import Together
from harness.gpu.trip import LIMIT
from harness.runs.raw_ptx import RawInputs
from harness.runs.schedules import DEFAULT, INSTRUCTIONS, read_schedules, trials_of
from harness.values.errors import UsageError

__all__ = ["OnGpu"]

_Asked = tuple[Workbench, PlannedCell]


@dataclass(slots=True, kw_only=True)
class OnGpu:
    """Evaluates cells of raw PTX on a GPU.

    Each cell has a witness beside it, which is launched once however many cells share it.
    """

    bench: Workbench
    selection: Selection
    inputs: RawInputs
    destination: Destination
    tell: Callable[[str], None]
    command: str
    _together: Together[_Asked, Evaluated] = field(init=False)

    def __post_init__(self) -> None:
        """Only what has inputs of its own.

        Raises:
            UsageError: it is no PTX.
        """
        if self.selection.repro.ptx is None:
            raise UsageError(
                f"{self.selection.repro.name}: --on gpu follows files of PTX; for a kernel, "
                "`triage run --on gpu` launches its configs"
            )
        self._together = Together(trip=self._trip)

    async def evaluate(self, bench: Workbench, cell: PlannedCell) -> Evaluated:
        """Assemble a cell on `bench`, launch its cubin and judge it.

        Raises:
            TriageError: no results came back.
        """
        return await self._together.ask((bench, cell))

    async def _trip(self, asked: Sequence[_Asked]) -> list[Evaluated]:
        gathering = Gathering(command=self.command, limit=LIMIT)
        trials = trials_of(read_schedules(DEFAULT), races=True)
        budget = Budget(max_instructions=INSTRUCTIONS)
        launch = raw_trip_launch(self.bench, self.selection, self.inputs, trials, budget)
        number = gathering.launch(launch.launch)
        witnesses: set[str] = set()
        for bench, cell in asked:
            named = replace(cell, cell=launch.named(cell.cell))
            wanted = []
            for one, is_witness in leveled(named, ()):
                if is_witness and str(one.cell) in witnesses:
                    continue
                witnesses |= {str(one.cell)} if is_witness else set()
                wanted.append((one, is_witness))
            await add_cells(bench, gathering, wanted, [number] * len(wanted))
        trip = gathering.trip()
        keep_trip(self.bench.store, trip)
        self.tell(f"{len(trip.carried)} cubins on {self.destination.name}")
        answers = await travel(self.bench, trip, self.destination)
        executed = await judge_trip(self.bench, trip, answers, lambda _: None)
        return [each.done for each in executed]
