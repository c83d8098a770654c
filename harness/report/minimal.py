"""The smallest input in words. Pure."""

from __future__ import annotations

from harness.judging.conditions import spell
from harness.minimize.ptx.defined import count_unwritten
from harness.minimize.reduction.words import measure_of
from harness.report.claims import Claim, ClaimKind, Ledger
from harness.report.dossier import Dossier

__all__ = ["minimal_words"]


def minimal_words(ledger: Ledger, d: Dossier, shown: str) -> str:
    """How small the file `shown` is, and what of it was checked."""
    found = d.minimized
    names = {file.name for file in d.attachments}
    assert found is not None
    size = len(found.shown_text.encode())
    claims = [Claim(kind=ClaimKind.BYTES, file=shown, expected=size)]
    if found.minimized.instructions is not None:
        sizes = (
            f"{found.original.instructions:,} instructions reduced to "
            f"{found.minimized.instructions:,} ({size:,} bytes)"
        )
        claims += [
            Claim(kind=ClaimKind.INSTRUCTIONS, file=name, expected=count.instructions)
            for name, count in (
                ("original.ptx", found.original),
                (shown, found.minimized),
            )
            if name in names
        ]
    else:
        before, after = found.original.lines, found.minimized.lines
        change = f"reduced to {after:,}" if after < before else "as they were given"
        sizes = f"{before:,} {measure_of(found)} {change} ({size:,} bytes)"
        claims += [
            Claim(kind=ClaimKind.LINES, file=f"{name}{found.suffix}", expected=lines)
            for name, lines in (("original", before), ("min", after))
            if f"{name}{found.suffix}" in names and found.level == "source"
        ]
    checked = "; nothing more can go alone" if found.is_minimal else ""
    undefined = ""
    if found.undefined[1] > found.undefined[0]:
        undefined = " It reads registers that nothing has written: compile it, do not run it."
    elif found.level == "ptx" and count_unwritten(found.text) == 0:
        undefined = " Every register is written before it is read."
        claims.append(Claim(kind=ClaimKind.UNWRITTEN, file=shown, expected=0))
    asked = found.fingerprint.condition
    kept = f"`{spell(asked)}`" if asked else "the signature of the failure"
    said = f"{sizes}; every step kept {kept}{checked}.{undefined}"
    return ledger.say(said, *claims)
