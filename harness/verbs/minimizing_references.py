"""Which versions hold the failure in place: what every ptxas at hand does with the original."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from packaging.version import Version

from harness.effects import toolchains
from harness.effects.locations import offline
from harness.effects.process import ResourceLimits
from harness.effects.toolchain_marker import PTXAS
from harness.logic.fingerprint import (
    Answer,
    Fingerprint,
    Reaction,
    accepting_neighbours,
    lower_versions,
)
from harness.logic.ptx import retarget
from harness.values.errors import InfrastructureError, UsageError
from harness.values.toolchain import BUNDLED, Ptxas
from harness.values.verdict import VerdictKind
from harness.verbs.ptx_oracle import PtxOracle

__all__ = ["AtHand", "look_around", "oracle_limits", "same_from_index"]

# How many versions of the index are tried on either side, beyond those that are installed.
_STEPS = 8
# What a version may take that is only looked at; and a candidate beside what the original took.
_GLANCE_SECONDS = 30.0
_SLOWER = 5.0
_LEAST_SECONDS = 2.0
_USUAL_SECONDS = 10.0


@dataclass(slots=True, kw_only=True)
class AtHand:
    """Every ptxas that was tried on the original, by version, and what it did.

    `text` is the original, with `as_version` where older ones can then be told.
    """

    text: str
    as_version: str | None = None
    tools: dict[str, Ptxas] = field(default_factory=dict)
    reactions: dict[str, Reaction] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def answers(self, fingerprint: Fingerprint) -> dict[str, Answer]:
        """The pattern, beside the failure that is looked for; oldest first."""
        return {
            version: fingerprint.answer(self.reactions[version])
            for version in sorted(self.reactions, key=Version)
        }


async def same_from_index(oracle: PtxOracle, text: str, ptxas: Ptxas) -> Ptxas:
    """The ptxas that a reader can install, in place of the one inside a Triton.

    It is the same version and does the same with this text; else it stays the bundled one.
    """
    if ptxas.origin != BUNDLED:
        return ptxas
    try:
        wheel = await asyncio.to_thread(toolchains.install_ptxas, ptxas.version)
    except (InfrastructureError, UsageError):
        return ptxas
    ours, theirs = await oracle.react(text, ptxas), await oracle.react(text, wheel)
    is_same = (ours.verdict, ours.key) == (theirs.verdict, theirs.key)
    return wheel if is_same else ptxas


async def look_around(
    oracle: PtxOracle,
    text: str,
    ptxas: Ptxas,
    fingerprint: Fingerprint,
    tell: Callable[[str], None],
) -> AtHand:
    """Try every installed ptxas on the original, and more of the index until both sides accept.

    Raises:
        InfrastructureError: a ptxas cannot be started.
    """
    installed = [each.version for each in toolchains.list_installed() if each.kind == PTXAS]
    tools = [*map(toolchains.install_ptxas, installed), ptxas]
    found = AtHand(text=text)
    await _try(oracle, found, tools)
    if fingerprint.condition is None and fingerprint.shows(found.reactions[ptxas.version]):
        if accepting_neighbours(found.answers(fingerprint), ptxas.version)[0] is None:
            await _lower(oracle, found, ptxas, fingerprint)
        await _walk(oracle, ptxas.version, fingerprint, found, tell)
    return found


async def _lower(oracle: PtxOracle, found: AtHand, ptxas: Ptxas, fingerprint: Fingerprint) -> None:
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
    trial = AtHand(text=text, as_version=lowered)
    await _try(oracle, trial, list(found.tools.values()))
    if accepting_neighbours(trial.answers(fingerprint), ptxas.version)[0]:
        found.text, found.as_version, found.reactions = text, lowered, trial.reactions
        found.notes.append(
            f"it has .version {lowered} in place of {facts.version}, so that older ptxas take it"
        )


async def _try(oracle: PtxOracle, found: AtHand, tools: Sequence[Ptxas]) -> None:
    limits = replace(oracle.limits, timeout=min(oracle.limits.timeout, _GLANCE_SECONDS))
    found.tools |= {tool.version: tool for tool in tools}
    new = [tool for version, tool in found.tools.items() if version not in found.reactions]
    found.reactions |= await oracle.reactions(found.text, new, limits)


async def _walk(
    oracle: PtxOracle,
    bad: str,
    fingerprint: Fingerprint,
    found: AtHand,
    tell: Callable[[str], None],
) -> None:
    """Outwards through the index, on each side on which nothing installed accepts."""
    below, above = accepting_neighbours(found.answers(fingerprint), bad)
    if (below and above) or offline():
        return
    try:
        index = [version for version, _ in await asyncio.to_thread(toolchains.available_ptxas)]
    except (InfrastructureError, UsageError) as error:
        found.notes.append(f"only the installed ptxas were tried: {error}")
        return
    here = Version(bad)
    sides = (
        (below, [version for version in reversed(index) if version < here]),
        (above, [version for version in index if version > here]),
    )
    for is_there, versions in sides:
        if is_there is None:
            await _outwards(oracle, versions, fingerprint, found, tell)


async def _outwards(
    oracle: PtxOracle,
    versions: Sequence[Version],
    fingerprint: Fingerprint,
    found: AtHand,
    tell: Callable[[str], None],
) -> None:
    steps = 0
    for version in map(str, versions):
        if version not in found.reactions:
            steps += 1
            if steps > _STEPS:
                return
            tell(f"trying ptxas {version}")
            try:
                tool = await asyncio.to_thread(toolchains.install_ptxas, version)
            except (InfrastructureError, UsageError) as error:
                found.notes.append(f"ptxas {version} was not tried: {error}")
                return
            await _try(oracle, found, [tool])
        answer = fingerprint.answer(found.reactions[version])
        # What cannot do this PTX or target at all will not learn it further out.
        if answer in (Answer.ACCEPTS, Answer.UNTOLD):
            return


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
