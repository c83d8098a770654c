"""Bisections of an acted compiler: what stops one, what it leaves out, and what it goes on with."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from acted_front_end import Stage

from harness.bisect.log import Asked, BisectLog
from harness.bisect.report import BisectReport
from harness.bisect.run import BisectOptions, bisect_versions
from harness.bisect.words import bisection_said, report_line
from harness.values.errors import EmptySelectionError, UsageError

pytest_plugins = ("acted_fixtures",)

ASKED = Asked(axis="acted", selection={}, options={})


def bisect(
    stage: Stage,
    bad: str = "1.1",
    *,
    resumed: bool = False,
    stop_at: int = 0,
    options: dict[str, Any] | None = None,
    **words: Any,
) -> BisectReport:
    path = stage.folder / "log.jsonl"
    log = BisectLog.read(path) if resumed else BisectLog.begin(path, ASKED)
    selection = stage.selection(compiler=[f"acted=={bad}"], **{"config": "width=1", **words})
    asked = BisectOptions(**{"axis": "acted", "repeat": 2, **(options or {})})
    work = bisect_versions(selection, stage.store, stage.how, asked, stage.tell, log)
    return stage.run(work, stop_at=stop_at)


@pytest.fixture
def fails_from_1_1_on(stage: Stage) -> Stage:
    stage.ptxas("2.0")
    stage.acted.versions = ("1.0", "1.1", "1.2", "2.0")
    stage.acted.act = lambda version, _: "ice" if version in ("1.1", "1.2") else "ok"
    return stage


def test_a_machine_that_fails_stops_it_and_the_log_goes_on(fails_from_1_1_on: Stage) -> None:
    stage = fails_from_1_1_on
    stage.acted.failing = {"1.0"}
    stopped = bisect(stage)
    assert stopped.trouble == "acted 1.0: Acted 1.0: its process died twice"
    assert stopped.finding.regression is None
    assert "1.0" not in stopped.rows
    stage.acted.failing = set()
    whole = bisect(stage, resumed=True)
    assert whole.trouble is None
    assert "First bad: Acted 1.1. Last good: 1.0. First fixed: 2.0." in report_line(whole)
    # What the stopped search knew of the version that was asked about was not asked again.
    assert whole.tallies["1.1"] == stopped.tallies["1.1"]


def test_a_version_that_cannot_be_installed_stops_it(fails_from_1_1_on: Stage) -> None:
    stage = fails_from_1_1_on
    stage.acted.absent = {"1.2"}
    stopped = bisect(stage, options={"good": "1.2"})
    assert stopped.trouble == "acted 1.2: Acted 1.2 cannot be installed: the index is down"


def test_an_interrupted_search_goes_on_from_its_log(fails_from_1_1_on: Stage) -> None:
    stage = fails_from_1_1_on
    with pytest.raises(asyncio.CancelledError):
        bisect(stage, stop_at=3)
    known = BisectLog.read(stage.folder / "log.jsonl").known.probes
    assert known
    assert set(known) < set(stage.acted.versions)
    resumed = bisect(stage, resumed=True)
    again = bisect(stage)
    assert resumed.finding == again.finding
    assert report_line(resumed) == report_line(again)


def test_versions_that_cannot_tell_are_named_between_the_bounds(fails_from_1_1_on: Stage) -> None:
    stage = fails_from_1_1_on
    stage.acted.uncaptured = {"1.1"}
    stage.acted.poorer = {"2.0"}
    found = bisect(stage, bad="1.2")
    assert found.trouble is None
    assert found.reasons == {
        "1.1": "kernel.acted: the launch raised ValueError: not today",
        "2.0": "it does not make this config",
    }
    line = report_line(found)
    assert "First bad: Acted any of 1.1, 1.2. Last good: 1.0." in line
    assert "Gone from 2.0 on, which ends with: it does not make this config." in line
    assert "Untestable between: 1.1." in line


def test_nothing_that_fails_is_said_and_not_guessed(stage: Stage) -> None:
    stage.ptxas("2.0")
    found = bisect(stage)
    assert found.finding.newest_bad is None
    assert report_line(found) == "No Acted that was tried shows this failure."
    assert [block.text for block in bisection_said(found)[:1] if hasattr(block, "text")] == [
        "           1.0 - 2.0  ok  compiled"
    ]


def test_another_failure_is_no_bound(stage: Stage) -> None:
    stage.ptxas("2.0")
    acts = {"1.0": "other", "1.1": "ice", "2.0": "refuses"}
    stage.acted.act = lambda version, _: acts[version]
    found = bisect(stage)
    assert [row.verdict for row in found.other_failures] == ["ptxas_ice", "rejected"]
    assert found.finding.regression is None
    assert found.finding.fix is None
    assert "Last good" not in report_line(found)
    assert "First fixed" not in report_line(found)


def test_runs_that_disagree_are_flaky_with_a_confidence(stage: Stage) -> None:
    stage.ptxas("2.0")
    stage.acted.act = lambda version, _: "ok" if version == "1.0" else "ice>ok"
    found = bisect(stage, bad="2.0", options={"repeat": 3})
    tally = found.tallies["2.0"]
    assert (tally.failures, tally.runs) == (1, 3)
    assert found.rows["2.0"].flaky
    assert found.tallies["1.0"].failures == 0
    assert found.tallies["1.0"].runs > 3
    assert found.confidence is not None
    assert 0 < found.confidence < 1
    assert "Flaky: it comes and goes on one version." in report_line(found)


def test_ptxas_killed_from_outside_is_no_answer(fails_from_1_1_on: Stage) -> None:
    stage = fails_from_1_1_on
    stage.acted.act = lambda version, _: "killed" if version == "1.0" else "ice"
    stopped = bisect(stage)
    assert stopped.trouble is not None
    assert "killed from outside" in stopped.trouble
    assert "1.0" not in stopped.rows


def test_what_cannot_be_asked_is_a_usage_error(stage: Stage) -> None:
    stage.ptxas("2.0")
    with pytest.raises(UsageError, match="no such acted"):
        bisect(stage, options={"good": "3.0"})
    with pytest.raises(EmptySelectionError, match="matches none of the configs"):
        bisect(stage, config="width=7")
