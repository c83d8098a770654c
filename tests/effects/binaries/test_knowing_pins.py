from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from nights import night, row

from harness.binaries.pin_facts import know_pair
from harness.binaries.pin_words import PairKnowledge, pins_document, pins_said
from harness.store.store import Store
from harness.tables.said import Counted
from harness.values.row import Row
from harness.values.target import Target
from harness.values.toolchain import BUNDLED

TARGET = Target.parse("100a")


@pytest.fixture(autouse=True)
def _no_toolchains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIAGE_CACHE_DIR", str(tmp_path / "cache"))


def own(verdict: str = "ok", signature: str | None = None, **how: Any) -> Row:
    return row(verdict, signature, **{"ptxas_origin": BUNDLED, **how})


def known(home: Path, rows: list[Row], triton: str = "3.6.0") -> PairKnowledge:
    night(home, rows)
    with Store.for_reading(home) as store:
        return know_pair(store, triton, TARGET)


def test_what_no_night_has_looked_at_is_not_known(tmp_path: Path) -> None:
    home = tmp_path / "results"
    elsewhere = [own(target="sm_90a"), own(triton="3.5.0"), own(ptxas_origin="nvidia-cuda-nvcc"),
                 own("infra", warps=8)]  # fmt: skip
    found = known(home, elsewhere)
    assert found == PairKnowledge(triton="3.6.0", ptxas=None, target="sm_100a")
    text = str(pins_said("r.txt", ["torch==2"], {"triton": "3.6.0"}, [found]))
    assert text.count("not known") == 2
    assert not pins_document("r.txt", {}, [found]).targets[0].known


def test_kernels_that_lose_configs_and_the_next_safe_pair(tmp_path: Path) -> None:
    home = tmp_path / "results"
    found = known(
        home,
        [
            own(),
            own("ptxas_ice", "s1", warps=8),
            own("ptxas_ice", "s1", kernel="other", warps=8),
            # The next has a failure of its own; the one after it has looked at too little.
            own(triton="3.7.0", ptxas="13.1.80", warps=8),
            own("ptxas_ice", "s2", triton="3.7.0", ptxas="13.1.80"),
            own(triton="3.7.0", ptxas="13.1.80", kernel="other", warps=8),
            own(triton="3.7.1", ptxas="13.1.80", warps=8),
            own(triton="3.8.0", ptxas="13.2.86", warps=8),
            own(triton="3.8.0", ptxas="13.2.86", kernel="other", warps=8),
        ],
    )
    assert (found.ptxas, found.cells, found.working) == ("13.0.88", 3, 1)
    assert found.lost == {"scan_fwd · default": (1, 2), "other · default": (0, 1)}
    (bug,) = found.bugs
    assert (bug.signature, bug.cells, bug.kernels) == ("s1", 2, ("other", "scan_fwd"))
    assert (found.safe, found.safe_cells) == (("3.8.0", "13.2.86"), 2)
    said = pins_said("r.txt", ["torch==2"], {"triton": "3.6.0"}, [found])
    assert [block.count for block in said if isinstance(block, Counted)] == [2]
    assert "Triton 3.8.0 with ptxas 13.2.86 (2 of these" in str(said)


def test_an_older_pair_is_safe_where_no_newer_one_is(tmp_path: Path) -> None:
    rows = [own("ptxas_ice", "s1"), own(triton="3.5.0", ptxas="12.8.93"),
            own(triton="3.4.0", ptxas="12.8.61")]  # fmt: skip
    assert known(tmp_path / "results", rows).safe == ("3.5.0", "12.8.93")


def test_a_pair_without_failures_is_safe_itself(tmp_path: Path) -> None:
    found = known(tmp_path / "results", [own(), own(triton="3.7.0", ptxas="13.1.80")])
    assert (found.safe, found.lost, found.bugs) == (("3.6.0", "13.0.88"), {}, ())
    assert "this one" in str(pins_said("r.txt", [], {}, [found]))


def test_what_the_source_no_longer_has_counts_no_more(tmp_path: Path) -> None:
    home = tmp_path / "results"
    night(home, [own(), own("ptxas_ice", "s1", warps=8)])
    found = known(home, [own(), own(warps=16)])
    assert (found.cells, found.working, found.lost, found.bugs) == (2, 2, {}, ())
