"""What one assembled kernel needs of the GPU."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Needs of one kernel; None is unknown, never 0.

    Spills and `stack` are bytes per thread, called functions included (`spilling_callees` names
    those that spill), `shared` (static and dynamic together) and `static_shared` bytes per block,
    `constant` bytes, `tmem_columns` per block. `disagreements` says where two sources tell
    different numbers.
    """

    n_regs: int | None = None
    spill_stores: int | None = None
    spill_loads: int | None = None
    stack: int | None = None
    shared: int | None = None
    static_shared: int | None = None
    constant: int | None = None
    barriers: int | None = None
    tmem_columns: int | None = None
    threads: int | None = None
    spilling_callees: tuple[str, ...] = ()
    disagreements: tuple[str, ...] = ()

    @property
    def spills(self) -> int | None:
        """Spill traffic: stores and loads together, bytes per thread."""
        if self.spill_stores is None or self.spill_loads is None:
            return None
        return self.spill_stores + self.spill_loads
