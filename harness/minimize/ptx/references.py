"""What every installed ptxas does with the original PTX, and how it is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace

from gpu_emulator.ptx.text.facts import retarget
from harness.bisect.neighbours import known_targets
from harness.io.processes.hub import ResourceLimits
from harness.io.toolchains.install import install_ptxas
from harness.minimize.reduction.fingerprint import (
    Answer,
    Fingerprint,
    Reaction,
    accepting_neighbours,
    lower_versions,
)
from harness.minimize.reduction.interest import (
    AtHand,
    Shelf,
    ask_installed,
    ptxas_shelf,
    try_on,
    walk_the_index,
)
from harness.minimize.reduction.oracles import PtxOracle
from harness.values.errors import InfrastructureError, UsageError
from harness.values.target import Target
from harness.values.toolchain import BUNDLED, Assembler
from harness.values.verdict import VerdictKind

# What a candidate may take beside what the original took.
_SLOWER = 5.0
_LEAST_SECONDS = 2.0
_USUAL_SECONDS = 10.0


async def same_from_index(oracle: PtxOracle, text: str, ptxas: Assembler) -> Assembler:
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


async def look_around(
    oracle: PtxOracle,
    text: str,
    ptxas: Assembler,
    fingerprint: Fingerprint,
    tell: Callable[[str], None],
) -> AtHand[Assembler]:
    """Try every installed ptxas on the original, and more of the index until both sides accept.

    Raises:
        InfrastructureError: this ptxas cannot be started.
    """
    shelf = ptxas_shelf()
    found = await ask_installed(oracle, shelf, text, ptxas, oracle.limits)
    if fingerprint.condition is None and fingerprint.shows(found.reactions[ptxas.version]):
        if accepting_neighbours(found.answers(fingerprint), ptxas.version)[0] is None:
            await _lower(oracle, shelf, found, ptxas, fingerprint)
        await walk_the_index(oracle, shelf, found, fingerprint, oracle.limits, tell)
    return found


async def _lower(
    oracle: PtxOracle,
    shelf: Shelf[Assembler],
    found: AtHand[Assembler],
    ptxas: Assembler,
    fingerprint: Fingerprint,
) -> None:
    """Take the lowest `.version` with which it still fails, if an older ptxas then accepts it.

    Triton writes the highest that the ptxas knows, whether the kernel needs it or not; and older
    ones refuse a `.version` above theirs.
    """
    facts = oracle.facts(found.text)
    lowered = None
    for version in lower_versions(facts.version) if facts else ():
        text = retarget(found.text, version=version)
        answer = fingerprint.answer(await oracle.react(text, ptxas))
        if answer is Answer.SAME:
            lowered = version
        elif answer is not Answer.UNTOLD:
            break
    if not lowered or not facts:
        return
    text = retarget(found.text, version=lowered)
    trial = AtHand[Assembler](text=text, as_version=lowered)
    await try_on(oracle, shelf, trial, found.tools.values(), oracle.limits)
    if accepting_neighbours(trial.answers(fingerprint), ptxas.version)[0]:
        found.text, found.as_version, found.reactions = text, lowered, trial.reactions
        found.notes.append(
            f"it has .version {lowered} in place of {facts.version}, so that older ptxas take it"
        )


async def accepting_target(
    oracle: PtxOracle, found: AtHand[Assembler], ptxas: Assembler
) -> Target | None:
    """The nearest other target for which this ptxas accepts the original; None: there is none.

    It holds a refusal in place that no version lifts.
    """
    own = oracle.question.target
    targets = [each for each in known_targets(own) if each.capability != own.capability]
    accepts = await asyncio.gather(
        *(oracle.accepts_for(found.text, ptxas, target) for target in targets)
    )
    held = [target for target, accepted in zip(targets, accepts, strict=True) if accepted]
    if not held:
        found.notes.append(
            f"nothing that was tried accepts the original: no ptxas, and {ptxas.version} for no "
            "other target; so what is left may be wrong in itself"
        )
        return None
    return min(held, key=lambda each: abs(each.capability - own.capability))


def oracle_limits(
    limits: ResourceLimits, reactions: Mapping[str, Reaction], bad: str
) -> ResourceLimits:
    """How long a candidate may take: a few times what the original takes.

    Where the failure is that it does not end, what counts is how long those took that accepted it;
    where none did, it is the limit as it was given.
    """
    hangs = reactions[bad].verdict is VerdictKind.TIMEOUT
    known = [
        each.end.wall
        for each in reactions.values()
        if not each.end.killed_by_us and (each.is_accepted or not hangs)
    ]
    if not known:
        return limits
    least = _LEAST_SECONDS if hangs else _USUAL_SECONDS
    return replace(limits, timeout=min(limits.timeout, max(least, _SLOWER * max(known))))
