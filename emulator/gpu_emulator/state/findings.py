"""What a race check has found: pairs of places, each once."""

from __future__ import annotations

from gpu_emulator.values import Place, Race, RaceKind, RaceSpace

_MOST_EXAMPLES = 200


class Unordered(Exception):  # noqa: N818 - what the program did, not what went wrong here
    """Two accesses that nothing orders, where the first of them is to end the run."""


class Races:
    """Pairs of accesses that nothing orders, each pair of lines once, as it was first seen.

    `ends`: the first pair that may have effect raises `Unordered`.
    """

    def __init__(self, *, ends: bool = False) -> None:
        self.ends = ends
        self._found: dict[tuple[frozenset[Place], bool, bool], Race] = {}
        self._places: list[Place] = []
        self._numbers: dict[Place, int] = {}

    def doubt(self, what: str) -> None:
        """What may depend on the order of warps, and is not a race."""
        if self.ends:
            raise Unordered(what)

    def number(self, place: Place) -> int:
        """The number of a place, one that fits into an array."""
        found = self._numbers.setdefault(place, len(self._places))
        if found == len(self._places):
            self._places.append(place)
        return found

    def place(self, number: int) -> Place:
        """The place of a number."""
        return self._places[number]

    def add(
        self, kind: RaceKind, space: RaceSpace, first: Place, second: Place, what: str,
        *, formal: bool, within_cta: bool = False,
    ) -> None:  # fmt: skip
        """Remember a pair."""
        if not formal and kind != "lanes":
            # Lanes of one instruction write together in each order of warps.
            self.doubt(what)
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
