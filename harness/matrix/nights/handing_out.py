"""A night on other machines: captures go out, each with its cells; results are kept as they come.

This program alone writes to the store. What a machine that is lost was at work on is done again by
another; what it had answered is here. A capture whose machines are lost again and again may be what
ends them, or may have been beside one that does: it is tried once more, with nothing beside it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec

from harness.cells.evaluate import not_evaluated
from harness.cells.places import Run, in_parallel, record_of, stored_place
from harness.io.files.own_code import program_sha256
from harness.io.machines.seam import LostWorkersError, Machines
from harness.matrix.nights.at_worker import work_on_capture
from harness.matrix.nights.by_name import named
from harness.matrix.nights.tasks import CaptureAnswer, CaptureTask, PastRow
from harness.store.exchange.parcels import open_parcel
from harness.store.sqlite.records import to_row
from harness.values.errors import InfrastructureError, UsageError
from harness.values.row import Row

if TYPE_CHECKING:
    from harness.frontends.base import CapturePlace
    from harness.matrix.nights.plan import MatrixPlan
    from harness.matrix.nights.steering import MatrixSteering
    from harness.store.sqlite.records import ResultRecord


_decode_row = msgspec.json.Decoder(Row).decode


@dataclass(slots=True, kw_only=True)
class HandingOut:
    """Hands out captures of one run; `uid` is what all machines call it.

    `memory` is the limit of one compiler in bytes, 0 for a share of each machine's; `until` is in
    seconds since the epoch.
    """

    run: Run
    plan: MatrixPlan
    steering: MatrixSteering
    machines: Machines
    uid: str
    command: str
    memory: int = 0
    launch_timeout: float
    until: float | None = None
    _code: str = field(default_factory=program_sha256)
    _lost: list[tuple[int, Sequence[int]]] = field(default_factory=list)

    async def work_off(self, captures: Sequence[Sequence[int]]) -> None:
        """Have the captures worked on, in their order, and keep what comes back.

        Raises:
            InfrastructureError: the machines cannot be reached any more.
            StorageError: results cannot be kept.
        """
        await in_parallel(self._once(rank, indices) for rank, indices in enumerate(captures))
        for rank, indices in self._lost:
            await self._alone(rank, indices)

    async def _once(self, rank: int, indices: Sequence[int]) -> None:
        try:
            await self._send(rank, indices)
        except LostWorkersError:
            self._lost.append((rank, indices))

    async def _alone(self, rank: int, indices: Sequence[int]) -> None:
        try:
            await self._send(rank, indices)
        except LostWorkersError as error:
            self.run.failures.append(error)
            for index in indices:
                self._give_up(self.plan.places[index], str(error))

    async def _send(self, rank: int, indices: Sequence[int]) -> None:
        if self.steering.is_time_up():
            self.steering.left(None)
            return
        message = self._task(indices).encode(self._code)
        name = self._name(self.plan.places[indices[0]])
        sent = self.machines.run(work_on_capture, message, name=name, rank=rank)
        try:
            answer = await asyncio.wait_for(sent, self._patience())
        except TimeoutError:
            self.steering.left(None)
        else:
            self._keep(CaptureAnswer.decode(answer), name)

    def _patience(self) -> float | None:
        """Seconds to wait for an answer, None without a limit.

        A machine that is there answers soon after the time is up; there may be none.
        """
        bench = self.run.bench
        if bench.deadline is None:
            return None
        left = bench.deadline - asyncio.get_running_loop().time()
        return left + self._grace()

    def _grace(self) -> float:
        """How long a machine may take to end what it has begun, in seconds."""
        return self.launch_timeout + self.run.bench.limits.timeout

    def _name(self, place: CapturePlace) -> str:
        """As Dask's dashboard shows the task: its first words are what it is counted by."""
        kernel = place.selection.repro.name
        return f"{kernel}/{place.launch.label}@{place.target}/{place.compiler.label}"

    def _task(self, indices: Sequence[int]) -> CaptureTask:
        places = [self.plan.places[index] for index in indices]
        rules, bench = self.steering.rules, self.run.bench
        past = self._past(places) if self.steering.use_cache else []
        return CaptureTask(
            run=self.uid,
            command=self.command,
            places=tuple(
                named(place, is_extra=index in self.plan.extras)
                for index, place in zip(indices, places, strict=True)
            ),
            # What is planned already needs no plan.
            matrix=replace(rules.matrix, kernels=(), launches=(), include=()),
            only=tuple(rules.only),
            use_cache=self.steering.use_cache,
            timeout=bench.limits.timeout,
            launch_timeout=self.launch_timeout,
            memory=self.memory,
            launch_memory=0,
            until=self.until,
            past=tuple(_as_sent(each) for each in past if each.run != self.run.run),
            settled=tuple(each.cell for each in past if each.run == self.run.run),
        )

    def _past(self, places: Sequence[CapturePlace]) -> list[ResultRecord]:
        """The last results of the cells that these places may have."""
        store = self.run.bench.store
        found: set[str] = set()
        for place in places:
            kernel = place.selection.repro.name
            at = f"@{place.target}/{place.compiler.label}/"
            # A file, or a pattern, of several kernels names each of them.
            for start in (f"{kernel}/{place.launch.label}", f"{kernel.partition('::')[0]}::"):
                found.update(cell for cell in store.cells_from(start) if at in cell)
        return list(store.latest_of(sorted(found)).values())

    def _keep(self, answer: CaptureAnswer, name: str) -> None:
        run, steering = self.run, self.steering
        run.failures += [InfrastructureError(f"{answer.host}: {said}") for said in answer.failures]
        if answer.parcel:
            try:
                with open_parcel(answer.parcel) as source:
                    run.bench.store.take_over([source])
                    rows = [
                        _decode_row(record.row)
                        for each in source.runs
                        for record in source.results(each.id)
                    ]
            except UsageError as error:
                said = f"what {answer.host} answered is refused: {name}: {error}"
                run.failures.append(InfrastructureError(said))
                return
            run.progress.planned(len(rows))
            for row in rows:
                run.progress.done(row)
            steering.settled.update(row.cell for row in rows)
        run.notes.extend(answer.notes)
        run.bench.cpu_seconds += answer.cpu_seconds
        steering.excluded.update(answer.excluded)
        steering.versions.update(answer.versions)
        steering.rules.have_matched(answer.matched)
        steering.skipped += answer.skipped
        steering.skipped_captures += answer.skipped_captures
        steering.carried += answer.carried

    def _give_up(self, place: CapturePlace, said: str) -> None:
        """Say `infra` of the cells of a place; if its capture is stored."""
        plan = stored_place(self.run, place)
        if plan is None:
            return
        for cell in self.steering.look(place, plan).cells:
            done = not_evaluated(cell, said)
            self.run.bench.store.put_result(self.run.run, record_of(done))
            self.steering.settled.add(str(cell.cell))
            self.run.progress.planned(1)
            self.run.progress.done(done.row)


def _as_sent(record: ResultRecord) -> PastRow:
    return to_row(0, record, 0.0)
