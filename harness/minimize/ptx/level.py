"""The level of PTX: what holds the failure in place, what each instruction is needed for.

Candidates are asked of versions of ptxas, or of a predicate: a script of the user's, the emulator,
a GPU.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from msgspec import structs

from gpu_emulator.ptx.text.document import parse
from gpu_emulator.ptx.text.facts import retarget
from harness.bisect.neighbours import known_targets
from harness.bisect.search import Tally, runs_to_trust
from harness.frontends.assemble import run_predicate, script_words
from harness.io.processes.hub import ResourceLimits
from harness.io.processes.tasks import in_parallel
from harness.io.toolchains.install import available_wheels, install_ptxas
from harness.io.toolchains.installed import PTXAS, installed_versions
from harness.minimize.ptx.reduce import (
    count_instructions,
    reduce_ptx,
    single_deletions,
    undefined_registers,
)
from harness.minimize.reduction.fingerprint import (
    Answer,
    Fingerprint,
    Reaction,
    accepting_neighbours,
    lower_versions,
)
from harness.minimize.reduction.interest import (
    Interest,
    Predicate,
    PredicateAnswer,
    PtxOracle,
    ToolVersions,
    VersionReactions,
    ask_installed,
    hold_in_place,
    try_on,
    walk_the_index,
)
from harness.minimize.reduction.minimization import Ablation, Ending, Minimization, NothingToReduce
from harness.minimize.reduction.reducer import Size
from harness.minimize.reduction.work import (
    Level,
    LevelReduction,
    MinimizeTask,
    minimization,
    reduce_level,
)
from harness.values.errors import InfrastructureError, UsageError
from harness.values.toolchain import BUNDLED, Assembler
from harness.values.verdict import VerdictKind

# How often the original is run to see whether it always fails.
_TRIALS = 3
# How many times the limit of a candidate the result of a hang is given in the end.
_LONGER = 10.0
# How many instructions are taken away singly; fewer where the budget ended it.
_MAX_ABLATED = 400
_MAX_ABLATED_UNFINISHED = 100
# What a candidate may take beside what the original took.
_SLOWER = 5.0
_LEAST_SECONDS = 2.0
_USUAL_SECONDS = 10.0


async def minimize_ptx(task: MinimizeTask) -> Minimization | NothingToReduce:
    """Find the fingerprint of the subject's PTX, reduce, and report.

    Raises:
        UsageError: the folder is taken.
        TriageError: the machine failed before the reduction began.
    """
    row, text, options = task.subject.row, task.subject.text, task.options
    assert text is not None, "the subject was chosen at ptxas"
    task.folder(".ptx")
    oracle = PtxOracle(
        hub=task.bench.hub,
        target=task.subject.cell.cell.target,
        flags=row.ptxas_flags,
        entry=task.subject.cell.entry,
        limits=task.how.limits,
        slots=asyncio.Semaphore(task.how.workers),
    )
    ptxas = task.subject.cell.ptxas
    if row.verdict is not VerdictKind.TIMEOUT:
        ptxas = await _same_from_index(oracle, text, ptxas)
    interest = await _interest(task, oracle, text, ptxas)
    if interest.predicate:
        if not await interest.holds(text):
            return NothingToReduce(reason=f"--script {options.script!r} does not end with 0")
    elif not interest.fingerprint.shows(first := interest.versions.reactions[ptxas.version]):
        return NothingToReduce(
            reason=(
                f"the cell is {row.verdict} ({row.reason}), but its PTX alone makes ptxas "
                f"{ptxas.version} say {first.verdict.value}: {first.reason}"
            )
        )
    flags, is_defined = oracle.flags, options.is_defined
    remarks = partial(_look_longer, oracle, ptxas, task.how.limits)
    level = _ptx_level(text, is_defined=is_defined, terms={"flags": flags}, remarks=remarks)
    work = await reduce_level(task, level, interest)
    tools = interest.versions.tools.items()
    packages = {version: tool.origin for version, tool in tools if tool.origin != BUNDLED}
    return minimization(
        task, work, task.toolchain(packages=packages), flags=flags, limit=oracle.limits.timeout
    )


async def reduce_by(
    task: MinimizeTask,
    predicate: Predicate,
    text: str,
    *,
    signature: str,
    by: str,
    is_defined: bool = False,
    is_always: bool = False,
    terms: Mapping[str, object],
) -> LevelReduction[Assembler] | NothingToReduce:
    """Reduce a PTX text as long as the predicate says that it is the same.

    `signature` names what is looked for, `by` what executes candidates. `is_defined` leaves no more
    registers undefined than the text does, `is_always` in any candidate. `terms` are what else
    decides what comes out, for `--resume`.

    Raises:
        UsageError: the folder is taken.
        TriageError: the machine failed before the reduction began.
    """
    task.folder(".ptx")
    first = await predicate.ask(text)
    if not first.is_same:
        return NothingToReduce(reason=f"{task.subject.row.reason}; its PTX alone: {first.reason}")
    interest: Interest[Assembler] = Interest(
        fingerprint=Fingerprint(bad=by, signature=signature),
        versions=VersionReactions(name="ptxas", text=text),
        predicate=predicate,
    )
    level = _ptx_level(text, is_defined=is_defined, is_always=is_always, terms=terms)
    return await reduce_level(task, level, interest)


def _ptx_level(
    text: str,
    *,
    is_defined: bool,
    is_always: bool = False,
    terms: Mapping[str, object],
    remarks: Callable[[LevelReduction[Any]], Awaitable[list[str]]] | None = None,
) -> Level:
    return Level(
        name="ptx",
        suffix=".ptx",
        original=text,
        size_of=_size_of,
        reduce=partial(reduce_ptx, defined=is_defined, always=is_always),
        terms={"is_defined": is_defined, **terms},
        undefined=_undefined_count,
        ablate=partial(_ablate, is_defined=is_defined),
        remarks=remarks,
    )


def _size_of(text: str) -> Size:
    return Size(
        instructions=count_instructions(text),
        bytes=len(text.encode()),
        lines=len(text.splitlines()),
    )


def _undefined_count(text: str) -> int:
    return undefined_registers(parse(text)).total()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Script:
    """A `Predicate`: the user's command, which is shown a file."""

    oracle: PtxOracle
    words: tuple[str, ...]

    def is_possible(self, text: str) -> bool:
        return self.oracle.is_possible(text)

    async def ask(self, text: str) -> PredicateAnswer:
        oracle = self.oracle
        async with oracle.slots:
            process = await run_predicate(
                oracle.hub, text, name="min.ptx", words=self.words, limits=oracle.limits
            )
        if process.ok:
            return PredicateAnswer(Answer.SAME, "still interesting")
        return PredicateAnswer(Answer.OTHER, "the script says no")


async def _interest(
    task: MinimizeTask, oracle: PtxOracle, text: str, ptxas: Assembler
) -> Interest[Assembler]:
    """What a candidate has to show; and what every installed version does with the original."""
    condition, script = task.subject.condition, task.options.script
    is_failure = condition is None and script is None
    fingerprint = Fingerprint(
        bad=ptxas.version,
        signature=task.subject.row.signature if is_failure else None,
        condition=condition,
        script=script,
    )
    if script is not None:
        return Interest(
            fingerprint=fingerprint,
            versions=VersionReactions(name="ptxas", text=text),
            predicate=_Script(oracle=oracle, words=script_words(script)),
        )
    if is_failure and task.subject.row.verdict is not VerdictKind.TIMEOUT:
        await _fewest_flags(oracle, text, ptxas, fingerprint)
    own = oracle.target
    held_by = ToolVersions(
        name="ptxas",
        tool=ptxas,
        oracle=oracle,
        installed=[install_ptxas(version) for version in installed_versions(PTXAS)],
        available=lambda: [wheel.version for wheel in available_wheels(PTXAS)],
        install=install_ptxas,
        steps=8,
        targets=[near for near in known_targets(own) if near.capability != own.capability],
        for_target=oracle.for_target,
    )
    versions = await ask_installed(held_by, text, oracle.limits)
    if condition is None and fingerprint.shows(versions.reactions[ptxas.version]):
        if accepting_neighbours(versions.answers(fingerprint), ptxas.version)[0] is None:
            await _lower(oracle, held_by, versions, fingerprint)
        await walk_the_index(held_by, versions, fingerprint, oracle.limits, task.watch.stage)
    tally = await _try_again(oracle, ptxas, fingerprint, versions)
    oracle.limits = _oracle_limits(oracle.limits, versions.reactions, ptxas.version)
    interest = await hold_in_place(held_by, versions, fingerprint, own, keeps_refusals=False)
    if tally.is_flaky:
        interest.tries = runs_to_trust(tally)
        versions.notes.append(
            f"it fails only now and then ({tally.failures} of {tally.runs} runs): "
            f"a candidate is run up to {interest.tries} times"
        )
    return interest


async def _fewest_flags(
    oracle: PtxOracle, text: str, ptxas: Assembler, fingerprint: Fingerprint
) -> None:
    """Leave out each flag without which it still fails; what it reports and the target stay."""
    for flag in oracle.flags:
        if flag == "-v" or flag.startswith("--gpu-name"):
            continue
        before = oracle.flags
        oracle.flags = tuple(other for other in before if other != flag)
        if not fingerprint.shows(await oracle.react(text, ptxas)):
            oracle.flags = before


async def _same_from_index(oracle: PtxOracle, text: str, ptxas: Assembler) -> Assembler:
    """The ptxas that a reader can install, in place of the one inside a Triton.

    It is the same version and does the same with this text; else it stays the bundled one.
    """
    if ptxas.origin != BUNDLED:
        return ptxas
    try:
        wheel = await asyncio.to_thread(install_ptxas, ptxas.version)
    except (InfrastructureError, UsageError):
        return ptxas
    ours, theirs = await oracle.react(text, ptxas), await oracle.react(text, wheel)
    is_same = (ours.verdict, ours.key) == (theirs.verdict, theirs.key)
    return wheel if is_same else ptxas


async def _lower(
    oracle: PtxOracle,
    held_by: ToolVersions[Assembler],
    original: VersionReactions[Assembler],
    fingerprint: Fingerprint,
) -> None:
    """Take the lowest `.version` with which it still fails, if an older ptxas then accepts it.

    Triton writes the highest that the ptxas knows, whether the kernel needs it or not; and older
    ones refuse a `.version` above theirs.
    """
    facts = oracle.facts(original.text)
    lowered = None
    for version in lower_versions(facts.version) if facts else ():
        text = retarget(original.text, version=version)
        answer = fingerprint.answer(await oracle.react(text, held_by.tool))
        if answer is Answer.SAME:
            lowered = version
        elif answer is not Answer.UNTOLD:
            break
    if not lowered or not facts:
        return
    text = retarget(original.text, version=lowered)
    trial = VersionReactions[Assembler](name=held_by.name, text=text, as_version=lowered)
    limits = structs.replace(oracle.limits, timeout=min(oracle.limits.timeout, held_by.glance))
    await try_on(oracle, trial, original.tools.values(), limits)
    if accepting_neighbours(trial.answers(fingerprint), fingerprint.bad)[0]:
        original.text, original.as_version, original.reactions = text, lowered, trial.reactions
        original.notes.append(
            f"it has .version {lowered} in place of {facts.version}, so that older ptxas take it"
        )


def _oracle_limits(
    limits: ResourceLimits, reactions: Mapping[str, Reaction], bad: str
) -> ResourceLimits:
    """How long a candidate may take: a few times what the original takes.

    Where the failure is that it does not end, what counts is how long those took that accepted it;
    where none did, it is the limit as it was given.
    """
    hangs = reactions[bad].verdict is VerdictKind.TIMEOUT
    seconds = [
        reaction.end.wall
        for reaction in reactions.values()
        if not reaction.end.killed_by_us and (reaction.is_accepted or not hangs)
    ]
    if not seconds:
        return limits
    least = _LEAST_SECONDS if hangs else _USUAL_SECONDS
    return structs.replace(limits, timeout=min(limits.timeout, max(least, _SLOWER * max(seconds))))


async def _try_again(
    oracle: PtxOracle,
    ptxas: Assembler,
    fingerprint: Fingerprint,
    versions: VersionReactions[Assembler],
) -> Tally:
    """How often the original shows it; one that hangs is not run again only to see it hang."""
    first = versions.reactions[ptxas.version]
    tally = Tally(failures=int(fingerprint.shows(first)), runs=1)
    for _ in range(_TRIALS - 1 if first.verdict is not VerdictKind.TIMEOUT else 0):
        again = await oracle.react(versions.text, ptxas)
        shows = fingerprint.shows(again)
        tally += Tally(failures=int(shows), runs=1)
        if shows:
            versions.reactions[ptxas.version] = again
    return tally


async def _look_longer(
    oracle: PtxOracle, ptxas: Assembler, limits: ResourceLimits, work: LevelReduction[Assembler]
) -> list[str]:
    """Say whether what is taken for a hang would have come to an end after all."""
    first = work.interest.versions.reactions.get(ptxas.version)
    is_hang = first is not None and first.verdict is VerdictKind.TIMEOUT
    is_asked = is_hang and work.interest.fingerprint.signature is not None
    if not is_asked or work.ending not in (Ending.FINISHED, Ending.BUDGET):
        return []
    work.watch.stage("checking with more time whether it ends")
    longer = min(limits.timeout, _LONGER * oracle.limits.timeout)
    with contextlib.suppress(asyncio.CancelledError):
        last = await oracle.react(work.best, ptxas, structs.replace(limits, timeout=longer))
        if last.verdict is VerdictKind.TIMEOUT:
            return [f"what is left did not end within {longer:.0f} s either"]
        ended = f"what is left ends after {last.end.wall:.1f} s: {last.reason}"
        return [f"it is slow, and does not hang: {ended}"]
    return []


async def _ablate(
    work: LevelReduction[Assembler], *, is_defined: bool
) -> tuple[tuple[Ablation, ...], int]:
    work.watch.stage("taking each instruction away alone")
    count = count_instructions(work.best)
    if work.ending is not Ending.FINISHED and count > _MAX_ABLATED_UNFINISHED:
        return (), 0
    most = _undefined_count(work.best) if is_defined else None
    found = await in_parallel(
        _without(work.interest, instruction, text, most)
        for instruction, text in islice(single_deletions(work.best), _MAX_ABLATED)
    )
    return tuple(found), max(0, count - _MAX_ABLATED)


async def _without(
    interest: Interest[Assembler], instruction: str, text: str, most: int | None
) -> Ablation:
    """What comes of a text without an instruction; `most` registers may be undefined in it."""
    fingerprint = interest.fingerprint

    def needed(words: str) -> Ablation:
        return Ablation(instruction=instruction, is_needed=True, words=words)

    if not interest.is_possible(text):
        return needed("it is not valid PTX")
    if interest.predicate:
        answer = await interest.predicate.ask(text)
        if not answer.is_same:
            return needed(answer.reason)
        words = answer.reason if fingerprint.script else "still the same"
        return Ablation(instruction=instruction, is_needed=False, words=words)
    if most is not None and _undefined_count(text) > most:
        return needed("a register is read that nothing may have written (--defined)")
    oracle, tools = interest.oracle, interest.versions.tools
    assert oracle is not None, "there is no predicate"
    for version in fingerprint.checks:
        reaction = await oracle.react(text, tools[version])
        if not fingerprint.passes(version, reaction):
            return needed(f"ptxas {version}: {_did(reaction, fingerprint)}")
    if not await interest.is_held(text):
        return needed(f"ptxas {fingerprint.bad} no longer accepts it for {fingerprint.held_for}")
    return Ablation(instruction=instruction, is_needed=False, words="still the same")


def _did(reaction: Reaction, fingerprint: Fingerprint) -> str:
    if fingerprint.condition is not None and reaction.is_accepted:
        return fingerprint.described(reaction)
    if reaction.is_accepted:
        return "accepts it"
    more = sorted(reaction.errors - (fingerprint.errors or reaction.errors))
    errors = f"; it also says: {'; '.join(more)}" if more else ""
    return f"{reaction.verdict.value}: {reaction.reason}{errors}"
