"""The sixteen named barriers of each CTA, and the barrier of each cluster.

PTX ISA, "Parallel Synchronization and Communication Instructions: bar, barrier, barrier.cluster".
A warp that arrives counts as 32 threads.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpu_emulator.state.frame import Frame
from gpu_emulator.state.happens_before import HappensBefore
from gpu_emulator.state.memory import Trouble
from gpu_emulator.types import Array

_COUNT = 16
_WARP = 32


class Barriers:
    """Arrivals and completed phases by CTA and barrier."""

    def __init__(self, ctas: int, threads: int, cluster_size: int) -> None:
        self.frames: Sequence[Frame] = ()
        self.watch: HappensBefore | None = None
        self._ctas = ctas
        self._threads = threads
        self._cluster_size = cluster_size
        self.arrived = np.zeros((ctas, _COUNT), dtype=np.int64)
        self.wanted = np.zeros((ctas, _COUNT), dtype=np.int64)
        self.phase = np.zeros((ctas, _COUNT), dtype=np.int64)
        self.votes = np.zeros((ctas, _COUNT, 2), dtype=np.int64)
        self.results = np.zeros((ctas, _COUNT, 2), dtype=np.int64)
        self.cluster_arrived = np.zeros(ctas, dtype=np.int64)
        self.cluster_phase = np.zeros(ctas, dtype=np.int64)

    def is_trivial(self, frame: Frame, count: Array | None) -> bool:
        """Whether all threads of the CTAs arrive at once, so that nothing is to be waited for."""
        everyone = frame.registers[1] is None and frame.lanes == self._threads
        everyone = everyone and not self.arrived.any()
        return everyone and (count is None or bool((count == frame.lanes).all()))

    def arrive(
        self, frame: Frame, number: Array, count: Array | None, vote: Array | None = None
    ) -> list[tuple[int, Array, Array]]:
        """Let the active threads arrive: (barrier, mask of threads, phase that they arrive in)."""
        active = frame.active()
        numbers = np.broadcast_to(number, frame.shape)
        result = []
        for which in np.unique(numbers[active]).tolist():
            if not 0 <= which < _COUNT:
                raise Trouble("memory_fault", f"there is no barrier {which}")
            here = active & (numbers == which)
            warps = here.reshape(frame.ctas, -1, _WARP).any(axis=2).sum(axis=1) * _WARP
            came = warps > 0
            if count is None:
                wanted = np.full(frame.ctas, -1)
            else:
                wanted = np.where(here, np.broadcast_to(count, frame.shape), 0).max(axis=1)
            if (came & (wanted == 0)).any() or (wanted[came] % _WARP * (wanted[came] > 0)).any():
                raise Trouble(
                    "hang", f"barrier {which} waits for a count that is no multiple of 32"
                )
            if vote is not None:
                votes = (here & np.broadcast_to(vote, frame.shape)).sum(axis=1)
                self.votes[:, which, 0] += votes
                self.votes[:, which, 1] += here.sum(axis=1)
            phase = self.phase[:, which].copy()
            self.arrived[:, which] += warps
            self.wanted[came, which] = wanted[came]
            result.append((which, here, phase))
            if self.watch is not None:
                self.watch.arrive(frame, here, which)
            self._complete(which)
        return result

    def _complete(self, which: int) -> None:
        wanted = self.wanted[:, which]
        if (wanted < 0).any():
            wanted = np.where(wanted < 0, self._alive(), wanted)
        full = (self.arrived[:, which] >= wanted) & (self.arrived[:, which] > 0)
        if full.any():
            self.phase[full, which] += 1
            if self.watch is not None:
                self.watch.complete(which, np.nonzero(full)[0])
            self.arrived[full, which] = 0
            self.results[full, which] = self.votes[full, which]
            self.votes[full, which] = 0

    def _alive(self) -> Array:
        """Threads of each CTA that have not left, in whole warps."""
        total = np.zeros(self._ctas, dtype=np.int64)
        for frame in self.frames:
            total += frame.alive().reshape(frame.ctas, -1, _WARP).any(axis=2).sum(axis=1) * _WARP
        return total

    def release(self) -> bool:
        """Complete what waits only for warps that have left since; whether anything was."""
        before = int(self.phase.sum())
        for which in range(_COUNT):
            if self.arrived[:, which].any():
                self._complete(which)
        return int(self.phase.sum()) > before

    def arrive_cluster(self, frame: Frame) -> None:
        """Let the active threads arrive at the barrier of their cluster."""
        self.cluster_arrived += frame.active().sum(axis=1)
        self.complete_cluster()

    def complete_cluster(self) -> bool:
        """Complete the phase of each cluster all of whose threads arrived; whether any was."""
        size = self._cluster_size
        alive = np.zeros(self._ctas, dtype=np.int64)
        for frame in self.frames:
            alive += frame.alive().sum(axis=1)
        arrived = self.cluster_arrived.reshape(-1, size).sum(axis=1)
        full = (arrived >= alive.reshape(-1, size).sum(axis=1)) & (arrived > 0)
        rows = np.repeat(full, size)
        self.cluster_arrived[rows] = 0
        self.cluster_phase[rows] += 1
        if self.watch is not None and full.any():
            self.watch.cluster(size)
        return bool(full.any())
