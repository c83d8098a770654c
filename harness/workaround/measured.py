"""Candidates on a GPU: launched as the user launches the kernel, timed in turns with what there is.

What is measured decides the order. A candidate that is not faster is none; one that faults is none
either. That the bits are those of today's config, on the same memory, is said where it is so; where
they are not, what was known of the numerics before stands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from harness.frontends.base import PlannedCell
from harness.frontends.bench.bench import Workbench
from harness.values.row import Row
from harness.values.timing import Faster, compare_times
from harness.workaround.result import Candidate, Equivalence, Numerics, Speedup

if TYPE_CHECKING:
    from harness.run.gpu.timed_launches import GpuWay, TimedLaunch


async def measure_candidates(
    bench: Workbench,
    way: GpuWay,
    today: tuple[PlannedCell, Row],
    candidates: Sequence[tuple[PlannedCell, Candidate]],
    command: str,
    tell: Callable[[str], None],
) -> tuple[Row, list[Candidate], list[str]] | str:
    """Today's row and the candidates with their times, the fastest first; and what to say besides.

    The name of the pack, where they went into one: nothing is measured then.

    Raises:
        EmptySelectionError: nothing can be launched.
        InfrastructureError: there is no GPU, or no results came back.
    """
    from harness.run.gpu.timed_launches import time_by  # noqa: PLC0415 - numpy: 0.1 s

    wanted = [today, *((cell, each.row) for cell, each in candidates)]
    timed = await time_by(bench, way, [wanted], command, "whole", tell)
    if isinstance(timed, str):
        return timed
    return judge_timed(today[1], [each for _, each in candidates], timed)


def judge_timed(
    today: Row, candidates: Sequence[Candidate], timed: Mapping[str, TimedLaunch]
) -> tuple[Row, list[Candidate], list[str]]:
    """As `measure_candidates`, of what a GPU said of each cubin by its sha256."""
    before = timed.get(today.cubin_sha256 or "")
    notes = [] if before is None or before.time else [f"today's config: {before.problem}"]
    kept: list[Candidate] = []
    known: dict[str | None, Candidate] = {}
    for each in candidates:
        after = timed.get(each.row.cubin_sha256 or "")
        same = known.setdefault(each.row.cubin_sha256, each)
        if each.row.cubin_sha256 and same is not each:
            notes.append(f"{each.change}: not shown: the same cubin as {same.change}")
            continue
        if after is None:
            notes.append(f"{each.change}: not measured")
            kept.append(each)
        elif after.time is None:
            notes.append(f"{each.change}: not shown: on {after.device}, {after.problem}")
        elif before and before.time and compare_times(before.time, after.time) is Faster.FIRST:
            ratio = after.time.median / before.time.median
            notes.append(f"{each.change}: not shown: {ratio:.2f} times as slow on {after.device}")
        else:
            kept.append(_with_time(each, before, after))
    kept.sort(
        key=lambda each: (
            not each.is_for_today,
            each.row.time_ms.median if each.row.time_ms else float("inf"),
        )
    )
    if before is not None:
        today = replace(today, time_ms=before.time)
    return today, kept, notes


def _with_time(each: Candidate, before: TimedLaunch | None, after: TimedLaunch) -> Candidate:
    assert after.time is not None
    row = replace(each.row, time_ms=after.time)
    if before is None or before.time is None:
        return replace(each, row=row, speedup=Speedup(device=after.device))
    faster = compare_times(before.time, after.time)
    is_same = None
    if before.digest is not None and after.digest is not None:
        is_same = before.digest == after.digest
    speedup = Speedup(
        device=after.device,
        times=before.time.median / after.time.median if after.time.median else None,
        is_ambiguous=faster is Faster.AMBIGUOUS,
        is_bit_identical=is_same,
    )
    numerics = _identical(after) if is_same and (after.finite or 0) > 0 else each.numerics
    return replace(each, row=row, speedup=speedup, numerics=numerics)


def _identical(after: TimedLaunch) -> Numerics:
    """What equal bits say, and of what."""
    share = f"{after.finite:.0%} of the numbers looked at are finite" if after.finite else ""
    return Numerics(
        known=Equivalence.MEASURED,
        reason=f"bit-identical to today's config on {after.device}: all {after.bytes:,} bytes that "
        f"the launch was given, filled with a pattern before; {share}",
    )
