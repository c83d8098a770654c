"""The level of PTX: what holds the failure in place, the reduction, and the report."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

from harness.bisect.search import Tally, runs_to_trust
from harness.frontends.bench.once import script_words
from harness.io.processes.hub import ResourceLimits
from harness.minimize.ptx.references import (
    accepting_target,
    look_around,
    oracle_limits,
    same_from_index,
)
from harness.minimize.ptx.report import ptx_report
from harness.minimize.ptx.work import PtxDriver, PtxWork, size_of
from harness.minimize.reduction.fingerprint import Fingerprint, guards_of
from harness.minimize.reduction.interest import AtHand, Interest
from harness.minimize.reduction.oracles import PtxOracle
from harness.minimize.reduction.result import Ending, Minimization, Uninteresting
from harness.minimize.reduction.work import STARTED_OVER, HeldReduction, Reducing
from harness.values.row import Row
from harness.values.toolchain import Assembler
from harness.values.verdict import VerdictKind

# How often the original is run to see whether it always fails.
_TRIALS = 3
# How many times the limit of a candidate the result of a hang is given in the end.
_LONGER = 10.0


async def minimize_ptx(reducing: Reducing) -> Minimization | Uninteresting:
    """Find the fingerprint of the subject's PTX, reduce, and report.

    Raises:
        UsageError: the folder is taken.
        TriageError: the machine failed before the reduction began.
    """
    row, text = reducing.subject.row, reducing.subject.text
    assert text is not None, "the subject was chosen at ptxas"
    folder = reducing.folder(".ptx")
    how, options = reducing.how, reducing.options
    oracle = PtxOracle(
        reducing.bench.hub, reducing.subject.question, jobs=how.workers, limits=how.limits
    )
    ptxas = reducing.subject.cell.ptxas
    if row.verdict != VerdictKind.TIMEOUT.value:
        ptxas = await same_from_index(oracle, text, ptxas)
    interest, at_hand = await _interest(reducing, oracle, text, ptxas)
    if interest.predicate and not await interest.holds(text):
        return Uninteresting(reason=f"--script {options.script!r} does not end with 0")
    if not interest.predicate and not interest.fingerprint.shows(at_hand.reactions[ptxas.version]):
        return _not_in_ptx(row, at_hand, ptxas)
    folder = folder.open(text, resume=options.resume)
    best, notes = at_hand.text, list(at_hand.notes)
    if folder.begun not in (None, best, text):
        if await interest.holds(folder.begun or ""):
            best = folder.begun or best
        else:
            notes.append(STARTED_OVER)
    work = reducing.work(folder, best, size_of)
    work.notes += notes
    folder.keep(best)
    driver = PtxDriver(is_defined=options.is_defined)
    held = HeldReduction(name="ptxas", work=work, interest=interest, at_hand=at_hand, driver=driver)
    under_way = PtxWork(
        held=held, oracle=oracle, is_defined=options.is_defined, said=_said_by(interest)
    )
    is_done = reducing.begin(
        work,
        "ptx",
        interest.fingerprint,
        flags=oracle.question.flags,
        is_defined=options.is_defined,
    )
    await under_way.run(is_done=is_done)
    if work.ending in (Ending.FINISHED, Ending.BUDGET):
        with contextlib.suppress(asyncio.CancelledError):
            await _look_longer(under_way, oracle, ptxas, how.limits)
    work.finish(is_minimal=under_way.is_minimal)
    return ptx_report(
        reducing, under_way, ptxas, text, flags=oracle.question.flags, limit=oracle.limits.timeout
    )


async def _interest(
    reducing: Reducing, oracle: PtxOracle, text: str, ptxas: Assembler
) -> tuple[Interest[Assembler], AtHand[Assembler]]:
    """What a candidate has to show; and what every installed version does with the original."""
    condition, script = reducing.subject.condition, reducing.options.script
    is_failure = condition is None and script is None
    fingerprint = Fingerprint(
        bad=ptxas.version,
        signature=reducing.subject.row.signature if is_failure else None,
        condition=condition,
        script=script,
    )
    if script is not None:
        words = script_words(script)
        alone: Interest[Assembler] = Interest(
            oracle=oracle,
            fingerprint=fingerprint,
            tools={},
            predicate=lambda text: oracle.satisfies(text, words, name="min.ptx"),
        )
        return alone, AtHand(text=text)
    if is_failure and reducing.subject.row.verdict != VerdictKind.TIMEOUT.value:
        await _fewest_flags(oracle, text, ptxas, fingerprint)
    at_hand = await look_around(oracle, text, ptxas, fingerprint, reducing.watch.stage)
    tally = await _try_again(oracle, ptxas, fingerprint, at_hand)
    fingerprint = fingerprint.with_errors_of(at_hand.reactions.values())
    answers = at_hand.answers(fingerprint)
    fingerprint = fingerprint.with_guards(answers, guards_of(answers, ptxas.version))
    oracle.limits = oracle_limits(oracle.limits, at_hand.reactions, ptxas.version)
    is_refusal = at_hand.reactions[ptxas.version].verdict is VerdictKind.PTXAS_ERROR
    target = None
    if is_failure and is_refusal and not fingerprint.accepting:
        target = await accepting_target(oracle, at_hand, ptxas)
        fingerprint = replace(fingerprint, held_for=str(target) if target else None)
    interest = Interest(
        oracle=oracle,
        fingerprint=fingerprint,
        tools=at_hand.tools,
        tries=runs_to_trust(tally) if tally.is_flaky else 1,
        is_accepted=partial(oracle.accepts_for, tool=ptxas, target=target) if target else None,
    )
    if tally.is_flaky:
        at_hand.notes.append(
            f"it fails only now and then ({tally.failures} of {tally.runs} runs): "
            f"a candidate is run up to {interest.tries} times"
        )
    return interest, at_hand


async def _fewest_flags(
    oracle: PtxOracle, text: str, ptxas: Assembler, fingerprint: Fingerprint
) -> None:
    """Leave out each flag without which it still fails; what it reports and the target stay."""
    for flag in oracle.question.flags:
        if flag == "-v" or flag.startswith("--gpu-name"):
            continue
        asked = oracle.question
        fewer = tuple(each for each in asked.flags if each != flag)
        oracle.question = replace(asked, flags=fewer)
        if not fingerprint.shows(await oracle.react(text, ptxas)):
            oracle.question = asked


async def _try_again(
    oracle: PtxOracle, ptxas: Assembler, fingerprint: Fingerprint, at_hand: AtHand[Assembler]
) -> Tally:
    """How often the original shows it; one that hangs is not run again only to see it hang."""
    first = at_hand.reactions[ptxas.version]
    tally = Tally(failures=int(fingerprint.shows(first)), runs=1)
    if first.verdict is VerdictKind.TIMEOUT:
        return tally
    for _ in range(_TRIALS - 1):
        again = await oracle.react(at_hand.text, ptxas)
        shows = fingerprint.shows(again)
        tally += Tally(failures=int(shows), runs=1)
        if shows:
            at_hand.reactions[ptxas.version] = again
    return tally


def _said_by(interest: Interest[Assembler]) -> Callable[[str], Awaitable[tuple[bool, str]]] | None:
    """What a script says of a text, in words; None where there is none."""
    if interest.predicate is None:
        return None

    async def said(text: str) -> tuple[bool, str]:
        holds = await interest.holds(text)
        return holds, "still interesting" if holds else "the script says no"

    return said


async def _look_longer(
    under_way: PtxWork, oracle: PtxOracle, ptxas: Assembler, limits: ResourceLimits
) -> None:
    """Say whether what is taken for a hang would have come to an end after all."""
    interest, work = under_way.held.interest, under_way.held.work
    first = under_way.held.at_hand.reactions.get(ptxas.version)
    if interest.fingerprint.signature is None or first is None:
        return
    if first.verdict is not VerdictKind.TIMEOUT:
        return
    work.watch.stage("checking with more time whether it ends")
    longer = min(limits.timeout, _LONGER * oracle.limits.timeout)
    last = await oracle.react(work.best, ptxas, replace(limits, timeout=longer))
    if last.verdict is VerdictKind.TIMEOUT:
        work.notes.append(f"what is left did not end within {longer:.0f} s either")
    else:
        ended = f"what is left ends after {last.end.wall:.1f} s: {last.reason}"
        work.notes.append(f"it is slow, and does not hang: {ended}")


def _not_in_ptx(row: Row, at_hand: AtHand[Assembler], ptxas: Assembler) -> Uninteresting:
    """The cell shows it, its PTX alone does not."""
    reaction = at_hand.reactions[ptxas.version]
    return Uninteresting(
        reason=(
            f"the cell is {row.verdict} ({row.reason}), but its PTX alone makes ptxas "
            f"{ptxas.version} say {reaction.verdict.value}: {reaction.reason}"
        )
    )
