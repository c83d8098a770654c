"""Where variables lie in a memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

# Where shared memory begins: hardware keeps the first KiB for itself.
SHARED_BASE = 1024


@dataclass(frozen=True, slots=True)
class Region:
    """Bytes `start` to `end` of a row that something owns."""

    name: str
    start: int
    end: int


def laid_out(sizes: Iterable[tuple[str, int, int]], start: int) -> tuple[list[Region], int]:
    """Regions for (name, size, alignment) one after the other, and where the last one ends."""
    regions, at = [], start
    for name, size, align in sizes:
        at = -(-at // align) * align
        regions.append(Region(name, at, at + size))
        at += size
    return regions, at
