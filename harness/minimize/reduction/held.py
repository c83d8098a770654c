"""A reduction under way that stays the same bug: reduces, asks every version, and goes back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from harness.io.machines.seam import MachinesGoneError
from harness.minimize.reduction.fingerprint import Reaction, drifted
from harness.minimize.reduction.interest import AnyTool, Interest, ask_all
from harness.minimize.reduction.progress import Work
from harness.minimize.reduction.references import AtHand
from harness.minimize.reduction.result import Ending, VersionLine
from harness.minimize.reduction.tests import Effort, PassCount
from harness.values.errors import InfrastructureError

T = TypeVar("T", bound=AnyTool)


@dataclass(frozen=True, slots=True, kw_only=True)
class Driven:
    """What one run of a driver came to; see `harness.minimize.reduction.driver.Reduction`."""

    text: str
    tests: int
    is_finished: bool
    is_minimal: bool | None
    ledger: Mapping[str, PassCount]


class Driver(Protocol):
    """Reduces a text of one level; the arguments are those of `reduction.Reducer`."""

    async def __call__(
        self,
        text: str,
        is_interesting: Callable[[str], Awaitable[bool]],
        *,
        effort: Effort,
        watch: Callable[[str, int, str | None], None],
    ) -> Driven:
        """`watch` hears of each test: the pass, how many there were, the new best if there is."""


@dataclass(slots=True, kw_only=True)
class HeldReduction(Generic[T]):
    """One text, what is interesting about it, and the versions that hold the failure in place.

    `name` is that of the compiler whose versions they are. With `keeps_refusals`, a version that
    refuses the original in another way has to go on doing so. `versions` is the table of original
    against result once it is known.
    """

    name: str
    work: Work
    interest: Interest[T]
    at_hand: AtHand[T]
    driver: Driver
    keeps_refusals: bool = False
    versions: tuple[VersionLine, ...] = ()
    is_minimal: bool | None = None

    async def run(
        self, *, is_done: bool = False, then: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Reduce until nothing is left to try or to spend; Ctrl-C and trouble keep the best.

        With `is_done`, an earlier run has reduced it: only the versions are asked. `then` looks
        closer at the result.
        """
        work = self.work
        try:
            if is_done:
                self.is_minimal = work.folder.is_minimal
            else:
                await self._reduce()
            while diverged := self._diverged(now := await self._ask_all()):
                if set(diverged) <= set(self.interest.fingerprint.checks):
                    break  # They were asked, and answer differently from run to run.
                await self._go_back(diverged)
                await self._reduce()
            self.versions = self._lines(now)
            if then:
                await then()
        except asyncio.CancelledError:
            work.ending = Ending.INTERRUPTED
        except (InfrastructureError, MachinesGoneError) as error:
            work.ending, work.trouble = Ending.TROUBLE, str(error)
        if not self.versions:
            self.versions = self._lines({})

    async def _reduce(self) -> None:
        work = self.work
        work.begin()
        done = await self.driver(
            work.best, self.interest.begin, effort=work.effort, watch=self._heard
        )
        work.take(done.text)
        work.end(done.ledger, done.tests, is_finished=done.is_finished)
        self.is_minimal = done.is_minimal if done.is_finished else None

    def _heard(self, pass_name: str, tests: int, text: str | None) -> None:
        self.work.calls = self.interest.calls
        self.work.heard(pass_name, tests, text=text)

    async def _ask_all(self) -> dict[str, Reaction]:
        """What every installed version does; with a script, none is asked."""
        if self.interest.fingerprint.script:
            return {}
        self.work.watch.stage(f"asking every installed {self.name}")
        return await ask_all(self.interest.oracle, self.work.best, self.at_hand.tools.values())

    def _diverged(self, now: Mapping[str, Reaction]) -> tuple[str, ...]:
        """Versions that answered otherwise for the original; numbers are asked of one only."""
        fingerprint = self.interest.fingerprint
        if fingerprint.signature is None:
            return ()
        answers = {version: fingerprint.answer(each) for version, each in now.items()}
        original = self.at_hand.answers(fingerprint)
        return drifted(original, answers, keeps_refusals=self.keeps_refusals)

    async def _go_back(self, diverged: tuple[str, ...]) -> None:
        """Return to the last step that had not diverged, and ask these versions from there on."""
        interest = self.interest
        interest.fingerprint = interest.fingerprint.with_guards(
            self.at_hand.answers(interest.fingerprint), diverged
        )
        history = self.work.history
        first, last = 0, len(history) - 1
        while last - first > 1:
            middle = (first + last) // 2
            if await interest.holds(history[middle]):
                first = middle
            else:
                last = middle
        names = ", ".join(diverged)
        self.work.note(f"{self.name} {names} differed from the original: from there on asked, too")
        text = history[first]
        del history[first + 1 :]
        self.work.take(text)
        self.work.log("went back", {"versions": diverged})

    def _lines(self, now: Mapping[str, Reaction]) -> tuple[VersionLine, ...]:
        fingerprint = self.interest.fingerprint
        lines = []
        for version, answer in self.at_hand.answers(fingerprint).items():
            mine = now.get(version)
            lines.append(
                VersionLine(
                    version=version,
                    original=answer,
                    original_words=fingerprint.described(self.at_hand.reactions[version]),
                    minimized=fingerprint.answer(mine) if mine else None,
                    minimized_words=fingerprint.described(mine) if mine else "",
                    minimized_kind=mine.verdict if mine else None,
                )
            )
        return tuple(lines)
