"""The page of a kernel on one target: what survives where, and its numbers over versions. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from harness.cells.spelling import SelectionOptions, spell_command
from harness.site import squares
from harness.tables.charts import HEIGHT, LEFT, TOP, WIDTH, Chart, charts_over
from harness.values.bug import BugFacts
from harness.values.limits import Limits, limits_of
from harness.values.verdict import VerdictKind
from harness.workaround.rank.order import KeptRank

# Numbers over toolchains, and predicted ranks, as points of a drawing.


def charts_of(cells: Sequence[BugFacts], limits: Limits | None) -> list[Chart]:
    """A chart for each number that is known of any cell and is not always 0."""
    by_toolchain: dict[squares.ToolchainKey, list[BugFacts]] = defaultdict(list)
    for facts in cells:
        if VerdictKind(facts.verdict).compiles:
            by_toolchain[squares.toolchain_of_cell(facts)].append(facts)
    columns = squares.toolchains_in_order(map(squares.toolchain_of_cell, cells))
    return charts_over(
        [(column.label.replace("\n", ", "), by_toolchain[column]) for column in columns], limits
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
    times = [config.time for config in kept.configs if config.time is not None]
    most = max(times, default=None)
    least_cost = min(
        (config.cost for config in kept.configs if config.cost is not None), default=None
    )
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


_MOST_LAUNCHES = 40
_CAPABILITY = re.compile(r"sm_(\d+)[a-z]?")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelView:
    """A kernel on a target: for each launch its grid, its charts, and its order if one is kept."""

    kernel: str
    target: str
    cells: int
    letters: tuple[squares.Square, ...]
    launches: tuple[tuple[squares.SquareGrid, tuple[Chart, ...], RankChart | None], ...]
    command: str
    left_out: str = ""


def kernel_view(
    kernel: str,
    target: str,
    cells: Sequence[BugFacts],
    href_of: Callable[[str], str],
    ranks: Mapping[str, KeptRank] = MappingProxyType({}),
    most: int = squares.MOST_SQUARES,
) -> KernelView:
    """All launches of one kernel on one target; they share what one page may hold.

    `ranks` are the orders of configs that are kept, by launch.
    """
    by_launch: dict[str, list[BugFacts]] = defaultdict(list)
    for facts in cells:
        by_launch[facts.launch].append(facts)
    match = _CAPABILITY.fullmatch(target)
    limits = limits_of(int(match[1])) if match else None
    shown = list(by_launch.items())[:_MOST_LAUNCHES]
    gone = len(by_launch) - len(shown)
    return KernelView(
        kernel=kernel,
        target=target,
        cells=len(cells),
        letters=tuple(squares.letters_of(facts.verdict for facts in cells)),
        launches=tuple(
            (
                squares.config_grid(launch, found, href_of, most // len(shown)),
                tuple(charts_of(found, limits)),
                rank_chart(ranks[launch]) if launch in ranks else None,
            )
            for launch, found in shown
        ),
        command=spell_command("history", SelectionOptions(kernel=kernel, sm=[target])),
        left_out=f"{gone:,} of {len(by_launch):,} launches; the rows have all." if gone else "",
    )
