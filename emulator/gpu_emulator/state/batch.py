"""CTAs that run together: their memories, barriers, and what was found about them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from gpu_emulator.engines.tcgen05 import COLUMNS, ROWS
from gpu_emulator.state.barriers import Asynchrony, Barriers
from gpu_emulator.state.frame import CLUSTER_SHIFT, Frame, Memory, TensorMemories, Trouble
from gpu_emulator.state.recording import Recording
from gpu_emulator.state.watching import RaceWatch, Watched
from gpu_emulator.steps import WARP, Array
from gpu_emulator.values import Launch, Place, Schedule, Uninitialised

# Where generic addresses of each space begin; each window is 2^40 bytes but that of global memory.
WINDOWS = {
    "global": 0, "const": 0, "shared": 0x1000_0000_0000, "local": 0x2000_0000_0000,
    "param": 0x3000_0000_0000,
}  # fmt: skip
_WINDOW_BITS = 40
_MOST_MESSAGES = 100


@dataclass(slots=True)
class Findings:
    """What was found, by place, over all batches."""

    unwritten: dict[tuple[str, Place], tuple[int, str]] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)
    dropped: int = 0

    def note(self, space: str, place: Place, count: int, words: str) -> None:
        """Remember that `count` threads, or cells, read what nothing wrote."""
        before, first = self.unwritten.get((space, place), (0, words))
        self.unwritten[space, place] = before + count, first

    def printed(self) -> tuple[str, ...]:
        more = (f"and {self.dropped:,} more",) if self.dropped else ()
        return (*self.messages, *more)

    def is_full(self) -> bool:
        """Whether no more of what threads print is kept; it is counted."""
        full = len(self.messages) >= _MOST_MESSAGES
        self.dropped += full
        return full

    def uninitialised(self) -> tuple[Uninitialised, ...]:
        ordered = sorted(self.unwritten.items(), key=lambda item: item[0][1].order)
        return tuple(
            Uninitialised(space=space, place=place, count=count, what=words)
            for (space, place), (count, words) in ordered
        )


class Batch:
    """Some CTAs of a launch. `coordinates` is (CTAs, 3): their place in the grid."""

    def __init__(
        self, launch: Launch, coordinates: Array, memories: dict[str, Memory], schedule: Schedule,
        findings: Findings,
    ) -> None:  # fmt: skip
        self.launch = launch
        self.coordinates = coordinates
        self.ctas = len(coordinates)
        # Columns: threads of a CTA, filled up to whole warps.
        self.threads = -(-launch.threads // WARP) * WARP
        self.memories = memories
        self.windows = WINDOWS
        self.schedule = schedule
        self.findings = findings
        self.random = np.random.default_rng((schedule.seed, int(coordinates[0].sum())))
        self.frames: list[Frame] = []
        self.barriers = Barriers(self.ctas, self.threads, launch.cluster_size)
        self.asynchrony = Asynchrony(schedule.completion, self.random)
        self.watch: RaceWatch | None = None
        self.recording: Recording | None = None
        # Of lanes that parted those in the block of the smallest number run first; `last`: of the
        # greatest; `first`: those that ran go on until they wait, and meet others only there.
        self.lanes = "lockstep"
        # Whether every address of shared memory says by its rank, from 0 on, which CTA it is of.
        self.has_all_ranks = False
        self.executed = 0
        self.ticks = 0
        # Goes up where nothing but who only tests a barrier can go on; whether anyone does.
        self.patience = 0
        self.is_tested = False
        self._tensor_memories: TensorMemories | None = None

    def watch_memory(self, first: int, watched: Watched, recording: Recording | None) -> None:
        """Look for races from now on, or leave what threads do in a recording.

        `first` is the number of the first of these CTAs.
        """
        if recording is None:
            watch = RaceWatch(
                self.ctas, first, self.memories["shared"], watched,
                has_clusters=self.launch.cluster_size > 1,
            )  # fmt: skip
        else:
            watch = recording.begin(self, first, watched)
        self.recording = recording
        self.watch = self.barriers.watch = self.asynchrony.watch = watch

    @property
    def tensor_memories(self) -> TensorMemories:
        if self._tensor_memories is None:
            validity = self.memories["shared"].written is not None
            self._tensor_memories = TensorMemories(
                self.ctas, self.schedule.garbage, validity=validity
            )
        return self._tensor_memories

    @property
    def alive(self) -> int:
        """How many of the CTAs have not ended."""
        alive = np.any([frame.alive().any(axis=1) for frame in self.frames], axis=0)
        return int(alive.sum())

    @property
    def tensor_words(self) -> list[Array]:
        """What tensor memory holds, where anything was put there."""
        return [self._tensor_memories.words] if self._tensor_memories is not None else []

    def is_in(self, space: str, address: Array) -> Array:
        window = self.windows[space]
        inside: Array = (address >> np.uint64(_WINDOW_BITS)) == np.uint64(window >> _WINDOW_BITS)
        if window == 0:
            memory = self.memories["global"]
            low, high = np.uint64(memory.base), np.uint64(memory.base + len(memory.data))
            inside = (address >= low) & (address < high)
        return inside

    def owners(self, rows: Array, address: Array) -> Array:
        """The rows of the CTAs whose shared memory addresses are of, which CTAs in `rows` have.

        The address of a cubin in a cluster has its rank; that of PTX as `CLUSTER_SHIFT` says.
        """
        rank = address >> CLUSTER_SHIFT
        if self.has_all_ranks:
            return self.cluster_row(rows, rank)
        return np.where(rank > 0, self.cluster_row(rows, rank - 1), rows)

    def at_rank(self, address: Array, rank: int | None) -> Array:
        """A shared address in its own CTA, or the same place in the CTA of a rank."""
        if rank is None:
            return address
        inside = address & ((1 << CLUSTER_SHIFT) - 1)
        return inside | (rank + (not self.has_all_ranks) << CLUSTER_SHIFT)

    def cluster_row(self, rows: Array, rank: Array) -> Array:
        """The rows of the CTAs of given ranks in the clusters that rows belong to."""
        size = self.launch.cluster_size
        if (rank >= size).any():
            raise Trouble(
                f"an access to shared memory of CTA {int(rank.max())} of a cluster of {size}: there"
                " is none"
            )
        return rows // size * size + np.maximum(rank, 0)

    def note_unwritten_cells(self, cells: Array, place: Place) -> None:
        missing = self.tensor_memories.unwritten(cells)
        if len(missing):
            lane, column = divmod(int(missing[0]) % (ROWS * COLUMNS), COLUMNS)
            words = f"reads lane {lane}, column {column} of tensor memory, which nothing wrote"
            self.findings.note("tensor memory", place, len(missing), words)

    def note_open(self, mask: Array, lanes: Array, place: Place) -> None:
        lane = int(lanes[mask][0])
        words = f"reads lane {lane}, which takes no part: the PTX ISA leaves it open"
        self.findings.note("lanes", place, int(mask.sum()), words)

    def note_unwritten(
        self, frame: Frame, memory: Memory, index: Array, size: int, active: Array | None
    ) -> None:
        """Remember a read of what nothing wrote."""
        missing = memory.unwritten(index, size)
        if missing is None:
            return
        if active is not None:
            missing = missing & active
        count = int(missing.sum())
        if count:
            offset = np.broadcast_to(index, missing.shape)[missing].flat[0]
            if memory.stride:
                offset %= memory.stride
            words = f"reads {memory.where(int(offset))}, which nothing wrote"
            self.findings.note(memory.name, frame.place, count, words)
