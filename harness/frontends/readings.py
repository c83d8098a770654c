"""What is read off a PTX, and off the IR that it came from, kept by content."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec import structs

from gpu_emulator.ptx.text.facts import PtxError, PtxFacts, body_sha256, read_ptx
from harness.frontends.bench import Kept, Workbench, content_key

# Goes up when a reader learns something, so that stored readings are computed again.
_RULE = 6


class PtxReading(msgspec.Struct, frozen=True, kw_only=True):
    """What the parent reads off one program, and what the IR it came from says that it does.

    `effects` counts the operations that can be observed from outside; None where there is no IR.
    `has_trap`: it holds a trap of its own. `unknown_effects` name operations that may have an
    effect, for all that is known; `lost_assembly` is inline assembly that is not in the PTX.
    `problem` says why the program could not be read. Of one that is not PTX there are no `facts`;
    `kernel` is then the kernel's name in it, and `body_sha256` hashes all of it that counts.
    """

    effects: int | None = msgspec.field(default=None, name="ttir_effects")
    has_trap: bool = False
    unknown_effects: tuple[str, ...] = ()
    lost_assembly: tuple[str, ...] = ()
    facts: PtxFacts | None = None
    body_sha256: str = ""
    problem: str | None = None
    kernel: str | None = None


ReadPromises = Callable[[str, str], PtxReading]
"""What is known of a program by the text of its IR, and by that of the PTX."""


def read_stored(
    bench: Workbench,
    ptx: str,
    *,
    ir: str | None = None,
    entry: str | None = None,
    promises: ReadPromises | None = None,
) -> Kept[PtxReading]:
    """Read a stored PTX, by sha256, beside the stored IR that it was generated from.

    Raises:
        UnusableArtifactError: one of them is damaged and has to be generated again.
    """
    key = content_key(ptx=ptx, ttir=ir, entry=entry, rule=_RULE)
    if stored := bench.find("ptx", key, PtxReading):
        return stored
    text = bench.store.artifacts.get(ptx).decode(errors="replace")
    source = bench.store.artifacts.get(ir).decode(errors="replace") if ir else None
    reading = read_text(text, source, entry=entry, promises=promises)
    return bench.keep("ptx", key, reading, {})


def read_text(
    ptx: str,
    ir: str | None = None,
    *,
    entry: str | None = None,
    promises: ReadPromises | None = None,
) -> PtxReading:
    """Read a PTX beside the IR that it was generated from."""
    try:
        facts, problem = read_ptx(ptx, entry), None
    except PtxError as error:
        facts, problem = None, str(error)
    promised = promises(ir, ptx) if ir and promises else PtxReading()
    return structs.replace(promised, facts=facts, body_sha256=body_sha256(ptx), problem=problem)
