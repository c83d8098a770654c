"""What a failure costs and what should happen instead, in sentences that know what they claim.

Pure.
"""

from __future__ import annotations

import re

from harness.judging.answers import VerdictAnswer
from harness.report.claims import Ledger, gives, has_figures
from harness.report.collapse import expected_of_collapse
from harness.report.dossier import Dossier
from harness.report.forms import expected_words
from harness.tables.templates import config_label, markdown_code
from harness.values.row import Row
from harness.values.verdict import VerdictKind

# A cubin comes out: that it compiles is not what is expected.
_IS_TOLD = (VerdictKind.TRAP_STUB, VerdictKind.OUT_OF_RESOURCES)


def escaped(reason: str) -> str:
    """A reason within a sentence of Markdown: nothing in it is markup, and it has no full stop."""
    return re.sub(r"([*<`\[]|(?<!\w)_|_(?!\w))", r"\\\1", reason.rstrip("."))


def _singular(said: str, number: int) -> str:
    return said if number > 1 else said.replace(" produce ", " produces ")


def expected_sentence(ledger: Ledger, d: Dossier) -> str:
    """What should happen instead."""
    if said := expected_of_collapse(ledger, d):
        return said
    report = d.along_ptxas
    if d.in_ptxas and report and d.kind is not VerdictKind.SICK:
        sides = [report.finding.regression, report.finding.fix]
        versions = [
            report.version(bound.before if bound is sides[0] else bound.after)
            for bound in sides
            if bound
        ]
        places = [
            place
            for version in versions
            for place in d.places(version)
            if place.file == "original.ptx"
        ]
        if places:
            names = " and ".join(place.version for place in places)
            claims = [claim for place in places for claim in gives(place, VerdictAnswer.OK)]
            said = f"Expected: a cubin, as ptxas {names} produce from `original.ptx`."
            return ledger.say(_singular(said, len(places)), *claims)
    if d.kind is VerdictKind.SICK and (best := _best(d)):
        version, row = best
        said = f"Expected: what {d.tool} {version} gives: {row.reason}."
        return ledger.say(said, has_figures(row))
    is_told = d.kind.is_of_run or d.kind.compiles or d.kind in _IS_TOLD
    if not is_told and (said := _as_elsewhere(ledger, d)):
        return said
    return expected_words(d.kind)


def _as_elsewhere(ledger: Ledger, d: Dossier) -> str:
    """What the nearest version of the compiler that works gives; empty where none is known."""
    report = d.history
    ended = report.finding.fix or report.finding.regression if report else None
    if report is None or ended is None:
        return ""
    version = report.version(ended.after if report.finding.fix else ended.before)
    row = report.rows.get(version)
    if row is None or d.outcome(row) is not VerdictAnswer.OK:
        return ""
    claims = [has_figures(row)]
    for place in d.places(version):
        claims += gives(place, VerdictAnswer.OK)
    return ledger.say(f"Expected: that it compiles, as with {d.tool} {version}.", *claims)


def _best(d: Dossier) -> tuple[str, Row] | None:
    """The version whose code spills least, if less than half of what is reported."""
    report, now = d.history, d.case.spill_stores
    rows = report.rows.items() if report else ()
    known = [(v, row) for v, row in rows if row.spill_stores is not None]
    if not known or now is None:
        return None
    version, row = min(known, key=lambda each: each[1].spill_stores or 0)
    return (version, row) if 2 * (row.spill_stores or 0) < now else None


def impact_sentences(ledger: Ledger, d: Dossier) -> str:
    """How much is lost, as far as compiling shows."""
    rows = d.rows
    parts = []
    if len(rows) > 1:
        compiling = [row for row in rows if VerdictKind(row.verdict).compiles]
        number = len(d.failing)
        said = f"{number} of the {len(rows)} configs {'fail' if number > 1 else 'fails'} this way."
        spills = [row.spill_stores or 0 for row in compiling]
        if d.kind is VerdictKind.SICK:
            said = f"{number} of the {len(rows)} configs compile to poor code."
        elif not compiling:
            said += " No config compiles."
        elif max(spills):
            least, most = min(spills), max(spills)
            span = f"{most:,}" if least == most else f"{least:,} to {most:,}"
            said += f" Those that compile spill {span} B per thread."
        else:
            said += f" {len(compiling)} compile."
        parts.append(ledger.say(said, *map(has_figures, rows)))
    if newest := _newest(ledger, d):
        parts.append(newest)
    return " ".join(parts)


def _newest(ledger: Ledger, d: Dossier) -> str:
    """What the newest version does, with every config that fails and not only this one."""
    newest = d.newest
    if newest is None or d.history is None:
        return ""
    tool, is_poor = f"{d.tool} {newest}", d.followed.condition is not None
    if newest == d.version:
        said = f"{tool} is the newest that was tried."
        return ledger.say(said, has_figures(d.history.rows[newest]))
    tool += ", the newest that was tried"
    if len(d.rows) == 1 or d.lifted(newest) is None:
        row = d.history.rows[newest]
        words = {VerdictAnswer.OK: "compiles it", VerdictAnswer.SAME: "fails in the same way"}
        if d.executed:
            words[VerdictAnswer.OK] = "is right"
        if is_poor:
            words = {
                VerdictAnswer.OK: "compiles it to better code",
                VerdictAnswer.SAME: "is no better",
            }
        does = words.get(d.outcome(row), f"ends with {row.verdict}")
        here = "" if len(d.rows) == 1 else f" (config {markdown_code(config_label(d.case))})"
        return ledger.say(f"{tool}, {does}{here}.", has_figures(row))
    works, fails = d.lifted(newest) or ([], [])
    claims = [has_figures(row) for row in (*works, *fails)]
    better = " to better code" if is_poor else ""
    if not fails:
        does = f"all {len(works)} compile" if len(works) > 1 else "it compiles"
        return ledger.say(f"With {tool}, {does}{better}.", *claims)
    reasons = "; ".join(dict.fromkeys(row.reason for row in fails[:3]))
    if not works:
        said = f"With {tool}, none of them compiles{better}: {escaped(reasons)}."
    else:
        said = (
            f"With {tool}, {len(works)} of these {len(d.failing)} "
            f"{'compile' if len(works) > 1 else 'compiles'}{better} and {len(fails)} "
            f"{'do' if len(fails) > 1 else 'does'} not: {escaped(reasons)}."
        )
    return ledger.say(said, *claims)


def ptx_ways(ledger: Ledger, d: Dossier) -> list[str]:
    """What a user of PTX can change, as far as it was tried."""
    labels = d.flags.labels(VerdictAnswer.OK) if d.flags else []
    works = [label.removeprefix("with ") for label in labels]
    lines = [f"These flags of ptxas {d.case.ptxas} work: {', '.join(works)}."] if works else []
    rows = d.along_ptxas.rows if d.along_ptxas else {}
    good = [version for version, row in rows.items() if d.outcome(row) is VerdictAnswer.OK]
    if good:
        lines.append(f"These {d.tool} work: {', '.join(good)}.")
    return [ledger.say(line) for line in lines]
