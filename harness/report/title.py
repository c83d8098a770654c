"""The title of a report: class, construct, condition, versions. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from harness.bisect.bisect_words import BisectReport
from harness.bisect.search import Boundary
from harness.judging.answers import VerdictAnswer
from harness.report.claims import Claim, ClaimKind, Ledger, gives, has_figures
from harness.report.dossier import Dossier, Upstream, spans, spelled_levels, tried_levels
from harness.report.paragraphs import WARP_SPECIALIZE, escaped, named
from harness.values.outcome import signal_name
from harness.values.verdict import VerdictKind

_MOST = 3
_LONGEST = 90
# What moves values and ends a kernel says nothing of what goes wrong.
_PLAIN_PTX = re.compile(r"(ld|ldu|st|mov|ret|exit|cvta|bra|mad\.wide|mul\.wide)\b")
_TESTS = re.compile(r"(setp|selp|ld\.param|mov|ret)\b")
_PLAIN_CALLS = frozenset(
    {"load", "store", "arange", "program_id", "num_programs", "zeros", "full", "cdiv", "constexpr"}
    | {"range", "pointer_type", "debug_barrier", "jit", "prim_func", "Kernel", "Tensor", "int32"}
)
_CALL = re.compile(r"\b((?:tl|gl|ttgl|T|ct|cute)\.([A-Za-z_]\w*))\(")
_LEAVES = re.compile(r"(?m)^ +if .*:\n +return$")
_PASS = re.compile(r"pass (\S+) (crash|fail)ed")
_INSTRUCTION = re.compile(r"(?m)^\s*(@!?[\w$%]+\s+)?([a-z]\w*(?:\.[\w:]+)*)(?:\s+[^:\s]|;)")


def constructs(d: Dossier) -> list[str]:
    """What the smallest input uses beyond loads, stores and moves; at most three, in its order.

    Of PTX its instructions, of a kernel's source the functions of its language.
    """
    if d.minimized is None:
        return []
    text = d.minimized.left.text
    if d.minimized.suffix == ".ptx":
        body = text.partition("{")[2]
        found = [(not guard, op) for guard, op in _INSTRUCTION.findall(body)]
        # A guard is part of what goes wrong; where nothing else is left, a load or a store.
        found = [pair for pair in found if not _TESTS.match(pair[1])] or found
        found = [pair for pair in found if not _PLAIN_PTX.match(pair[1])] or found
        every = sorted(found, key=lambda pair: pair[0])
        chosen = [named(op) if is_free else f"guarded {named(op)}" for is_free, op in every]
    else:
        calls = [pair for pair in _CALL.findall(text) if pair[1] not in _PLAIN_CALLS]
        # A descriptor matters where what is done with its tiles does.
        calls.sort(key=lambda pair: pair[1].endswith("descriptor"))
        chosen = ["an early return"] if _LEAVES.search(text) else []
        chosen += [named(call) for call, _ in calls]
    return list(dict.fromkeys(chosen))[:_MOST]


def _used(d: Dossier) -> str:
    """What people say of it, or these; of a program that uses none of them, its name."""
    if d.notes and d.notes.construct:
        return d.notes.construct
    uses = ", ".join(constructs(d)) or named(d.ptx_file if d.is_ptx and d.minimized else d.function)
    specialized = d.minimized and WARP_SPECIALIZE.search(d.minimized.left.text)
    return f"{uses} in a warp-specialized loop" if specialized else uses


def title_of(ledger: Ledger, d: Dossier, upstream: Upstream, compilers: str, message: str) -> str:
    """Class, construct, condition, versions; `message` is the failure in its own words."""
    rows = [has_figures(row) for row in d.rows]
    if upstream is Upstream.PROJECT and d.kind is not VerdictKind.SICK:
        broken = sum(not row.verdict.compiles for row in d.rows)
        return ledger.say(
            f"{named(d.function)} on {d.case.target}: {broken} of {len(d.rows)} configs do "
            f"not work with {compilers}",
            *rows,
        )
    targets = {
        point.label: d.outcome(point.row)
        for point in (d.targets.points if d.targets else ())
        if point.row and not point.row.verdict.tells_nothing
    }
    is_alike = targets.get(d.case.target) is VerdictAnswer.SAME
    fails = [name for name, outcome in targets.items() if outcome is VerdictAnswer.SAME]
    # Of those that are executed, few are tried: a span would claim the others.
    alike = ", ".join(fails) if d.of_cubins else spans(targets, VerdictAnswer.SAME)
    on = alike if is_alike else d.case.target
    versions = list(_versions(ledger, d)) or [d.version]
    where = f" ({', '.join([on, f'{d.tool} {versions[0]}', *versions[1:]])})"
    if d.kind is VerdictKind.SICK:
        words = f"Poor code: {named(d.function)} {escaped(message)}"
        if d.condition:
            words = f"{compilers}: {named(d.function)} {d.kind.facts.observed}: {escaped(message)}"
        return ledger.say(f"{words}{where}", *rows)
    of_ptxas = d.in_ptxas or d.of_cubins
    uses = _used(d)
    if of_ptxas and not d.condition:
        fails, works = tried_levels(d)
        every = ", every -O level" if len(fails) > 1 else ""
        levels = f", {spelled_levels(fails)}" if fails and works else every
        return f"{_class(d, message)}{levels}: {uses}{where}"
    if d.condition:
        return f"{named(d.function)} {d.kind.facts.observed}: {escaped(message)}{where}"
    if found := _PASS.match(d.reason):
        # Which pass it is, and how it ends, decides who reads on.
        ends = "Crash" if found[2] == "crash" else "Failure"
        return f"{ends} in {named(found[1])}: {uses}{where}"
    if d.kind.is_of_run and constructs(d):
        return f"{d.kind.value.replace('_', ' ').capitalize()}: {uses}{where}"
    return f"{named(d.function)} {d.kind.facts.observed}{where}"


def _class(d: Dossier, message: str) -> str:
    """What kind of bug it is, in as many words as a list of issues has room for."""
    if d.of_cubins:
        return (
            "Wrong code" if d.kind is VerdictKind.WRONG_RESULT else escaped(d.kind.facts.launched)
        )
    where = " on invalid input" if d.is_invalid else ""
    if d.case.code:
        return f"ICE{where} ({d.case.code})" if d.followed.is_crash else d.case.code
    if d.case.signal is not None:
        return f"{signal_name(d.case.signal)}{where}"
    return escaped(message.removeprefix(f"{d.tool} ").removesuffix(", saying nothing")[:_LONGEST])


def _versions(ledger: Ledger, d: Dossier) -> Iterator[str]:
    """Where it began and ended, where that holds for every config that fails alike."""
    report = d.history
    if report is None:
        return
    began, ended = report.finding.regression, report.finding.fix
    newest = d.newest
    fails = [v for v, row in report.rows.items() if d.outcome(row) is VerdictAnswer.SAME]
    if began and began.exact and _all_work(d, report.version(began.before)):
        yield ledger.say(f"since {report.version(began.after)}", *at_boundary(d, report, began))
    elif fails and len(d.rows) == 1:
        span = fails[0] if len(fails) == 1 else f"{fails[0]} - {fails[-1]}"
        yield ledger.say(span, *(has_figures(report.rows[v]) for v in fails))
    if ended and ended.exact:
        fixed = report.version(ended.after)
        if _all_work(d, fixed) and (newest is None or _all_work(d, newest)):
            yield ledger.say(f"fixed in {fixed}", *at_boundary(d, report, ended))
        elif newest and (split := d.lifted(newest)) and split[1]:
            yield f"{len(split[1])} of {len(d.failing)} failing configs still fail in {newest}"
    vanishes = report.finding.vanishes if ended is None else None
    if vanishes and vanishes.exact and report.is_clean_end(vanishes.after):
        row = report.row(vanishes.after)
        is_refused = row is not None and row.verdict is VerdictKind.REJECTED
        does = "rejected with a message" if is_refused else "another failure"
        words = f"{does} from {report.version(vanishes.after)} on"
        yield ledger.say(words, *at_boundary(d, report, vanishes))


def _all_work(d: Dossier, version: str) -> bool:
    if len(d.rows) == 1:
        return True  # the history is that of the one there is
    split = d.lifted(version)
    return split is not None and not split[1]


def at_boundary(d: Dossier, report: BisectReport, boundary: Boundary) -> list[Claim]:
    """What the two sides of a boundary claim of the attached files, and of every config."""
    claims: list[Claim] = []
    for index in (boundary.before, boundary.after):
        version = report.version(index)
        row = report.rows.get(version)
        claims += [has_figures(row)] if row else []
        claims += [has_figures(neighbour) for neighbour in d.elsewhere.get(version, ())]
        for place in d.places(version):
            if row:
                claims += gives(place, d.outcome(row))
    bound = [replace(claim, is_bound=True) for claim in dict.fromkeys(claims)]
    return bound or [Claim(kind=ClaimKind.TEXT)]
