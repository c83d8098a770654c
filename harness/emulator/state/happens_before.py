"""What each warp knows of what the others did: clocks that barriers, waits and signals pass on.

`known[cta, warp, agent]` is the last clock of an agent that a warp is ordered after; `fenced` the
same through `fence.proxy.async` (PTX ISA, "Proxies"): what an engine of the async proxy may rely
on. Agents are the warps, the `cp.async` of each warp, then those of the async proxy: `wgmma` and
bulk stores of each warp, bulk loads by their mbarrier, and `tcgen05`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from harness.emulator.program.steps import MASK, WARP
from harness.emulator.program.types import Array
from harness.emulator.state.frame import Frame
from harness.emulator.state.memory import Memory
from harness.emulator.state.shadows import Access, Races, Shadow
from harness.emulator.values import Place

__all__ = ["HappensBefore", "Task"]

_LOADS = 8
_BARRIERS = 16
_BY_WARP = {"cp.async": 1, "wgmma": 2, "bulk.read": 3}


@dataclass(slots=True)
class Task:
    """An operation under way: its agents by warp of the frame, and what was known at its issue."""

    agents: Array
    known: Array
    fenced: Array
    first: int
    is_proxied: bool


class _Clocks:
    """What a barrier passes on: gathered in this phase, and released by the last one."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.gathered = np.zeros((2, *shape), dtype=np.uint32)
        self.released = np.zeros((2, *shape), dtype=np.uint32)


class HappensBefore:
    """The clocks of a batch, and the accesses that they do not order."""

    def __init__(self, ctas: int, warps: int, shared: Memory, grain: int, races: Races) -> None:
        self._warps = warps
        self._agents = 4 * warps + _LOADS + 1
        names = [f"{kind}warp {w}" for kind in _KINDS for w in range(warps)]
        names += ["a bulk load"] * _LOADS + ["tcgen05"]
        self._both = np.zeros((2, ctas, warps, self._agents), dtype=np.uint32)
        own = np.arange(warps)
        self._both[0, :, own, own] = 1
        self._ticks = np.ones((ctas, self._agents), dtype=np.uint32)
        self._stride = shared.stride
        self._shared = shared
        self._shadow = Shadow(ctas, shared.stride, grain, self._agents, names, races)
        self._barriers = _Clocks((ctas, _BARRIERS, self._agents))
        self._cluster = _Clocks((ctas, self._agents))
        self._mbarriers: dict[int, _Clocks] = {}
        self._slots: dict[int, int] = {}
        self._commits: dict[tuple[str, int], list[Array]] = {}
        self.task: Task | None = None
        self._ctas = ctas

    # Accesses.

    def read(
        self,
        frame: Frame,
        memory: Memory,
        index: Array,
        size: int,
        active: Array | None,
        place: Place,
    ) -> None:
        """The active threads read `size` bytes at offsets into the data of a memory."""
        if memory is self._shared:
            for warp, spots, _ in self._by_warp(frame, index, active):
                self._shadow.read(self._pieces(spots, size), self._access(frame, warp, place))

    def write(
        self,
        frame: Frame,
        memory: Memory,
        index: Array,
        size: int,
        active: Array | None,
        place: Place,
        values: Array | None,
    ) -> None:
        """The active threads are about to write values; None: whatever they are."""
        if memory is not self._shared:
            return
        full = None if values is None else np.broadcast_to(values, frame.shape)
        for warp, spots, kept in self._by_warp(frame, index, active):
            changed = np.ones(len(spots), dtype=np.bool_)
            if full is not None:
                # What writes the same again disturbs nobody: each warp sees what those before it
                # wrote in the same instruction.
                own = full[:, warp * WARP : (warp + 1) * WARP]
                new = own.reshape(-1) if kept is None else own[kept]
                changed = memory.load(spots, size) != new
                memory.store(spots, new, size)
            changed = np.repeat(changed, max(1, size // self._shadow.grain))
            self._shadow.write(self._pieces(spots, size), self._access(frame, warp, place), changed)

    def block(self, warp: int, spots: Array, size: int, place: Place, *, writes: bool) -> None:
        """The task that is running, issued by a warp, accesses `size` bytes at offsets (n,)."""
        task = self.task
        if task is None:
            return
        pieces = self._pieces(spots, size)
        at = warp - task.first
        access = self._access_of(task, at, place)
        if writes:
            self._shadow.write(pieces, access, np.ones(len(pieces), dtype=np.bool_))
        else:
            self._shadow.read(pieces, access)

    def _access(self, frame: Frame, warp: int, place: Place) -> Access:
        task = self.task
        if task is None:
            known = self._both[0, :, frame.first // WARP + warp]
            return Access(frame.first // WARP + warp, known, None, 2 * self._warps, place)
        return self._access_of(task, warp, place)

    def _access_of(self, task: Task, at: int, place: Place) -> Access:
        fenced = task.fenced[:, at] if task.is_proxied else None
        agent = int(task.agents[at])
        return Access(agent, task.known[:, at], fenced, 2 * self._warps, place)

    def _by_warp(
        self, frame: Frame, index: Array, active: Array | None
    ) -> Iterator[tuple[int, Array, Array | None]]:
        """Each warp with active threads, the offsets of these, and which threads they are."""
        full = np.broadcast_to(index, frame.shape)
        mask = None if active is None else np.broadcast_to(active, frame.shape)
        for warp in range(frame.lanes // WARP):
            here = full[:, warp * WARP : (warp + 1) * WARP]
            if mask is None:
                yield warp, here.reshape(-1), None
                continue
            kept = mask[:, warp * WARP : (warp + 1) * WARP]
            if kept.any():
                yield warp, here[kept], kept

    def _pieces(self, spots: Array, size: int) -> Array:
        grain = self._shadow.grain
        if size <= grain:
            return spots // grain
        more: Array = spots[:, None] // grain + np.arange(size // grain)
        return more.reshape(-1)

    # Barriers.

    def _warps_of(self, frame: Frame, mask: Array) -> Iterator[tuple[int, Array]]:
        """Each warp of the CTA with active threads, and the rows in which it has some."""
        warps = np.broadcast_to(mask, frame.shape).reshape(frame.ctas, -1, WARP)
        some = np.asarray(warps.any(axis=2))
        for warp in np.nonzero(some.any(axis=0))[0].tolist():
            yield frame.first // WARP + warp, np.nonzero(some[:, warp])[0]

    def arrive(self, frame: Frame, mask: Array, which: int) -> None:
        """Warps arrive at a barrier of their CTA."""
        for warp, rows in self._warps_of(frame, mask):
            gathered = self._barriers.gathered
            gathered[:, rows, which] = np.maximum(
                gathered[:, rows, which], self._both[:, rows, warp]
            )
            self._both[0, rows, warp, warp] += 1

    def complete(self, which: int, rows: Array) -> None:
        """A barrier is complete in some CTAs."""
        self._barriers.released[:, rows, which] = self._barriers.gathered[:, rows, which]
        self._barriers.gathered[:, rows, which] = 0

    def leave(self, frame: Frame, mask: Array, which: int) -> None:
        """Warps go on behind a barrier."""
        for warp, rows in self._warps_of(frame, mask):
            self._learn(warp, rows, self._barriers.released[:, rows, which])

    def _learn(self, warp: int, rows: Array, clocks: Array) -> None:
        self._both[:, rows, warp] = np.maximum(self._both[:, rows, warp], clocks)

    def signal(self, frame: Frame, index: Array, mask: Array) -> None:
        """Threads, or the task that is running, arrive at mbarriers at offsets."""
        for warp, rows in self._warps_of(frame, mask):
            lane = warp * WARP - frame.first
            lanes = mask[rows, lane : lane + WARP].argmax(axis=1) + lane
            spots = index[rows, lanes]
            if self.task is None:
                clocks = self._both[:, rows, warp]
            else:
                at = warp - self.task.first
                clocks = np.stack([self.task.known[rows, at], self.task.fenced[rows, at]])
            self.signal_at(spots, clocks)
            if self.task is None:
                self._both[0, rows, warp, warp] += 1

    def signal_at(self, spots: Array, clocks: Array) -> None:
        """Pass clocks, (2, n, agents), on to mbarriers at n offsets."""
        owners = spots // self._stride
        offsets = spots % self._stride
        for offset in np.unique(offsets).tolist():
            same = offsets == offset
            gathered = self._mbarrier(offset).gathered
            gathered[:, owners[same]] = np.maximum(gathered[:, owners[same]], clocks[:, same])

    def signal_by_task(self, warp: int, rows: Array, spots: Array) -> None:
        """The task that is running completes bytes of mbarriers."""
        if self.task is not None:
            at = warp - self.task.first
            self.signal_at(spots, np.stack([self.task.known[rows, at], self.task.fenced[rows, at]]))

    def phase_complete(self, spots: Array) -> None:
        """Mbarriers at offsets have completed a phase."""
        for offset in np.unique(spots % self._stride).tolist():
            rows = np.unique(spots[spots % self._stride == offset] // self._stride)
            clocks = self._mbarrier(offset)
            clocks.released[:, rows] = clocks.gathered[:, rows]
            clocks.gathered[:, rows] = 0

    def waited(self, frame: Frame, index: Array, mask: Array) -> None:
        """Threads have seen mbarriers complete."""
        for warp, rows in self._warps_of(frame, mask):
            lane = warp * WARP - frame.first
            lanes = mask[rows, lane : lane + WARP].argmax(axis=1) + lane
            spots = index[rows, lanes]
            for row, spot in zip(rows.tolist(), spots.tolist(), strict=True):
                released = self._mbarrier(spot % self._stride).released[:, spot // self._stride]
                self._both[:, row, warp] = np.maximum(self._both[:, row, warp], released)

    def _mbarrier(self, offset: int) -> _Clocks:
        if offset not in self._mbarriers:
            self._mbarriers[offset] = _Clocks((self._ctas, self._agents))
        return self._mbarriers[offset]

    def cluster(self, size: int) -> None:
        """All threads of each cluster have met: every warp knows of its own CTA what all know."""
        del size
        most = self._both.max(axis=2, keepdims=True)
        self._both[:] = np.maximum(self._both, most)
        own = np.arange(self._warps)
        self._both[0, :, own, own] += 1

    def fence(self, frame: Frame, mask: Array) -> None:
        """`fence.proxy.async`: what warps know, engines may rely on from now on."""
        for warp, rows in self._warps_of(frame, mask):
            known = self._both[0, rows, warp]
            self._both[1, rows, warp] = np.maximum(self._both[1, rows, warp], known)

    # Operations under way.

    def begin(self, frame: Frame, kind: str, slot: int = 0) -> Task:
        """Active threads issue an operation. `slot`: the mbarrier's offset, for bulk loads."""
        first, count = frame.first // WARP, frame.lanes // WARP
        warps = np.arange(first, first + count)
        if kind in _BY_WARP:
            agents = warps + _BY_WARP[kind] * self._warps
        else:
            number = self._slots.setdefault(slot, len(self._slots)) % _LOADS
            last = _LOADS if kind == "tcgen05" else number
            agents = np.full(count, 4 * self._warps + last)
        mask = frame.registers[MASK]
        known = self._both[:, :, first : first + count].copy()
        self._ticks[:, agents] += 1
        for at, agent in enumerate(agents.tolist()):
            known[0, :, at, agent] = self._ticks[:, agent]
        active = np.ones(frame.shape, np.bool_) if mask is None else mask
        for warp, rows in self._warps_of(frame, active):
            self._both[0, rows, warp, warp] += 1
        return Task(agents, known[0], known[1], first, kind != "cp.async")

    def commit(self, frame: Frame, kind: str) -> None:
        """A group ends: remember how far its agents are."""
        if kind in _BY_WARP:
            self._commits.setdefault((kind, frame.first), []).append(self._ticks.copy())

    def wait(self, frame: Frame, kind: str, pending: int) -> None:
        """Threads have waited for all groups but so many; -1: for everything."""
        if kind not in _BY_WARP:
            return
        commits = self._commits.get((kind, frame.first), [])
        if pending >= 0 and len(commits) <= pending:
            return
        ticks = self._ticks if pending < 0 else commits[len(commits) - 1 - pending]
        for warp, rows in self._warps_of(frame, frame.active()):
            agent = warp + _BY_WARP[kind] * self._warps
            self._both[0, rows, warp, agent] = np.maximum(
                self._both[0, rows, warp, agent], ticks[rows, agent]
            )


_KINDS = ("", "cp.async of ", "wgmma of ", "a bulk store of ")
