"""The pass of LLVM behind which a compiler's program goes wrong: some nine compilations.

Passes that a compilation cannot do without are never left out (`-opt-bisect-limit` of LLVM), so
what goes wrong without all the others comes about before LLVM, or in one of these.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from harness.blame.grid import PairTrial, Varied
from harness.frontends.base import PlannedCell
from harness.frontends.bench.bench import Kept, Workbench
from harness.frontends.registry import front_end
from harness.judging.answers import VerdictAnswer
from harness.values.outcome import Lowering

Looked = tuple[VerdictAnswer, str, str]
"""Whether the failure is there, and the verdict with its reason."""


async def find_pass(
    bench: Workbench,
    cell: PlannedCell,
    ptxas: str,
    look: Callable[[Kept[Lowering]], Awaitable[Looked]],
) -> PairTrial | None:
    """The last trial that works; `SAME` where none of LLVM's passes matters, None where unknown.

    `look` says whether a lowering still shows the failure; `ptxas` names what took its program.

    Raises:
        InfrastructureError: this machine failed.
    """
    names: tuple[str, ...] = ()

    async def try_first(passes: int) -> Looked | None:
        nonlocal names
        if cell.launch is None or cell.record is None:
            return None
        part = await front_end(cell.compiler.kind).lower_part(
            bench, cell.launch, cell.record, ptxas=cell.seen_ptxas, passes=passes
        )
        if part is None:
            return None
        # The list of one that dies ends there.
        names = max(names, part.passes, key=len)
        return await look(part.lowering)

    def trial(label: str, looked: Looked) -> PairTrial:
        after, verdict, reason = looked
        return PairTrial(
            label=label,
            varied=Varied.LLVM,
            version=cell.compiler.version,
            assembler=ptxas,
            before=VerdictAnswer.SAME,
            after=after,
            verdict=verdict,
            reason=reason,
        )

    looked = await try_first(0)
    if looked is None or not looked[0].moves_a_bound:
        return None
    if looked[0] is VerdictAnswer.SAME:
        return trial("without any of them it is the same: it comes about before", looked)
    works, fails = 0, len(names)
    while fails - works > 1:
        middle = (works + fails) // 2
        now = await try_first(middle)
        if now is None or not now[0].moves_a_bound:
            return None
        if now[0] is VerdictAnswer.OK:
            works, looked = middle, now
        else:
            fails = middle
    words = (
        f"it works with the first {works} of {len(names)}, and fails with the next, {names[works]}"
    )
    return trial(words, looked)
