"""Who last wrote and read each piece of shared memory, and which accesses nothing orders.

An agent is a warp or an engine; its clock goes up whenever others may learn of what it did. An
access is ordered after another if the accessing agent knows the other's clock of then. Sources: C.
Flanagan and S. Freund, "FastTrack" (2009); PTX ISA, "Memory Consistency Model".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.emulator.program.types import Array
from harness.emulator.values import Place, Race, RaceKind

__all__ = ["Access", "Races", "Shadow"]

_NOBODY = 255
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
        self._found: dict[tuple[frozenset[Place], bool], Race] = {}

    def add(self, kind: RaceKind, first: Place, second: Place, what: str, *, formal: bool) -> None:
        """Remember a pair."""
        key = (frozenset((first, second)), formal)
        if key not in self._found and len(self._found) < _MOST_EXAMPLES:
            self._found[key] = Race(
                kind=kind, space="shared", formal=formal, first=first, second=second, what=what,
            )  # fmt: skip

    def all(self) -> tuple[Race, ...]:
        """Those with effect first, then by line. A pair with effect is not told as formal too."""
        real = {(each.first, each.second) for each in self._found.values() if not each.formal}
        kept = [
            each
            for each in self._found.values()
            if not (each.formal and (each.first, each.second) in real)
        ]
        return tuple(
            sorted(kept, key=lambda one: (one.formal, one.second.ptx_line, one.first.ptx_line))
        )


class Shadow:
    """Last accesses to shared memory, piece by piece of `grain` bytes, of all CTAs."""

    def __init__(
        self, ctas: int, stride: int, grain: int, agents: int, names: Sequence[str], races: Races
    ) -> None:
        count = ctas * stride // grain
        self.grain = grain
        self._pieces = stride // grain
        self._names = names
        self._races = races
        self._writer = np.full(count, _NOBODY, dtype=np.uint8)
        self._written_at = np.zeros(count, dtype=np.uint32)
        self._written_by = np.zeros(count, dtype=np.uint16)
        self._read_at = np.zeros((count, agents), dtype=np.uint32)
        self._read_by = np.zeros((count, agents), dtype=np.uint16)
        self._places: list[Place] = []
        self._numbers: dict[Place, int] = {}

    def read(self, pieces: Array, access: Access) -> None:
        """Pieces (n,), by number over all CTAs, are read."""
        if not len(pieces):
            return
        self._check_writers(pieces, access, "write-read")
        rows = pieces // self._pieces
        self._read_at[pieces, access.agent] = access.known[rows, access.agent]
        self._read_by[pieces, access.agent] = self._number(access.place)

    def write(self, pieces: Array, access: Access, changes: Array) -> None:
        """Pieces are written; where `changes` is False they hold the same bytes as before."""
        if not len(pieces):
            return
        self._check_writers(pieces[changes], access, "write-write")
        changed = pieces[changes]
        rows = changed // self._pieces
        late = self._read_at[changed] > access.known[rows]
        late[:, access.agent] = False
        if late.any():
            where, readers = np.nonzero(late)
            for agent in np.unique(readers).tolist():
                chosen = changed[where[readers == agent]]
                self._report("read-write", chosen, self._read_by[chosen, agent], agent, access)
        rows = pieces // self._pieces
        self._writer[pieces] = access.agent
        self._written_at[pieces] = access.known[rows, access.agent]
        self._written_by[pieces] = self._number(access.place)

    def _check_writers(self, pieces: Array, access: Access, kind: RaceKind) -> None:
        writers = self._writer[pieces]
        others = (writers != _NOBODY) & (writers != access.agent)
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
            offset = piece % self._pieces * self.grain
            done = kind.split("-")
            why = "no fence.proxy.async orders" if formal else "nothing orders"
            what = (
                f"{why} the {done[0]} by {self._names[agent]} and the {done[1]} by"
                f" {self._names[access.agent]} of shared address {hex(offset)}"
                f" ({len(pieces) * self.grain} bytes)"
            )
            self._races.add(kind, first, access.place, what, formal=formal)

    def _number(self, place: Place) -> int:
        number = self._numbers.get(place)
        if number is None:
            number = self._numbers[place] = len(self._places)
            self._places.append(place)
        return number
