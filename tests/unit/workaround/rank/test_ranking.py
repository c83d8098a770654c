"""Orders of configs: by times, else by spills and occupancy, and what an H200 measured of them."""

from __future__ import annotations

import lzma
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from harness.tables.said import SaidGrid, SaidLine
from harness.values.row import Row
from harness.values.timing import TimeMs
from harness.values.verdict import VerdictKind
from harness.workaround.rank.order import (
    RankedConfig,
    RankedLaunch,
    RankReport,
    quality_of,
    ranks_as_markdown,
    ranks_said,
    spearman,
)
from harness.workaround.rank.ranking import MeasuredError, rank_again

ROOT = Path(__file__).parents[4]
DATA = ROOT / "tests" / "data" / "gpu"


def test_regret_takes_the_slowest_of_equals() -> None:
    found = quality_of([1.0, 1.0, 2.0, 3.0], [4.0, 2.0, 1.0, 3.0])
    assert (found.first, found.top_three) == (3.0, 0.0)


@given(st.lists(st.floats(1e-3, 1e3), min_size=2, max_size=30, unique=True))
def test_a_perfect_order_regrets_nothing(times: list[float]) -> None:
    found = quality_of(times, times)
    assert (found.first, found.top_three) == (0.0, 0.0)
    assert found.spearman == pytest.approx(1.0)
    assert spearman([-each for each in times], times) == pytest.approx(-1.0)


def config(
    name: str,
    *,
    verdict: VerdictKind = VerdictKind.OK,
    spilled: int | None = 0,
    occupancy: float = 0.5,
    ms: float | None = None,
) -> RankedConfig:
    row = Row(
        cell=name,
        short=name,
        kernel="k",
        launch="default",
        config={"name": name},
        target="sm_90a",
        triton="3.6.0",
        ptxas="12.8.93",
        ptxas_origin="bundled",
        verdict=verdict,
        reason="",
        spill_stores=spilled,
        spill_loads=spilled,
        threads=128,
        occupancy=occupancy,
        time_ms=TimeMs(median=ms, min=ms, q3=ms, samples=30) if ms else None,
    )
    return RankedConfig(row=row)


def ordered(*configs: RankedConfig) -> RankedLaunch:
    return RankedLaunch.ordered(("k", "default", "sm_90a"), configs)


FAILS = config("fails", verdict=VerdictKind.PTXAS_ERROR, spilled=None, occupancy=0.0)
SPILLS = config("spills", verdict=VerdictKind.SICK, spilled=4096, occupancy=0.125)
FEW = config("few", spilled=8)
MANY = config("many")
ALIKE = config("alike")
BEST = config("best", occupancy=0.25)


def test_what_can_be_launched_spills_least_and_has_the_largest_blocks_comes_first() -> None:
    found = ordered(FAILS, SPILLS, FEW, MANY, BEST, ALIKE)
    names = [(each.row.cell, each.place) for each in found.configs]
    # What the rule does not tell apart has one place.
    assert names == [
        ("best", 1),
        ("alike", 2),
        ("many", 2),
        ("few", 3),
        ("spills", 4),
        ("fails", 5),
    ]
    assert found.quality is None


def test_a_measured_time_counts_and_nothing_else_where_there_is_one() -> None:
    timed = [config("slow", ms=3.0), config("fast", spilled=4096, ms=1.0), config("few", ms=2.0)]
    found = ordered(*timed, BEST)
    assert [each.row.cell for each in found.configs] == ["fast", "few", "slow", "best"]
    assert found.quality
    # By the rule the one that spills is the last, and it is the fastest.
    assert (found.quality.configs, found.quality.first) == (3, 2.0)
    assert found.quality.spearman == pytest.approx(-0.866, abs=1e-3)


def words(report: RankReport) -> str:
    return "\n".join(block.text for block in ranks_said(report) if isinstance(block, SaidLine))


def test_the_output_says_which_order_it_is() -> None:
    untimed = RankReport(launches=[ordered(BEST, SPILLS, FEW)])
    assert "this is not an order of times" in words(untimed)
    timed = [replace(each, row=structs.replace(each.row, time_ms=TIME)) for each in (BEST, FEW)]
    measured = RankReport(launches=[ordered(*timed, SPILLS)], device="NVIDIA H200")
    assert "by median times, measured on NVIDIA H200" in words(measured)
    titles = [
        [column.title for column in block.columns]
        for report in (untimed, measured)
        for block in ranks_said(report)
        if isinstance(block, SaidGrid)
    ]
    assert [("ms" in each, "unmeasured" in each) for each in titles] == [(False,) * 2, (True,) * 2]


TIME = TimeMs(median=1.0, min=1.0, q3=1.0, samples=30)


def test_a_document_that_is_none_is_refused() -> None:
    for text in (b"{}", b"[]", b'{"launches": [{"kernel": 1}]}', b"no json"):
        with pytest.raises(MeasuredError):
            rank_again([text])


@pytest.mark.parametrize("name", ["ranks", "unseen", "twelve"])
def test_the_published_figures_are_those_of_the_measured_times(name: str) -> None:
    report = rank_again([lzma.decompress((DATA / f"{name}-h200.json.xz").read_bytes())])
    *_, summary = ranks_as_markdown(report).splitlines()
    page = (ROOT / "docs" / "measured" / "ranking.md").read_text()
    assert summary in " ".join(page.split())
    for launch in report.launches:
        times = [each.time.median for each in launch.configs if each.time]
        assert times == sorted(times)


def test_without_times_no_place_is_printed_and_configs_have_columns() -> None:
    def one(warps: int, stages: int, spilled: int) -> RankedConfig:
        made = config(f"{warps}-{stages}", spilled=spilled)
        values: dict[str, Any] = {"BLOCK_M": 128, "num_warps": warps, "num_stages": stages}
        return RankedConfig(row=structs.replace(made.row, config=values))

    configs = [one(warps, stages, 8 * warps) for warps in (4, 8) for stages in (2, 3)]
    head, _, grid, *_ = ranks_said(RankReport(launches=[ordered(*configs)]))
    assert isinstance(head, SaidLine)
    assert isinstance(grid, SaidGrid)
    assert head.text == "k · default · sm_90a · BLOCK_M=128 · num_stages=2|3"
    titles = [column.title for column in grid.columns]
    assert titles == ["warps", "verdict", "regs", "spilled", "occupancy"]
    assert [line[0].text for line in grid.rows] == ["4", "8"]
    # Where a GPU has timed them, each has its rank and a line.
    timed = [RankedConfig(row=structs.replace(each.row, time_ms=TIME)) for each in configs]
    _, _, grid, *_ = ranks_said(RankReport(launches=[ordered(*timed)]))
    assert isinstance(grid, SaidGrid)
    assert [line[0].text for line in grid.rows] == ["1", "2", "3", "4"]
