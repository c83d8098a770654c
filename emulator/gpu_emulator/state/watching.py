"""The race check of a batch: each access goes to the shadow of its memory, with who knows what."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gpu_emulator.state.frame import Frame, Memory, Touch
from gpu_emulator.state.happens_before import Agents, HappensBefore, Races, Releases, Task
from gpu_emulator.state.shadows import Access, GlobalShadow, Shadow, in_pieces
from gpu_emulator.steps import WARP, Array
from gpu_emulator.values import Place, Race, RaceSpace


def _stored(
    memory: Memory, spots: Array, size: int, values: Array, grain: int
) -> tuple[Array, Array, Array]:
    """What was at offsets (n,) before several threads write `size` bytes each there.

    Then which pieces hold other bytes now; and which of the values (n,) are not there now, because
    another one was written to the same place.
    """
    before = memory.load(spots, size)
    memory.store(spots, values, size)
    now = memory.load(spots, size)
    lost = _differ(now, values, size).reshape(-1)
    return before, _differ(before, now, min(grain, size)).reshape(-1), lost


def _differ(left: Array, right: Array, size: int) -> Array:
    """Whether elements have other bits, in pieces of `size` bytes, (n, pieces).

    16 bytes are not compared as the complex numbers that they are.
    """
    if left.dtype.itemsize == size < 16:
        return left != right
    kind = f"u{min(size, 8)}"
    count = (len(left), left.dtype.itemsize // size, -1)
    pieces = (np.ascontiguousarray(bits).view(kind).reshape(count) for bits in (left, right))
    return np.asarray(np.not_equal(*pieces).any(axis=2))


# A piece of tensor memory: 16 lanes of one column, which no access splits.
_SLAB, _SLABS, _COLUMNS = 16, 8, 512
_ALL = slice(None)


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

    def __init__(
        self, ctas: int, first: int, shared: Memory, watched: Watched, *, has_clusters: bool
    ) -> None:
        agents, races = watched.agents, watched.races
        super().__init__(ctas, first, shared.stride, agents, watched.releases, races)
        self._watched = watched
        self._shared = shared
        self._has_clusters = has_clusters
        self._grain = grain = watched.grain
        self._shadow = Shadow(
            ctas, shared.stride // grain, "shared", agents,
            lambda piece: (f"shared address {hex(piece * grain)}", grain), races,
        )  # fmt: skip
        self._tensor: Shadow | None = None
        # By frame: of each thread the row of its CTA, and its warp in the frame.
        self._threads: dict[int, tuple[Array, Array]] = {}

    def _is_watched(self, touch: Touch) -> bool:
        """Of shared memory atomic operations are left out."""
        if touch.memory is self._shared:
            return not touch.how.strength
        return touch.memory.name == "global"

    def read(self, touch: Touch) -> None:
        if not self._is_watched(touch):
            return
        spots, lanes = _chosen(touch.frame, touch.index, touch.active)
        if not len(spots):
            return
        access = self._access(touch, spots, lanes)
        if touch.memory is self._shared:
            pieces, times = in_pieces(spots, touch.size, self._grain)
            self._shadow.read(pieces, access.repeated(times))
        else:
            self._watched.everywhere.read_spots(spots, touch.size, access)

    def write(self, touch: Touch, values: Array | None) -> None:
        """Threads are about to write values; None: whatever they are."""
        if not self._is_watched(touch):
            return
        frame = touch.frame
        spots, lanes = _chosen(frame, touch.index, touch.active)
        if not len(spots):
            return
        access, memory, size = self._access(touch, spots, lanes), touch.memory, touch.size
        if values is None:
            self._write(memory, spots, size, access, None)
            return
        new = np.broadcast_to(values, frame.shape).reshape(-1)[lanes]
        grain = self._grain if memory is self._shared else self._watched.everywhere.grain
        before, changes, lost = _stored(memory, spots, size, new, grain)
        if not lost.any():
            self._write(memory, spots, size, access, changes)
            return
        # Some threads write other bytes than others to one place: there warp after warp writes.
        met = np.isin(spots, spots[lost])
        alone = np.nonzero(~met)[0]
        pieces = changes.reshape(len(spots), -1)
        self._write(memory, spots[alone], size, access.at(alone), pieces[alone].reshape(-1))
        memory.store(spots[met], before[met], size)
        warps = access.ctas * self._agents + access.agents
        threads = np.arange(np.prod(frame.shape))[lanes] % frame.lanes
        for warp in np.unique(warps[met]).tolist():
            own = np.nonzero(met & (warps == warp))[0]
            _, changes, lost = _stored(memory, spots[own], size, new[own], grain)
            self._write(memory, spots[own], size, access.at(own), changes)
            if lost.any() and not access.strength:
                self._among_lanes(memory, spots[own], new[own], threads[own], lost, access.place)

    def _among_lanes(
        self, memory: Memory, spots: Array, values: Array, threads: Array, lost: Array, place: Place
    ) -> None:
        """Lanes of a warp write other bytes to one place by one instruction: no order is defined.

        CUDA C++ Programming Guide, "SIMT Architecture": which thread performs the final write.
        """
        first = int(np.nonzero(lost)[0][0])
        last = int(np.nonzero((spots == spots[first]) & ~lost)[0][-1])
        spot = int(spots[first])
        where = memory.where(spot % memory.stride if memory.stride else spot)
        raw = [np.ascontiguousarray(values[at]).tobytes()[::-1].hex() for at in (first, last)]
        lanes = [int(threads[at]) % WARP for at in (first, last)]
        count = len(np.unique(spots[lost])) * values.dtype.itemsize
        words = (
            f"lanes {lanes[0]} and {lanes[1]} of a warp write 0x{raw[0]} and 0x{raw[1]} to {where}"
            f" in one instruction, and either may stay there ({count} bytes)"
        )
        space: RaceSpace = "shared" if memory is self._shared else "global"
        self._races.add(
            Race(kind="lanes", space=space, formal=False, first=place, second=place, what=words)
        )

    def _write(
        self, memory: Memory, spots: Array, size: int, access: Access, changes: Array | None
    ) -> None:
        if memory is not self._shared:
            self._watched.everywhere.write_spots(spots, size, access, changes)
            return
        pieces, times = in_pieces(spots, size, self._grain)
        self._shadow.write(pieces, access.repeated(times), changes)

    def engine(
        self, space: str, warp: int, rows: Array, spots: Array, size: int, place: Place, *,
        writes: bool,
    ) -> None:  # fmt: skip
        """The task that is running accesses `size` bytes each at offsets (n,), for CTAs (n,)."""
        task = self.task
        if task is None or not len(spots):
            return
        if space == "global":
            everywhere, access = self._watched.everywhere, self._access_of(task, warp, rows, place)
            if writes:
                everywhere.write_spots(spots, size, access, None)
            else:
                everywhere.read_spots(spots, size, access)
            return
        if space == "shared":
            shadow, (pieces, _) = self._shadow, in_pieces(spots, size, self._grain)
            access = self._access_of(task, warp, pieces * self._grain // self._stride, place)
        else:
            shadow, pieces = self._cells(spots)
            access = self._access_of(task, warp, pieces // (_SLABS * _COLUMNS), place)
            access = replace(access, fenced=None)
        if writes:
            shadow.write(pieces, access, None)
        else:
            shadow.read(pieces, access)

    def _cells(self, spots: Array) -> tuple[Shadow, Array]:
        """The shadow of tensor memory, and the pieces that have some of the cells."""
        if self._tensor is None:
            agents = self._watched.agents
            self._tensor = Shadow(
                self._ctas, _SLABS * _COLUMNS, "tensor_memory", agents, _cell_words, self._races
            )
        touched = np.zeros(self._ctas * _SLABS * _COLUMNS, dtype=np.bool_)
        touched[spots // (_COLUMNS * _SLAB) * _COLUMNS + spots % _COLUMNS] = True
        return self._tensor, np.nonzero(touched)[0]

    def too_early(self, load: Place, use: Place) -> None:
        """Registers of a `tcgen05.ld` are used before its `tcgen05.wait::ld`.

        PTX ISA, "tcgen05.wait": until then they are undefined; assemblers wait by the registers.
        """
        words = "no tcgen05.wait::ld stands between tcgen05.ld and what uses its registers"
        self._races.add(
            Race(
                kind="write-read", space="tensor_memory", formal=True, first=load, second=use,
                what=words,
            )
        )  # fmt: skip

    def unmet(self, branch: Place, place: Place) -> None:
        """A warp whose threads parted executes what wants all of it, before they meet for certain.

        PTX ISA, "barrier", ".aligned": all threads of the warp must execute the same instruction.
        Here they wait for each other where they can; an assembler may let them go on apart.
        """
        words = (
            "threads of a warp that part at a branch come to an .aligned instruction before the "
            "first one that all ways from there lead through"
        )
        self._races.add(
            Race(kind="parted", space="warp", formal=True, first=branch, second=place, what=words)
        )

    def _access(self, touch: Touch, spots: Array, lanes: Array | slice) -> Access:
        """The access of threads, or of the tasks that they issued."""
        frame = touch.frame
        if frame.first not in self._threads:
            rows = np.repeat(np.arange(frame.ctas), frame.lanes)
            self._threads[frame.first] = rows, np.tile(np.arange(frame.lanes) // WARP, frame.ctas)
        rows, warps = (numbers[lanes] for numbers in self._threads[frame.first])
        # In the memory of another CTA of the cluster its warps stand for those that access it.
        is_abroad = self._has_clusters and touch.memory is self._shared
        owners = spots // self._stride if is_abroad else rows
        task, fenced = self.task, None
        if task is None:
            agents, clocks = warps + frame.first // WARP, self._both[0]
            entries = owners * self._warps + agents
        else:
            agents, clocks = task.agents[warps], task.clocks
            entries = owners * len(task.agents) + warps
            fenced = task.fenced.reshape(-1, self._agents) if task.is_proxied else None
        return Access(
            agents, rows + self._first, entries, clocks.reshape(-1, self._agents), fenced,
            self._numbers.generic, frame.place, touch.how.strength,
        )  # fmt: skip

    def _access_of(self, task: Task, warp: int, rows: Array, place: Place) -> Access:
        """A task that a warp issued accesses a piece for each of some rows."""
        at = warp - task.first
        many = len(task.agents)
        fenced = task.fenced.reshape(-1, self._agents) if task.is_proxied else None
        return Access(
            np.full(len(rows), task.agents[at]), rows + self._first, rows * many + at,
            task.clocks.reshape(-1, self._agents), fenced, self._numbers.generic, place,
        )  # fmt: skip


def _cell_words(piece: int) -> tuple[str, int]:
    lane = piece // _COLUMNS * _SLAB
    return f"lanes {lane} to {lane + _SLAB - 1} of column {piece % _COLUMNS}", 4 * _SLAB


def _chosen(frame: Frame, index: Array, active: Array | None) -> tuple[Array, Array | slice]:
    """Offsets of the active threads, row by row, and which threads these are."""
    spots = np.broadcast_to(index, frame.shape).reshape(-1)
    if active is None:
        return spots, _ALL
    lanes = np.nonzero(np.broadcast_to(active, frame.shape).reshape(-1))[0]
    return spots[lanes], lanes
