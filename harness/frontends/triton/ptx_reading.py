"""What the parent reads off a PTX beside the IR that it came from, kept by content."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.bench.bench import content_key
from harness.frontends.triton.ttir import lost_assembly, read_effects
from harness.ptx.facts import PtxError, PtxFacts, body_sha256, read_ptx

if TYPE_CHECKING:
    from harness.bench.bench import Kept, Workbench

__all__ = ["PtxReading", "read_stored_ptx", "read_texts"]

# Goes up when a reader learns something, so that stored readings are computed again.
_RULE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class PtxReading:
    """What the parent reads off one PTX, and off the IR it came from.

    `ttir_effects` counts the IR's operations that can be observed, None without IR; `has_trap`,
    `unknown_effects` and `lost_assembly` are as in `ttir`. `problem` says why the
    PTX could not be read.
    """

    facts: PtxFacts | None
    body_sha256: str
    ttir_effects: int | None = None
    has_trap: bool = False
    unknown_effects: tuple[str, ...] = ()
    lost_assembly: tuple[str, ...] = ()
    problem: str | None = None


def read_stored_ptx(
    bench: Workbench, ptx: str, ttir: str | None, entry: str | None = None
) -> Kept[PtxReading]:
    """Read a stored PTX, by sha256, beside the stored TTIR that it was made from.

    Raises:
        UnusableArtifactError: one of them is damaged and has to be made again.
    """
    key = content_key(ptx=ptx, ttir=ttir, entry=entry, rule=_RULE)
    kept = bench.find("ptx", key, PtxReading)
    if kept:
        return kept
    text = bench.store.artifacts.get(ptx).decode(errors="replace")
    source = bench.store.artifacts.get(ttir).decode(errors="replace") if ttir else None
    return bench.keep("ptx", key, read_texts(text, source, entry), {})


def read_texts(ptx: str, ttir: str | None, entry: str | None = None) -> PtxReading:
    """Read a PTX beside the TTIR that it was made from."""
    try:
        facts, problem = read_ptx(ptx, entry), None
    except PtxError as error:
        facts, problem = None, str(error)
    effects = read_effects(ttir) if ttir else None
    return PtxReading(
        facts=facts,
        body_sha256=body_sha256(ptx),
        ttir_effects=effects.count if effects else None,
        has_trap=effects.has_trap if effects else False,
        unknown_effects=effects.unknown if effects else (),
        lost_assembly=lost_assembly(ttir, ptx) if ttir else (),
        problem=problem,
    )
