"""Programs, each from a seed: generated ones, and changes of real ones. Pure.

A change is a list of steps. These are drawn from the source as it was and do not depend on each
other, so the list can be shortened.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

_MOST_STEPS = 10


@dataclass(frozen=True, slots=True)
class Program:
    """What a source makes of a seed; `opcodes` is what it is made of."""

    seed: int
    text: str
    opcodes: Collection[str]


class Source(Protocol):
    """A text that can be changed; `opcodes` is what it is made of."""

    @property
    def opcodes(self) -> Collection[str]: ...

    def changed(self, steps: Sequence[int]) -> str:
        """The text with these steps; of two at one place the last counts."""


S = TypeVar("S", bound=Source)


@dataclass(frozen=True, slots=True)
class ChangedProgram(Generic[S]):
    """A source with steps, from a seed."""

    seed: int
    source: S
    steps: tuple[int, ...]

    @classmethod
    def drawn(cls, seed: int, source: S, draw: random.Random) -> ChangedProgram[S]:
        """Few steps most often: each may be what the compiler refuses."""
        count = 1 + int(_MOST_STEPS * draw.random() ** 3)
        return cls(seed, source, tuple(draw.getrandbits(32) for _ in range(count)))

    @property
    def text(self) -> str:
        """What the compiler gets."""
        return self.source.changed(self.steps)

    @property
    def opcodes(self) -> Collection[str]:
        """Those of its source."""
        return self.source.opcodes

    async def with_fewer_steps(self, is_same: Callable[[str], Awaitable[bool]]) -> str:
        """The text without the steps that it does not need to be the same, each tried alone."""
        steps = self.steps
        for step in self.steps:
            fewer = tuple(one for one in steps if one != step)
            if await is_same(self.source.changed(fewer)):
                steps = fewer
        return self.source.changed(steps)


AnyProgram = Program | ChangedProgram[Any]
