"""What is read off a PTX beside Triton's IR."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.frontends.readings import Promises, PtxReading, read_stored, read_text
from harness.frontends.triton.ttir import lost_assembly, read_effects

if TYPE_CHECKING:
    from harness.frontends.bench.bench import Kept, Workbench


def _promises(ir: str, ptx: str) -> Promises:
    effects = read_effects(ir)
    return Promises(
        effects=effects.count,
        has_trap=effects.has_trap,
        unknown_effects=effects.unknown,
        lost_assembly=lost_assembly(ir, ptx),
    )


def read_stored_ptx(
    bench: Workbench, ptx: str, ir: str | None, entry: str | None = None
) -> Kept[PtxReading]:
    """As `read_stored`, beside Triton's IR."""
    return read_stored(bench, ptx, ir=ir, entry=entry, promises=_promises)


def read_texts(ptx: str, ir: str | None, entry: str | None = None) -> PtxReading:
    """Read a PTX beside the IR that it was generated from."""
    return read_text(ptx, ir, entry=entry, promises=_promises)
