"""Bisections of an acted compiler: what stops one, what it leaves out, and what it goes on with."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from acted_front_end import Stage
from acted_machines import Threads
from click.testing import CliRunner
from msgspec import structs
from packaging.version import Version

from harness.bisect.bisect_log import BisectLog, BisectOptions, LogHead
from harness.bisect.bisect_words import (
    BisectReport,
    bisect_document,
    bisection_said,
    report_line,
    upgrade_words,
)
from harness.bisect.bisection import bisect_versions
from harness.cells.spelling import SelectionOptions, among
from harness.cli.bisect import command
from harness.frontends.registry import OpenSessions, back_end
from harness.io.processes.hub import Hub
from harness.judging.answers import VerdictAnswer
from harness.matrix import workers as at_worker
from harness.matrix.elsewhere import Prefetch
from harness.matrix.workers import CaptureAnswer, encode, worker_loop
from harness.values.errors import EmptySelectionError, InfrastructureError, UsageError
from harness.values.target import Target
from harness.values.verdict import VerdictKind

pytest_plugins = ("acted_fixtures",)

HEAD = LogHead(axis="acted", selection={}, options=BisectOptions())


def bisect(
    stage: Stage,
    bad: str = "1.1",
    *,
    resumed: bool = False,
    stop_at: int = 0,
    options: dict[str, Any] | None = None,
    machines: Threads | None = None,
    no_cache: bool = False,
    **words: Any,
) -> BisectReport:
    path = stage.folder / "log.jsonl"
    log = BisectLog.read(path) if resumed else BisectLog.begin(path, HEAD)
    words = {"compiler": [f"acted=={bad}"], "config": "width=1", **words}
    selection = stage.selection(**words)
    asked = BisectOptions(**{"axis": "acted", "repeat": 2, **(options or {})})
    how = structs.replace(stage.how, use_cache=not no_cache)
    ahead = Prefetch(machines=machines, how=how) if machines else None
    work = bisect_versions(selection, stage.store, how, asked, stage.tell, log, ahead)
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


def test_a_config_that_went_away_ends_a_resumed_search_in_one_sentence(
    fails_from_1_1_on: Stage,
) -> None:
    stage = fails_from_1_1_on
    stage.acted.failing = {"1.0"}
    assert set(bisect(stage).rows) >= {"1.1", "1.2"}
    stage.acted.failing, stage.acted.poorer = set(), set(stage.acted.versions)
    with pytest.raises(UsageError, match=r"acted 1\.\d no longer makes the config width=1"):
        bisect(stage, resumed=True, options={"repeat": 4})


def test_a_version_that_cannot_be_installed_stops_it(fails_from_1_1_on: Stage) -> None:
    stage = fails_from_1_1_on
    stage.acted.absent = {"1.2"}
    stopped = bisect(stage, options={"good": "1.2"})
    assert stopped.trouble == "acted 1.2: Acted 1.2 cannot be installed: the index is down"


def test_an_interrupted_search_goes_on_from_its_log(fails_from_1_1_on: Stage) -> None:
    stage = fails_from_1_1_on
    with pytest.raises(asyncio.CancelledError):
        bisect(stage, stop_at=3)
    known = BisectLog.read(stage.folder / "log.jsonl").answers.probes
    assert known
    assert set(known) < set(stage.acted.versions)
    resumed = bisect(stage, resumed=True)
    again = bisect(stage)
    assert resumed.finding == again.finding
    assert report_line(resumed) == report_line(again)


@pytest.fixture
def workers() -> Iterator[None]:
    yield
    worker_loop().close()


def test_a_log_says_again_what_the_search_said(stage: Stage) -> None:
    stage.ptxas("2.0")
    acts = {"1.0": "refuses", "1.1": "other", "2.0": "ice"}
    stage.acted.act = lambda version, _: acts[version]
    found = bisect(stage, compiler=["acted>=1.0,<=2.0"], options={"axis": "compiler"})
    assert found.followed.kind is VerdictKind.PTXAS_ICE
    assert [part.probe.outcome for part in found.finding.segments][-1] is VerdictAnswer.SAME
    assert BisectLog.read(stage.folder / "log.jsonl").report() == found


def shape(found: BisectReport) -> tuple[object, ...]:
    """What was found out, without how long that took and what was there already."""
    rows = {
        version: structs.replace(row, seconds=0, cached=False)
        for version, row in found.rows.items()
    }
    return found.finding, rows, found.tallies, report_line(found)


@pytest.mark.usefixtures("workers")
def test_other_machines_find_out_the_same_of_compilers(fails_from_1_1_on: Stage) -> None:
    stage = fails_from_1_1_on
    machines = Threads()
    found = bisect(stage, machines=machines)
    assert found.trouble is None
    # The first version is looked at here, to know which config is meant.
    assert len(machines.sent) == len(found.rows) - 1 == 3
    lowered = sorted(stage.acted.asked)
    stage.acted.revision += 1
    stage.acted.asked.clear()
    assert shape(found) == shape(bisect(stage))
    # What came back was not made once more.
    assert lowered == sorted(stage.acted.asked)


@pytest.mark.usefixtures("workers")
def test_other_machines_find_out_the_same_of_ptxas(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = [Version(each) for each in ("1.0", "2.0", "2.1")]
    ran = stage.folder / "ran"
    stage.ptxas(*map(str, versions), before=f"open({str(ran)!r}, 'a').write('x')\n")
    back = type(back_end("acted", Target.parse("sm_80")))
    monkeypatch.setattr(back, "available", lambda _: versions)
    stage.acted.act = lambda *_: "2.0=ice *=ok"
    machines, counts = Threads(), []
    shapes = []
    for where in (machines, None):
        stage.acted.revision += 1
        found = bisect(stage, options={"axis": "ptxas"}, machines=where, no_cache=True)
        shapes.append(shape(found))
        counts.append(len(ran.read_text()))
        ran.unlink()
    assert "First bad: ptxas 2.0. Last good: 1.0. First fixed: 2.1." in report_line(found)
    assert upgrade_words(found) == (
        "ptxas 2.1, the newest that was tried, is without it: upgrading ends it."
    )
    assert shapes[0] == shapes[1]
    assert counts[0] == counts[1]
    assert len(machines.sent) == 2


@pytest.mark.usefixtures("workers")
def test_without_its_scheduler_a_search_stops_and_goes_on(fails_from_1_1_on: Stage) -> None:
    def fate(name: str, _nth: int) -> None:
        if "acted-1.0" in name:
            raise InfrastructureError("the scheduler is gone")

    stopped = bisect(fails_from_1_1_on, machines=Threads(fate=fate))
    assert stopped.trouble == "acted 1.0: the scheduler is gone"
    whole = bisect(fails_from_1_1_on, resumed=True, machines=Threads())
    assert "First bad: Acted 1.1. Last good: 1.0. First fixed: 2.0." in report_line(whole)


@pytest.mark.usefixtures("workers")
def test_what_a_machine_cannot_do_is_said_and_done_here(fails_from_1_1_on: Stage) -> None:
    refused = encode(CaptureAnswer(host="there", failures=("its disk is full",)))
    damaged = encode(CaptureAnswer(host="there", parcel=b"what is this"))

    def fate(name: str, _nth: int) -> bytes | None:
        version = name.partition("acted-")[2].partition("/")[0]
        return {"1.0": refused, "2.0": damaged}.get(version)

    found = bisect(fails_from_1_1_on, machines=Threads(fate=fate))
    assert "First bad: Acted 1.1. Last good: 1.0. First fixed: 2.0." in report_line(found)
    assert "acted 1.0: there: its disk is full" in fails_from_1_1_on.heard
    assert any("what there answered is refused" in each for each in fails_from_1_1_on.heard)


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


def test_a_range_of_versions_is_all_that_is_tried(fails_from_1_1_on: Stage) -> None:
    found = bisect(fails_from_1_1_on, compiler=["acted>=1.1,<2"])
    assert found.versions == ("1.1", "1.2")
    assert report_line(found).startswith(
        "Present in the oldest Acted that was tried, 1.1."
        " Still present in the newest Acted that was tried, 1.2."
    )
    assert not upgrade_words(found)
    log = BisectLog.read(fails_from_1_1_on.folder / "log.jsonl")
    assert not log.report().has_all


def test_an_axis_of_what_never_sees_the_kernel_is_refused(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.ptxas("1.0", "2.0")
    back = type(back_end("acted", Target.parse("sm_80")))
    monkeypatch.setattr(back, "available", lambda _: [Version("1.0"), Version("2.0")])
    stage.acted.act = lambda *_: "refuses"
    along_ptxas = {"axis": "ptxas"}
    said = "width=1: rejected in stage words, before ptxas sees anything; use --axis compiler"
    with pytest.raises(UsageError, match=said):
        bisect(stage, config="", options=along_ptxas)
    # One config that ptxas sees is enough.
    stage.acted.act = lambda _, config: "refuses" if config["width"] == 1 else "2.0=ice *=ok"
    stage.acted.revision += 1
    found = bisect(stage, bad="1.1", config="", options=along_ptxas)
    assert found.followed.kind is VerdictKind.PTXAS_ICE


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


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--scheduler", "local:0"), "--scheduler local:0: write"),
        (("--scheduler", "local:2", "--jobs", "2"), "--jobs does not apply to --scheduler"),
        (("--scheduler", "local:2", "--run"), "--run executes on this machine"),
        (("--scheduler", "local:2", "--axis", "target"), "--axis target is compiled here"),
    ],
)
def test_what_other_machines_do_not_take_is_a_usage_error(
    words: tuple[str, ...], said: str
) -> None:
    asked = ["--kernel", "kernel.acted", "--axis", "compiler", *words]
    with pytest.raises(UsageError, match=said):
        CliRunner().invoke(command, asked, catch_exceptions=False)


@pytest.mark.usefixtures("workers")
def test_launch_code_elsewhere_has_the_memory_that_was_given(
    fails_from_1_1_on: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = []

    class Noting(OpenSessions):
        def __init__(self, hub: Hub, *, timeout: float, memory: int = 0) -> None:
            given.append(memory)
            super().__init__(hub, timeout=timeout, memory=memory)

    monkeypatch.setattr(at_worker, "OpenSessions", Noting)
    bisect(fails_from_1_1_on, machines=Threads())
    assert set(given) == {fails_from_1_1_on.how.memory}


@pytest.fixture
def fails_in_fp16(stage: Stage) -> Stage:
    """A kernel that is launched twice with the same configs; its second launch always fails."""
    stage.ptxas("2.0")
    stage.acted.versions = ("1.0", "1.1", "2.0")
    stage.acted.dtypes = ("float32", "float16")
    stage.acted.act = lambda _, config: "ice" if config["dtype"] == "float16" else "ok"
    return stage


def test_every_version_is_asked_for_the_launch_that_fails(fails_in_fp16: Stage) -> None:
    found = bisect(fails_in_fp16, bad="2.0", config="")
    assert {row.launch for row in found.rows.values()} == {"acted#2"}
    assert "Present in the oldest Acted there is, 1.0." in report_line(found)
    assert bisect_document(found)["launch"] == "acted#2"
    # The one that is followed is named, and none of those that it was chosen from.
    assert found.cell is not None
    words = among(SelectionOptions(kernel="kernel.acted"), found.cell, found.others)
    assert words.launch == "acted#2"


def test_a_launch_is_named_as_the_tables_print_it(fails_in_fp16: Stage) -> None:
    for launch, outcome in (("acted#1", VerdictAnswer.OK), ("acted#2", VerdictAnswer.SAME)):
        found = bisect(fails_in_fp16, bad="2.0", launch=launch, options={"sweep": True})
        assert {row.launch for row in found.rows.values()} == {launch.removesuffix("#1")}
        assert found.others == ()
        assert {part.probe.outcome for part in found.finding.segments} == {outcome}
    none = bisect(fails_in_fp16, bad="2.0", launch="acted#3")
    assert none.reasons["2.0"] == "--launch acted#3: kernel.acted is launched 2 times there"


def test_a_resumed_search_follows_the_launch_of_its_log(fails_in_fp16: Stage) -> None:
    with pytest.raises(asyncio.CancelledError):
        bisect(fails_in_fp16, bad="2.0", stop_at=3)
    resumed = bisect(fails_in_fp16, bad="2.0", resumed=True)
    assert {row.launch for row in resumed.rows.values()} == {"acted#2"}
