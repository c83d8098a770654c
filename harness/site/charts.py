"""Numbers over toolchains as lines of a chart: the points are computed here, drawn by a template.

Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import median_low

from harness.ranking.result import KeptRank
from harness.site.squares import ToolchainKey, toolchain_of_cell, toolchains_in_order
from harness.values.bug import BugFacts
from harness.values.limits import Limits
from harness.values.verdict import VerdictKind

__all__ = ["Chart", "ChartPoint", "RankChart", "RankPoint", "charts_of", "rank_chart"]

_WIDTH, _HEIGHT = 640.0, 140.0
_LEFT, _TOP = 8.0, 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartPoint:
    """The least, the median and the most of all configs that compile with one toolchain.

    `x` and the three `*_y` are in units of the drawing, whose origin is above at the left.
    """

    label: str
    low: float
    middle: float
    high: float
    x: float
    low_y: float
    middle_y: float
    high_y: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """One number over the toolchains, in order.

    `stretches` are points without a gap: a gap is a toolchain with which nothing compiles.
    `limit` is what one thread or block may have; `limit_y` is None where it lies far above.
    """

    title: str
    unit: str
    width: float
    height: float
    most: float
    stretches: tuple[tuple[ChartPoint, ...], ...]
    gaps: tuple[str, ...]
    limit: float | None
    limit_y: float | None


def charts_of(cells: Sequence[BugFacts], limits: Limits | None) -> list[Chart]:
    """A chart for each number that is known of any cell and is not always 0."""
    wanted: tuple[tuple[str, str, Callable[[BugFacts], float | None], float | None], ...] = (
        (
            "registers",
            "",
            lambda each: each.n_regs,
            limits.max_registers_per_thread if limits else None,
        ),
        ("spills", "bytes", _spills, None),
        (
            "shared memory",
            "bytes",
            lambda each: each.shared,
            limits.max_shared_per_block if limits else None,
        ),
        (
            "tensor memory",
            "columns",
            lambda each: each.tmem_size,
            limits.tensor_memory_columns or None if limits else None,
        ),
        ("occupancy", "%", _percent, 100),
    )
    columns = toolchains_in_order(map(toolchain_of_cell, cells))
    by_toolchain: dict[ToolchainKey, list[BugFacts]] = defaultdict(list)
    for facts in cells:
        if VerdictKind(facts.verdict).compiles:
            by_toolchain[toolchain_of_cell(facts)].append(facts)
    found = []
    for title, unit, number, limit in wanted:
        values = [
            sorted(v for facts in by_toolchain[each] if (v := number(facts)) is not None)
            for each in columns
        ]
        if any(map(any, values)):
            found.append(_chart(title, unit, [each.label for each in columns], values, limit))
    return found


def _spills(facts: BugFacts) -> int | None:
    if facts.spill_stores is None or facts.spill_loads is None:
        return None
    return facts.spill_stores + facts.spill_loads


def _percent(facts: BugFacts) -> float | None:
    return None if facts.occupancy is None else round(facts.occupancy * 100, 1)


def _chart(
    title: str,
    unit: str,
    labels: Sequence[str],
    values: Sequence[Sequence[float]],
    limit: float | None,
) -> Chart:
    most = max(max(each) for each in values if each)
    # A limit that is far away would flatten the line: it is named, and not drawn.
    is_near = limit is not None and limit <= most * 2
    top = max(most, limit) if limit is not None and is_near else most
    step = (_WIDTH - 2 * _LEFT) / max(1, len(labels) - 1)

    def y(value: float) -> float:
        return round(_TOP + (1 - value / top) * (_HEIGHT - 2 * _TOP), 1)

    def point(index: int) -> ChartPoint:
        low, middle, high = values[index][0], median_low(values[index]), values[index][-1]
        return ChartPoint(
            label=labels[index].replace("\n", ", "),
            low=low,
            middle=middle,
            high=high,
            x=round(_LEFT + index * step, 1),
            low_y=y(low),
            middle_y=y(middle),
            high_y=y(high),
        )

    stretches = tuple(
        tuple(map(point, indices))
        for is_known, indices in groupby(range(len(labels)), key=lambda index: bool(values[index]))
        if is_known
    )
    return Chart(
        title=title,
        unit=unit,
        width=_WIDTH,
        height=_HEIGHT,
        most=most,
        stretches=stretches,
        gaps=tuple(
            label.replace("\n", ", ")
            for label, each in zip(labels, values, strict=True)
            if not each
        ),
        limit=limit,
        limit_y=y(limit) if limit is not None and is_near else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPoint:
    """One config: its predicted rank from 1, and its measured milliseconds where it was timed.

    `expected` is its expected cost over the least; `x` and `y` are in units of the drawing.
    """

    rank: int
    label: str
    verdict: str
    expected: float | None
    time: float | None
    x: float
    y: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankChart:
    """Predicted ranks against measured times; `best` is the least of these, None without any."""

    kept: KeptRank
    points: tuple[RankPoint, ...]
    best: float | None
    most: float | None
    width: float = _WIDTH
    height: float = _HEIGHT


def rank_chart(kept: KeptRank) -> RankChart:
    """The chart of an order that is kept."""
    times = [each.time for each in kept.configs if each.time is not None]
    most = max(times, default=None)
    least_cost = min((each.cost for each in kept.configs if each.cost is not None), default=None)
    step = (_WIDTH - 2 * _LEFT) / max(1, len(kept.configs) - 1)
    points = []
    for index, each in enumerate(kept.configs):
        y = None
        if each.time is not None and most:
            y = round(_TOP + (1 - each.time / most) * (_HEIGHT - 2 * _TOP), 1)
        points.append(
            RankPoint(
                rank=index + 1,
                label=each.label,
                verdict=each.verdict,
                expected=each.cost / least_cost if each.cost is not None and least_cost else None,
                time=each.time,
                x=round(_LEFT + index * step, 1),
                y=y,
            )
        )
    return RankChart(kept=kept, points=tuple(points), best=min(times, default=None), most=most)
