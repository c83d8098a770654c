"""Who last wrote and read each piece of memory, and which accesses nothing orders.

An agent is a warp or an engine; its clock goes up whenever others may learn of what it did. An
access is ordered after another if the accessing agent knows the other's clock of then. Sources: C.
Flanagan and S. Freund, "FastTrack" (2009); PTX ISA, "Memory Consistency Model".

Of accesses to global memory from several CTAs the atomic ones, and what these order (`Releases`),
are not a race, and neither are writes of the same bytes; all else that touches the same bytes is
one, in whichever order it ran. Of each piece the readers of one CTA are known, the last one's; and
one more that read it before. So are its last writer, and one more that wrote the same. As long as
nothing writes to a buffer its reads are only listed: most buffers are inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from gpu_emulator.state.frame import WITHIN_CTA, WITHIN_GPU, Memory
from gpu_emulator.state.happens_before import NO_AGENT, Agents, Races, Releases
from gpu_emulator.steps import Array
from gpu_emulator.values import Place, Race, RaceKind, RaceSpace

_PLACE, _TIME = np.uint64(8), np.uint64(32)
_ONE_BYTE, _TWO_BYTES = np.uint64(0xFF), np.uint64(0xFFFF)


# Of pieces: agents, their clocks, the numbers of the places.
_Last = tuple[Array, Array, Array]


class Stamps:
    """The last access to each of `count` pieces: the agent, its clock, the number of the place."""

    def __init__(self, count: int) -> None:
        # The agent in bits 0 to 7, such that 0 is NO_AGENT; the place from 8, the clock from 32.
        self._all = np.zeros(count, dtype=np.uint64)

    def set(self, pieces: Array, agents: Array, when: Array, place: Array | int) -> None:
        """Agents (n,) access pieces (n,) at their clocks (n,)."""
        by = (np.asarray(place, dtype=np.uint64) << _PLACE) | _ONE_BYTE
        self._all[pieces] = (when.astype(np.uint64) << _TIME) + (by - agents.astype(np.uint64))

    def of(self, pieces: Array) -> tuple[Array, Array, Array]:
        """Who accessed them (NO_AGENT: none did), the clocks of then, the numbers of the places."""
        stamps = self._all.take(pieces)
        agents = NO_AGENT - (stamps & _ONE_BYTE).astype(np.int64)
        return agents, stamps >> _TIME, (stamps >> _PLACE) & _TWO_BYTES


class Accessors:
    """When each agent last accessed each of `count` pieces in some way: who read them, say.

    An agent gets a column when it first does. Where that takes more than `most` bytes, only the
    last accessor of a piece is known, and `is_whole` is no longer true.
    """

    def __init__(self, count: int, agents: int, most: int | None = None) -> None:
        self._count = count
        self._most = most
        self._column = np.full(agents, -1, dtype=np.int64)
        # The clocks of accesses, (count, members), 0 for none; the numbers of their places.
        self.at = np.zeros((count, 0), dtype=np.uint32)
        self.by = np.zeros((count, 0), dtype=np.uint16)
        self._last: Stamps | None = None
        self.members: list[int] = []

    @property
    def is_whole(self) -> bool:
        return self._last is None

    def record(self, pieces: Array, agents: Array, when: Array, place: int) -> None:
        columns = self._column[agents]
        if self._last is None and (columns < 0).any():
            self._widen(np.unique(agents[columns < 0]))
            columns = self._column[agents]
        if self._last is not None:
            self._last.set(pieces, agents, when, place)
            return
        spots = pieces * len(self.members) + columns
        self.at.reshape(-1)[spots] = when
        self.by.reshape(-1)[spots] = place

    def _widen(self, agents: Array) -> None:
        many = len(self.members) + len(agents)
        if self._most is not None and self._count * many * 6 > self._most:
            # One accessor of each piece, of those that are known.
            last = Stamps(self._count)
            pieces = np.nonzero(self.at.any(axis=1))[0]
            if len(pieces):
                last.set(pieces, *self.one_of(pieces))
            self._last = last
            return
        self._column[agents] = np.arange(len(self.members), many)
        self.members += agents.tolist()
        for name in ("at", "by"):
            old = getattr(self, name)
            new = np.zeros((self._count, many), dtype=old.dtype)
            new[:, : old.shape[1]] = old
            setattr(self, name, new)

    def one_of(self, pieces: Array) -> tuple[Array, Array, Array]:
        """One accessor of each piece, or NO_AGENT: its clock and the place's number too."""
        if self._last is not None:
            return self._last.of(pieces)
        none = np.zeros(len(pieces), dtype=np.int64)
        if not self.members:
            return none + NO_AGENT, none, none
        when = self.at[pieces]
        columns = when.argmax(axis=1)
        spots = pieces * len(self.members) + columns
        at = self.at.reshape(-1)[spots]
        agents = np.where(at > 0, np.array(self.members)[columns], NO_AGENT)
        return agents, at, self.by.reshape(-1)[spots]

    def forget(self, pieces: Array, late: Array | None = None) -> None:
        """Drop all accesses to them but those that are `late`, (n, members)."""
        if self._last is None:
            self.at[pieces] = 0 if late is None else np.where(late, self.at[pieces], 0)
        else:
            none = np.full(len(pieces), NO_AGENT)
            self._last.set(pieces, none, np.zeros(len(pieces), np.uint32), 0)

    def late(self, pieces: Array, clocks: Array, entries: Array, agents: Array) -> Array | None:
        """Accesses (n, members) that agents (n,) do not know of, by rows of clocks; None: none."""
        if not self.members:
            return None
        late: Array = self.at.take(pieces, axis=0) > clocks[:, self.members].take(entries, axis=0)
        if not late.any():
            return None
        own = self._column[agents]
        rows = np.nonzero(own >= 0)[0]
        late[rows, own[rows]] = False
        return late if late.any() else None

    def knows_one(self, pieces: Array, clocks: Array, entries: Array, agents: Array) -> Array:
        """Whether agents (n,) know of some access to each piece, by rows of `clocks`."""
        late = self.late(pieces, clocks, entries, agents)
        before: Array = self.at.take(pieces, axis=0) > 0
        if late is not None:
            before &= ~late
        return np.asarray(before.any(axis=1))


def in_pieces(spots: Array, size: int, grain: int) -> tuple[Array, int]:
    """Numbers of the pieces at offsets, and how many an offset has."""
    if size <= grain:
        return spots // grain, 1
    more: Array = spots[:, None] // grain + np.arange(size // grain)
    return more.reshape(-1), size // grain


@dataclass(frozen=True, slots=True)
class Access:
    """Who accesses pieces (n,), what each of them knows of the others, and where it is.

    `agents` (n,) of CTAs (n,), by their number in the grid, access; what they know is in rows
    `entries` (n,) of `clocks`, (k, all agents). `fenced` is the same through proxy fences too, None
    where the access is in the generic proxy; `generic` are the agents whose accesses are in it.
    `strength` is that of the opcode.
    """

    agents: Array
    ctas: Array
    entries: Array
    clocks: Array
    fenced: Array | None
    generic: int
    place: Place
    strength: int = 0

    def now(self) -> Array:
        return self.clock_of(self.agents)

    def clock_of(self, agents: Array, clocks: Array | None = None) -> Array:
        """What is known of agents, (n,), by these clocks (those of the access)."""
        table = self.clocks if clocks is None else clocks
        return table.reshape(-1).take(self.entries * table.shape[1] + agents)

    def at(self, chosen: Array) -> Access:
        return replace(
            self, agents=self.agents[chosen], ctas=self.ctas[chosen], entries=self.entries[chosen]
        )

    def repeated(self, times: int) -> Access:
        if times == 1:
            return self
        agents, ctas, entries = (
            np.repeat(numbers, times) for numbers in (self.agents, self.ctas, self.entries)
        )
        return replace(self, agents=agents, ctas=ctas, entries=entries)


class Shadow:
    """Last accesses to a memory that each CTA has of its own, piece by piece, of all CTAs.

    `pieces` are those of one CTA. `where` names the place of a piece, and says how many bytes it
    has.
    """

    def __init__(
        self,
        ctas: int,
        pieces: int,
        space: RaceSpace,
        agents: Agents,
        where: Callable[[int], tuple[str, int]],
        races: Races,
    ) -> None:
        self._pieces = pieces
        self._space = space
        self._where = where
        self._names, self._races, self._writers = agents.names, races, Stamps(ctas * pieces)
        # Who wrote what is there already, and the last writer and they do not know of each other.
        self._alike = Accessors(ctas * pieces, agents.count)
        self._readers = Accessors(ctas * pieces, agents.count)

    def read(self, pieces: Array, access: Access) -> None:
        if not len(pieces):
            return
        self._check_writers("write-read", pieces, access)
        self._readers.record(pieces, access.agents, access.now(), self._races.number(access.place))

    def write(self, pieces: Array, access: Access, changes: Array | None) -> None:
        """Pieces are written; where `changes` is False they hold the same bytes as before.

        Two writes of the same bytes need no order. What reads them needs to be ordered after one
        of them, and what writes other bytes after both.
        """
        if not len(pieces):
            return
        if changes is None or changes.all():
            self._change(pieces, access, is_known=changes is not None)
            return
        unordered = ~changes & self._late_writers(pieces, access)
        if unordered.any():
            self._write_alike(pieces[unordered], access.at(unordered))
        if changes.any():
            self._change(pieces[changes], access.at(changes), is_known=True)
        again = ~(changes | unordered)
        if again.any():
            self._write_again(pieces[again], access.at(again))

    def _late_writers(self, pieces: Array, access: Access) -> Array:
        """Whether nothing orders the last write of a piece, by another agent, with this access."""
        agents, when, _ = self._writers.of(pieces)
        late: Array = (agents != NO_AGENT) & (agents != access.agents)
        if late.any():
            late &= when > access.clock_of(np.where(late, agents, 0))
        return late

    def _write_alike(self, pieces: Array, access: Access) -> None:
        """These write what the last writer wrote, and know nothing of it."""
        self._races.doubt(f"{access.place.instruction} keeps bytes that others access")
        self._join(pieces, access)

    def _change(self, pieces: Array, access: Access, *, is_known: bool) -> None:
        """These write other bytes; `is_known`: not perhaps, but for certain."""
        self._check_writers("write-write", pieces, access)
        if self._alike.members:
            self._check_each("write-write", self._alike, pieces, access)
            self._alike.forget(pieces)
        self._set(pieces, access, is_known=is_known)

    def _write_again(self, pieces: Array, access: Access) -> None:
        """These write what is there, and know who wrote it."""
        if self._alike.members:
            late = self._alike.late(pieces, access.clocks, access.entries, access.agents)
            self._alike.forget(pieces, late)
        self._set(pieces, access, is_known=True)

    def _set(self, pieces: Array, access: Access, *, is_known: bool) -> None:
        """These write last. Of several agents at once one counts as the last one."""
        self._check_each("read-write", self._readers, pieces, access)
        self._writers.set(pieces, access.agents, access.now(), self._races.number(access.place))
        beside = self._writers.of(pieces)[0] != access.agents
        if beside.any() and is_known:
            self._join(pieces[beside], access.at(beside))
        elif beside.any():
            self._check_writers("write-write", pieces[beside], access.at(beside))

    def _join(self, pieces: Array, access: Access) -> None:
        self._alike.record(pieces, access.agents, access.now(), self._races.number(access.place))

    def _check_each(self, kind: RaceKind, before: Accessors, pieces: Array, access: Access) -> None:
        late = before.late(pieces, access.clocks, access.entries, access.agents)
        if late is None:
            return
        where, columns = np.nonzero(late)
        for column in np.unique(columns).tolist():
            chosen = where[columns == column]
            by = before.by[pieces[chosen], column]
            agent = before.members[column]
            self._report(kind, pieces[chosen], by, agent, access.at(chosen), formal=False)

    def _check_writers(self, kind: RaceKind, pieces: Array, access: Access) -> None:
        agents, when, by = self._writers.of(pieces)
        chosen = np.nonzero((agents != NO_AGENT) & (agents != access.agents))[0]
        if not len(chosen):
            return
        pieces, access = pieces[chosen], access.at(chosen)
        agents, when, by = agents[chosen], when[chosen], by[chosen]
        late = when > access.clock_of(agents)
        if late.any():
            serious = late
            if kind == "write-read" and self._alike.members:
                serious = late & ~self._alike.knows_one(
                    pieces, access.clocks, access.entries, access.agents
                )
            for agent in np.unique(agents[serious]).tolist():
                some = serious & (agents == agent)
                self._report(kind, pieces[some], by[some], agent, access.at(some), formal=False)
        if access.fenced is not None:
            unfenced = ~late & (agents < access.generic)
            unfenced &= when > access.clock_of(agents, access.fenced)
            for agent in np.unique(agents[unfenced]).tolist():
                some = unfenced & (agents == agent)
                self._report(kind, pieces[some], by[some], agent, access.at(some), formal=True)

    def _report(
        self, kind: RaceKind, pieces: Array, by: Array, agent: int, access: Access, *, formal: bool
    ) -> None:
        for number in np.unique(by).tolist():
            same = by == number
            now = int(access.agents[same].min())
            mine = pieces[same & (access.agents == now)]
            name, size = self._where(int(mine[0]) % self._pieces)
            before, after = kind.split("-")
            why = "no fence.proxy.async orders" if formal else "nothing orders"
            words = (
                f"{why} the {before} by {self._names[agent]} and the {after} by"
                f" {self._names[now]} of {name} ({len(mine) * size} bytes)"
            )
            first = self._races.place(number)
            self._races.add(
                Race(
                    kind=kind, space=self._space, formal=formal, first=first, second=access.place,
                    what=words,
                )
            )  # fmt: skip


_MOST_BYTES = 1 << 28
# So many reads are listed at most, of all buffers.
_MOST_LISTED = 1 << 22


# Offsets (n,), how many bytes each has, CTAs (n,) and agents (n,) that read them, at their
# clocks (n,), the number of the place.
_Read = tuple[Array, int, Array, Array, Array, int]


class GlobalShadow(Shadow):
    """Last accesses to global memory, in pieces of `grain` bytes."""

    def __init__(
        self, memory: Memory, grain: int, agents: Agents, races: Races, releases: Releases
    ) -> None:
        count = -(-len(memory.data) // grain)
        self.grain = grain
        self._names, self._races, self._writers = agents.names, races, Stamps(count)
        self._memory = memory
        self._warps = agents.warps
        self._releases = releases
        # Numbers of CTAs, plus one: 0 is none.
        self._writer_cta = np.zeros(count, dtype=np.int32)
        self._reader_cta = np.zeros(count, dtype=np.int32)
        self._other_cta = np.zeros(count, dtype=np.int32)
        # Who wrote the same as the last writer, who knows nothing of it: one of them, and a bit for
        # each CTA. CTAs whose numbers are alike modulo 64 share it.
        self._twins = Stamps(count)
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
        return self._readers.is_whole and self._releases.is_whole

    def read_spots(self, spots: Array, size: int, access: Access) -> None:
        """`size` bytes each at offsets (n,) are read."""
        if not len(spots):
            return
        number = self._races.number(access.place)
        read = spots, size, access.ctas, access.agents, access.now(), number
        regions = self._regions(spots)
        listed = self._listed[regions[0]] if len(regions) == 1 else None
        if listed is not None and not access.strength:
            listed.append(read)
            self._count += len(spots)
            if self._count > _MOST_LISTED:
                self._enter(range(len(self._listed)))
            return
        self._enter(regions)
        pieces, times = in_pieces(spots, size, self.grain)
        self._check_writers("write-read", pieces, access.repeated(times))
        if not access.strength:
            # What a later write to a strong one means is for who releases to say.
            self._record(read)

    def _regions(self, spots: Array) -> range:
        first = self._memory.region_of(int(spots.min()))
        return range(first, self._memory.region_of(int(spots.max())) + 1)

    def _enter(self, regions: range) -> None:
        """From now on the pieces of these regions are looked at one by one."""
        for number in regions:
            for read in self._listed[number] or ():
                self._record(read)
                self._count -= len(read[0])
            self._listed[number] = None

    def _record(self, read: _Read) -> None:
        spots, size, *numbers, place = read
        pieces, times = in_pieces(spots, size, self.grain)
        ctas, agents, when = (np.repeat(own, times) for own in numbers)
        owners = self._reader_cta[pieces] - 1
        moved = (owners >= 0) & (owners != ctas)
        if moved.any():
            # Another CTA reads them now: of those that did before one is kept.
            taken = pieces[moved]
            self._other_cta[taken] = owners[moved] + 1
            self._others.set(taken, *self._readers.one_of(taken))
            self._readers.forget(taken)
        self._reader_cta[pieces] = ctas + 1
        self._readers.record(pieces, agents, when, place)

    def write_spots(self, spots: Array, size: int, access: Access, changes: Array | None) -> None:
        """`size` bytes each at offsets (n,) are written; `changes` as for `write`, of pieces."""
        if len(spots):
            self._enter(self._regions(spots))
            pieces, times = in_pieces(spots, size, self.grain)
            self.write(pieces, access.repeated(times), changes)

    def _late_writers(self, pieces: Array, access: Access) -> Array:
        return self._late(access, self._writer_cta[pieces] - 1, *self._writers.of(pieces)[:2])

    def _change(self, pieces: Array, access: Access, *, is_known: bool) -> None:
        self._check_writers("write-write", pieces, access)
        if self._has_alike:
            owners = self._alike_cta[pieces] - 1
            self._check("write-write", pieces, access, owners, self._twins.of(pieces))
            self._alike_cta[pieces] = 0
            self._again[pieces] = 0
        self._set(pieces, access, is_known=is_known)

    def _write_again(self, pieces: Array, access: Access) -> None:
        self._set(pieces, access, is_known=True)

    def _set(self, pieces: Array, access: Access, *, is_known: bool) -> None:
        self._check_readers(pieces, access)
        others = self._other_cta[pieces] - 1
        if (others >= 0).any():
            self._check("read-write", pieces, access, others, self._others.of(pieces))
        self._writers.set(pieces, access.agents, access.now(), self._races.number(access.place))
        self._writer_cta[pieces] = access.ctas + 1
        if access.strength or self._has_strong:
            self._strength[pieces] = access.strength
            self._has_strong = True
        beside = self._writers.of(pieces)[0] != access.agents
        beside |= self._writer_cta[pieces] != access.ctas + 1
        if beside.any() and is_known:
            self._write_alike(pieces[beside], access.at(beside))
        elif beside.any():
            self._check_writers("write-write", pieces[beside], access.at(beside))

    def _write_alike(self, pieces: Array, access: Access) -> None:
        self._twins.set(pieces, access.agents, access.now(), self._races.number(access.place))
        self._alike_cta[pieces] = access.ctas + 1
        np.bitwise_or.at(self._again, pieces, _bit(access.ctas))
        self._has_alike = True

    def _check_readers(self, pieces: Array, access: Access) -> None:
        """Report reads of before that may be unordered; mostly there are none."""
        owners = self._reader_cta[pieces] - 1
        if not (owners >= 0).any():
            return
        if not self._readers.is_whole:
            self._check("read-write", pieces, access, owners, self._readers.one_of(pieces))
            return
        when = self._readers.at.take(pieces, axis=0)
        doubtful = when > access.clocks[:, self._readers.members].take(access.entries, axis=0)
        doubtful = np.where((owners == access.ctas)[:, None], doubtful, when > 0)
        for column in np.nonzero(doubtful.any(axis=0))[0].tolist():
            some = np.nonzero(doubtful[:, column])[0]
            agents = np.full(len(some), self._readers.members[column])
            last = agents, when[some, column], self._readers.by[pieces[some], column]
            self._check("read-write", pieces[some], access.at(some), owners[some], last)

    def _check_writers(self, kind: RaceKind, pieces: Array, access: Access) -> None:
        owners = self._writer_cta[pieces] - 1
        weak = owners >= 0
        if not weak.any():
            return
        if kind == "write-read":
            # Bytes that this CTA has written too are its own.
            weak &= self._again[pieces] & _bit(access.ctas) == 0
        if access.strength:
            needed = np.where(owners == access.ctas, WITHIN_CTA, WITHIN_GPU)
            weak &= (self._strength[pieces] < needed) | (access.strength < needed)
        chosen = np.nonzero(weak)[0]
        if len(chosen):
            pieces = pieces[chosen]
            last = self._writers.of(pieces)
            self._check(kind, pieces, access.at(chosen), owners[chosen], last)

    def _check(
        self, kind: RaceKind, pieces: Array, access: Access, owners: Array, last: _Last
    ) -> None:
        agents, when, by = last
        late = self._late(access, owners, agents, when)
        if not late.any():
            return
        words, keys = kind.split("-"), np.stack([agents, by], axis=1)[late]
        for agent, number in np.unique(keys.astype(np.int64), axis=0).tolist():
            at = np.nonzero(late & (agents == agent) & (by == number))[0]
            # One that accesses now speaks for all.
            at = at[access.agents[at] == access.agents[at].min()]
            owner, cta, accessor = (
                int(numbers[at[0]]) for numbers in (owners, access.ctas, access.agents)
            )
            apart, are_warps = owner != cta, max(agent, accessor) < self._warps
            before, now = (f" of CTA {row}" if apart else "" for row in (owner, cta))
            text = (
                f"nothing orders the {words[0]} by {self._names[agent]}{before} and the {words[1]}"
                f" by {self._names[accessor]}{now} of"
                f" {self._memory.where(int(pieces[at[0]]) * self.grain)}"
                f" ({len(at) * self.grain} bytes)"
            )
            race = Race(
                kind=kind, space="global", formal=False, first=self._races.place(number),
                second=access.place, what=text,
                within_cta=not apart and are_warps and kind != "write-write",
            )  # fmt: skip
            self._races.add(race)

    def _late(self, access: Access, owners: Array, agents: Array, when: Array) -> Array:
        some = (agents != NO_AGENT) & (owners >= 0)
        late: Array = some & (owners == access.ctas) & (agents != access.agents)
        if late.any():
            late &= when > access.clock_of(np.where(some, agents, 0))
        foreign = some & (owners != access.ctas)
        if foreign.any():
            late |= foreign & ~self._releases.ordered(owners, agents, when, access.ctas, foreign)
        return late


def _bit(ctas: Array) -> Array:
    return np.uint64(1) << (ctas % 64).astype(np.uint64)
