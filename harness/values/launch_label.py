"""Launches as cells and results name them: `NAME:OVERRIDES#NUMBER`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

# A `#` that no number follows belongs to the name or to the overrides.
_PARTS = re.compile(r"([^:]*?)(?::(.*?))?(?:#([0-9]{1,9}))?", re.DOTALL)
# A value may hold commas: what follows the next one is `name=`.
_NEXT_OVERRIDE = re.compile(r",(?=\w+=)")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchLabel:
    """One launch of a kernel: `default:chunk_size=32,headdim=64#2`.

    `name` is that of the function, `overrides` are its changed parameters (`chunk_size=32`), and
    `number` counts the launches of one kernel with one config, from 1.
    """

    name: str
    overrides: tuple[str, ...] = ()
    number: int = 1

    def __str__(self) -> str:
        return f"{self.call}#{self.number}" if self.number > 1 else self.call

    @property
    def call(self) -> str:
        """The label of the call, which may launch the kernel several times."""
        return ":".join([self.name, *([",".join(self.overrides)] if self.overrides else [])])

    @classmethod
    def parse(cls, text: str) -> LaunchLabel:
        """What a stored result's label says; any text is some label."""
        return _parse(text)


@lru_cache(maxsize=4096)
def _parse(text: str) -> LaunchLabel:
    name, overrides, number = _PARTS.fullmatch(text).groups()  # type: ignore[union-attr]
    words = _NEXT_OVERRIDE.split(overrides) if overrides else ()
    return LaunchLabel(name=name, overrides=tuple(words), number=int(number or 1))
