"""What a report says of cubins that were launched on a GPU. Pure."""

from __future__ import annotations

from harness.judging.answers import VerdictAnswer
from harness.report.claims import Claim, Ledger, gives, has_figures
from harness.report.dossier import Dossier
from harness.values.verdict import VerdictKind

PROGRAM = "repro.py"

_WORDS = {
    VerdictKind.WRONG_RESULT: "assembles to a cubin that computes a wrong result",
    VerdictKind.NONDETERMINISTIC: "assembles to a cubin whose result differs from run to run",
    VerdictKind.MEMORY_FAULT: "assembles to a cubin that accesses memory out of bounds",
    VerdictKind.HANG: "assembles to a cubin that never comes to its end",
    VerdictKind.LAUNCH_FAILED: "assembles to a cubin that cannot be launched, or traps",
}


def launched_words(kind: VerdictKind) -> str:
    """What the PTX does, as the end of a sentence."""
    return _WORDS.get(kind, f"assembles to a cubin that is {kind.value}")


def launched_expected(ledger: Ledger, d: Dossier) -> str:
    """What the PTX must compute, and which ptxas gets it right."""
    said = "Expected: what the PTX computes under the PTX ISA's rules, as an emulator executes it"
    report = d.along_ptxas
    finding = report.finding if report else None
    sides = [finding.regression, finding.fix] if finding else []
    versions = [
        report.version(bound.before if bound is sides[0] else bound.after)
        for bound in sides
        if bound and report
    ]
    places = [place for version in versions for place in d.places(version)]
    claims: list[Claim] = [one for place in places for one in gives(place, VerdictAnswer.OK)]
    claims += [has_figures(report.rows[version]) for version in versions] if report else []
    if versions:
        said += f", and as the cubin of ptxas {' and '.join(versions)} does on the same GPU"
    return ledger.say(f"{said}.", *claims)


def level_words(ledger: Ledger, d: Dossier) -> str:
    """At which optimisation levels it goes wrong, as blame found it."""
    reasons = d.blame.reasons if d.blame else ()
    found = [each for each in reasons if "optimisation level" in each or "at each level" in each]
    return ledger.say(found[0]) if found else "Not known: the levels were not tried one by one."


def program_lines(d: Dossier) -> str:
    """The commands that show it with Python, ptxas and a driver alone; empty without a program."""
    if not any(file.name == PROGRAM for file in d.attachments):
        return ""
    package = f"{d.ptxas_package}=={d.case.ptxas}" if d.ptxas_package else ""
    get = [f"pip install --no-deps --target wheel {package}  # brings ptxas"] if package else []
    ptxas = '"$(find wheel -name ptxas)"' if package else "ptxas"
    return "\n".join([*get, f"python3 {PROGRAM} {ptxas}  # prints expected and actual values"])
