"""PTX that is reduced under one of our predicates: it says of a text whether it still shows it.

`PtxPredicate` is all that such a reduction knows of how candidates are tried: on the emulator, or
on a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from harness.io.processes.hub import ResourceLimits
from harness.minimize.ptx.report import ptx_report
from harness.minimize.ptx.work import PtxDriver, PtxWork, size_of
from harness.minimize.reduction.fingerprint import Answer, Fingerprint, Reaction
from harness.minimize.reduction.interest import AtHand, Interest
from harness.minimize.reduction.result import Minimization, Uninteresting
from harness.minimize.reduction.work import STARTED_OVER, HeldReduction, Reducing
from harness.values.outcome import ProcessEnd
from harness.values.toolchain import Assembler
from harness.values.verdict import Stage, VerdictKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
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


class PtxPredicate(Protocol):
    """Says of candidates whether they still show what is looked for."""

    def is_possible(self, text: str) -> bool:
        """Whether it is worth asking: nothing is run for this."""

    async def ask(self, text: str) -> Said:
        """Try one text.

        Raises:
            InfrastructureError: this machine failed.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class _Oracle:
    """A predicate in the place of versions of ptxas: there are none that could be asked."""

    predicate: PtxPredicate

    def is_possible(self, text: str) -> bool:
        return self.predicate.is_possible(text)

    async def look(self, text: str, tool: Assembler) -> Reaction:
        return await self.react(text, tool)

    async def react(
        self,
        text: str,
        tool: Assembler,  # noqa: ARG002 - one program does one thing
        limits: ResourceLimits | None = None,  # noqa: ARG002 - the predicate has its own
    ) -> Reaction:
        said = await self.predicate.ask(text)
        return Reaction(
            verdict=VerdictKind.INFRA,
            reason=said.reason,
            is_accepted=said.answer is Answer.ACCEPTS,
            end=ProcessEnd(),
            stage=Stage.RUN,
        )


async def _is_still_same(predicate: PtxPredicate, text: str) -> bool:
    return predicate.is_possible(text) and (await predicate.ask(text)).is_same


async def minimize_by(
    reducing: Reducing,
    predicate: PtxPredicate,
    text: str,
    *,
    signature: str,
    by: str,
    is_defined: bool = False,
    is_always: bool = False,
    terms: Mapping[str, object] | None = None,
) -> Minimization | Uninteresting:
    """Reduce a text as long as the predicate says that it is the same; report.

    `signature` names what is looked for, `by` what executes candidates. `is_defined` leaves no more
    registers undefined than the text does, `is_always` in any candidate. `terms` are what else
    decides what comes out, for `--resume`.

    Raises:
        UsageError: the folder is taken.
        TriageError: the machine failed before the reduction began.
    """
    folder, options = reducing.folder(".ptx"), reducing.options
    first = await predicate.ask(text)
    if not first.is_same:
        return Uninteresting(reason=f"{reducing.subject.row.reason}; its PTX alone: {first.reason}")
    folder = folder.open(text, resume=options.resume)
    begun = folder.begun or text
    goes_on = begun == text or await _is_still_same(predicate, begun)
    best = begun if goes_on else text
    work = reducing.work(folder, best, size_of)
    if not goes_on:
        work.notes.append(STARTED_OVER)
    folder.keep(best)
    ptxas = reducing.subject.cell.ptxas

    async def holds(candidate: str) -> bool:
        return (await predicate.ask(candidate)).is_same

    interest: Interest[Assembler] = Interest(
        oracle=_Oracle(predicate=predicate),
        fingerprint=Fingerprint(bad=by, signature=signature),
        tools={},
        predicate=holds,
    )
    driver = PtxDriver(is_defined=is_defined, is_always=is_always)
    at_hand = AtHand[Assembler](text=text)
    held = HeldReduction(name="ptxas", work=work, interest=interest, at_hand=at_hand, driver=driver)

    async def said(candidate: str) -> tuple[bool, str]:
        found = await predicate.ask(candidate)
        return found.is_same, "still the same" if found.is_same else found.reason

    under_way = PtxWork(held=held, oracle=interest.oracle, is_defined=is_defined, said=said)
    is_done = reducing.begin(
        work, "ptx", interest.fingerprint, is_defined=is_defined, **(terms or {})
    )
    await under_way.run(is_done=is_done)
    work.finish(is_minimal=under_way.is_minimal)
    return ptx_report(
        reducing, under_way, ptxas, text, flags=(), limit=reducing.bench.limits.timeout
    )
