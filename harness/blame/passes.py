"""The pass behind which a compiler's program goes wrong: of its own passes, or of its LLVM's.

Passes that a compilation cannot do without are never left out, so what goes wrong without all the
others comes about before them, or in one of these. LLVM knows which they are
(`-opt-bisect-limit`). The compiler's own are tried: a pass is needed where the kernel is not
lowered without it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from harness.blame.grid import PairTrial, Varied
from harness.frontends.base import PlannedCell
from harness.frontends.bench.bench import Kept, Workbench
from harness.frontends.registry import front_end
from harness.judging.answers import VerdictAnswer
from harness.values.outcome import Lowering
from harness.values.verdict import Stage

# So many numbers of passes may tell nothing; so many passes are left out at a time then.
_MOST_HOLES, _FEW = 5, 4

Looked = tuple[VerdictAnswer, str, str]
"""Whether the failure is there, and the verdict with its reason."""


async def find_pass(
    bench: Workbench,
    cell: PlannedCell,
    ptxas: str,
    look: Callable[[Kept[Lowering]], Awaitable[Looked]],
    over: Varied,
) -> PairTrial | None:
    """The last trial that works; `SAME` where no pass `over` that matters, None where unknown.

    `look` says whether a lowering still shows the failure; `ptxas` names what took its program.
    `over` is MLIR for the compiler's own passes, or LLVM.

    Raises:
        InfrastructureError: this machine failed.
    """
    if cell.launch is None or cell.record is None:
        return None
    part = partial(
        front_end(cell.compiler.kind).lower_part,
        bench,
        cell.launch,
        cell.record,
        ptxas=cell.seen_ptxas,
    )

    async def is_optional(place: int) -> bool:
        lowered = await part(without=[place], until=Stage.LLIR)
        return bool(lowered and lowered.lowering.value.end.ok and not lowered.lowering.value.error)

    async def try_without(places: Sequence[int]) -> Looked | None:
        lowered = await part(without=places)
        return await look(lowered.lowering) if lowered else None

    async def try_first(count: int) -> Looked | None:
        if over is Varied.MLIR:
            return await try_without(optional[count:])
        lowered = await part(llvm=count)
        return await look(lowered.lowering) if lowered else None

    def trial(label: str, looked: Looked) -> PairTrial:
        after, verdict, reason = looked
        return PairTrial(
            label=label,
            varied=over,
            version=cell.compiler.version,
            assembler=ptxas,
            before=VerdictAnswer.SAME,
            after=after,
            verdict=verdict,
            reason=reason,
        )

    # Without the first ones, LLVM does not come to say all names of the last.
    whole = await (part(llvm=-1) if over is Varied.LLVM else part(until=Stage.LLIR))
    if whole is None or not whole.passes:
        return None
    names = whole.passes
    optional = list(range(len(names)))
    if over is Varied.MLIR:
        answers = await asyncio.gather(*map(is_optional, optional))
        optional = [place for place in optional if answers[place]]
    looked = await try_first(0)
    if looked is None:
        return None
    is_same = looked[0] is VerdictAnswer.SAME
    works, fails = (0 if looked[0] is VerdictAnswer.OK else -1), len(optional)
    # Of what is neither the failure nor works, nothing follows: the nearest beside it is tried.
    holes: set[int] = {0}
    while not is_same and len(holes) < _MOST_HOLES:
        left = [count for count in range(works + 1, fails) if count not in holes]
        if not left:
            break
        middle = min(left, key=lambda count: abs(2 * count - works - fails))
        now = await try_first(middle)
        if now is None:
            return None
        if now[0] is VerdictAnswer.OK:
            works, looked = middle, now
        elif now[0] is VerdictAnswer.SAME:
            fails = middle
        else:
            holes.add(middle)
    if works >= 0:
        guilty = [optional[count] for count in range(works, fails)]
        words = f"it works with the first {works} of {len(optional)}, and fails with the next"
        words = f"{words}, {' or '.join(names[place] for place in guilty)}"
        if over is Varied.MLIR and len(guilty) == 1:
            alone = await try_without(guilty)
            if alone and alone[0].moves_a_bound:
                does = "works" if alone[0] is VerdictAnswer.OK else "fails"
                words += f"; without that one alone it {does}"
        return trial(words, looked)
    # A pass that is lowered without may be needed all the same, for a fence say: few are left out.
    for end in range(len(optional), 0, -_FEW) if over is Varied.MLIR else ():
        some = optional[max(0, end - _FEW) : end]
        now = await try_without(some)
        if now is None or now[0] is not VerdictAnswer.OK:
            continue
        for place in reversed(some):
            one = await try_without([place])
            if one and one[0] is VerdictAnswer.OK:
                some, now = [place], one
                break
        return trial(f"without {', '.join(names[place] for place in some)} it works", now)
    if not is_same:
        return None
    needed = [name for place, name in enumerate(names) if place not in optional]
    words = "without any of them it is the same: it comes about elsewhere"
    if needed:
        words += f", or in one that it needs ({', '.join(needed)})"
    return trial(words, looked)
