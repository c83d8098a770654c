"""Who last wrote and read each piece of global memory, over all CTAs of a launch.

Within a CTA as in shared memory. Of accesses from several CTAs the atomic ones, and what these
order (`Releases`), are not a race, and neither are writes of the same bytes; all else that touches
the same bytes is one, in whichever order it ran. Of each piece the readers of one CTA are known,
the last one's; and one more that read it before. So are its last writer, and one more that wrote
the same. PTX ISA, "Memory Consistency Model: Morally strong operations, Data races".

As long as nothing writes to a buffer its reads are only listed: most buffers are inputs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpu_emulator.state.agents import NO_AGENT, Agents
from gpu_emulator.state.findings import Races
from gpu_emulator.state.memory import Memory
from gpu_emulator.state.releases import Releases
from gpu_emulator.state.semantics import WITHIN_CTA, WITHIN_GPU
from gpu_emulator.state.shadows import Access
from gpu_emulator.state.stamps import Accessors, Stamps, in_pieces
from gpu_emulator.types import Array
from gpu_emulator.values import RaceKind

_MOST_BYTES = 1 << 28
# So many reads are listed at most, of all buffers.
_MOST_LISTED = 1 << 22


@dataclass(frozen=True, slots=True)
class _Read:
    """`size` bytes each at offsets (n,), read by agents (n,) of CTAs (n,) at their clocks (n,)."""

    spots: Array
    size: int
    ctas: Array
    agents: Array
    when: Array
    place: int


class GlobalShadow:
    """Last accesses to global memory, in pieces of `grain` bytes."""

    def __init__(
        self, memory: Memory, grain: int, agents: Agents, races: Races, releases: Releases
    ) -> None:
        count = -(-len(memory.data) // grain)
        self.grain = grain
        self._memory = memory
        self._names = agents.names
        self._warps = agents.warps
        self._races = races
        self._releases = releases
        self._writers = Stamps(count)
        # Numbers of CTAs, plus one: 0 is none.
        self._writer_cta = np.zeros(count, dtype=np.int32)
        self._reader_cta = np.zeros(count, dtype=np.int32)
        self._other_cta = np.zeros(count, dtype=np.int32)
        # Who wrote the same as the last writer, who knows nothing of it: one of them, and a bit for
        # each CTA. CTAs whose numbers are alike modulo 64 share it.
        self._alike = Stamps(count)
        self._alike_cta = np.zeros(count, dtype=np.int32)
        self._again = np.zeros(count, dtype=np.uint64)
        self._has_alike = False
        self._strength = np.zeros(count, dtype=np.uint8)
        self._has_strong = False
        self._readers = Accessors(count, agents.count, _MOST_BYTES)
        self._others = Stamps(count)
        # Reads of regions that nothing wrote to; None: something did.
        self._listed: list[list[_Read] | None] = [[] for _ in memory.regions]
        self._count = 0

    @property
    def is_whole(self) -> bool:
        """Whether every reader is known."""
        return self._readers.is_whole

    def read(self, spots: Array, size: int, ctas: Array, access: Access, strength: int) -> None:
        """`size` bytes each at offsets (n,) are read by CTAs (n,), by their number in the grid."""
        if not len(spots):
            return
        number = self._races.number(access.place)
        one = _Read(spots, size, ctas, access.agents, access.now(), number)
        regions = self._regions(spots)
        listed = self._listed[regions[0]] if len(regions) == 1 else None
        if listed is not None and not strength:
            listed.append(one)
            self._count += len(spots)
            if self._count > _MOST_LISTED:
                self._enter(range(len(self._listed)))
            return
        self._enter(regions)
        pieces, times = in_pieces(spots, size, self.grain)
        whose, by = np.repeat(ctas, times), access.repeated(times)
        self._check_writers("write-read", pieces, whose, by, strength)
        if not strength:
            # What a later write to a strong one means is for who releases to say.
            self._record(one)

    def _regions(self, spots: Array) -> range:
        first = self._memory.region_of(int(spots.min()))
        return range(first, self._memory.region_of(int(spots.max())) + 1)

    def _enter(self, regions: range) -> None:
        """From now on the pieces of these regions are looked at one by one."""
        for number in regions:
            for one in self._listed[number] or ():
                self._record(one)
                self._count -= len(one.spots)
            self._listed[number] = None

    def _record(self, one: _Read) -> None:
        pieces, times = in_pieces(one.spots, one.size, self.grain)
        ctas, agents, when = (np.repeat(each, times) for each in (one.ctas, one.agents, one.when))
        owners = self._reader_cta[pieces] - 1
        moved = (owners >= 0) & (owners != ctas)
        if moved.any():
            # Another CTA reads them now: of those that did before one is kept.
            taken = pieces[moved]
            self._other_cta[taken] = owners[moved] + 1
            self._others.set(taken, *self._readers.one_of(taken))
            self._readers.forget(taken)
        self._reader_cta[pieces] = ctas + 1
        self._readers.record(pieces, agents, when, one.place)

    def write(
        self, spots: Array, size: int, ctas: Array, access: Access, changes: Array | None,
        strength: int,
    ) -> None:  # fmt: skip
        """Bytes are written; where `changes` is False they are the same as before."""
        if not len(spots):
            return
        self._enter(self._regions(spots))
        pieces, times = in_pieces(spots, size, self.grain)
        ctas, access = np.repeat(ctas, times), access.repeated(times)
        if changes is None or changes.all():
            self._change(pieces, ctas, access, strength, is_known=changes is not None)
            return
        alike = ~changes & self._late(
            ctas, access, self._writer_cta[pieces] - 1, self._writers.agents(pieces),
            self._writers.times(pieces),
        )  # fmt: skip
        if alike.any():
            self._join(pieces[alike], ctas[alike], access.at(alike))
        if changes.any():
            self._change(
                pieces[changes], ctas[changes], access.at(changes), strength, is_known=True
            )
        again = ~(changes | alike)
        if again.any():
            self._set(pieces[again], ctas[again], access.at(again), strength, is_known=True)

    def _change(
        self, pieces: Array, ctas: Array, access: Access, strength: int, *, is_known: bool
    ) -> None:
        self._check_writers("write-write", pieces, ctas, access, strength)
        if self._has_alike:
            owners = self._alike_cta[pieces] - 1
            self._check(
                "write-write", pieces, ctas, access, owners, self._alike.agents(pieces),
                self._alike.times(pieces), self._alike.places(pieces),
            )  # fmt: skip
            self._alike_cta[pieces] = 0
            self._again[pieces] = 0
        self._set(pieces, ctas, access, strength, is_known=is_known)

    def _set(
        self, pieces: Array, ctas: Array, access: Access, strength: int, *, is_known: bool
    ) -> None:
        """These write last. Of several agents at once one counts as the last one."""
        self._check_readers(pieces, ctas, access)
        others = self._other_cta[pieces] - 1
        if (others >= 0).any():
            self._check(
                "read-write", pieces, ctas, access, others, self._others.agents(pieces),
                self._others.times(pieces), self._others.places(pieces),
            )  # fmt: skip
        self._writers.set(pieces, access.agents, access.now(), self._races.number(access.place))
        self._writer_cta[pieces] = ctas + 1
        if strength or self._has_strong:
            self._strength[pieces] = strength
            self._has_strong = True
        beside = self._writers.agents(pieces) != access.agents
        beside |= self._writer_cta[pieces] != ctas + 1
        if beside.any() and is_known:
            self._join(pieces[beside], ctas[beside], access.at(beside))
        elif beside.any():
            self._check_writers(
                "write-write", pieces[beside], ctas[beside], access.at(beside), strength
            )

    def _join(self, pieces: Array, ctas: Array, access: Access) -> None:
        self._alike.set(pieces, access.agents, access.now(), self._races.number(access.place))
        self._alike_cta[pieces] = ctas + 1
        np.bitwise_or.at(self._again, pieces, _bit(ctas))
        self._has_alike = True

    def _check_readers(self, pieces: Array, ctas: Array, access: Access) -> None:
        """Report reads of before that may be unordered; mostly there are none."""
        owners = self._reader_cta[pieces] - 1
        if not (owners >= 0).any():
            return
        if not self._readers.is_whole:
            self._check("read-write", pieces, ctas, access, owners, *self._readers.one_of(pieces))
            return
        mine = owners == ctas
        when = self._readers.times(pieces)
        asked = when > access.known[:, self._readers.members].take(access.entries, axis=0)
        asked = np.where(mine[:, None], asked, when > 0)
        for column in np.nonzero(asked.any(axis=0))[0].tolist():
            some = np.nonzero(asked[:, column])[0]
            agents = np.full(len(some), self._readers.members[column])
            self._check(
                "read-write", pieces[some], ctas[some], access.at(some), owners[some], agents,
                when[some, column], self._readers.places_of(pieces[some], column),
            )  # fmt: skip

    def _check_writers(
        self, kind: RaceKind, pieces: Array, ctas: Array, access: Access, strength: int
    ) -> None:
        owners = self._writer_cta[pieces] - 1
        weak = owners >= 0
        if not weak.any():
            return
        if kind == "write-read":
            # Bytes that this CTA has written too are its own.
            weak &= self._again[pieces] & _bit(ctas) == 0
        if strength:
            needed = np.where(owners == ctas, WITHIN_CTA, WITHIN_GPU)
            weak &= (self._strength[pieces] < needed) | (strength < needed)
        chosen = np.nonzero(weak)[0]
        if not len(chosen):
            return
        before = pieces[chosen]
        self._check(
            kind, before, ctas[chosen], access.at(chosen), owners[chosen],
            self._writers.agents(before), self._writers.times(before), self._writers.places(before),
        )  # fmt: skip

    def _check(
        self, kind: RaceKind, pieces: Array, ctas: Array, access: Access,
        owners: Array, agents: Array, when: Array, by: Array,
    ) -> None:  # fmt: skip
        """Report accesses of before, by agents of owners, that nothing orders with this one."""
        late = self._late(ctas, access, owners, agents, when)
        if not late.any():
            return
        keys = np.stack([agents, by], axis=1)[late]
        for agent, number in np.unique(keys.astype(np.int64), axis=0).tolist():
            at = np.nonzero(late & (agents == agent) & (by == number))[0]
            # One that accesses now speaks for all.
            at = at[access.agents[at] == access.agents[at].min()]
            self._report(kind, pieces[at], int(owners[at[0]]), int(ctas[at[0]]), agent,
                         number, access.at(at))  # fmt: skip

    def _late(
        self, ctas: Array, access: Access, owners: Array, agents: Array, when: Array
    ) -> Array:
        """Whether nothing orders accesses of before, by agents of owners, with this one."""
        some = (agents != NO_AGENT) & (owners >= 0)
        late: Array = some & (owners == ctas) & (agents != access.agents)
        if late.any():
            late &= when > access.clock_of(np.where(some, agents, 0))
        foreign = some & (owners != ctas)
        if foreign.any():
            late |= foreign & ~self._releases.ordered(owners, agents, when, ctas, foreign)
        return late

    def _report(
        self, kind: RaceKind, pieces: Array, owner: int, cta: int, agent: int, number: int,
        access: Access,
    ) -> None:  # fmt: skip
        done = kind.split("-")
        apart = owner != cta
        accessor = int(access.agents[0])
        before, now = (f" of CTA {each}" if apart else "" for each in (owner, cta))
        what = (
            f"nothing orders the {done[0]} by {self._names[agent]}{before} and the {done[1]} by"
            f" {self._names[accessor]}{now} of {self._memory.where(int(pieces[0]) * self.grain)}"
            f" ({len(pieces) * self.grain} bytes)"
        )
        are_warps = max(agent, accessor) < self._warps
        self._races.add(
            kind, "global", self._races.place(number), access.place, what, formal=False,
            within_cta=not apart and are_warps and kind != "write-write",
        )  # fmt: skip


def _bit(ctas: Array) -> Array:
    answer: Array = np.uint64(1) << (ctas % 64).astype(np.uint64)
    return answer
