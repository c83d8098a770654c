"""Whether a candidate is interesting, and which versions are asked about it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar

from packaging.version import Version

from harness.frontends.back_end import BackEnd
from harness.frontends.registry import front_end
from harness.io.files.locations import offline
from harness.io.packages.versions import newest_of_minor
from harness.io.processes.hub import ResourceLimits
from harness.io.toolchains.install import available_ptxas, install_ptxas
from harness.io.toolchains.installed import installed_versions
from harness.io.toolchains.marker import PTXAS
from harness.minimize.reduction.fingerprint import (
    Answer,
    Cost,
    Fingerprint,
    Reaction,
    accepting_neighbours,
    in_order,
)
from harness.values.errors import InfrastructureError, UsageError
from harness.values.toolchain import Assembler, Compiler


class AnyTool(Protocol):
    """One version of ptxas or of Triton."""

    @property
    def version(self) -> str:
        """As it is spelled everywhere."""


T = TypeVar("T", bound=AnyTool)
T_contra = TypeVar("T_contra", bound=AnyTool, contravariant=True)


class Oracle(Protocol[T_contra]):
    """Asks any version about any text."""

    def is_possible(self, text: str) -> bool:
        """Whether it is worth asking: any text, if the oracle does not say otherwise."""
        return True

    async def react(
        self, text: str, tool: T_contra, limits: ResourceLimits | None = None
    ) -> Reaction:
        """All that this version does with the text.

        Raises:
            InfrastructureError: this machine failed.
        """

    async def look(self, text: str, tool: T_contra) -> Reaction:
        """The same, except that it may stop where the failure can no longer come."""
        return await self.react(text, tool)


async def ask_all(
    oracle: Oracle[T], text: str, tools: Iterable[T], limits: ResourceLimits | None = None
) -> dict[str, Reaction]:
    """What each does with the text, by version.

    Raises:
        InfrastructureError: this machine failed.
    """
    wanted = {tool.version: tool for tool in tools}
    found = await asyncio.gather(*(oracle.react(text, tool, limits) for tool in wanted.values()))
    return dict(zip(wanted, found, strict=True))


@dataclass(frozen=True, slots=True)
class PredicateAnswer:
    """What a predicate says of one text.

    `SAME`: it goes wrong in the same way; `ACCEPTS`: it is right; `OTHER`: it goes wrong in another
    way; `UNTOLD`: that could not be determined. Only `SAME` is kept; `reason` is for the report.
    """

    answer: Answer
    reason: str

    @property
    def is_same(self) -> bool:
        """Whether a candidate shows what is looked for."""
        return self.answer is Answer.SAME


class Predicate(Protocol):
    """Decides alone whether a text is interesting: no version of a tool is asked about it."""

    def is_possible(self, text: str) -> bool:
        """Whether it is worth asking: nothing is run for this."""

    async def ask(self, text: str) -> PredicateAnswer:
        """Try one text.

        Raises:
            InfrastructureError: this machine failed.
        """


@dataclass(slots=True, kw_only=True)
class Interest(Generic[T]):
    """Whether a text shows the whole fingerprint.

    The `oracle` asks `versions`, of which the fingerprint names some; or a `predicate` decides
    alone. A failure that comes only now and then is looked for `tries` times. `is_accepted` says
    whether it is accepted for another target, where the fingerprint names one. With
    `keeps_refusals`, a version that refuses the original in another way has to go on doing so.
    """

    fingerprint: Fingerprint
    versions: VersionReactions[T]
    oracle: Oracle[T] | None = None
    predicate: Predicate | None = None
    tries: int = 1
    is_accepted: Callable[[str], Awaitable[bool]] | None = None
    keeps_refusals: bool = False
    calls: int = 0
    costs: dict[str, Cost] = field(default_factory=dict)

    def begin(self, text: str) -> asyncio.Future[bool]:
        """A started test, as `harness.minimize.reduction.driver` likes them."""
        return asyncio.ensure_future(self.holds(text))

    def is_possible(self, text: str) -> bool:
        """Whether a text is worth asking about."""
        judge = self.predicate or self.oracle
        return judge is not None and judge.is_possible(text)

    async def holds(self, text: str) -> bool:
        """Ask until one version refuses, the cheapest refusal first.

        Raises:
            InfrastructureError: this machine failed, twice.
        """
        if not self.is_possible(text):
            return False
        if self.predicate:
            self.calls += 1
            return (await self.predicate.ask(text)).is_same
        for check in self.fingerprint.checks:
            self.costs.setdefault(check, Cost())
        for version in in_order(self.fingerprint.checks, self.costs):
            if not await self._passes(version, text):
                return False
        return await self.is_held(text)

    async def is_held(self, text: str) -> bool:
        """Whether the target that the fingerprint names accepts it; True where it names none."""
        if self.is_accepted is None:
            return True
        self.calls += 1
        return await self.is_accepted(text)

    async def react(self, text: str, version: str, *, to_the_end: bool = True) -> Reaction:
        """What one version does with a text; without `to_the_end`, until the failure can come.

        Raises:
            InfrastructureError: this machine failed, twice.
        """
        assert self.oracle is not None, "a predicate has no versions"
        ask = self.oracle.react if to_the_end else self.oracle.look
        return await ask(text, self.versions.tools[version])

    async def react_all(self, text: str) -> dict[str, Reaction]:
        """What every version does with a text; a predicate has none.

        Raises:
            InfrastructureError: this machine failed, twice.
        """
        if self.predicate or self.oracle is None:
            return {}
        return await ask_all(self.oracle, text, self.versions.tools.values())

    async def _passes(self, version: str, text: str) -> bool:
        must_show = self.fingerprint.wanted(version) is Answer.SAME
        for _ in range(self.tries if must_show else 1):
            self.calls += 1
            reaction = await self.react(text, version, to_the_end=not must_show)
            passes = self.fingerprint.passes(version, reaction)
            self.costs[version].add(refused=not passes, seconds=reaction.end.wall)
            if passes:
                return True
        return False


# What a version may take that is only looked at.
_GLANCE_SECONDS = 30.0
_TIMES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class AvailableVersions(Generic[T]):
    """The versions of one compiler: those installed, and those of the package index.

    `steps` is how many more are installed at most on either side to find one that accepts.
    """

    name: str
    installed: Sequence[T]
    available: Callable[[], Sequence[Version]]
    install: Callable[[str], T]
    steps: int
    glance: float = _GLANCE_SECONDS


@dataclass(slots=True, kw_only=True)
class VersionReactions(Generic[T]):
    """Every version that was tried on the original, and what it did.

    `name` is that of the tool. `text` is the original, with `as_version` (of PTX) where older ones
    can then be tested.
    """

    name: str
    text: str
    as_version: str | None = None
    tools: dict[str, T] = field(default_factory=dict)
    reactions: dict[str, Reaction] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def answers(self, fingerprint: Fingerprint) -> dict[str, Answer]:
        """The pattern, beside the failure that is looked for; oldest first."""
        return {
            version: fingerprint.answer(self.reactions[version])
            for version in sorted(self.reactions, key=Version)
        }


def ptxas_versions() -> AvailableVersions[Assembler]:
    """Every ptxas.

    Raises:
        StorageError: the cache cannot be read.
    """
    return AvailableVersions(
        name="ptxas",
        installed=[install_ptxas(version) for version in installed_versions(PTXAS)],
        available=lambda: [version for version, _ in available_ptxas()],
        install=install_ptxas,
        steps=8,
    )


def assembler_versions(back: BackEnd) -> AvailableVersions[Assembler]:
    """Every version of an assembler; of the index, the newest of a minor.

    Raises:
        StorageError: the cache cannot be read.
    """
    return AvailableVersions(
        name=back.title,
        installed=[back.install(version) for version in back.installed()],
        available=lambda: newest_of_minor(back.available()),
        install=back.install,
        steps=3,
    )


def compiler_versions(kind: str) -> AvailableVersions[Compiler]:
    """Every version of a compiler, the one beside triage too; of the index, the newest of a minor.

    Raises:
        StorageError: the cache cannot be read.
    """
    end = front_end(kind)
    return AvailableVersions(
        name=end.title,
        installed=end.installed(),
        available=lambda: newest_of_minor(end.available()),
        install=end.install,
        steps=3,
        # Starting one takes seconds.
        glance=4 * _GLANCE_SECONDS,
    )


async def ask_installed(
    oracle: Oracle[T], versions: AvailableVersions[T], text: str, tool: T, limits: ResourceLimits
) -> VersionReactions[T]:
    """Try every installed version, and `tool` in place of the installed one of its version.

    Raises:
        InfrastructureError: `tool` cannot be started.
    """
    tried = VersionReactions[T](name=versions.name, text=text)
    tried.tools[tool.version] = tool
    tried.reactions |= await ask_all(oracle, text, [tool], limits)
    others = [each for each in versions.installed if each.version != tool.version]
    # They may take as long as the one that fails, and somewhat longer where it ends early.
    glance = max(versions.glance, _TIMES * tried.reactions[tool.version].end.wall)
    await try_on(oracle, tried, others, replace(limits, timeout=min(limits.timeout, glance)))
    return tried


async def try_on(
    oracle: Oracle[T], tried: VersionReactions[T], tools: Iterable[T], limits: ResourceLimits
) -> None:
    """Ask versions that were not asked yet; what this machine cannot run is left out."""

    async def one(tool: T) -> None:
        try:
            tried.reactions |= await ask_all(oracle, tried.text, [tool], limits)
        except InfrastructureError as error:
            tried.notes.append(f"{tried.name} {tool.version} was not asked: {error}")
        else:
            tried.tools[tool.version] = tool

    await asyncio.gather(*map(one, tools))


async def walk_the_index(
    oracle: Oracle[T],
    versions: AvailableVersions[T],
    tried: VersionReactions[T],
    fingerprint: Fingerprint,
    limits: ResourceLimits,
    tell: Callable[[str], None],
) -> None:
    """Install versions outwards, on each side on which nothing installed accepts.

    Until one accepts, or cannot do this at all, or enough were tried.
    """
    bad = fingerprint.bad
    below, above = accepting_neighbours(tried.answers(fingerprint), bad)
    if (below and above) or offline():
        return
    try:
        index = await asyncio.to_thread(versions.available)
    except (InfrastructureError, UsageError) as error:
        tried.notes.append(f"only the installed {versions.name} were tried: {error}")
        return
    limits = replace(limits, timeout=min(limits.timeout, versions.glance))

    async def is_tried(version: str) -> bool:
        tell(f"trying {versions.name} {version}")
        try:
            tool = await asyncio.to_thread(versions.install, version)
        except (InfrastructureError, UsageError) as error:
            tried.notes.append(f"{versions.name} {version} was not tried: {error}")
            return False
        await try_on(oracle, tried, [tool], limits)
        return version in tried.reactions

    here = Version(bad)
    older = [str(version) for version in reversed(index) if version < here]
    newer = [str(version) for version in index if version > here]
    for accepting, outwards in ((below, older), (above, newer)):
        steps = 0
        for version in outwards if accepting is None else ():
            if version not in tried.reactions:
                steps += 1
                if steps > versions.steps or not await is_tried(version):
                    break
            # What cannot do this text or target at all will not learn it further out.
            if fingerprint.answer(tried.reactions[version]) in (Answer.ACCEPTS, Answer.UNTOLD):
                break
