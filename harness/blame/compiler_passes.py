"""The pass behind which a compiler's program goes wrong: of its own passes, or of its LLVM's.

Passes that a compilation cannot do without are never left out, so what goes wrong without all the
others comes about before them, or in one of these. LLVM knows which they are
(`-opt-bisect-limit`). The compiler's own are tried: a pass is needed where the kernel is not
lowered without it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from harness.blame.grid import PairTrial, Varied
from harness.frontends.base import PartLowering
from harness.frontends.bench import Kept, Workbench
from harness.frontends.plan import PlannedCell
from harness.frontends.registry import front_end
from harness.io.processes.tasks import in_parallel
from harness.judging.answers import VerdictAnswer
from harness.values.outcome import Lowering
from harness.values.verdict import Stage

# So many numbers of passes may tell nothing; so many passes are left out at a time then.
_MOST_HOLES, _FEW = 5, 4

Looked = tuple[VerdictAnswer, str, str]
"""Whether the failure is there, and the verdict with its reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Passes:
    """The passes of one compilation, and what comes of it without some of them.

    `part` lowers with some, `look` says whether the failure is there. `optional` are the places of
    passes that it can do without.
    """

    part: Callable[..., Awaitable[PartLowering | None]]
    look: Callable[[Kept[Lowering]], Awaitable[Looked]]
    over: Varied
    names: Sequence[str]
    optional: Sequence[int]

    async def without(self, places: Sequence[int]) -> Looked | None:
        lowered = await self.part(without=places)
        return await self.look(lowered.lowering) if lowered else None

    async def with_first(self, count: int) -> Looked | None:
        if self.over is Varied.MLIR:
            return await self.without(self.optional[count:])
        lowered = await self.part(llvm=count)
        return await self.look(lowered.lowering) if lowered else None

    async def next_one(self, looked: Looked) -> tuple[str, Looked] | None:
        """The pass behind the most that work, by halves; `looked` is with none of them."""
        names, optional = self.names, self.optional
        works, fails = (0 if looked[0] is VerdictAnswer.OK else -1), len(optional)
        # Of what is neither the failure nor works, nothing follows: the nearest is tried.
        holes = {0}
        while len(holes) < _MOST_HOLES:
            left = [count for count in range(works + 1, fails) if count not in holes]
            if not left:
                break
            middle = min(left, key=lambda count: abs(2 * count - works - fails))
            now = await self.with_first(middle)
            if now is None:
                return None
            if now[0] is VerdictAnswer.OK:
                works, looked = middle, now
            elif now[0] is VerdictAnswer.SAME:
                fails = middle
            else:
                holes.add(middle)
        if works < 0:
            return None
        guilty = optional[works:fails]
        words = f"it works with the first {works} of {len(optional)}, and fails with the next"
        words = f"{words}, {' or '.join(names[place] for place in guilty)}"
        if self.over is Varied.MLIR and len(guilty) == 1:
            alone = await self.without(guilty)
            if alone and alone[0].moves_a_bound:
                does = "works" if alone[0] is VerdictAnswer.OK else "fails"
                words += f"; without that one alone it {does}"
        return words, looked

    async def needed_few(self) -> tuple[str, Looked] | None:
        """The pass without which it works, or a few, where the others stay.

        A pass that is lowered without may be needed all the same, for a fence say.
        """
        for end in range(len(self.optional), 0, -_FEW):
            some = self.optional[max(0, end - _FEW) : end]
            now = await self.without(some)
            if now is None or now[0] is not VerdictAnswer.OK:
                continue
            for place in reversed(some):
                one = await self.without([place])
                if one and one[0] is VerdictAnswer.OK:
                    some, now = [place], one
                    break
            return f"without {', '.join(self.names[place] for place in some)} it works", now
        return None

    def elsewhere(self) -> str:
        """What is said where the failure is there without any of them."""
        needed = [name for place, name in enumerate(self.names) if place not in self.optional]
        words = "without any of them it is the same: it comes about elsewhere"
        return words + f", or in one that it needs ({', '.join(needed)})" * bool(needed)


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

    # Without the first ones, LLVM does not come to say all names of the last.
    whole = await (part(llvm=-1) if over is Varied.LLVM else part(until=Stage.LLIR))
    if whole is None or not whole.passes:
        return None
    optional = list(range(len(whole.passes)))
    if over is Varied.MLIR:
        answers = await in_parallel(map(is_optional, optional))
        optional = [place for place in optional if answers[place]]
    passes = _Passes(part=part, look=look, over=over, names=whole.passes, optional=optional)
    looked = await passes.with_first(0)
    if looked is None:
        return None
    is_same = looked[0] is VerdictAnswer.SAME
    found = None if is_same else await passes.next_one(looked)
    if found is None and over is Varied.MLIR:
        found = await passes.needed_few()
    if found is None and is_same:
        found = passes.elsewhere(), looked
    if found is None:
        return None
    label, (after, verdict, reason) = found
    return PairTrial(
        label=label,
        varied=over,
        version=cell.compiler.version,
        assembler=ptxas,
        after=after,
        verdict=verdict,
        reason=reason,
    )
