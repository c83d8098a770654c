"""A reduction at the level of PTX under way: reduces, holds the pattern, and says what is left."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace

from harness.logic.fingerprint import Answer, Fingerprint, Reaction, drifted
from harness.logic.minimization import Ablation, Ending, Size, VersionLine
from harness.logic.ptx_defined import undefined_registers
from harness.logic.ptx_document import parse
from harness.logic.ptx_reduction import count_instructions, reduce_ptx, single_deletions
from harness.logic.reduction import Progress
from harness.values.errors import InfrastructureError
from harness.verbs.minimizing_references import AtHand
from harness.verbs.minimizing_work import Work
from harness.verbs.ptx_oracle import Interest

__all__ = ["PtxWork", "size_of", "undefined_count"]

# How many instructions are taken away singly; fewer where the budget ended it.
_MAX_ABLATED = 400
_MAX_ABLATED_UNFINISHED = 100


def size_of(text: str) -> Size:
    """How large a PTX text is."""
    return Size(
        instructions=count_instructions(text),
        bytes=len(text.encode()),
        lines=len(text.splitlines()),
    )


def undefined_count(text: str) -> int:
    """How many registers it may read that nothing has written."""
    return undefined_registers(parse(text)).total()


@dataclass(slots=True, kw_only=True)
class PtxWork:
    """One PTX, what is interesting about it, and what was found out about the result."""

    work: Work
    interest: Interest
    at_hand: AtHand
    jobs: int
    seed: int
    is_defined: bool
    versions: tuple[VersionLine, ...] = ()
    ablation: tuple[Ablation, ...] = ()
    not_ablated: int = 0

    async def run(self) -> None:
        """Reduce until nothing is left to try or to spend; Ctrl-C and trouble keep the best."""
        work = self.work
        try:
            while True:
                await self._reduce()
                work.watch.stage("asking every ptxas at hand")
                now = await self._reactions(work.best)
                strayed = self._strayed(now)
                if not strayed:
                    break
                await self._go_back(strayed)
            self.versions = self._lines(now)
            await self._ablate()
        except asyncio.CancelledError:
            work.ending = Ending.INTERRUPTED
        except InfrastructureError as error:
            work.ending, work.trouble = Ending.TROUBLE, str(error)
        if not self.versions:
            self.versions = self._lines({})

    @property
    def is_minimal(self) -> bool | None:
        """Whether no instruction can go alone; None where that was not tried out."""
        if not self.ablation or self.not_ablated:
            return None
        return all(each.is_needed for each in self.ablation)

    async def _reduce(self) -> None:
        work = self.work
        work.begin()
        reduction = await reduce_ptx(
            work.best,
            self._begin,
            defined=self.is_defined,
            jobs=self.jobs,
            seed=self.seed,
            max_tests=work.tests_left,
            is_time_up=work.is_time_up,
            watch=self._heard,
        )
        work.take(reduction.text)
        work.end(reduction.ledger, reduction.tests, is_finished=reduction.is_finished)

    def _begin(self, text: str) -> asyncio.Future[bool]:
        return self.interest.begin(text)

    def _heard(self, progress: Progress[str]) -> None:
        self.work.calls = self.interest.calls
        self.work.heard(progress.pass_name, progress.tests, text=progress.document)

    async def _reactions(self, text: str) -> dict[str, Reaction]:
        """What every version at hand does; with a script, nobody is asked."""
        if self.interest.fingerprint.script:
            return {}
        return await self.interest.oracle.reactions(text, self.at_hand.tools.values())

    def _strayed(self, now: Mapping[str, Reaction]) -> tuple[str, ...]:
        """Versions that fared otherwise with the original; numbers are asked of one only."""
        fingerprint = self.interest.fingerprint
        if fingerprint.signature is None:
            return ()
        answers = {version: fingerprint.answer(each) for version, each in now.items()}
        return drifted(self.at_hand.answers(fingerprint), answers)

    async def _go_back(self, strayed: tuple[str, ...]) -> None:
        """Return to the last step that had not strayed, and ask these versions from there on."""
        fingerprint = self.interest.fingerprint
        wanted = self.at_hand.answers(fingerprint)
        same = tuple(version for version in strayed if wanted[version] is Answer.SAME)
        accepting = tuple(version for version in strayed if wanted[version] is Answer.ACCEPTS)
        fingerprint = replace(
            fingerprint,
            failing=(*fingerprint.failing, *same),
            accepting=(*fingerprint.accepting, *accepting),
        )
        self.interest.fingerprint = fingerprint
        history = self.work.history
        first, last = 0, len(history) - 1
        while last - first > 1:
            middle = (first + last) // 2
            if await self.interest.holds(history[middle]):
                first = middle
            else:
                last = middle
        note = f"ptxas {', '.join(strayed)} fared otherwise than with the original: asked as well"
        self.work.note(note)
        text = history[first]
        del history[first + 1 :]
        self.work.take(text)
        self.work.log("went back", {"versions": strayed})

    def _lines(self, now: Mapping[str, Reaction]) -> tuple[VersionLine, ...]:
        fingerprint = self.interest.fingerprint
        lines = []
        for version, answer in self.at_hand.answers(fingerprint).items():
            mine = now.get(version)
            lines.append(
                VersionLine(
                    version=version,
                    original=answer,
                    original_words=fingerprint.told(self.at_hand.reactions[version]),
                    minimized=fingerprint.answer(mine) if mine else None,
                    minimized_words=fingerprint.told(mine) if mine else "",
                )
            )
        return tuple(lines)

    async def _ablate(self) -> None:
        """Take each instruction away alone, and see."""
        self.work.watch.stage("taking each instruction away alone")
        deletions = single_deletions(self.work.best)
        if self.work.ending is not Ending.FINISHED and len(deletions) > _MAX_ABLATED_UNFINISHED:
            return
        self.not_ablated = max(0, len(deletions) - _MAX_ABLATED)
        tasks = [
            asyncio.ensure_future(self._without(instruction, text))
            for instruction, text in deletions[:_MAX_ABLATED]
        ]
        try:
            self.ablation = tuple(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()

    async def _without(self, instruction: str, text: str) -> Ablation:
        interest = self.interest
        if interest.oracle.facts(text) is None:
            return Ablation(instruction=instruction, is_needed=True, words="it is no PTX")
        if interest.script:
            holds = await interest.holds(text)
            words = "still interesting" if holds else "the script says no"
            return Ablation(instruction=instruction, is_needed=not holds, words=words)
        if self.is_defined and undefined_count(text) > undefined_count(self.work.best):
            words = "a register is read that nothing may have written (--defined)"
            return Ablation(instruction=instruction, is_needed=True, words=words)
        for version in interest.fingerprint.checks:
            reaction = await interest.oracle.react(text, interest.tools[version])
            if not interest.fingerprint.passes(version, reaction):
                words = f"ptxas {version}: {_did(reaction, interest.fingerprint)}"
                return Ablation(instruction=instruction, is_needed=True, words=words)
        return Ablation(instruction=instruction, is_needed=False, words="still the same")


def _did(reaction: Reaction, fingerprint: Fingerprint) -> str:
    if fingerprint.condition is not None and reaction.is_accepted:
        return fingerprint.told(reaction)
    return "accepts it" if reaction.is_accepted else f"{reaction.verdict.value}: {reaction.reason}"
