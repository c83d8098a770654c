"""Orders that are kept for pages: what was measured on a GPU is not lost to what was not."""

from __future__ import annotations

import lzma
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import HERE
from msgspec import structs

from harness.store.store import Store
from harness.workaround.rank.order import RankedLaunch, RankReport
from harness.workaround.rank.ranking import keep_ranks, rank_again, ranks_of

MEASURED = HERE / "data" / "gpu" / "ranks-h200.json.xz"


@pytest.fixture(scope="module")
def report() -> RankReport:
    return rank_again([lzma.decompress(MEASURED.read_bytes())])


def test_an_order_is_kept_as_it_was_measured(tmp_path: Path, report: RankReport) -> None:
    first = report.launches[0]
    untimed: RankedLaunch = replace(
        first,
        configs=tuple(
            replace(each, row=structs.replace(each.row, time_ms=None)) for each in first.configs
        ),
    )
    with Store.open(tmp_path) as store:

        def kept() -> bool | None:
            found = ranks_of(store, first.kernel, first.target, [first.launch, "no such"])
            assert set(found) <= {first.launch}
            return found[first.launch].is_measured if found else None

        assert kept() is None
        keep_ranks(store, RankReport(launches=[untimed]))
        assert kept() is False
        keep_ranks(store, report)
        assert kept() is True
        keep_ranks(store, RankReport(launches=[untimed]))
        assert kept() is True
        found = ranks_of(store, first.kernel, first.target, [first.launch])[first.launch]
    assert found.device == report.device
    times = [each.time.median if each.time else None for each in first.configs]
    assert [each.time for each in found.configs] == times
