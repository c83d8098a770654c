"""Whether a candidate is interesting, and which versions are asked about it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
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
        """Whether it is worth asking."""

    async def react(
        self, text: str, tool: T_contra, limits: ResourceLimits | None = None
    ) -> Reaction:
        """All that this version does with the text.

        Raises:
            InfrastructureError: this machine failed.
        """

    async def look(self, text: str, tool: T_contra) -> Reaction:
        """The same, except that it may stop where the failure can no longer come."""


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


@dataclass(slots=True, kw_only=True)
class Interest(Generic[T]):
    """Whether a text shows the whole fingerprint.

    `tools` has each version that the fingerprint names. A failure that comes only now and then is
    looked for `tries` times. `predicate` decides alone where the user has one. `is_accepted` says
    whether it is accepted for another target, where the fingerprint names one.
    """

    oracle: Oracle[T]
    fingerprint: Fingerprint
    tools: Mapping[str, T]
    tries: int = 1
    predicate: Callable[[str], Awaitable[bool]] | None = None
    is_accepted: Callable[[str], Awaitable[bool]] | None = None
    calls: int = 0
    costs: dict[str, Cost] = field(default_factory=dict)

    def begin(self, text: str) -> asyncio.Future[bool]:
        """A started test, as `harness.minimize.reduction.driver` likes them."""
        return asyncio.ensure_future(self.holds(text))

    async def holds(self, text: str) -> bool:
        """Ask until one version refuses, the cheapest refusal first.

        Raises:
            InfrastructureError: this machine failed, twice.
        """
        if not self.oracle.is_possible(text):
            return False
        if self.predicate:
            self.calls += 1
            return await self.predicate(text)
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

    async def _passes(self, version: str, text: str) -> bool:
        must_show = self.fingerprint.wanted(version) is Answer.SAME
        ask = self.oracle.look if must_show else self.oracle.react
        for _ in range(self.tries if must_show else 1):
            self.calls += 1
            reaction = await ask(text, self.tools[version])
            passes = self.fingerprint.passes(version, reaction)
            self.costs[version].add(refused=not passes, seconds=reaction.end.wall)
            if passes:
                return True
        return False


# What a version may take that is only looked at.
_GLANCE_SECONDS = 30.0
_TIMES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Shelf(Generic[T]):
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
class AtHand(Generic[T]):
    """Every version that was tried on the original, and what it did.

    `text` is the original, with `as_version` (of PTX) where older ones can then be tested.
    """

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


def ptxas_shelf() -> Shelf[Assembler]:
    """Every ptxas.

    Raises:
        StorageError: the cache cannot be read.
    """
    return Shelf(
        name="ptxas",
        installed=[install_ptxas(version) for version in installed_versions(PTXAS)],
        available=lambda: [version for version, _ in available_ptxas()],
        install=install_ptxas,
        steps=8,
    )


def assembler_shelf(back: BackEnd) -> Shelf[Assembler]:
    """Every version of an assembler; of the index, the newest of a minor.

    Raises:
        StorageError: the cache cannot be read.
    """
    return Shelf(
        name=back.title,
        installed=[back.install(version) for version in back.installed()],
        available=lambda: newest_of_minor(back.available()),
        install=back.install,
        steps=3,
    )


def compiler_shelf(kind: str) -> Shelf[Compiler]:
    """Every version of a compiler, the one beside triage too; of the index, the newest of a minor.

    Raises:
        StorageError: the cache cannot be read.
    """
    end = front_end(kind)
    return Shelf(
        name=end.title,
        installed=end.installed(),
        available=lambda: newest_of_minor(end.available()),
        install=end.install,
        steps=3,
        # Starting one takes seconds.
        glance=4 * _GLANCE_SECONDS,
    )


async def ask_installed(
    oracle: Oracle[T], shelf: Shelf[T], text: str, tool: T, limits: ResourceLimits
) -> AtHand[T]:
    """Try every installed version, and `tool` in place of the installed one of its version.

    Raises:
        InfrastructureError: `tool` cannot be started.
    """
    found = AtHand[T](text=text)
    found.tools[tool.version] = tool
    found.reactions |= await ask_all(oracle, text, [tool], limits)
    others = [each for each in shelf.installed if each.version != tool.version]
    # They may take as long as the one that fails, and somewhat longer where it ends early.
    glance = max(shelf.glance, _TIMES * found.reactions[tool.version].end.wall)
    await try_on(oracle, replace(shelf, glance=glance), found, others, limits)
    return found


async def try_on(
    oracle: Oracle[T], shelf: Shelf[T], found: AtHand[T], tools: Iterable[T], limits: ResourceLimits
) -> None:
    """Ask versions that were not asked yet; what this machine cannot run is left out."""
    limits = replace(limits, timeout=min(limits.timeout, shelf.glance))

    async def one(tool: T) -> None:
        try:
            found.reactions |= await ask_all(oracle, found.text, [tool], limits)
        except InfrastructureError as error:
            found.notes.append(f"{shelf.name} {tool.version} was not asked: {error}")
        else:
            found.tools[tool.version] = tool

    await asyncio.gather(*map(one, tools))


async def walk_the_index(
    oracle: Oracle[T],
    shelf: Shelf[T],
    found: AtHand[T],
    fingerprint: Fingerprint,
    limits: ResourceLimits,
    tell: Callable[[str], None],
) -> None:
    """Install versions outwards, on each side on which nothing installed accepts."""
    bad = fingerprint.bad
    below, above = accepting_neighbours(found.answers(fingerprint), bad)
    if (below and above) or offline():
        return
    try:
        index = await asyncio.to_thread(shelf.available)
    except (InfrastructureError, UsageError) as error:
        found.notes.append(f"only the installed {shelf.name} were tried: {error}")
        return
    here = Version(bad)
    sides = (
        (below, [version for version in reversed(index) if version < here]),
        (above, [version for version in index if version > here]),
    )
    outwards = _Walk(
        oracle=oracle, shelf=shelf, found=found, fingerprint=fingerprint, limits=limits, tell=tell
    )
    for is_there, versions in sides:
        if is_there is None:
            await outwards.along(versions)


@dataclass(slots=True, kw_only=True)
class _Walk(Generic[T]):
    """The arguments of `walk_the_index`."""

    oracle: Oracle[T]
    shelf: Shelf[T]
    found: AtHand[T]
    fingerprint: Fingerprint
    limits: ResourceLimits
    tell: Callable[[str], None]

    async def along(self, versions: Sequence[Version]) -> None:
        """Until one accepts, or cannot do this at all, or enough were tried."""
        steps, found = 0, self.found
        for version in map(str, versions):
            if version not in found.reactions:
                steps += 1
                if steps > self.shelf.steps or not await self._try(version):
                    return
            answer = self.fingerprint.answer(found.reactions[version])
            # What cannot do this text or target at all will not learn it further out.
            if answer in (Answer.ACCEPTS, Answer.UNTOLD):
                return

    async def _try(self, version: str) -> bool:
        self.tell(f"trying {self.shelf.name} {version}")
        try:
            tool = await asyncio.to_thread(self.shelf.install, version)
        except (InfrastructureError, UsageError) as error:
            self.found.notes.append(f"{self.shelf.name} {version} was not tried: {error}")
            return False
        await try_on(self.oracle, self.shelf, self.found, [tool], self.limits)
        return version in self.found.reactions
