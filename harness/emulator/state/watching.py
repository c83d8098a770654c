"""The race check of a batch: each access goes to the shadow of its memory, with who knows what."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from harness.emulator.program.steps import WARP
from harness.emulator.program.types import Array
from harness.emulator.state.agents import Agents
from harness.emulator.state.frame import Frame
from harness.emulator.state.global_shadow import GlobalShadow
from harness.emulator.state.happens_before import HappensBefore, Task, by_warp, rows_of
from harness.emulator.state.memory import Memory
from harness.emulator.state.releases import Releases
from harness.emulator.state.semantics import WEAK, Semantics
from harness.emulator.state.shadows import Access, Races, Shadow
from harness.emulator.values import Place

__all__ = ["RaceWatch", "Watched"]

# A piece of tensor memory: 16 lanes of one column, which no access splits.
_SLAB, _SLABS, _COLUMNS = 16, 8, 512


@dataclass(frozen=True, slots=True)
class Watched:
    """What the race check of a launch watches: pairs that were found, and global memory.

    `grain` is the smallest access to shared memory.
    """

    agents: Agents
    grain: int
    races: Races
    releases: Releases
    everywhere: GlobalShadow


class RaceWatch(HappensBefore):
    """The clocks of a batch, and the accesses that they do not order."""

    def __init__(self, ctas: int, first: int, shared: Memory, watched: Watched) -> None:
        super().__init__(ctas, first, shared.stride, watched.agents, watched.releases)
        self._watched = watched
        self._shared = shared
        self._grain = grain = watched.grain
        agents = watched.agents
        self._shadow = Shadow(
            ctas, shared.stride // grain, "shared", agents, agents.in_shared,
            lambda piece: (f"shared address {hex(piece * grain)}", grain), watched.races,
        )  # fmt: skip
        self._tensor: Shadow | None = None

    def read(
        self, frame: Frame, memory: Memory, index: Array, size: int, active: Array | None,
        place: Place, how: Semantics = WEAK,
    ) -> None:  # fmt: skip
        """The active threads read `size` bytes at offsets into the data of a memory."""
        if memory is not self._shared and memory.name != "global":
            return
        for warp, spots, kept in by_warp(frame, index, active):
            access = self._access(frame, warp, place)
            if memory is self._shared:
                if how.strength:
                    continue
                self._shadow.read(_pieces(spots, size, self._grain), access)
                continue
            everywhere = self._watched.everywhere
            pieces = _pieces(spots, size, everywhere.grain)
            rows = rows_of(frame, kept, len(pieces))
            everywhere.read(pieces, rows, self._first, access, how.strength)

    def write(
        self, frame: Frame, memory: Memory, index: Array, size: int, active: Array | None,
        place: Place, values: Array | None, how: Semantics = WEAK,
    ) -> None:  # fmt: skip
        """The active threads are about to write values; None: whatever they are."""
        if memory is not self._shared and memory.name != "global":
            return
        full = None if values is None else np.broadcast_to(values, frame.shape)
        if memory is not self._shared and _meet(frame, index, active):
            # One CTA after the other, so that each sees what those before it wrote.
            for row in range(frame.ctas):
                own = np.zeros(frame.shape, np.bool_)
                own[row] = True if active is None else np.broadcast_to(active, frame.shape)[row]
                self._write(frame, memory, index, size, own, place, full, how)
            return
        self._write(frame, memory, index, size, active, place, full, how)

    def _write(
        self, frame: Frame, memory: Memory, index: Array, size: int, active: Array | None,
        place: Place, full: Array | None, how: Semantics,
    ) -> None:  # fmt: skip
        for warp, spots, kept in by_warp(frame, index, active):
            changed = np.ones(len(spots), dtype=np.bool_)
            if full is not None:
                # Writing the same value is no conflict: each warp sees what those before it
                # wrote in the same instruction.
                own = full[:, warp * WARP : (warp + 1) * WARP]
                new = own.reshape(-1) if kept is None else own[kept]
                changed = memory.load(spots, size) != new
                memory.store(spots, new, size)
            access = self._access(frame, warp, place)
            if memory is self._shared:
                if how.strength:
                    continue
                changed = np.repeat(changed, max(1, size // self._grain))
                self._shadow.write(_pieces(spots, size, self._grain), access, changed)
                continue
            everywhere = self._watched.everywhere
            pieces = _pieces(spots, size, everywhere.grain)
            rows = rows_of(frame, kept, len(pieces))
            changed = np.repeat(changed, max(1, size // everywhere.grain))
            everywhere.write(pieces, rows, self._first, access, changed, how.strength)

    def tensor(self, warp: int, spots: Array, place: Place, *, writes: bool) -> None:
        """The task that is running accesses cells: (CTA * 128 + lane) * 512 + column."""
        task = self.task
        if task is None:
            return
        if self._tensor is None:
            agents = self._watched.agents
            self._tensor = Shadow(
                self._ctas, _SLABS * _COLUMNS, "tensor_memory", agents, agents.in_tensor_memory,
                _cell_words, self._watched.races,
            )  # fmt: skip
        pieces = np.unique(spots // (_COLUMNS * _SLAB) * _COLUMNS + spots % _COLUMNS)
        at = warp - task.first
        access = Access(int(task.agents[at]), task.known[:, at], None, 0, place)
        if writes:
            self._tensor.write(pieces, access, np.ones(len(pieces), dtype=np.bool_))
        else:
            self._tensor.read(pieces, access)

    def too_early(self, load: Place, use: Place) -> None:
        """Registers of a `tcgen05.ld` are used before its `tcgen05.wait::ld`.

        PTX ISA, "tcgen05.wait": until then they are undefined; assemblers wait by the registers.
        """
        what = "no tcgen05.wait::ld stands between tcgen05.ld and what uses its registers"
        self._watched.races.add("write-read", "tensor_memory", load, use, what, formal=True)

    def unmet(self, branch: Place, place: Place) -> None:
        """A warp whose threads parted executes what wants all of it, before they meet for certain.

        PTX ISA, "barrier", ".aligned": all threads of the warp must execute the same instruction.
        Here they wait for each other where they can; an assembler may let them go on apart.
        """
        what = (
            "threads of a warp that part at a branch come to an .aligned instruction before the "
            "first one that all ways from there lead through"
        )
        self._watched.races.add("parted", "warp", branch, place, what, formal=True)

    def engine(
        self, warp: int, rows: Array, spots: Array, size: int, place: Place, *, writes: bool
    ) -> None:
        """The task that is running accesses global memory for CTAs in rows, (n,), at spots."""
        task = self.task
        if task is None or not len(spots):
            return
        everywhere = self._watched.everywhere
        pieces = _pieces(spots, size, everywhere.grain)
        rows = np.repeat(rows, len(pieces) // len(rows))
        access = self._access_of(task, warp - task.first, place)
        if writes:
            changes = np.ones(len(pieces), dtype=np.bool_)
            everywhere.write(pieces, rows, self._first, access, changes, 0)
        else:
            everywhere.read(pieces, rows, self._first, access, 0)

    def block(self, warp: int, spots: Array, size: int, place: Place, *, writes: bool) -> None:
        """The task that is running, issued by a warp, accesses `size` bytes at offsets (n,)."""
        task = self.task
        if task is None:
            return
        pieces = _pieces(spots, size, self._grain)
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
            return Access(frame.first // WARP + warp, known, None, self._numbers.generic, place)
        return self._access_of(task, warp, place)

    def _access_of(self, task: Task, at: int, place: Place) -> Access:
        fenced = task.fenced[:, at] if task.is_proxied else None
        agent = int(task.agents[at])
        return Access(agent, task.known[:, at], fenced, self._numbers.generic, place)


def _cell_words(piece: int) -> tuple[str, int]:
    lane = piece // _COLUMNS * _SLAB
    return f"lanes {lane} to {lane + _SLAB - 1} of column {piece % _COLUMNS}", 4 * _SLAB


def _pieces(spots: Array, size: int, grain: int) -> Array:
    if size <= grain:
        return spots // grain
    more: Array = spots[:, None] // grain + np.arange(size // grain)
    return more.reshape(-1)


def _meet(frame: Frame, index: Array, active: Array | None) -> bool:
    """Whether several CTAs access the same place in one step."""
    if frame.ctas == 1:
        return False
    spots = np.broadcast_to(index, frame.shape)
    here = (
        np.ones(frame.shape, np.bool_) if active is None else np.broadcast_to(active, frame.shape)
    )
    least = np.where(here, spots, np.iinfo(np.int64).max).min(axis=1)
    most = np.where(here, spots, -1).max(axis=1)
    order = np.argsort(least)
    if (most[order][:-1] < least[order][1:]).all():
        # As a rule each CTA has a stretch of its own.
        return False
    chosen = spots[here]
    rows = np.broadcast_to(frame.rows, frame.shape)[here]
    return len(np.unique(chosen)) < len(np.unique(chosen * frame.ctas + rows))
