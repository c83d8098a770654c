"""What a failure costs and what should happen instead, in sentences that know what they claim.

Pure.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping, Sequence

from harness.judging.answers import VerdictAnswer
from harness.judging.conditions import spell
from harness.minimize.ptx.reduce import count_unwritten
from harness.minimize.reduction.reduction_words import measure_of
from harness.report.claims import (
    AttachedPlace,
    Claim,
    ClaimKind,
    Ledger,
    gives,
    has_figures,
    is_seen,
)
from harness.report.dossier import Dossier, Upstream, spans, spelled_levels, tried_levels
from harness.tables.file_templates import config_label, markdown_code
from harness.values.execution import RaceFacts
from harness.values.row import Row
from harness.values.verdict import VerdictKind

_PLAIN_NAME = re.compile(r"(?!.*www\.)[\w.:-]+", re.ASCII)

REQUIRED: Mapping[Upstream, Sequence[str]] = {
    Upstream.NVIDIA: ("Versions, levels, targets", "Reproduce", "Environment", "Attachments"),
    Upstream.TRITON: (
        *("Describe the bug", "Reproduce", "Observed", "Versions", "Environment details"),
    ),
    Upstream.PROJECT: (
        *("Who is affected", "What happens", "Root cause", "Workaround", "Reproduce"),
        *("Upstream", "Environment"),
    ),
    Upstream.PYTORCH: ("🐛 Describe the bug", "Minimal repro", "Error logs", "Versions"),
}
"""Headings that a report must have, with something below them."""

_ELSE_EXECUTED = "PTX that stays within its buffers, and comes to an end with one result"
_ELSE_EXPECTED = "code, or a message that names what is wrong with the input"


def named(function: str) -> str:
    """A kernel in a title; what could be markup, a link or a mention is code there."""
    return function if _PLAIN_NAME.fullmatch(function) else markdown_code(function)


# A cubin comes out: that it compiles is not what is expected.
_IS_TOLD = (VerdictKind.TRAP_STUB, VerdictKind.OUT_OF_RESOURCES)


def escaped(reason: str) -> str:
    """A reason within a sentence of Markdown: nothing in it is markup, and it has no full stop."""
    return re.sub(r"([*<`\[]|(?<!\w)_|_(?!\w))", r"\\\1", reason.rstrip("."))


def expected_sentence(ledger: Ledger, d: Dossier) -> str:
    """What should happen instead."""
    if d.invalid:
        return ledger.say(
            f"The input is not valid PTX: {d.invalid.rstrip('.')}. Expected: that error message."
        )
    if d.is_invalid:
        return "The input is not valid PTX. Expected: an error message that says so."
    if d.in_ptxas and d.kind is not VerdictKind.SICK:
        places = [
            place
            for version in _working_sides(d)
            for place in d.places(version)
            if place.file == d.ptx_file
        ]
        if places:
            names = " and ".join(place.version for place in places)
            claims = [claim for place in places for claim in gives(place, VerdictAnswer.OK)]
            verb = "make" if len(places) > 1 else "makes"
            sentence = (
                "Expected: a cubin, or a message that names what is wrong with the input; ptxas "
                f"{names} {verb} a cubin of it."
            )
            return ledger.say(sentence, *claims)
    if d.kind is VerdictKind.SICK and (best := _best(d)):
        version, row = best
        sentence = f"Expected: what {d.tool} {version} gives: {row.reason}."
        return ledger.say(sentence, has_figures(row))
    is_told = d.kind.is_of_run or d.kind.compiles or d.kind in _IS_TOLD
    if not is_told and (sentence := _as_elsewhere(ledger, d)):
        return sentence
    otherwise = _ELSE_EXECUTED if d.kind.is_of_run else _ELSE_EXPECTED
    return f"Expected: {d.kind.facts.expected or otherwise}."


def near_words(ledger: Ledger, d: Dossier) -> str:
    """What Triton documents of `warp_specialize`, and whether the program works without it."""
    if d.minimized is None or not WARP_SPECIALIZE.search(d.minimized.shown_text):
        return ""
    words = (
        '`tl.range` (3.9.0) documents that warp specialization "is only supported on Blackwell '
        "GPUs and only works on simple matmul loops. Support for arbitrary loops will be expanded "
        'over time." A loop that it cannot do should be compiled without it, or be refused with a '
        "message."
    )
    if not d.near:
        return words
    place = AttachedPlace(file=NEAR, tool=d.tool, version=d.version, target=d.case.target)
    near = f"Without `warp_specialize=True` it compiles (`{NEAR}`)."
    return f"{words} {ledger.say(near, *gives(place, VerdictAnswer.OK))}"


def _working_sides(d: Dossier) -> list[str]:
    """The versions of ptxas that work, before it began and after it ended."""
    report = d.along_ptxas
    if report is None:
        return []
    began, ended = report.finding.regression, report.finding.fix
    sides = [began.before if began else None, ended.after if ended else None]
    return [report.version(index) for index in sides if index is not None]


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
    spilling = [(v, row) for v, row in rows if row.spill_stores is not None]
    if not spilling or now is None:
        return None
    version, row = min(spilling, key=lambda pair: pair[1].spill_stores or 0)
    return (version, row) if 2 * (row.spill_stores or 0) < now else None


def impact_sentences(ledger: Ledger, d: Dossier) -> str:
    """How much is lost, as far as compiling shows."""
    rows = d.rows
    parts = []
    if len(rows) > 1:
        compiling = [row for row in rows if row.verdict.compiles]
        number = len(d.failing)
        sentence = (
            f"{number} of the {len(rows)} configs {'fail' if number > 1 else 'fails'} this way."
        )
        spills = [row.spill_stores or 0 for row in compiling]
        if d.kind is VerdictKind.SICK:
            sentence = f"{number} of the {len(rows)} configs compile to poor code."
        elif not compiling:
            sentence += " No config compiles."
        elif max(spills):
            least, most = min(spills), max(spills)
            span = f"{most:,}" if least == most else f"{least:,} to {most:,}"
            sentence += f" Those that compile spill {span} B per thread."
        else:
            sentence += f" {len(compiling)} compile."
        parts.append(ledger.say(sentence, *map(has_figures, rows)))
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
        sentence = f"{tool} is the newest that was tried."
        return ledger.say(sentence, has_figures(d.history.rows[newest]))
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
        sentence = f"With {tool}, none of them compiles{better}: {escaped(reasons)}."
    else:
        sentence = (
            f"With {tool}, {len(works)} of these {len(d.failing)} "
            f"{'compile' if len(works) > 1 else 'compiles'}{better} and {len(fails)} "
            f"{'do' if len(fails) > 1 else 'does'} not: {escaped(reasons)}."
        )
    return ledger.say(sentence, *claims)


def ptx_ways(ledger: Ledger, d: Dossier) -> list[str]:
    """What of a file of PTX works, and what was looked for in vain; nothing of what was not."""
    if d.is_invalid:
        return []
    lines = []
    fails, works = tried_levels(d)
    labels = d.flags.labels(VerdictAnswer.OK) if d.flags else []
    helping = [*works, *(label[5:] for label in labels if label.startswith("with "))]
    if helping:
        lines.append(ledger.say(f"Works with: {', '.join(helping)}."))
    elif len(fails) > 1:
        lines.append(ledger.say(f"Every level that was tried fails: {spelled_levels(fails)}."))
    rows = d.along_ptxas.rows if d.along_ptxas else {}
    outcomes = {version: d.outcome(row) for version, row in rows.items()}
    same = spans(outcomes, VerdictAnswer.SAME)
    if same and VerdictAnswer.OK not in outcomes.values():
        number = list(outcomes.values()).count(VerdictAnswer.SAME)
        level = f" at {fails[-1]}" if works and fails else ""
        words = f"All {number} versions that take this program fail{level}: {same}."
        lines.append(ledger.say(words, *map(has_figures, rows.values())))
    return lines


def _numbers(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w.])\d+(?![\w.])", text))


def minimal_words(ledger: Ledger, d: Dossier, shown: str) -> str:
    """How small the file `shown` is, and what of it was checked."""
    reduction = d.minimized
    names = {file.name for file in d.attachments}
    assert reduction is not None
    size = len(reduction.shown_text.encode())
    undefined = ""
    claims = [Claim(kind=ClaimKind.BYTES, file=shown, expected=size)]
    if reduction.left.size.instructions is not None:
        kind, unit, files = ClaimKind.INSTRUCTIONS, "instructions", ("original.ptx", shown)
        before, after = reduction.subject.size.instructions or 0, reduction.left.size.instructions
    else:
        kind, unit = ClaimKind.LINES, measure_of(reduction)
        files = (f"original{reduction.suffix}", f"min{reduction.suffix}")
        before, after = reduction.subject.size.lines, reduction.left.size.lines
        if _numbers(reduction.left.text) - _numbers(reduction.subject.text):
            undefined = " Shapes and other numbers were reduced, too."
    sizes = f"{before:,} {unit} reduced to {after:,} ({size:,} bytes)"
    if after >= before:
        sizes = f"{after:,} {unit} ({size:,} bytes), not reduced"
    claims += [
        Claim(kind=kind, file=file, expected=count)
        for file, count in zip(files, (before, after), strict=True)
        if file in names
    ]
    checked = "; nothing more can go alone" if reduction.left.is_minimal else ""
    if d.notes and d.notes.as_given:
        checked = ""
    if reduction.left.undefined > reduction.subject.undefined:
        undefined = " It reads registers that nothing has written: compile it, do not run it."
    elif reduction.level == "ptx" and count_unwritten(reduction.left.text) == 0:
        undefined = " Every register is written before it is read."
        claims.append(Claim(kind=ClaimKind.UNWRITTEN, file=shown, expected=0))
    condition = reduction.fingerprint.condition
    followed = f"`{spell(condition)}`" if condition else "the signature of the failure"
    validity = ""
    if target := reduction.fingerprint.held_for:
        tool, version = reduction.compiler, reduction.fingerprint.bad
        validity = f" {tool} {version} accepts it for {target}."
        place = AttachedPlace(file=shown, tool=tool, version=version, target=target)
        claims += gives(place, VerdictAnswer.OK)
    elif reduction.is_unheld:
        validity = " No version and no other target that was tried accepts what it was reduced from"
        validity += "; no step added a kind of error." if reduction.fingerprint.errors else "."
        reason = "nothing that was tried accepts the original"
        claims.append(Claim(kind=ClaimKind.VALID, file=shown, reason=reason))
    steps = f"; every step kept {followed}" if after < before else ""
    sentence = f"{sizes}{steps}{checked}.{validity}{undefined}"
    return ledger.say(sentence, *claims)


def by_hand(d: Dossier, names: Collection[str], shown: str) -> str:
    """The command that ptxas gets, or the one that gives the cell with this program."""
    case = d.case
    package = f"{d.ptxas_package}=={case.ptxas}" if d.ptxas_package else ""
    ptxas = "$(find wheel -name ptxas)" if package else "ptxas"
    if d.of_cubins and PROGRAM in names:
        get = f"pip install --no-deps --target wheel {package}  # brings ptxas\n" if package else ""
        quoted = f'"{ptxas}"' if package else ptxas
        return f"{get}python3 {PROGRAM} {quoted}  # prints expected and actual values"
    if d.in_ptxas and shown in names and shown.endswith(".ptx"):
        get = f"pip install --target wheel {package}  # brings ptxas\n" if package else ""
        flags = shlex.join(d.minimized.subject.flags if d.minimized else case.ptxas_flags)
        return f"{get}{ptxas} {flags} {shown} -o kernel.cubin"
    if d.executed and d.minimized and d.minimized.left.launch:
        says = "what it computes"
        if d.minimized.left.launch.is_comparing:
            says = "how far its results are from those with num_stages=1"
        needs = f"pip install torch triton=={case.compiler_version}"
        return f"{needs}\npython {shown}  # prints {says}"
    install = d.minimized.toolchain.install if d.minimized else None
    if shown in names and install and install.program:
        return "\n".join(install.lines_for(shown, case.target))
    if shown in names and shown.endswith(".py"):
        typed = install.lines if install else []
        return "\n".join([*typed, f"python {shown}"])
    return "" if "repro.sh" in names else d.shown_by


# What executing the shown file found besides values: schedules, and accesses nothing orders.


def schedule_sentence(ledger: Ledger, d: Dossier) -> str:
    """Under which schedules it goes wrong, and what it is held to; empty where nothing was run."""
    shown = d.shown_run
    if shown is None:
        return ""
    place, row = shown
    subject = markdown_code(place.file if place else d.function)
    reference = f", held to {row.reference}" if row.reference else ""
    several = "schedules" if "," in (row.schedule or "") else "schedule"
    wrong = "; no value is affected" if row.run is VerdictKind.RACE else "; it goes wrong"
    sentence = f"What {subject} computes{reference}{wrong} under the {several} {row.schedule}"
    sentence += " (order of warps / completion of asynchronous operations)."
    return ledger.say(sentence, is_seen(place, row))


def race_lines(ledger: Ledger, d: Dossier) -> list[str]:
    """Accesses that nothing orders, those of one pair of source lines together."""
    shown = d.shown_run
    if shown is None:
        return []
    place, row = shown
    groups: dict[tuple[object, ...], list[RaceFacts]] = {}
    for race in row.counted_races:
        groups.setdefault((race.kind, race.space, race.source_lines), []).append(race)
    texts = {file.name: file.data.decode(errors="replace") for file in d.attachments}
    return [
        ledger.say(_words(group, texts if place else {}), is_seen(place, row))
        for group in groups.values()
    ]


def _words(group: list[RaceFacts], texts: Mapping[str, str]) -> str:
    race = group[0]
    places = " and ".join(
        _source(line, texts) if line else f"PTX line {number}"
        for line, number in zip(race.source_lines, race.ptx_lines, strict=True)
    )
    count = "1 pair" if len(group) == 1 else f"{len(group)} pairs"
    lead = "; the first: " if len(group) > 1 else ": "
    formal = ", in the letter of the memory model alone" if race.formal else ""
    if race.kind == "lanes" and formal:
        formal = ", by which values differ by rounding at most"
    space = race.space.removesuffix("_memory").replace("_", " ")
    kind = f"{race.kind}, {space} memory{formal}"
    return f"{kind}: {places}, {count} of instructions{lead}{race.what}."


def _source(line: str, texts: Mapping[str, str]) -> str:
    """`kernel.py:19`, with its text where that file is attached."""
    file, _, number = line.rpartition(":")
    lines = texts.get(file, "").splitlines()
    if not number.isdigit() or not 0 < int(number) <= len(lines):
        return f"`{line}`"
    return f"`{line}` ({markdown_code(lines[int(number) - 1])})"


PROGRAM, NEAR = "repro.py", "near.py"
WARP_SPECIALIZE = re.compile(r",\s*warp_specialize=True")


def launched_sentence(ledger: Ledger, d: Dossier) -> str:
    """At which levels the cubin of a program goes wrong, and what that rests on."""
    fails, works = tried_levels(d)
    at = f" at {spelled_levels(fails)}" if fails else ""
    alone = "; no cubin that was tried agrees with the emulator of PTX" if len(fails) > 1 else ""
    right = f"; at {spelled_levels(works)} it is right" if works else alone
    does = f"{d.kind.facts.launched} on {d.case.target} with {d.case.tool}"
    how = (
        f"Measured: its cubins were launched on {d.device}."
        if d.device
        else "Emulated: the SASS of its cubins was executed without a GPU."
    )
    return ledger.say(f"This program {does}{at}{right}. {how}", has_figures(d.case))


def launched_expected(ledger: Ledger, d: Dossier) -> str:
    """What the PTX must compute, and which ptxas gets it right."""
    sentence = (
        "The expected values are what an emulator of PTX computes by the rules of the PTX ISA"
    )
    report, versions = d.along_ptxas, _working_sides(d)
    places = [place for version in versions for place in d.places(version)]
    claims: list[Claim] = [claim for place in places for claim in gives(place, VerdictAnswer.OK)]
    claims += [has_figures(report.rows[version]) for version in versions] if report else []
    if versions:
        where = "on the same GPU" if d.device else "when its SASS is emulated"
        sentence += f", and what the cubin of ptxas {' and '.join(versions)} computes {where}"
    return ledger.say(f"{sentence}.", *claims)
