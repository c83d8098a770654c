"""PTX under way: its driver, and what each instruction that is left is needed for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from gpu_emulator.ptx.text.document import parse
from harness.minimize.ptx.defined import undefined_registers
from harness.minimize.ptx.order import count_instructions, reduce_ptx, single_deletions
from harness.minimize.reduction.driver import Effort
from harness.minimize.reduction.fingerprint import Fingerprint, Reaction
from harness.minimize.reduction.interest import Oracle
from harness.minimize.reduction.result import Ablation, Ending, Size
from harness.minimize.reduction.work import Driven, HeldReduction
from harness.values.toolchain import Assembler

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


@dataclass(frozen=True, slots=True, kw_only=True)
class PtxDriver:
    """Reduces PTX; see `harness.minimize.reduction.work.Driver`.

    `is_defined`: what comes out reads no more registers that nothing wrote; with `is_always`, no
    candidate does.
    """

    is_defined: bool
    is_always: bool = False

    async def __call__(
        self,
        text: str,
        is_interesting: Callable[[str], Awaitable[bool]],
        *,
        effort: Effort,
        watch: Callable[[str, int, str | None], None],
    ) -> Driven:
        """One reduction."""
        done = await reduce_ptx(
            text,
            is_interesting,
            defined=self.is_defined,
            always=self.is_always,
            effort=effort,
            watch=lambda heard: watch(heard.pass_name, heard.tests, heard.document),
        )
        return Driven(
            text=done.text,
            tests=done.tests,
            is_finished=done.is_finished,
            # Taking each instruction away alone says so.
            is_minimal=None,
            ledger=done.ledger,
        )


@dataclass(slots=True, kw_only=True)
class PtxWork:
    """A reduction of PTX, and what was found out about the result.

    `said`, where a predicate decides, is what it says of a text, in words.
    """

    held: HeldReduction[Assembler]
    oracle: Oracle[Assembler]
    is_defined: bool
    said: Callable[[str], Awaitable[tuple[bool, str]]] | None = None
    ablation: tuple[Ablation, ...] = ()
    not_ablated: int = 0

    async def run(self, *, is_done: bool) -> None:
        """Reduce, and take each instruction that is left away alone."""
        await self.held.run(is_done=is_done, then=self._ablate)

    @property
    def is_minimal(self) -> bool | None:
        """Whether no instruction can go alone; None where that was not tried out."""
        if not self.ablation or self.not_ablated:
            return None
        return all(each.is_needed for each in self.ablation)

    async def _ablate(self) -> None:
        """Take each instruction away alone, and see."""
        work = self.held.work
        work.watch.stage("taking each instruction away alone")
        deletions = single_deletions(work.best)
        if work.ending is not Ending.FINISHED and len(deletions) > _MAX_ABLATED_UNFINISHED:
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
        interest = self.held.interest
        if not self.oracle.is_possible(text):
            return Ablation(instruction=instruction, is_needed=True, words="it is not valid PTX")
        if self.said:
            holds, words = await self.said(text)
            return Ablation(instruction=instruction, is_needed=not holds, words=words)
        if self.is_defined and undefined_count(text) > undefined_count(self.held.work.best):
            words = "a register is read that nothing may have written (--defined)"
            return Ablation(instruction=instruction, is_needed=True, words=words)
        for version in interest.fingerprint.checks:
            reaction = await self.oracle.react(text, interest.tools[version])
            if not interest.fingerprint.passes(version, reaction):
                words = f"ptxas {version}: {_did(reaction, interest.fingerprint)}"
                return Ablation(instruction=instruction, is_needed=True, words=words)
        if not await interest.is_held(text):
            asked = interest.fingerprint
            words = f"ptxas {asked.bad} no longer accepts it for {asked.held_for}"
            return Ablation(instruction=instruction, is_needed=True, words=words)
        return Ablation(instruction=instruction, is_needed=False, words="still the same")


def _did(reaction: Reaction, fingerprint: Fingerprint) -> str:
    if fingerprint.condition is not None and reaction.is_accepted:
        return fingerprint.described(reaction)
    if reaction.is_accepted:
        return "accepts it"
    more = sorted(reaction.errors - (fingerprint.errors or reaction.errors))
    said = f"; it also says: {'; '.join(more)}" if more else ""
    return f"{reaction.verdict.value}: {reaction.reason}{said}"
