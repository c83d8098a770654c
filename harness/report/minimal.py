"""The smallest input in words. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection

from harness.judging.answers import VerdictAnswer
from harness.judging.conditions import spell
from harness.minimize.ptx.defined import count_unwritten
from harness.minimize.reduction.words import measure_of
from harness.report.claims import AttachedPlace, Claim, ClaimKind, Ledger, gives
from harness.report.dossier import Dossier
from harness.report.launched import program_lines


def _numbers(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w.])\d+(?![\w.])", text))


def minimal_words(ledger: Ledger, d: Dossier, shown: str) -> str:
    """How small the file `shown` is, and what of it was checked."""
    found = d.minimized
    names = {file.name for file in d.attachments}
    assert found is not None
    size = len(found.shown_text.encode())
    undefined = ""
    claims = [Claim(kind=ClaimKind.BYTES, file=shown, expected=size)]
    if found.minimized.instructions is not None:
        before, after = found.original.instructions or 0, found.minimized.instructions
        change = f"reduced to {after:,}" if after < before else "as they were given"
        sizes = f"{before:,} instructions {change} ({size:,} bytes)"
        claims += [
            Claim(kind=ClaimKind.INSTRUCTIONS, file=name, expected=count.instructions)
            for name, count in (("original.ptx", found.original), (shown, found.minimized))
            if name in names
        ]
    else:
        before, after = found.original.lines, found.minimized.lines
        if _numbers(found.text) - _numbers(found.original_text):
            undefined = " Shapes and other numbers were reduced, too."
        change = f"reduced to {after:,}" if after < before else "as they were given"
        sizes = f"{before:,} {measure_of(found)} {change} ({size:,} bytes)"
        claims += [
            Claim(kind=ClaimKind.LINES, file=f"{name}{found.suffix}", expected=lines)
            for name, lines in (("original", before), ("min", after))
            if f"{name}{found.suffix}" in names and found.level == "source"
        ]
    checked = "; nothing more can go alone" if found.is_minimal else ""
    if found.undefined[1] > found.undefined[0]:
        undefined = " It reads registers that nothing has written: compile it, do not run it."
    elif found.level == "ptx" and count_unwritten(found.text) == 0:
        undefined = " Every register is written before it is read."
        claims.append(Claim(kind=ClaimKind.UNWRITTEN, file=shown, expected=0))
    asked = found.fingerprint.condition
    kept = f"`{spell(asked)}`" if asked else "the signature of the failure"
    held = ""
    if target := found.fingerprint.held_for:
        held = f" {d.tool} {found.ptxas} accepts it for {target}."
        place = AttachedPlace(file=shown, tool=d.tool, version=found.ptxas, target=target)
        claims += gives(place, VerdictAnswer.OK)
    said = f"{sizes}; every step kept {kept}{checked}.{held}{undefined}"
    return ledger.say(said, *claims)


def by_hand(d: Dossier, names: Collection[str], shown: str) -> str:
    """The command that ptxas gets, or the one that gives the cell with this program."""
    case = d.case
    if d.on_gpu and (lines := program_lines(d)):
        return lines
    if d.in_ptxas and shown in names and shown.endswith(".ptx"):
        package = f"{d.ptxas_package}=={case.ptxas}" if d.ptxas_package else ""
        get = [f"pip install --target wheel {package}  # brings ptxas"] if package else []
        flags = shlex.join(d.minimized.flags if d.minimized else case.ptxas_flags)
        ptxas = "$(find wheel -name ptxas)" if package else "ptxas"
        return "\n".join([*get, f"{ptxas} {flags} {shown} -o kernel.cubin"])
    if d.executed and d.minimized and d.minimized.run_command:
        says = "what it computes"
        if d.minimized.is_comparing:
            says = "how far its results are from those with num_stages=1"
        needs = f"pip install torch triton=={case.compiler_version}"
        return f"{needs}\npython {shown}  # prints {says}"
    install = d.minimized.install if d.minimized else None
    if shown in names and install and install.program:
        return "\n".join(install.lines_for(shown, case.target))
    if shown in names and shown.endswith(".py"):
        typed = install.lines if install else []
        return "\n".join([*typed, f"python {shown}"])
    return "" if "repro.sh" in names else d.shown_by
