"""Who last wrote and read each piece of a CTA's memory, and which accesses nothing orders.

An agent is a warp or an engine; its clock goes up whenever others may learn of what it did. An
access is ordered after another if the accessing agent knows the other's clock of then. Sources: C.
Flanagan and S. Freund, "FastTrack" (2009); PTX ISA, "Memory Consistency Model".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from gpu_emulator.state.agents import NO_AGENT, Agents
from gpu_emulator.state.findings import Races
from gpu_emulator.state.stamps import Accessors, Stamps
from gpu_emulator.types import Array
from gpu_emulator.values import Place, RaceKind, RaceSpace


@dataclass(frozen=True, slots=True)
class Access:
    """Who accesses pieces (n,), what each of them knows of the others, and where it is.

    `agents` (n,) access; what they know is in rows `entries` (n,) of `known`, (k, all agents).
    `fenced` is what they know through proxy fences too, None where the access is in the generic
    proxy; `generic` are the agents whose accesses are in it.
    """

    agents: Array
    entries: Array
    known: Array
    fenced: Array | None
    generic: int
    place: Place

    def now(self) -> Array:
        """The clock of each accessing agent."""
        return self.clock_of(self.agents)

    def clock_of(self, agents: Array) -> Array:
        """What is known of agents, (n,)."""
        return _looked_up(self.known, self.entries, agents)

    def fenced_clock_of(self, agents: Array) -> Array:
        """The same through proxy fences."""
        assert self.fenced is not None
        return _looked_up(self.fenced, self.entries, agents)

    def at(self, chosen: Array) -> Access:
        """The access to some of the pieces: a mask, or numbers of them."""
        return replace(self, agents=self.agents[chosen], entries=self.entries[chosen])

    def repeated(self, times: int) -> Access:
        """The access where each piece is cut into so many."""
        if times == 1:
            return self
        agents, entries = np.repeat(self.agents, times), np.repeat(self.entries, times)
        return replace(self, agents=agents, entries=entries)


def _looked_up(table: Array, rows: Array, columns: Array) -> Array:
    found: Array = table.reshape(-1).take(rows * table.shape[1] + columns)
    return found


class Shadow:
    """Last accesses to a memory that each CTA has of its own, piece by piece, of all CTAs.

    `pieces` are those of one CTA. `where` names the place of a piece, and says how many bytes it
    has.
    """

    def __init__(
        self, ctas: int, pieces: int, space: RaceSpace, agents: Agents,
        where: Callable[[int], tuple[str, int]], races: Races,
    ) -> None:  # fmt: skip
        self._pieces = pieces
        self._space = space
        self._names = agents.names
        self._where = where
        self._races = races
        self._writers = Stamps(ctas * pieces)
        # Who wrote what is there already, and the last writer and they do not know of each other.
        self._alike = Accessors(ctas * pieces, agents.count)
        self._readers = Accessors(ctas * pieces, agents.count)

    def read(self, pieces: Array, access: Access) -> None:
        """Pieces (n,), by number over all CTAs, are read."""
        if not len(pieces):
            return
        self._check_writers(pieces, access, "write-read")
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
        alike = ~changes & self._unordered(pieces, access)
        if alike.any():
            self._races.doubt(f"{access.place.instruction} keeps bytes that others access")
            self._join(pieces[alike], access.at(alike))
        if changes.any():
            self._change(pieces[changes], access.at(changes), is_known=True)
        again = ~(changes | alike)
        if again.any():
            pieces, access = pieces[again], access.at(again)
            if self._alike.members:
                late = self._alike.late(pieces, access.known, access.entries, access.agents)
                self._alike.forget(pieces, late)
            self._set(pieces, access, is_known=True)

    def _unordered(self, pieces: Array, access: Access) -> Array:
        """Whether another agent wrote a piece last, and the accessing one does not know of it."""
        agents = self._writers.agents(pieces)
        others: Array = (agents != NO_AGENT) & (agents != access.agents)
        if others.any():
            others &= self._writers.times(pieces) > access.clock_of(np.where(others, agents, 0))
        return others

    def _change(self, pieces: Array, access: Access, *, is_known: bool) -> None:
        self._check_writers(pieces, access, "write-write")
        if self._alike.members:
            self._check_each("write-write", self._alike, pieces, access)
            self._alike.forget(pieces)
        self._set(pieces, access, is_known=is_known)

    def _set(self, pieces: Array, access: Access, *, is_known: bool) -> None:
        """These write last. Of several agents at once one counts as the last one."""
        self._check_each("read-write", self._readers, pieces, access)
        self._writers.set(pieces, access.agents, access.now(), self._races.number(access.place))
        beside = self._writers.agents(pieces) != access.agents
        if beside.any() and is_known:
            self._join(pieces[beside], access.at(beside))
        elif beside.any():
            self._check_writers(pieces[beside], access.at(beside), "write-write")

    def _join(self, pieces: Array, access: Access) -> None:
        self._alike.record(pieces, access.agents, access.now(), self._races.number(access.place))

    def _check_each(self, kind: RaceKind, before: Accessors, pieces: Array, access: Access) -> None:
        late = before.late(pieces, access.known, access.entries, access.agents)
        if late is None:
            return
        where, columns = np.nonzero(late)
        for column in np.unique(columns).tolist():
            chosen = where[columns == column]
            by = before.places_of(pieces[chosen], column)
            self._report(kind, pieces[chosen], by, before.members[column], access.at(chosen))

    def _check_writers(self, pieces: Array, access: Access, kind: RaceKind) -> None:
        agents = self._writers.agents(pieces)
        others = (agents != NO_AGENT) & (agents != access.agents)
        if not others.any():
            return
        chosen = np.nonzero(others)[0]
        pieces, access, agents = pieces[chosen], access.at(chosen), agents[chosen]
        when, by = self._writers.times(pieces), self._writers.places(pieces)
        late = when > access.clock_of(agents)
        if late.any():
            serious = late
            if kind == "write-read" and self._alike.members:
                one = self._alike.knows_one(pieces, access.known, access.entries, access.agents)
                serious = late & ~one
            for agent in np.unique(agents[serious]).tolist():
                some = serious & (agents == agent)
                self._report(kind, pieces[some], by[some], agent, access.at(some))
        if access.fenced is not None:
            unfenced = ~late & (agents < access.generic)
            unfenced &= when > access.fenced_clock_of(agents)
            for agent in np.unique(agents[unfenced]).tolist():
                some = unfenced & (agents == agent)
                self._report(kind, pieces[some], by[some], agent, access.at(some), formal=True)

    def _report(
        self, kind: RaceKind, pieces: Array, by: Array, agent: int, access: Access,
        *, formal: bool = False,
    ) -> None:  # fmt: skip
        """Report a pair of places, by the first agent that came to it."""
        for number in np.unique(by).tolist():
            same = by == number
            now = int(access.agents[same].min())
            mine = pieces[same & (access.agents == now)]
            name, size = self._where(int(mine[0]) % self._pieces)
            done = kind.split("-")
            why = "no fence.proxy.async orders" if formal else "nothing orders"
            what = (
                f"{why} the {done[0]} by {self._names[agent]} and the {done[1]} by"
                f" {self._names[now]} of {name} ({len(mine) * size} bytes)"
            )
            first = self._races.place(number)
            self._races.add(kind, self._space, first, access.place, what, formal=formal)
