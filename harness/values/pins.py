"""What is known of the pair of Triton and ptxas that a project pins."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class KnownBug(msgspec.Struct, frozen=True, kw_only=True):
    """A failure by its signature: how many cells of the pair have it, of which kernels."""

    signature: str
    number: int | None
    reason: str
    cells: int
    kernels: tuple[str, ...]


class PairKnowledge(msgspec.Struct, frozen=True, kw_only=True):
    """A Triton with its ptxas on a target, as far as it is known.

    `lost` has, for each kernel and launch that loses configs, those that work and all. `safe` is
    the pair to go to, and `safe_cells` how many of the pair's cells are known of it.
    """

    triton: str
    ptxas: str | None
    target: str
    cells: int = 0
    working: int = 0
    lost: Mapping[str, tuple[int, int]] = {}
    bugs: tuple[KnownBug, ...] = ()
    safe: tuple[str, str] | None = None
    safe_cells: int = 0
