"""What each warp knows of what the others did: clocks that barriers, waits and signals pass on.

`known[cta, warp, agent]` is the last clock of an agent that a warp is ordered after; `fenced` the
same through `fence.proxy.async` (PTX ISA, "Proxies"): what an engine of the async proxy may rely
on in shared memory. Of global and of tensor memory proxies are not looked at.

Who accesses memory, as the race check tells them apart: warps, and engines that work for them. Each
has a number. The first are in the generic proxy: the warps themselves and the `cp.async` of each;
then come, of each warp, its `wgmma`, its bulk stores (reading their source, and becoming visible),
its loads and stores of tensor memory; last bulk loads by their mbarrier, and `tcgen05`.

What a race check has found: pairs of places, each once. What atomic operations, fences and flags
pass on: between warps, and from CTA to CTA.

A release to a location publishes what a warp knows, an acquire of it lets another one know that.
`.relaxed` operations do so by the fences around them. PTX ISA, "Memory Consistency Model: Release
and acquire patterns, Synchronizes-with".

Of another CTA all warps know the same: whatever one of them learned counts for each. So a missing
barrier behind an acquire is not found; nothing that is ordered is reported as a race.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gpu_emulator.state.frame import WITHIN_GPU, Frame, Touch
from gpu_emulator.steps import WARP, Array
from gpu_emulator.values import Place, Race

LOADS = 8
"""So many mbarriers of bulk loads are distinguished."""

NO_AGENT = 255
_KINDS = {
    "": "", "cp.async": "cp.async of ", "wgmma": "wgmma of ", "bulk.read": "a bulk store of ",
    "bulk.seen": "a bulk store of ", "tcgen05.ld": "tcgen05.ld of ", "tcgen05.st": "tcgen05.st of ",
}  # fmt: skip
BY_WARP = {kind: number for number, kind in enumerate(_KINDS) if kind}
"""What a warp has an agent of its own for, by its place among the kinds."""


class Agents:
    """The agents of CTAs with so many warps."""

    def __init__(self, warps: int) -> None:
        self.warps = warps
        self.names = [f"{kind}warp {w}" for kind in _KINDS.values() for w in range(warps)]
        self.names += ["a bulk load"] * LOADS + ["tcgen05"]
        self.count = len(self.names)
        # Those in the generic proxy come first.
        self.generic = 2 * warps
        self.tcgen05 = self.count - 1

    def load(self, number: int) -> int:
        """That of bulk loads which signal one mbarrier."""
        return len(_KINDS) * self.warps + number % LOADS


_MOST_EXAMPLES = 200


class Unordered(Exception):  # noqa: N818 - what the program did, not what went wrong here
    """Two accesses that nothing orders, where the first of them is to end the run."""


class Races:
    """Pairs of accesses that nothing orders, each pair of lines once, as it was first seen.

    `ends`: the first pair that may have effect raises `Unordered`.
    """

    def __init__(self, *, ends: bool = False) -> None:
        self.ends = ends
        self._examples: dict[tuple[frozenset[Place], bool, bool], Race] = {}
        self._places: list[Place] = []
        self._numbers: dict[Place, int] = {}

    def doubt(self, why: str) -> None:
        """What may depend on the order of warps, and is not a race."""
        if self.ends:
            raise Unordered(why)

    def number(self, place: Place) -> int:
        """The number of a place, one that fits into an array."""
        number = self._numbers.setdefault(place, len(self._places))
        if number == len(self._places):
            self._places.append(place)
        return number

    def place(self, number: int) -> Place:
        return self._places[number]

    def add(self, race: Race) -> None:
        if not race.formal:
            self.doubt(race.what)
        key = (frozenset((race.first, race.second)), race.formal, race.within_cta)
        if len(self._examples) < _MOST_EXAMPLES:
            self._examples.setdefault(key, race)

    def all(self) -> tuple[Race, ...]:
        """Those with effect first, then by line. A pair with effect is not listed as formal too."""
        real = {(race.first, race.second) for race in self._examples.values() if not race.formal}
        races = [
            race
            for race in self._examples.values()
            if not (race.formal and (race.first, race.second) in real)
        ]
        races.sort(key=lambda race: (race.formal, race.second.order, race.first.order))
        return tuple(races)


# More bytes than this are not spent on what CTAs know of each other.
_MOST_BYTES = 1 << 30


class Releases:
    """What is published at each location, and what each CTA knows of others.

    Both are clocks (CTAs, agents), of the CTAs that ever published anything, in the order in which
    they first did. Where they take more than `_MOST_BYTES`, it is no longer known what CTAs know of
    each other: `is_whole` is false, and everything counts as ordered.
    """

    def __init__(self) -> None:
        self._own: dict[object, Array] = {}
        self._published: dict[object, Array] = {}
        self._known: dict[object, Array] = {}
        self._rows: dict[int, int] = {}
        self.is_whole = True

    def publish(self, location: Location, cta: int, clocks: Array) -> None:
        """A warp of a CTA releases what it knows of its own CTA, (agents,), and of others."""
        if location.cta is not None:
            # All warps of a CTA know the same of others.
            old = self._own.get(location)
            self._own[location] = clocks.copy() if old is None else np.maximum(old, clocks)
            return
        self._raise(self._published, location, cta, clocks)
        if self.is_whole and (known := self._known.get(cta)) is not None:
            self._raise_all(self._published, location, known)

    def acquire(self, location: Location, cta: int) -> Array | None:
        """A CTA learns what is published at a location; what that is of itself."""
        if location.cta is not None:
            return self._own.get(location)
        published = self._published.get(location)
        if published is None:
            return None
        self._raise_all(self._known, cta, published)
        row = self._rows.get(cta, len(published))
        return published[row] if row < len(published) else None

    def meet(self, ctas: Iterable[int], clocks: Array) -> None:
        """CTAs of a cluster meet at its barrier; clocks (CTAs, agents) are of all their warps."""
        members = list(ctas)
        for cta in members:
            for owner, clocks_there in zip(members, clocks, strict=True):
                if owner != cta:
                    self._raise(self._known, cta, owner, clocks_there)

    def ordered(
        self, owners: Array, agents: Array, when: Array, ctas: Array, chosen: Array
    ) -> Array:
        """Whether CTAs (n,) know of accesses (n,) by agents of other CTAs, where `chosen` (n,)."""
        answer = np.zeros(len(owners), dtype=np.bool_)
        if not self.is_whole:
            return chosen.copy()
        if not self._known:
            return answer
        at = np.nonzero(chosen)[0]
        numbers, places = np.unique(owners[at], return_inverse=True)
        rows = np.array([self._rows.get(owner, -1) for owner in numbers.tolist()] or [-1])[places]
        for cta in np.unique(ctas[at]).tolist():
            known = self._known.get(cta)
            if known is not None:
                mine = (ctas[at] == cta) & (rows >= 0) & (rows < len(known))
                same = at[mine]
                answer[same] = when[same] <= known[rows[mine], agents[same]]
        return answer

    def _raise(self, clocks_of: dict[object, Array], key: object, cta: int, clocks: Array) -> None:
        row = self._rows.setdefault(cta, len(self._rows))
        self._fit(clocks_of, key, row + 1, len(clocks))
        if self.is_whole:
            np.maximum(clocks_of[key][row], clocks, out=clocks_of[key][row])

    def _raise_all(self, clocks_of: dict[object, Array], key: object, clocks: Array) -> None:
        self._fit(clocks_of, key, *clocks.shape)
        if self.is_whole:
            mine = clocks_of[key][: len(clocks)]
            np.maximum(mine, clocks, out=mine)

    def _fit(self, clocks_of: dict[object, Array], key: object, rows: int, agents: int) -> None:
        """Make room for clocks of so many CTAs; all is given up where there is none."""
        old = clocks_of.get(key)
        if not self.is_whole or (old is not None and len(old) >= rows):
            return
        most = 1 << max(rows - 1, 1).bit_length()
        if (len(self._published) + len(self._known) + 1) * most * agents * 4 > _MOST_BYTES:
            self.is_whole = False
            self._published.clear()
            self._known.clear()
            return
        clocks_of[key] = np.zeros((most, agents), dtype=np.uint32)
        if old is not None:
            clocks_of[key][: len(old)] = old


class Location(NamedTuple):
    """A line of memory at which something is published: by a CTA for itself, or for all (None)."""

    memory: str
    line: int
    cta: int | None = None


_BARRIERS = 16
# Locations whose releases are taken together: what is in one line of 2^7 bytes.
_LINE = 7


@dataclass(slots=True)
class Task:
    """An operation under way: its agents by warp of the frame, and what was known at its issue."""

    agents: Array
    clocks: Array
    fenced: Array
    first: int
    is_proxied: bool


class _ObjectClocks:
    """What a barrier passes on: gathered in this phase, and released by the last one.

    `waited` are the clocks of who has seen the last phase complete, in this one.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.waited = np.zeros(shape, dtype=np.uint32)
        self.gathered = np.zeros((2, *shape), dtype=np.uint32)
        self.released = np.zeros((2, *shape), dtype=np.uint32)


class HappensBefore:
    """The clocks of a batch, whose row 0 is CTA `first` of the launch."""

    def __init__(
        self, ctas: int, first: int, stride: int, agents: Agents, releases: Releases, races: Races
    ) -> None:
        self._releases = releases
        self._races = races
        self._first = first
        self._numbers = agents
        self._warps = warps = agents.warps
        self._agents = agents.count
        self._both = np.zeros((2, ctas, warps, self._agents), dtype=np.uint32)
        own = np.arange(warps)
        self._both[0, :, own, own] = 1
        self._ticks = np.ones((ctas, self._agents), dtype=np.uint32)
        self._stride = stride
        self._barriers = _ObjectClocks((ctas, _BARRIERS, self._agents))
        self._mbarriers: dict[int, _ObjectClocks] = {}
        self._slots: dict[int, int] = {}
        self._issuers: dict[tuple[str, int], int] = {}
        self._commits: dict[tuple[str, int], list[Array]] = {}
        # By `fence`: what each warp has released, and which locations it has read before.
        self._fenced_off = np.zeros((ctas, warps, self._agents), dtype=np.uint32)
        self._seen: dict[tuple[int, int], set[Location]] = {}
        self.task: Task | None = None
        self._ctas = ctas

    # Barriers.

    def _warps_of(self, frame: Frame, mask: Array) -> Iterator[tuple[int, Array]]:
        """Each warp of the CTA with active threads, and the rows in which it has some."""
        some = np.asarray(frame.by_warp(mask).any(axis=2))
        for warp in np.nonzero(some.any(axis=0))[0].tolist():
            yield frame.first // WARP + warp, np.nonzero(some[:, warp])[0]

    def _spots(self, frame: Frame, index: Array, mask: Array) -> Iterator[tuple[int, Array, Array]]:
        """The same, and the offset that the first of the threads in each row has."""
        for warp, rows in self._warps_of(frame, mask):
            lane = warp * WARP - frame.first
            lanes = mask[rows, lane : lane + WARP].argmax(axis=1) + lane
            yield warp, rows, index[rows, lanes]

    def meet(self) -> Array:
        """All warps of each CTA meet, and go on: what they know then, (CTAs, agents)."""
        most = self._both.max(axis=2, keepdims=True)
        own = np.arange(self._warps)
        self._both[0, :, own, own] += 1
        np.maximum(self._both, most, out=self._both)
        return np.asarray(most[0, :, 0])

    def arrive(self, frame: Frame, mask: Array, number: int) -> None:
        for warp, rows in self._warps_of(frame, mask):
            gathered = self._barriers.gathered
            gathered[:, rows, number] = np.maximum(
                gathered[:, rows, number], self._both[:, rows, warp]
            )
            self._both[0, rows, warp, warp] += 1

    def complete(self, number: int, rows: Array) -> None:
        self._barriers.released[:, rows, number] = self._barriers.gathered[:, rows, number]
        self._barriers.gathered[:, rows, number] = 0

    def leave(self, frame: Frame, mask: Array, number: int) -> None:
        for warp, rows in self._warps_of(frame, mask):
            clocks = self._barriers.released[:, rows, number]
            self._both[:, rows, warp] = np.maximum(self._both[:, rows, warp], clocks)

    def signal(self, frame: Frame, index: Array, mask: Array) -> None:
        """Threads, or the task that is running, arrive at mbarriers at offsets."""
        for warp, rows, spots in self._spots(frame, index, mask):
            if self.task is not None:
                self.signal_by_task(warp, rows, spots)
                continue
            self._signal_at(spots, self._both[:, rows, warp])
            self._both[0, rows, warp, warp] += 1

    def signal_by_task(self, warp: int, rows: Array, spots: Array) -> None:
        """The task that is running completes bytes of mbarriers."""
        if self.task is not None:
            at = warp - self.task.first
            clocks = np.stack([self.task.clocks[rows, at], self.task.fenced[rows, at]])
            self._signal_at(spots, clocks)

    def _signal_at(self, spots: Array, clocks: Array) -> None:
        owners, offsets = np.divmod(spots, self._stride)
        for offset in np.unique(offsets).tolist():
            same = offsets == offset
            gathered = self._mbarrier(offset).gathered
            gathered[:, owners[same]] = np.maximum(gathered[:, owners[same]], clocks[:, same])

    def phase_complete(self, spots: Array) -> None:
        for offset in np.unique(spots % self._stride).tolist():
            rows = np.unique(spots[spots % self._stride == offset] // self._stride)
            clocks = self._mbarrier(offset)
            if (clocks.waited[rows] > clocks.gathered[0, rows]).any():
                self._races.doubt("nothing orders a wait at an mbarrier and its next phase")
            clocks.released[:, rows] = clocks.gathered[:, rows]
            clocks.gathered[:, rows] = 0
            clocks.waited[rows] = 0

    def waited(self, frame: Frame, index: Array, mask: Array) -> None:
        """Threads have seen mbarriers complete."""
        for warp, rows, spots in self._spots(frame, index, mask):
            for row, spot in zip(rows.tolist(), spots.tolist(), strict=True):
                clocks, owner = self._mbarrier(spot % self._stride), spot // self._stride
                released = clocks.released[:, owner]
                self._both[:, row, warp] = np.maximum(self._both[:, row, warp], released)
                clocks.waited[owner, warp] = self._both[0, row, warp, warp]

    def _mbarrier(self, offset: int) -> _ObjectClocks:
        if offset not in self._mbarriers:
            self._mbarriers[offset] = _ObjectClocks((self._ctas, self._agents))
        return self._mbarriers[offset]

    def cluster(self, size: int) -> None:
        """All threads of each cluster have met: every warp knows what all of them know."""
        clocks = self.meet()
        for row in range(0, self._ctas, size):
            members = range(self._first + row, self._first + row + size)
            self._releases.meet(members, clocks[row : row + size])

    # Atomic operations, flags and fences.

    def release(self, touch: Touch) -> None:
        """Threads are about to write to locations by a strong operation."""
        for warp, rows, places in self._places(touch):
            for row, keys in places:
                clocks_of = self._both[0] if touch.how.releases else self._fenced_off
                clocks = clocks_of[row, warp]
                for key in keys if clocks.any() else ():
                    self._releases.publish(key, self._first + row, clocks)
            if touch.how.releases:
                self._both[0, rows, warp, warp] += 1

    def acquire(self, touch: Touch) -> None:
        """Threads have read locations by a strong operation."""
        for warp, _, places in self._places(touch):
            for row, keys in places:
                if touch.how.acquires:
                    self._learn_from(keys, row, warp)
                else:
                    self._seen.setdefault((row, warp), set()).update(keys)

    def _places(
        self, touch: Touch
    ) -> Iterator[tuple[int, Array, list[tuple[int, list[Location]]]]]:
        """For each warp of a strong access its rows, and the keys of what each of them accesses."""
        if not touch.how.strength:
            return
        frame = touch.frame
        lines = frame.by_warp(touch.index >> _LINE)
        active = np.ones((1, 1), np.bool_) if touch.active is None else touch.active
        mask = frame.by_warp(active)
        for warp, rows in self._warps_of(frame, active):
            at = warp - frame.first // WARP
            row, lane = np.nonzero(mask[:, at])
            pairs = set(zip(row.tolist(), lines[row, at, lane].tolist(), strict=True))
            yield warp, rows, [(r, self._keys(touch, line, r)) for r, line in pairs]

    def _keys(self, touch: Touch, line: int, row: int) -> list[Location]:
        """What a location is published under: for its own CTA, and for all."""
        own = Location(touch.memory.name, line, self._first + row)
        return [own, own._replace(cta=None)] if touch.how.strength >= WITHIN_GPU else [own]

    def thread_fence(self, frame: Frame, mask: Array) -> None:
        """`fence`, `membar`: makes releases and acquires of relaxed operations around it."""
        for warp, rows in self._warps_of(frame, mask):
            for row in rows.tolist():
                self._learn_from(self._seen.pop((row, warp), set()), row, warp)
            self._fenced_off[rows, warp] = self._both[0, rows, warp]
            self._both[0, rows, warp, warp] += 1

    def _learn_from(self, keys: Iterable[Location], row: int, warp: int) -> None:
        for key in keys:
            own = self._releases.acquire(key, self._first + row)
            if own is not None:
                self._both[0, row, warp] = np.maximum(self._both[0, row, warp], own)

    def fence(self, frame: Frame, mask: Array) -> None:
        """`fence.proxy.async`: what warps know, engines may rely on from now on."""
        for warp, rows in self._warps_of(frame, mask):
            clocks = self._both[0, rows, warp]
            self._both[1, rows, warp] = np.maximum(self._both[1, rows, warp], clocks)

    # Operations under way.

    def begin(self, frame: Frame, kind: str, slot: int = 0) -> Task:
        """Active threads issue an operation. `slot`: the mbarrier's offset, for bulk loads."""
        first, count = frame.first // WARP, frame.lanes // WARP
        warps = np.arange(first, first + count)
        numbers = self._numbers
        if kind in BY_WARP:
            agents = warps + BY_WARP[kind] * self._warps
        elif kind == "tcgen05":
            agents = np.full(count, numbers.tcgen05)
        else:
            number = self._slots.setdefault(slot, len(self._slots))
            agents = np.full(count, numbers.load(number))
        active = frame.by_warp(frame.active()).any(axis=2)
        if kind not in BY_WARP:
            # Of what has one agent for all warps, only one of them may issue.
            issuing = warps[active.any(axis=0)]
            if (issuing != self._issuers.setdefault((kind, slot), int(issuing[0]))).any():
                self._races.doubt(f"several warps issue {kind or 'bulk loads'}")
        clocks = self._both[:, :, first : first + count].copy()
        self._ticks[:, agents] += 1
        clocks[0][:, np.arange(count), agents] = self._ticks[:, agents]
        self._both[0][:, warps, warps] += active
        return Task(agents, clocks[0], clocks[1], first, kind != "cp.async")

    def commit(self, frame: Frame, kind: str) -> None:
        """A group ends: remember how far its agents are."""
        if kind in BY_WARP:
            self._commits.setdefault((kind, frame.first), []).append(self._ticks.copy())

    def wait(self, frame: Frame, kind: str, pending: int) -> None:
        """Threads have waited for all groups but so many; -1: for everything."""
        if kind not in BY_WARP:
            return
        commits = self._commits.get((kind, frame.first), [])
        if pending >= 0 and len(commits) <= pending:
            return
        ticks = self._ticks if pending < 0 else commits[len(commits) - 1 - pending]
        warps = np.arange(frame.first // WARP, (frame.first + frame.lanes) // WARP)
        agents = warps + BY_WARP[kind] * self._warps
        learned = ticks[:, agents] * frame.by_warp(frame.active()).any(axis=2)
        clocks = self._both[0]
        clocks[:, warps, agents] = np.maximum(clocks[:, warps, agents], learned)
