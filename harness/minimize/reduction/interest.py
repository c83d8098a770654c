"""Whether a candidate is interesting: the versions that guard the failure are asked about it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from harness.io.processes.hub import ResourceLimits
from harness.minimize.reduction.fingerprint import Answer, Cost, Fingerprint, Reaction, in_order


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
