"""Who last wrote and read each piece of global memory, over all CTAs of a launch.

Within a CTA as in shared memory. Of accesses from several CTAs the atomic ones, and what these
order (`Releases`), are no race; all else that touches the same bytes is one, in whichever order it
ran. Of each piece the readers of one CTA are known, the last one's; and one more that read it
before. PTX ISA, "Memory Consistency Model: Morally strong operations, Data races".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from harness.emulator.program.types import Array
from harness.emulator.state.agents import NO_AGENT, Agents
from harness.emulator.state.releases import Releases
from harness.emulator.state.semantics import WITHIN_CTA, WITHIN_GPU
from harness.emulator.state.shadows import Access, Places, Races
from harness.emulator.values import RaceKind

__all__ = ["GlobalShadow"]

_MOST_BYTES = 1 << 28


class GlobalShadow:
    """Last accesses to global memory, in pieces of `grain` bytes.

    `where` names a piece. Where a reader of each agent would take too much memory, only the last
    reader of a piece is known.
    """

    def __init__(
        self, size: int, grain: int, agents: Agents, where: Callable[[int], str], races: Races,
        releases: Releases,
    ) -> None:  # fmt: skip
        count = -(-size // grain)
        self.grain = grain
        self._names = agents.names
        self._warps = agents.warps
        members: Sequence[int] = agents.in_global
        fits = count * len(members) * 6 <= _MOST_BYTES
        columns = len(members) if fits else 1
        self._column = np.zeros(agents.count, dtype=np.int64)
        self._members = np.array(members) if fits else None
        if fits:
            self._column[self._members] = np.arange(len(members))
        self._where = where
        self._races = races
        self._releases = releases
        self._places = Places()
        self._writer = np.full(count, NO_AGENT, dtype=np.uint8)
        self._writer_cta = np.full(count, -1, dtype=np.int32)
        # Of who wrote the same again, a bit: CTAs whose numbers are alike modulo 64 share it.
        self._again = np.zeros(count, dtype=np.uint64)
        self._written_at = np.zeros(count, dtype=np.uint32)
        self._written_by = np.zeros(count, dtype=np.uint16)
        self._strength = np.zeros(count, dtype=np.uint8)
        self._reader_cta = np.full(count, -1, dtype=np.int32)
        self._reader = np.full((count, columns), NO_AGENT, dtype=np.uint8)
        self._read_at = np.zeros((count, columns), dtype=np.uint32)
        self._read_by = np.zeros((count, columns), dtype=np.uint16)
        self._other_cta = np.full(count, -1, dtype=np.int32)
        self._other = np.full(count, NO_AGENT, dtype=np.uint8)
        self._other_at = np.zeros(count, dtype=np.uint32)
        self._other_by = np.zeros(count, dtype=np.uint16)

    def read(self, pieces: Array, rows: Array, first: int, access: Access, strength: int) -> None:
        """Pieces (n,) are read by an agent of the CTAs in rows (n,); row 0 is CTA `first`."""
        if not len(pieces):
            return
        self._check_writers("write-read", pieces, rows, first, access, strength)
        if strength:
            # What a later write to it means is for who releases to say.
            return
        ctas = (rows + first).astype(np.int32)
        column = int(self._column[access.agent])
        moved = (self._reader_cta[pieces] >= 0) & (self._reader_cta[pieces] != ctas)
        if moved.any():
            self._set_aside(pieces[moved])
        self._reader_cta[pieces] = ctas
        self._reader[pieces, column] = access.agent
        self._read_at[pieces, column] = access.known[rows, access.agent]
        self._read_by[pieces, column] = self._places.number(access.place)

    def _set_aside(self, pieces: Array) -> None:
        """Another CTA reads them now: of those that did before one is kept."""
        columns = self._read_at[pieces].argmax(axis=1)
        self._other_cta[pieces] = self._reader_cta[pieces]
        self._other[pieces] = self._reader[pieces, columns]
        self._other_at[pieces] = self._read_at[pieces, columns]
        self._other_by[pieces] = self._read_by[pieces, columns]
        self._read_at[pieces] = 0
        self._reader[pieces] = NO_AGENT

    def write(
        self, pieces: Array, rows: Array, first: int, access: Access, changes: Array, strength: int
    ) -> None:
        """Pieces are written; where `changes` is False they hold the same bytes as before."""
        if not len(pieces):
            return
        same = pieces[~changes]
        self._again[same] |= _bit(rows[~changes] + first)
        pieces, rows = pieces[changes], rows[changes]
        if not len(pieces):
            return
        self._check_writers("write-write", pieces, rows, first, access, strength)
        self._check_readers(pieces, rows, first, access)
        self._check(
            "read-write", pieces, rows, first, access, self._other_cta[pieces],
            self._other[pieces], self._other_at[pieces], self._other_by[pieces],
        )  # fmt: skip
        self._writer[pieces] = access.agent
        self._writer_cta[pieces] = (rows + first).astype(np.int32)
        self._again[pieces] = 0
        self._written_at[pieces] = access.known[rows, access.agent]
        self._written_by[pieces] = self._places.number(access.place)
        self._strength[pieces] = strength

    def _check_readers(self, pieces: Array, rows: Array, first: int, access: Access) -> None:
        """Report reads of before that may be unordered; mostly there are none."""
        owners, readers = self._reader_cta[pieces], self._reader[pieces]
        mine = owners == rows + first
        asked = readers != NO_AGENT
        if self._members is not None:
            late = self._read_at[pieces] > access.known[:, self._members][rows]
            late[:, self._column[access.agent]] = False
            asked &= late | ~mine[:, None]
        for column in np.nonzero(asked.any(axis=0))[0].tolist():
            some = asked[:, column]
            chosen = pieces[some]
            self._check(
                "read-write", chosen, rows[some], first, access, owners[some],
                readers[some, column], self._read_at[chosen, column], self._read_by[chosen, column],
            )  # fmt: skip

    def _check_writers(
        self, kind: RaceKind, pieces: Array, rows: Array, first: int, access: Access, strength: int
    ) -> None:
        owners = self._writer_cta[pieces]
        # Bytes that this CTA has written too are its own.
        weak = self._again[pieces] & _bit(rows + first) == 0
        if strength:
            needed = np.where(owners == rows + first, WITHIN_CTA, WITHIN_GPU)
            weak &= (self._strength[pieces] < needed) | (strength < needed)
        if not weak.any():
            return
        chosen = pieces[weak]
        self._check(
            kind, chosen, rows[weak], first, access, owners[weak], self._writer[chosen],
            self._written_at[chosen], self._written_by[chosen],
        )  # fmt: skip

    def _check(
        self, kind: RaceKind, pieces: Array, rows: Array, first: int, access: Access,
        owners: Array, agents: Array, when: Array, by: Array,
    ) -> None:  # fmt: skip
        """Report accesses of before, by agents of owners, that nothing orders with this one."""
        some = agents != NO_AGENT
        mine = some & (owners == rows + first)
        late = mine & (agents != access.agent)
        late &= when > access.known[rows, np.where(some, agents, 0)]
        foreign = some & (owners != rows + first) & (owners >= 0)
        if foreign.any():
            late |= foreign & ~self._releases.ordered(owners, agents, when, rows + first, foreign)
        if not late.any():
            return
        keys = np.stack([agents[late], by[late]], axis=1)
        for agent, number in np.unique(keys, axis=0).tolist():
            at = np.nonzero(late)[0][(keys[:, 0] == agent) & (keys[:, 1] == number)]
            self._report(kind, pieces[at], int(owners[at[0]]), int(rows[at[0]]) + first, agent,
                         number, access)  # fmt: skip

    def _report(
        self, kind: RaceKind, pieces: Array, owner: int, cta: int, agent: int, number: int,
        access: Access,
    ) -> None:  # fmt: skip
        done = kind.split("-")
        apart = owner != cta
        before, now = (f" of CTA {each}" if apart else "" for each in (owner, cta))
        what = (
            f"nothing orders the {done[0]} by {self._names[agent]}{before} and the {done[1]} by"
            f" {self._names[access.agent]}{now} of {self._where(int(pieces[0]) * self.grain)}"
            f" ({len(pieces) * self.grain} bytes)"
        )
        are_warps = max(agent, access.agent) < self._warps
        self._races.add(
            kind, "global", self._places[number], access.place, what, formal=False,
            within_cta=not apart and are_warps and kind != "write-write",
        )  # fmt: skip


def _bit(ctas: Array) -> Array:
    answer: Array = np.uint64(1) << (ctas % 64).astype(np.uint64)
    return answer
