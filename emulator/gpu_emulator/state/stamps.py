"""Who accessed each piece of a memory last, when, and at which line: arrays for the race check."""

from __future__ import annotations

import numpy as np

from gpu_emulator.state.agents import NO_AGENT
from gpu_emulator.types import Array

_PLACE, _TIME = np.uint64(8), np.uint64(32)
_ONE_BYTE, _TWO_BYTES = np.uint64(0xFF), np.uint64(0xFFFF)


class Stamps:
    """The last access to each of `count` pieces: the agent, its clock, the number of the place."""

    def __init__(self, count: int) -> None:
        # The agent in bits 0 to 7, such that 0 is NO_AGENT; the place from 8, the clock from 32.
        self._all = np.zeros(count, dtype=np.uint64)

    def set(self, pieces: Array, agents: Array, when: Array, place: Array | int) -> None:
        """Agents (n,) access pieces (n,) at their clocks (n,)."""
        by = (np.asarray(place, dtype=np.uint64) << _PLACE) | _ONE_BYTE
        self._all[pieces] = (when.astype(np.uint64) << _TIME) + (by - agents.astype(np.uint64))

    def agents(self, pieces: Array) -> Array:
        """Who accessed them; NO_AGENT: none did."""
        found: Array = NO_AGENT - (self._all.take(pieces) & _ONE_BYTE).astype(np.int64)
        return found

    def times(self, pieces: Array) -> Array:
        """The clocks of then."""
        found: Array = self._all.take(pieces) >> _TIME
        return found

    def places(self, pieces: Array) -> Array:
        """The numbers of the places."""
        found: Array = (self._all.take(pieces) >> _PLACE) & _TWO_BYTES
        return found


class Accessors:
    """When each agent last accessed each of `count` pieces in some way: who read them, say.

    An agent gets a column when it first does. Where that takes more than `most` bytes, only the
    last accessor of a piece is known, and `is_whole` is no longer true.
    """

    def __init__(self, count: int, agents: int, most: int | None = None) -> None:
        self._count = count
        self._most = most
        self._column = np.full(agents, -1, dtype=np.int64)
        self._at = np.zeros((count, 0), dtype=np.uint32)
        self._by = np.zeros((count, 0), dtype=np.uint16)
        self._last: Stamps | None = None
        self.members: list[int] = []

    @property
    def is_whole(self) -> bool:
        """Whether every accessor is known."""
        return self._last is None

    def record(self, pieces: Array, agents: Array, when: Array, place: int) -> None:
        """Agents (n,) access pieces (n,) at their clocks (n,)."""
        columns = self._column[agents]
        if self._last is None and (columns < 0).any():
            self._widen(np.unique(agents[columns < 0]))
            columns = self._column[agents]
        if self._last is not None:
            self._last.set(pieces, agents, when, place)
            return
        spots = pieces * len(self.members) + columns
        self._at.reshape(-1)[spots] = when
        self._by.reshape(-1)[spots] = place

    def _widen(self, agents: Array) -> None:
        many = len(self.members) + len(agents)
        if self._most is not None and self._count * many * 6 > self._most:
            self._last = self._narrowed()
            return
        self._column[agents] = np.arange(len(self.members), many)
        self.members += agents.tolist()
        for name in ("_at", "_by"):
            old = getattr(self, name)
            new = np.zeros((self._count, many), dtype=old.dtype)
            new[:, : old.shape[1]] = old
            setattr(self, name, new)

    def _narrowed(self) -> Stamps:
        """One accessor of each piece, of those that are known."""
        last = Stamps(self._count)
        pieces = np.nonzero(self._at.any(axis=1))[0]
        if len(pieces):
            agents, when, by = self.one_of(pieces)
            last.set(pieces, agents, when, by)
        return last

    def one_of(self, pieces: Array) -> tuple[Array, Array, Array]:
        """One accessor of each piece, or NO_AGENT: its clock and the place's number too."""
        if self._last is not None:
            return self._last.agents(pieces), self._last.times(pieces), self._last.places(pieces)
        none = np.zeros(len(pieces), dtype=np.int64)
        if not self.members:
            return none + NO_AGENT, none, none
        when = self._at[pieces]
        columns = when.argmax(axis=1)
        spots = pieces * len(self.members) + columns
        at = self._at.reshape(-1)[spots]
        agents = np.where(at > 0, np.array(self.members)[columns], NO_AGENT)
        return agents, at, self._by.reshape(-1)[spots]

    def forget(self, pieces: Array, late: Array | None = None) -> None:
        """Drop all accesses to them but those that are `late`, (n, members)."""
        if self._last is None:
            self._at[pieces] = 0 if late is None else np.where(late, self._at[pieces], 0)
        else:
            none = np.full(len(pieces), NO_AGENT)
            self._last.set(pieces, none, np.zeros(len(pieces), np.uint32), 0)

    def times(self, pieces: Array) -> Array:
        """The clocks of all accessors, (n, members); 0: it has not accessed the piece."""
        found: Array = self._at.take(pieces, axis=0)
        return found

    def places_of(self, pieces: Array, column: int) -> Array:
        """The numbers of the places of one accessor."""
        found: Array = self._by[pieces, column]
        return found

    def late(self, pieces: Array, known: Array, entries: Array, agents: Array) -> Array | None:
        """Accesses (n, members) that agents (n,) do not know of, by rows of `known`; None: none."""
        if not self.members:
            return None
        late: Array = self.times(pieces) > known[:, self.members].take(entries, axis=0)
        if not late.any():
            return None
        own = self._column[agents]
        rows = np.nonzero(own >= 0)[0]
        late[rows, own[rows]] = False
        return late if late.any() else None

    def knows_one(self, pieces: Array, known: Array, entries: Array, agents: Array) -> Array:
        """Whether agents (n,) know of some access to each piece, by rows of `known`."""
        late = self.late(pieces, known, entries, agents)
        before: Array = self.times(pieces) > 0
        if late is not None:
            before &= ~late
        return np.asarray(before.any(axis=1))


def in_pieces(spots: Array, size: int, grain: int) -> tuple[Array, int]:
    """Numbers of the pieces at offsets, and how many an offset has."""
    if size <= grain:
        return spots // grain, 1
    more: Array = spots[:, None] // grain + np.arange(size // grain)
    return more.reshape(-1), size // grain
