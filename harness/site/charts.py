"""Numbers over toolchains, and predicted ranks, as points of a drawing. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from harness.site.squares import ToolchainKey, toolchain_of_cell, toolchains_in_order
from harness.tables.charts import HEIGHT, LEFT, TOP, WIDTH, Chart, charts_over
from harness.values.bug import BugFacts
from harness.values.limits import Limits
from harness.values.verdict import VerdictKind
from harness.workaround.rank.result import KeptRank


def charts_of(cells: Sequence[BugFacts], limits: Limits | None) -> list[Chart]:
    """A chart for each number that is known of any cell and is not always 0."""
    by_toolchain: dict[ToolchainKey, list[BugFacts]] = defaultdict(list)
    for facts in cells:
        if VerdictKind(facts.verdict).compiles:
            by_toolchain[toolchain_of_cell(facts)].append(facts)
    columns = toolchains_in_order(map(toolchain_of_cell, cells))
    return charts_over(
        [(each.label.replace("\n", ", "), by_toolchain[each]) for each in columns], limits
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
    width: float = WIDTH
    height: float = HEIGHT


def rank_chart(kept: KeptRank) -> RankChart:
    """The chart of an order that is kept."""
    times = [each.time for each in kept.configs if each.time is not None]
    most = max(times, default=None)
    least_cost = min((each.cost for each in kept.configs if each.cost is not None), default=None)
    step = (WIDTH - 2 * LEFT) / max(1, len(kept.configs) - 1)
    points = []
    for index, each in enumerate(kept.configs):
        y = None
        if each.time is not None and most:
            y = round(TOP + (1 - each.time / most) * (HEIGHT - 2 * TOP), 1)
        points.append(
            RankPoint(
                rank=index + 1,
                label=each.label,
                verdict=each.verdict,
                expected=each.cost / least_cost if each.cost is not None and least_cost else None,
                time=each.time,
                x=round(LEFT + index * step, 1),
                y=y,
            )
        )
    return RankChart(kept=kept, points=tuple(points), best=min(times, default=None), most=most)
