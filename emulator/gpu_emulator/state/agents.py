"""Who accesses memory, as the race check tells them apart: warps, and engines that work for them.

Each has a number. The first are in the generic proxy: the warps themselves and the `cp.async` of
each; then come, of each warp, its `wgmma`, its bulk stores (reading their source, and becoming
visible), its loads and stores of tensor memory; last bulk loads by their mbarrier, and `tcgen05`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

LOADS = 8
"""So many mbarriers of bulk loads are distinguished."""

NO_AGENT = 255
_KINDS = {
    "": "", "cp.async": "cp.async of ", "wgmma": "wgmma of ", "bulk.read": "a bulk store of ",
    "bulk.seen": "a bulk store of ", "tcgen05.ld": "tcgen05.ld of ", "tcgen05.st": "tcgen05.st of ",
}  # fmt: skip
BY_WARP = {kind: number for number, kind in enumerate(_KINDS) if kind}
"""What a warp has an agent of its own for, by its place among the kinds."""


@dataclass(frozen=True, slots=True)
class Agents:
    """The agents of CTAs with so many warps."""

    warps: int
    names: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        names = [f"{kind}warp {w}" for kind in _KINDS.values() for w in range(self.warps)]
        names += ["a bulk load"] * LOADS + ["tcgen05"]
        object.__setattr__(self, "names", tuple(names))

    @property
    def count(self) -> int:
        """How many there are."""
        return len(_KINDS) * self.warps + LOADS + 1

    @property
    def generic(self) -> int:
        """The number of those in the generic proxy, which come first."""
        return 2 * self.warps

    @property
    def tcgen05(self) -> int:
        """The last one."""
        return self.count - 1

    def load(self, number: int) -> int:
        """That of bulk loads which signal one mbarrier."""
        return len(_KINDS) * self.warps + number % LOADS

    def of_warp(self, kind: str, warp: int) -> int:
        """An engine of a warp."""
        return BY_WARP[kind] * self.warps + warp

    def _all_of(self, *kinds: str) -> list[int]:
        places = [BY_WARP.get(kind, 0) for kind in kinds]
        return [place * self.warps + warp for place in places for warp in range(self.warps)]

    @property
    def in_shared(self) -> list[int]:
        """Those that access shared memory."""
        loads = [self.load(number) for number in range(LOADS)]
        return [*self._all_of("", "cp.async", "wgmma", "bulk.read"), *loads, self.tcgen05]

    @property
    def in_global(self) -> list[int]:
        """Those that access global memory."""
        loads = [self.load(number) for number in range(LOADS)]
        return [*self._all_of("", "cp.async", "bulk.seen"), *loads]

    @property
    def in_tensor_memory(self) -> list[int]:
        """Those that access tensor memory."""
        return [*self._all_of("tcgen05.ld", "tcgen05.st"), self.tcgen05]
