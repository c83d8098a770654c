"""Cells one by one, and GPU trips many at a time: what asks together travels together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from harness.bench.bench import Workbench
from harness.cells.evaluate import Evaluated
from harness.emulator.values import Budget
from harness.frontends.base import PlannedCell, Selection
from harness.gpu.gathering import Gathering, add_cells, leveled, raw_trip_launch
from harness.gpu.places import Destination, travel
from harness.gpu.run import judge_trip, keep_trip
from harness.gpu.trip import LIMIT
from harness.runs.raw_ptx import RawInputs
from harness.runs.schedules import DEFAULT, INSTRUCTIONS, read_schedules, trials_of
from harness.values.errors import TriageError, UsageError

__all__ = ["OnGpu"]

_PAUSE = 0.3
"""Seconds without another question until a trip begins; one takes seconds by itself."""


@dataclass(slots=True, kw_only=True)
class OnGpu:
    """Evaluates cells of raw PTX on a GPU.

    Questions that come before a trip has begun go along; each cell has a witness beside it, which
    is launched once however many cells share it.
    """

    bench: Workbench
    selection: Selection
    inputs: RawInputs
    destination: Destination
    tell: Callable[[str], None]
    command: str
    trips: int = 0
    _asked: list[tuple[Workbench, PlannedCell, asyncio.Future[Evaluated]]] = field(
        default_factory=list
    )
    _next: asyncio.Task[None] | None = None
    _travelling: asyncio.Lock = field(default_factory=asyncio.Lock)

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

    async def evaluate(self, bench: Workbench, cell: PlannedCell) -> Evaluated:
        """Assemble a cell on `bench`, launch its cubin and judge it.

        Raises:
            TriageError: no results came back.
        """
        answer: asyncio.Future[Evaluated] = asyncio.get_running_loop().create_future()
        self._asked.append((bench, cell, answer))
        if self._next is not None:
            self._next.cancel()
        self._next = asyncio.create_task(self._wait())
        return await answer

    async def _wait(self) -> None:
        await asyncio.sleep(_PAUSE)
        # From here on another question does not put it off, and begins the next trip.
        self._next = None
        asked, self._asked = self._asked, []
        async with self._travelling:
            try:
                found = await self._trip(asked)
                for (_, _, answer), each in zip(asked, found, strict=True):
                    answer.set_result(each)
            except TriageError as error:
                for _, _, answer in asked:
                    answer.set_exception(error)
            finally:
                # None waits for ever where the trip ended in another way.
                for _, _, answer in asked:
                    answer.cancel()

    async def _trip(
        self, asked: list[tuple[Workbench, PlannedCell, asyncio.Future[Evaluated]]]
    ) -> list[Evaluated]:
        gathering = Gathering(command=self.command, limit=LIMIT)
        trials = trials_of(read_schedules(DEFAULT), races=True)
        budget = Budget(max_instructions=INSTRUCTIONS)
        launch = raw_trip_launch(self.bench, self.selection, self.inputs, trials, budget)
        number = gathering.launch(launch.launch)
        witnesses: set[str] = set()
        for bench, cell, _ in asked:
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
        self.trips += 1
        self.tell(f"{len(trip.carried)} cubins on {self.destination.name}")
        answers = await travel(self.bench, trip, self.destination)
        executed = await judge_trip(self.bench, trip, answers, lambda _: None)
        return [each.done for each in executed]
