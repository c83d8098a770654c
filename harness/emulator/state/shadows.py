"""Who last wrote and read each piece of a CTA's memory, and which accesses nothing orders.

An agent is a warp or an engine; its clock goes up whenever others may learn of what it did. An
access is ordered after another if the accessing agent knows the other's clock of then. Sources: C.
Flanagan and S. Freund, "FastTrack" (2009); PTX ISA, "Memory Consistency Model".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from harness.emulator.program.types import Array
from harness.emulator.state.agents import NO_AGENT, Agents
from harness.emulator.values import Place, Race, RaceKind, RaceSpace

__all__ = ["Access", "Places", "Races", "Shadow"]

_MOST_EXAMPLES = 200


@dataclass(frozen=True, slots=True)
class Access:
    """Who accesses: the agent, what it knows of the others, (CTAs, agents), and where it is.

    `fenced` is what it knows through proxy fences too, None where the access is in the generic
    proxy; `generic` are the agents whose accesses are in it.
    """

    agent: int
    known: Array
    fenced: Array | None
    generic: int
    place: Place


class Races:
    """Pairs of accesses that nothing orders, each pair of lines once, as it was first seen."""

    def __init__(self) -> None:
        self._found: dict[tuple[frozenset[Place], bool, bool], Race] = {}

    def add(
        self, kind: RaceKind, space: RaceSpace, first: Place, second: Place, what: str,
        *, formal: bool, within_cta: bool = False,
    ) -> None:  # fmt: skip
        """Remember a pair."""
        key = (frozenset((first, second)), formal, within_cta)
        if key not in self._found and len(self._found) < _MOST_EXAMPLES:
            self._found[key] = Race(
                kind=kind, space=space, formal=formal, first=first, second=second, what=what,
                within_cta=within_cta,
            )  # fmt: skip

    def all(self) -> tuple[Race, ...]:
        """Those with effect first, then by line. A pair with effect is not listed as formal too."""
        real = {(each.first, each.second) for each in self._found.values() if not each.formal}
        kept = [
            each
            for each in self._found.values()
            if not (each.formal and (each.first, each.second) in real)
        ]
        return tuple(
            sorted(kept, key=lambda one: (one.formal, one.second.ptx_line, one.first.ptx_line))
        )


class Places:
    """Places by a number that fits into an array."""

    def __init__(self) -> None:
        self._places: list[Place] = []
        self._numbers: dict[Place, int] = {}

    def number(self, place: Place) -> int:
        """The number of a place, a new one for a new place."""
        found = self._numbers.setdefault(place, len(self._places))
        if found == len(self._places):
            self._places.append(place)
        return found

    def __getitem__(self, number: int) -> Place:
        return self._places[number]


class Shadow:
    """Last accesses to a memory that each CTA has of its own, piece by piece, of all CTAs.

    `pieces` are those of one CTA; `members` are the agents that access this memory at all. `where`
    names the place of a piece, and says how many bytes it has.
    """

    def __init__(
        self, ctas: int, pieces: int, space: RaceSpace, agents: Agents, members: Sequence[int],
        where: Callable[[int], tuple[str, int]], races: Races,
    ) -> None:  # fmt: skip
        count = ctas * pieces
        self._pieces = pieces
        self._space = space
        self._names = agents.names
        self._members = np.array(members)
        self._column = np.zeros(agents.count, dtype=np.int64)
        self._column[self._members] = np.arange(len(members))
        self._where = where
        self._races = races
        self._writer = np.full(count, NO_AGENT, dtype=np.uint8)
        self._written_at = np.zeros(count, dtype=np.uint32)
        self._written_by = np.zeros(count, dtype=np.uint16)
        self._read_at = np.zeros((count, len(members)), dtype=np.uint32)
        self._read_by = np.zeros((count, len(members)), dtype=np.uint16)
        self._places = Places()

    def read(self, pieces: Array, access: Access) -> None:
        """Pieces (n,), by number over all CTAs, are read."""
        if not len(pieces):
            return
        self._check_writers(pieces, access, "write-read")
        rows = pieces // self._pieces
        column = self._column[access.agent]
        self._read_at[pieces, column] = access.known[rows, access.agent]
        self._read_by[pieces, column] = self._places.number(access.place)

    def write(self, pieces: Array, access: Access, changes: Array) -> None:
        """Pieces are written; where `changes` is False they hold the same bytes as before."""
        if not len(pieces):
            return
        self._check_writers(pieces[changes], access, "write-write")
        changed = pieces[changes]
        rows = changed // self._pieces
        late = self._read_at[changed] > access.known[:, self._members][rows]
        late[:, self._column[access.agent]] = False
        if late.any():
            where, readers = np.nonzero(late)
            for column in np.unique(readers).tolist():
                chosen = changed[where[readers == column]]
                agent = int(self._members[column])
                self._report("read-write", chosen, self._read_by[chosen, column], agent, access)
        rows = pieces // self._pieces
        self._writer[pieces] = access.agent
        self._written_at[pieces] = access.known[rows, access.agent]
        self._written_by[pieces] = self._places.number(access.place)

    def _check_writers(self, pieces: Array, access: Access, kind: RaceKind) -> None:
        writers = self._writer[pieces]
        others = (writers != NO_AGENT) & (writers != access.agent)
        if not others.any():
            return
        chosen = pieces[others]
        agents = writers[others].astype(np.int64)
        rows = chosen // self._pieces
        when = self._written_at[chosen]
        late = when > access.known[rows, agents]
        if late.any():
            for agent in np.unique(agents[late]).tolist():
                some = chosen[late & (agents == agent)]
                self._report(kind, some, self._written_by[some], agent, access)
        if access.fenced is not None:
            unfenced = ~late & (agents < access.generic) & (when > access.fenced[rows, agents])
            for agent in np.unique(agents[unfenced]).tolist():
                some = chosen[unfenced & (agents == agent)]
                self._report(kind, some, self._written_by[some], agent, access, formal=True)

    def _report(
        self, kind: RaceKind, pieces: Array, by: Array, agent: int, access: Access,
        *, formal: bool = False,
    ) -> None:  # fmt: skip
        for number in np.unique(by).tolist():
            first = self._places[number]
            piece = int(pieces[by == number][0])
            name, size = self._where(piece % self._pieces)
            done = kind.split("-")
            why = "no fence.proxy.async orders" if formal else "nothing orders"
            what = (
                f"{why} the {done[0]} by {self._names[agent]} and the {done[1]} by"
                f" {self._names[access.agent]} of {name} ({len(pieces) * size} bytes)"
            )
            self._races.add(kind, self._space, first, access.place, what, formal=formal)
