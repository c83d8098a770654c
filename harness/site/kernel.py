"""The page of a kernel on one target: what survives where, and its numbers over versions. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from harness.cells.spelling import SelectionOptions, spell_command
from harness.site.charts import RankChart, charts_of, rank_chart
from harness.site.squares import MOST_SQUARES, Square, SquareGrid, config_grid, letters_of
from harness.tables.charts import Chart
from harness.values.bug import BugFacts
from harness.values.limits import limits_of
from harness.workaround.rank.result import KeptRank

_MOST_LAUNCHES = 40
_CAPABILITY = re.compile(r"sm_(\d+)[a-z]?")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelView:
    """A kernel on a target: for each launch its grid, its charts, and its order if one is kept."""

    kernel: str
    target: str
    cells: int
    letters: tuple[Square, ...]
    launches: tuple[tuple[SquareGrid, tuple[Chart, ...], RankChart | None], ...]
    command: str
    left_out: str = ""


def kernel_view(
    kernel: str,
    target: str,
    cells: Sequence[BugFacts],
    href_of: Callable[[str], str],
    ranks: Mapping[str, KeptRank] = MappingProxyType({}),
    most: int = MOST_SQUARES,
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
        letters=tuple(letters_of(facts.verdict for facts in cells)),
        launches=tuple(
            (
                config_grid(launch, found, href_of, most // len(shown)),
                tuple(charts_of(found, limits)),
                rank_chart(ranks[launch]) if launch in ranks else None,
            )
            for launch, found in shown
        ),
        command=spell_command("history", SelectionOptions(kernel=kernel, sm=[target])),
        left_out=f"{gone:,} of {len(by_launch):,} launches; the rows have all." if gone else "",
    )
