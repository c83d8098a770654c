"""A hub whose tools run on other machines: ptxas, what reads its code, and the emulator.

Each run is one task. What it is given and what it leaves travel as content; everything else is done
here as without them, in the same order, so that the same comes out.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from msgspec.structs import replace

from harness.cells.evaluate import not_evaluated
from harness.cells.places import CompileOptions, places_of, record_of, stored_place
from harness.frontends.bench import Workbench
from harness.frontends.plan import CapturePlace, Selection
from harness.io.files.own_code import program_sha256
from harness.io.files.writing import scratch_disk
from harness.io.processes.cluster import LostWorkersError, Machines, MachinesGoneError
from harness.io.processes.hub import Hub, ResourceLimits
from harness.io.processes.machine import cores
from harness.io.processes.tasks import in_parallel
from harness.io.toolchains.install import NamedTool, name_tool
from harness.matrix.run_policy import MatrixRun, launch_timeout
from harness.matrix.workers import (
    CaptureAnswer,
    CaptureTask,
    ToolAnswer,
    ToolTask,
    decode,
    encode,
    named,
    run_tool_task,
    work_on_capture,
)
from harness.store.merge import open_parcel, take_evidence_of, take_over
from harness.store.schema import ResultRecord, to_row
from harness.values.errors import InfrastructureError, UsageError
from harness.values.matrix import Matrix, VersionChoice
from harness.values.outcome import ProcessEnd
from harness.values.row import Row


def at_once(machines: Machines, how: CompileOptions) -> CompileOptions:
    """How to work with so many machines: on this one as much at once as it has cores for."""
    jobs = machines.at_once
    return replace(how, jobs=jobs, here=0 if machines.are_here else min(cores(), jobs))


class ToolsElsewhere(Hub):
    """As `Hub`. What a machine cannot do is said once, by `tell`, and done here."""

    def __init__(
        self, machines: Machines, how: CompileOptions, tell: Callable[[str], None]
    ) -> None:
        super().__init__()
        self._machines = machines
        # Each machine has its own share, unless the user has named one.
        self._limits_memory = machines.are_here or bool(how.memory)
        self._tell = tell
        self._told: set[str] = set()
        self._code = program_sha256()
        self._ranks = itertools.count()
        self._here = asyncio.Semaphore(how.here or how.workers)

    async def execute(
        self,
        argv: Sequence[str | Path],
        *,
        folder: Path,
        limits: ResourceLimits,
        env: Mapping[str, str] | None = None,
        writable: Sequence[Path] | None = None,
    ) -> ProcessEnd:
        """See `Hub`.

        Raises:
            InfrastructureError: as there.
            MachinesGoneError: the machines are lost, or the scheduler is.
        """
        tool = name_tool(Path(argv[0])) if env is None and writable is None else None
        if tool:
            words = [os.fspath(word) for word in argv[1:]]
            if process := await self._sent(self._task(tool, words, folder, limits), folder):
                return process
        async with self._here:
            return await super().execute(
                argv, folder=folder, limits=limits, env=env, writable=writable
            )

    async def do(
        self,
        module: str,
        folder: Path,
        limits: ResourceLimits,
        here: Callable[[], Awaitable[ProcessEnd]],
    ) -> ProcessEnd:
        """See `Hub`.

        Raises:
            InfrastructureError: as `here`.
            MachinesGoneError: the machines are lost, or the scheduler is.
        """
        if process := await self._sent(self._task(None, (module,), folder, limits), folder):
            return process
        async with self._here:
            return await here()

    def _task(
        self, tool: NamedTool | None, words: Sequence[str], folder: Path, limits: ResourceLimits
    ) -> ToolTask | None:
        """None for what another machine could not do by names and content alone."""
        files = list(folder.iterdir())
        if not all(file.is_file() for file in files):
            return None
        return ToolTask(
            tool=tool,
            words=tuple(words),
            files={file.name: file.read_bytes() for file in files},
            timeout=limits.timeout,
            memory=limits.memory if self._limits_memory else 0,
            file_size=limits.file_size,
        )

    async def _sent(self, task: ToolTask | None, folder: Path) -> ProcessEnd | None:
        if task is None:
            return None
        # For people: `ptxas 13.1.115`, or `emulator`.
        name, rank = task.tool.words if task.tool else "emulator", next(self._ranks)
        packed = encode(task, self._code)
        try:
            reply = await self._machines.run(run_tool_task, packed, name=name, rank=rank)
        except InfrastructureError as error:
            raise MachinesGoneError(str(error)) from error
        try:
            answer = decode(reply, ToolAnswer)
        except ValueError:
            answer = None
        if answer is None:
            answer = ToolAnswer(host=self._machines.words, failure="its answer cannot be read")
        if any(Path(name).name != name for name in answer.files):
            answer = ToolAnswer(host=answer.host, failure="it names files of other folders")
        if answer.end is None:
            message = f"{answer.host}: {answer.failure}; {name} runs here"
            if message not in self._told:
                self._told.add(message)
                self._tell(message)
            return None
        with scratch_disk():
            for path, data in answer.files.items():
                (folder / path).write_bytes(data)
        return answer.end


# A night on other machines: captures go out, each with its cells; results are kept as they come.
# This program alone writes to the store. What a machine that is lost was at work on is done again
# by another; what it had answered is here. A capture whose machines are lost again and again may be
# what ends them, or may have been beside one that does: it is tried once more, with nothing beside
# it.

_decode_row = msgspec.json.Decoder(Row).decode


def _name_of_task(place: CapturePlace) -> str:
    kernel = place.selection.repro.name
    return f"{kernel}/{place.launch.label}@{place.target}/{place.compiler.label}"


@dataclass(slots=True, kw_only=True)
class CaptureDispatcher:
    """Hands out captures of one run, and keeps what comes back."""

    night: MatrixRun
    machines: Machines
    _code: str = field(default_factory=program_sha256)

    async def work_off(self, captures: Sequence[Sequence[int]]) -> None:
        """Have the captures worked on, in their order, and keep what comes back.

        Raises:
            InfrastructureError: the machines cannot be reached any more.
            StorageError: results cannot be kept.
        """
        lost: list[tuple[int, Sequence[int]]] = []

        async def once(rank: int, indices: Sequence[int]) -> None:
            try:
                await self._send(rank, indices)
            except LostWorkersError:
                lost.append((rank, indices))

        await in_parallel(once(rank, indices) for rank, indices in enumerate(captures))
        for rank, indices in lost:
            try:
                await self._send(rank, indices)
            except LostWorkersError as error:
                self.night.failures.append(error)
                for index in indices:
                    self._give_up(self.night.plan.places[index], str(error))

    async def _send(self, rank: int, indices: Sequence[int]) -> None:
        if self.night.is_time_up():
            self.night.left(None)
            return
        message = encode(self._task(indices), self._code)
        name = _name_of_task(self.night.plan.places[indices[0]])
        sent = self.machines.run(work_on_capture, message, name=name, rank=rank)
        try:
            answer = await asyncio.wait_for(sent, self._patience())
        except TimeoutError:
            self.night.left(None)
        else:
            self._keep(answer, name)

    def _patience(self) -> float | None:
        """Seconds to wait for an answer, None without a limit.

        A machine that is there answers soon after the time is up; there may be none.
        """
        bench = self.night.bench
        if bench.deadline is None:
            return None
        return bench.deadline - time.monotonic() + self._grace()

    def _grace(self) -> float:
        """Seconds that launch code and a compiler are given after the time is up."""
        return launch_timeout(self.night.rules.matrix) + self.night.bench.limits.timeout

    def _task(self, indices: Sequence[int]) -> CaptureTask:
        night, bench, rules = self.night, self.night.bench, self.night.rules
        places = [night.plan.places[index] for index in indices]
        past = self._past(places) if bench.use_cache else []
        seconds = None if bench.deadline is None else bench.deadline - time.monotonic()
        return CaptureTask(
            run=bench.store.uid_of(night.run),
            command=night.options.work.command,
            places=tuple(
                named(place, is_extra=index in night.plan.extras)
                for index, place in zip(indices, places, strict=True)
            ),
            # What is planned already needs no plan.
            matrix=replace(rules.matrix, kernels=(), launches=(), include=()),
            only=tuple(rules.only),
            use_cache=bench.use_cache,
            timeout=bench.limits.timeout,
            launch_timeout=launch_timeout(rules.matrix),
            memory=bench.limits.memory if self.machines.are_here else 0,
            until=None if seconds is None else time.time() + seconds,
            past=tuple(to_row(0, record, 0.0) for record in past if record.run != night.run),
            settled=tuple(record.cell for record in past if record.run == night.run),
        )

    def _past(self, places: Sequence[CapturePlace]) -> list[ResultRecord]:
        store = self.night.bench.store
        cells: set[str] = set()
        for place in places:
            kernel = place.selection.repro.name
            at = f"@{place.target}/{place.compiler.label}/"
            # A file, or a pattern, of several kernels names each of them.
            for start in (f"{kernel}/{place.launch.label}", f"{kernel.partition('::')[0]}::"):
                cells.update(cell for cell in store.cells_from(start) if at in cell)
        return list(store.latest_of(sorted(cells)).values())

    def _keep(self, message: bytes, name: str) -> None:
        run = self.night
        answer = decode(message, CaptureAnswer)
        assert answer is not None, "the machine answers the command that sent the task"
        run.failures += [
            InfrastructureError(f"{answer.host}: {complaint}") for complaint in answer.failures
        ]
        if answer.parcel:
            try:
                with open_parcel(answer.parcel) as source:
                    take_over(run.bench.store, [source])
                    rows = [
                        _decode_row(record.row)
                        for foreign in source.runs
                        for record in source.results(foreign.id)
                    ]
            except UsageError as error:
                complaint = f"what {answer.host} answered is refused: {name}: {error}"
                run.failures.append(InfrastructureError(complaint))
                return
            run.progress.planned(len(rows))
            for row in rows:
                run.progress.done(row)
            run.settled.update(row.cell for row in rows)
        run.notes.extend(answer.notes)
        run.bench.cpu_seconds += answer.cpu_seconds
        run.excluded.update(answer.excluded)
        run.versions.update(answer.versions)
        run.rules.have_matched(answer.matched)
        run.skipped += answer.skipped
        run.skipped_captures += answer.skipped_captures
        run.carried += answer.carried

    def _give_up(self, place: CapturePlace, reason: str) -> None:
        night = self.night
        plan = stored_place(night, place)
        if plan is None:
            return
        cells, _ = night.look(place, plan)
        night.put_again()
        for cell in cells:
            evaluated = not_evaluated(cell, reason)
            night.bench.store.put_result(night.run, record_of(evaluated))
            night.settled.add(str(cell.cell))
            night.progress.planned(1)
            night.progress.done(evaluated.row)


# What a command is about to look at, compiled by other machines: only evidence comes back. The same
# evidence is made here where it is missing, and the rows are always made here: what is found out
# does not depend on who compiled.

_NO_RULES = Matrix(
    triton=VersionChoice(specs=()), ptxas=VersionChoice(specs=()), targets=(), kernels=()
)


@dataclass(slots=True, kw_only=True)
class Prefetch:
    """As `harness.cells.places.Elsewhere`."""

    machines: Machines
    how: CompileOptions
    _code: str = field(default_factory=program_sha256)
    _name: str = field(default_factory=lambda: secrets.token_hex(16))
    _ranks: Iterator[int] = field(default_factory=itertools.count)

    @property
    def at_once(self) -> int:
        """As many as there are workers."""
        return self.machines.at_once

    async def make(self, bench: Workbench, selection: Selection) -> Sequence[str]:
        """See `Elsewhere`; with `--no-cache` what was made for this command counts as its own."""
        places = places_of(selection)
        task = CaptureTask(
            run=self._name,
            command=self.how.command,
            places=tuple(named(place, is_extra=False) for place in places),
            matrix=_NO_RULES,
            use_cache=self.how.use_cache,
            timeout=self.how.timeout,
            launch_timeout=self.how.timeout,
            memory=self.how.limits.memory if self.machines.are_here else self.how.memory,
            launch_memory=self.how.memory,
        )
        assemblers = ",".join(assembler.version for assembler in selection.ptxas if assembler)
        name = _name_of_task(places[0])
        name = f"{name}/{assemblers}" if assemblers else name
        message = encode(task, self._code)
        answer = decode(
            await self.machines.run(work_on_capture, message, name=name, rank=next(self._ranks)),
            CaptureAnswer,
        )
        assert answer is not None, "the machine answers the command that sent the task"
        bench.cpu_seconds += answer.cpu_seconds
        complaints = [f"{answer.host}: {failure}" for failure in answer.failures]
        if answer.parcel:
            try:
                with open_parcel(answer.parcel) as source:
                    bench.made |= take_evidence_of(bench.store, source)
            except UsageError as error:
                complaints.append(f"what {answer.host} answered is refused: {error}")
        return complaints
