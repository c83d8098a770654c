"""Whether the cubin of a text of PTX goes wrong in the same way when a GPU executes it.

A candidate may compute anything, as long as the emulator says what it computes: it is defined, in
bounds, free of races, and ends. Its cubins are then held to what those of the original do: the one
that is accused goes wrong with the same signature, and each of the others does what it did, so that
what is left shows the same bug of the same ptxas.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from harness.frontends.base import PlannedCell
from harness.frontends.bench.bench import Workbench
from harness.minimize.ptx.defined import count_unwritten
from harness.minimize.ptx.predicate import Said
from harness.minimize.reduction.fingerprint import Answer
from harness.run.emulating import emulate
from harness.run.entry import Entry, EntryError, read_entry
from harness.run.executing import Executed
from harness.run.gpu.freedom import read_freedom
from harness.run.gpu.gathering import Gathering, add_cells
from harness.run.gpu.places import Destination, travel
from harness.run.gpu.rows import evidence_of, judge_trip
from harness.run.gpu.standalone import Expected, standalone_program
from harness.run.gpu.together import Together
from harness.run.gpu.trip import LIMIT, TripLaunch
from harness.run.judging import judge
from harness.run.ptx_launch import PtxLaunch
from harness.values.execution import RunRow, RunVerdict
from harness.values.toolchain import BUNDLED, TRITON

_FINE = (RunVerdict.RIGHT, RunVerdict.RAN)


@dataclass(slots=True, kw_only=True)
class MeasuredPtx:
    """A `PtxPredicate`: launches the cubins of a text on a GPU, many texts in one trip.

    `bench` has a store for candidates alone. `cells` say how a text is assembled, the accused one
    first; `given` is what it is launched with, and `launch` the same by the places of parameters.
    `wanted` are verdicts and signatures of the original's cubins, once they are known; `unwritten`
    is how many registers it reads that nothing may have written. `same` are the texts that go wrong
    in the same way, with the row of the accused cubin.
    """

    bench: Workbench
    cells: tuple[PlannedCell, ...]
    given: TripLaunch
    launch: PtxLaunch
    destination: Destination
    unwritten: int = 0
    wanted: tuple[tuple[RunVerdict, str | None], ...] = ()
    same: dict[str, RunRow] = field(default_factory=dict)
    _together: Together[str, tuple[Executed, ...]] = field(init=False)

    def __post_init__(self) -> None:
        """Each trip takes all texts that were asked about by then."""
        self._together = Together(trip=self._trip)

    @property
    def trips(self) -> int:
        """How often the GPU was asked."""
        return self._together.trips

    def is_possible(self, text: str) -> bool:
        """Whether its entry takes what the launch gives."""
        entry = self._entry(text)
        return entry is not None and self.launch.fits(entry)

    async def ask(self, text: str) -> Said:
        """Whether its cubins do what those of the original did.

        Raises:
            InfrastructureError: the emulator cannot be started, or no results came back.
        """
        if not self.is_possible(text):
            return Said(
                answer=Answer.UNTOLD, reason="its entry does not take what the launch gives"
            )
        if count_unwritten(text) > self.unwritten:
            return Said(
                answer=Answer.OTHER, reason="a register is read that nothing may have written"
            )
        emulated = await emulate(self.bench, self._given(text).emulation)
        found = judge(evidence_of(self._given(text), emulated.value, self.bench.store))
        if found.verdict not in _FINE:
            words = f"the PTX itself: {found.verdict.value}: {found.reason}"
            return Said(answer=Answer.OTHER, reason=words)
        done = await self._together.ask(text)
        said = self._compared(done)
        if said.is_same:
            self.same[text] = done[0].row
        return said

    async def observe(self, bench: Workbench, text: str) -> tuple[Executed, ...]:
        """What the cubins of one text do; results are kept on `bench`.

        Raises:
            InfrastructureError: the emulator cannot be started, or no results came back.
        """
        [found] = await self._launched(bench, [text])
        return found

    async def program(self, text: str, headline: str) -> str | None:
        """A Python program that shows what a text does; None where none can.

        Raises:
            InfrastructureError: the emulator cannot be started.
        """
        given = self._given(text)
        found = evidence_of(
            given, (await emulate(self.bench, given.emulation)).value, self.bench.store
        )
        far = 0.0 if read_freedom(text).is_exact else max(map(found.allowed, found.tensors))
        accused = self.cells[0]
        tools = dict.fromkeys(cell.ptxas for cell in self.cells)
        return standalone_program(
            given,
            text,
            str(accused.cell.target),
            found.contents,
            Expected(
                buffers=[found.contents[sha256] for sha256 in found.runs[0].buffers], allowed=far
            ),
            headline=headline,
            get=[
                f"python3 -m pip install --no-deps --target {each.version} {each.origin}"
                f"=={each.version}  # find {each.version} -name ptxas"
                for each in tools
                if each.origin not in (BUNDLED, TRITON)
            ],
        )

    async def _trip(self, texts: Sequence[str]) -> list[tuple[Executed, ...]]:
        return await self._launched(self.bench, texts)

    async def _launched(self, bench: Workbench, texts: Sequence[str]) -> list[tuple[Executed, ...]]:
        gathering = Gathering(command="", limit=LIMIT)
        cells: list[tuple[PlannedCell, bool]] = []
        launches: list[int | str] = []
        for text in texts:
            given = self._given(text, bench)
            number = gathering.launch(given)
            ptx, entry = given.emulation.ptx, given.emulation.entry
            cells += [(replace(cell, raw_ptx=ptx, entry=entry), False) for cell in self.cells]
            launches += [number] * len(self.cells)
        await add_cells(bench, gathering, cells, launches)
        trip = gathering.trip()
        answers = await travel(bench, trip, self.destination)
        done = await judge_trip(bench, trip, answers, lambda _: None)
        many = len(self.cells)
        return [tuple(done[place : place + many]) for place in range(0, len(done), many)]

    def _compared(self, found: Sequence[Executed]) -> Said:
        for each, wanted in zip(found, self.wanted, strict=True):
            row = each.row
            if (row.run, row.run_signature) == wanted:
                continue
            tool = row.cell.rpartition("/")[2].partition(":")[2]
            accepts = each is found[0] and row.run in _FINE
            return Said(
                answer=Answer.ACCEPTS if accepts else Answer.OTHER,
                reason=f"{tool}: {row.run.value}: {row.run_reason}",
            )
        return Said(answer=Answer.SAME, reason=found[0].row.run_reason)

    def _given(self, text: str, bench: Workbench | None = None) -> TripLaunch:
        entry = self._entry(text)
        assert entry is not None, "the text was looked at before"
        ptx = (bench or self.bench).store.artifacts.put(text.encode())
        emulation = replace(self.given.emulation, ptx=ptx, entry=entry.name)
        return replace(self.given, emulation=emulation)

    def _entry(self, text: str) -> Entry | None:
        for name in dict.fromkeys((self.given.emulation.entry, None)):
            try:
                return read_entry(text, name)
            except (EntryError, ValueError):
                continue
        return None
