"""Runs a launch: decodes the PTX, lays out memory, runs the grid batch by batch.

The result is what the PTX computes under the rules of the PTX ISA, for one order of warps and of
asynchronous completions (`Schedule`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from gpu_emulator.machine.bounds import as_declared
from gpu_emulator.machine.layout import Arena, parameter_memory, place_symbols, thread_registers
from gpu_emulator.machine.running import Fallen, run_batch
from gpu_emulator.ptx.instructions.catalogue import CHAPTERS
from gpu_emulator.ptx.program.decoding import Program, decode
from gpu_emulator.refusal import NotExecutable
from gpu_emulator.regions import Region
from gpu_emulator.state.agents import Agents
from gpu_emulator.state.batch import Batch, Findings, Geometry
from gpu_emulator.state.findings import Races, Unordered
from gpu_emulator.state.frame import Frame
from gpu_emulator.state.global_shadow import GlobalShadow
from gpu_emulator.state.memory import Memory, Trouble
from gpu_emulator.state.recording import Recording
from gpu_emulator.state.releases import Releases
from gpu_emulator.state.watching import Watched
from gpu_emulator.steps import WARP, Registers
from gpu_emulator.types import Array
from gpu_emulator.values import Budget, Checks, Fault, Launch, Outcome, Schedule

_MOST_BATCH_CTAS = 256
_MOST_SHARED = 1 << 20
# With more CTAs a step of one warp of each is wide enough for numpy.
_FEW_CTAS = 64


def run(
    launch: Launch,
    schedule: Schedule | None = None,
    limits: Budget | None = None,
    check: Checks | None = None,
    heard: Callable[[int], None] = lambda executed: None,  # noqa: ARG005
    recording: Recording | None = None,
) -> Outcome:
    """Execute a launch; every way in which it may end is an outcome, never an exception.

    `heard` gets the number of instructions of threads, now and then. A `recording` takes the place
    of the race check.
    """
    assert CHAPTERS
    try:
        program = decode(launch.ptx, launch.entry)
        launch = as_declared(launch, program.listing.directives)
        asked = (schedule or Schedule(), limits or Budget(), check or Checks())
        if recording is not None:
            machine = _Machine(launch, program, *asked)
            machine.record(recording)
            with np.errstate(all="ignore"):
                return machine.run(heard)
        with np.errstate(all="ignore"):
            found = _abreast(launch, program, *asked, heard)
            return found or _Machine(launch, program, *asked).run(heard)
    except NotExecutable as reason:
        return Outcome(not_run=str(reason), unknown=reason.unknown)
    except Exception as error:  # noqa: BLE001 - whatever it holds, it is not the end of the command
        return Outcome(not_run=f"the emulator cannot execute this PTX: {error!r}")


def _abreast(
    launch: Launch, program: Program, schedule: Schedule, limits: Budget, check: Checks,
    heard: Callable[[int], None],
) -> Outcome | None:  # fmt: skip
    """All warps of a CTA step by step together, if that is quicker and leaves the same.

    Where every two accesses to the same bytes by two warps are ordered, each order of warps that
    the barriers allow leaves the same. The race check says whether they are; if not, if anything
    goes wrong, or where the program depends on more than memory and barriers: None.
    """
    history = _history(launch.ptx, launch.entry)
    ctas = math.prod(launch.grid)
    is_worth_it = ctas <= _FEW_CTAS and math.prod(launch.block) > WARP
    is_worth_it = is_worth_it and launch.cluster == (1, 1, 1)
    wants = schedule.warps != "lockstep" and schedule.completion != "random"
    if history.is_unordered or not (program.is_plain and is_worth_it and wants):
        return None
    checks = replace(check, races=True)
    together = replace(schedule, warps="lockstep")
    try:
        machine = _Machine(launch, program, together, limits, checks, ends_at_race=True)
        outcome = machine.run(heard)
    except (NotExecutable, Unordered):
        history.is_unordered = True
        return None
    if outcome.faults or not machine.is_whole:
        history.is_unordered = True
        return None
    return replace(outcome, races=outcome.races if check.races else (), is_ordered=True)


@dataclass(slots=True)
class _History:
    """What is known of an entry from its runs in this process: some order of warps mattered."""

    is_unordered: bool = False


@lru_cache(maxsize=64)
def _history(ptx: str, entry: str | None) -> _History:
    del ptx, entry
    return _History()


class _Machine:
    def __init__(
        self, launch: Launch, program: Program, schedule: Schedule, limits: Budget, check: Checks,
        *, ends_at_race: bool = False,
    ) -> None:  # fmt: skip
        self._launch = launch
        self._program = program
        self._schedule = schedule
        self._limits = limits
        self._check = check
        self._geometry = Geometry(launch.grid, launch.block, launch.cluster)
        self._findings = Findings()
        self._arena = Arena(launch, program.listing, schedule.garbage, validity=check.validity)
        self._parameters = parameter_memory(launch, program.listing, self._arena)
        self._watched = self._watch(Races(ends=ends_at_race)) if check.races else None
        self._recording: Recording | None = None
        self._executed = 0
        self._refuse_size()

    def record(self, recording: Recording) -> None:
        """Leave in a recording what the threads do."""
        self._recording = recording
        self._watched = self._watched or self._watch(Races())
        recording.locate(self._arena.regions)

    @property
    def is_whole(self) -> bool:
        """Whether the race check knows of every access."""
        return self._watched is None or self._watched.everywhere.is_whole

    def _watch(self, races: Races) -> Watched:
        """What the race check of all batches shares."""
        memory, releases = self._arena.memory, Releases()
        agents = Agents(-(-self._geometry.threads // WARP))
        shadow = GlobalShadow(memory, self._program.global_grain, agents, races, releases)
        return Watched(agents, self._program.grain, races, releases, shadow)

    def _refuse_size(self) -> None:
        shared = self._shared_size()
        if shared > _MOST_SHARED:
            raise NotExecutable(f"{shared:,} bytes of shared memory: no GPU has so much")
        if self._one_cta() > self._limits.max_memory:
            raise NotExecutable(
                f"one CTA needs {self._one_cta():,} bytes, the limit is {self._limits.max_memory:,}"
            )

    def run(self, heard: Callable[[int], None]) -> Outcome:
        """Run all batches, or those until the first fault."""
        total = math.prod(self._launch.grid)
        ran = 0
        faults: list[Fault] = []
        for coordinates in self._batches():
            batch = self._batch(coordinates, ran)
            try:
                run_batch(
                    self._program,
                    batch,
                    self._limits.max_instructions - self._executed,
                    lambda executed: heard(self._executed + executed),
                )
            except Fallen as fallen:
                faults.append(fallen.fault)
            except Trouble as trouble:
                faults.append(Fault(kind="memory_fault", what=trouble.what, place=trouble.place))
            self._executed += batch.executed
            ran += len(coordinates)
            if faults:
                break
        return Outcome(
            allocations=self._arena.allocations(),
            faults=tuple(faults),
            races=self._watched.races.all() if self._watched else (),
            uninitialised=self._findings.uninitialised(),
            printed=self._findings.printed(),
            executed=self._executed,
            ctas=ran,
            ctas_of=total,
            is_sample=total > self._limits.max_ctas,
        )

    def _batches(self) -> Iterator[Array]:
        """Coordinates of the CTAs that run together: whole clusters, as many as memory allows."""
        grid, cluster, size = self._launch.grid, self._launch.cluster, self._geometry.cluster_size
        across = tuple(count // one for count, one in zip(grid, cluster, strict=True))
        chosen = np.arange(min(math.prod(across), max(1, self._limits.max_ctas // size)))
        if math.prod(grid) > self._limits.max_ctas:
            spread = np.linspace(0, math.prod(across) - 1, len(chosen)).round()
            chosen = np.unique(spread.astype(np.int64))
        # Cluster by cluster, and in a cluster by rank.
        clusters, ranks = _along(chosen, across), _along(np.arange(size), cluster)
        places = (clusters[:, None] * cluster + ranks).reshape(-1, 3)
        step = max(size, self._room() // size * size)
        for first in range(0, len(places), step):
            yield places[first : first + step]

    def _room(self) -> int:
        """How many CTAs fit."""
        room = self._limits.max_memory // 2 // max(self._one_cta(), 1)
        return max(1, min(_MOST_BATCH_CTAS, room))

    def _one_cta(self) -> int:
        """Bytes that a CTA takes: its registers, shared and local memory."""
        lanes = -(-self._geometry.threads // WARP) * WARP
        checks = 1 + self._check.validity
        spaces = self._shared_size() + self._program.local_end * lanes
        return self._program.live * lanes * 4 + checks * spaces

    def _shared_size(self) -> int:
        end = self._program.shared_end
        if self._program.dynamic is not None:
            align = max(self._program.dynamic.align, 16)
            end = -(-end // align) * align
        return -(-(end + self._launch.dynamic_shared) // 128) * 128

    def _batch(self, coordinates: Array, first: int) -> Batch:
        lanes = -(-self._geometry.threads // WARP) * WARP
        memories = {
            "global": self._arena.memory,
            "param": self._parameters,
            "shared": self._shared(len(coordinates)),
            "local": self._local(len(coordinates) * lanes),
        }
        batch = Batch(
            self._geometry, coordinates, memories, self._schedule, self._findings, lanes=lanes
        )
        if self._recording is not None and self._watched is not None:
            batch.record(self._recording, first, self._watched)
        elif self._watched:
            batch.look_for_races(first, self._watched)
        end = len(self._program.sections)
        width = lanes if self._schedule.warps == "lockstep" else WARP
        batch.frames = [Frame(batch, first, width, end) for first in range(0, lanes, width)]
        batch.barriers.frames = batch.frames
        for frame in batch.frames:
            registers: Registers = self._program.initial(self._schedule.garbage, first, width)
            registers[0], registers[1] = frame, None
            place_symbols(registers, self._program, self._arena, self._launch)
            thread_registers(registers, self._program.slots, frame, self._launch)
            frame.registers = registers
            if self._geometry.threads < frame.first + width:
                # Threads that fill up the last warp have left before anything begins.
                frame.at = np.where(frame.threads < self._geometry.threads, 0, end)
        return batch

    def _shared(self, ctas: int) -> Memory:
        size = self._shared_size()
        regions = list(self._program.shared)
        if self._program.dynamic is not None:
            one = self._program.dynamic
            start = -(-self._program.shared_end // max(one.align, 16)) * max(one.align, 16)
            regions.append(Region(one.name, start, start + self._launch.dynamic_shared))
        elif self._launch.dynamic_shared:
            regions.append(Region("shared memory", self._program.shared_end, size))
        memory = Memory("shared", _garbage(ctas * size, self._schedule), 0, size, regions)
        if self._check.validity:
            memory.track(np.zeros(ctas * size, dtype=np.bool_))
        return memory

    def _local(self, threads: int) -> Memory:
        size = -(-self._program.local_end // 16) * 16
        memory = Memory(
            "local", _garbage(threads * size, self._schedule), 0, size, self._program.local
        )
        if self._check.validity:
            memory.track(np.zeros(threads * size, dtype=np.bool_))
        return memory


def _along(numbers: Array, sizes: tuple[int, ...]) -> Array:
    """Numbers (n,) as places (n, 3), x fastest."""
    x, y, _ = sizes
    return np.stack([numbers % x, numbers // x % y, numbers // (x * y)], axis=1)


def _garbage(size: int, schedule: Schedule) -> Array:
    """Arbitrary bytes, others for each seed; never such that they look like small numbers."""
    random = np.random.default_rng((schedule.garbage, 77))
    block = random.integers(0, 256, 4096, dtype=np.uint8)
    return np.resize(block, -(-size // 32) * 32) if size else np.zeros(0, dtype=np.uint8)
