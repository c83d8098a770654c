"""What `triage bugs` says of stores that real commands left, held against their rows."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from acted_front_end import Stage
from bug_checker import check_store
from packaging.version import Version

from harness.bisect.bisect_log import BisectLog, BisectOptions, LogHead
from harness.bisect.bisection import bisect_versions
from harness.bisect.neighbours import contrast
from harness.bisect.search import bounds_said
from harness.frontends.registry import back_end
from harness.store.store import Store
from harness.values.bug import MachineState
from harness.values.target import Target
from harness.values.toolchain import compiler_name

pytest_plugins = ("acted_fixtures",)

STORES = Path(__file__).parents[2] / "data" / "stores"


def searched(stage: Stage, axis: str, bad: str = "1.1") -> list[str]:
    selection = stage.selection(compiler=[f"acted=={bad}"], config="width=1")
    log = BisectLog.begin(
        stage.folder / f"{axis}.jsonl", LogHead(axis=axis, selection={}, options=BisectOptions())
    )
    options = BisectOptions(axis=axis, repeat=2)
    found = stage.run(bisect_versions(selection, stage.store, stage.how, options, stage.tell, log))
    return bounds_said(found, compiler_name(found.axis))


def test_bugs_say_of_compilers_what_the_bisection_said(stage: Stage) -> None:
    stage.ptxas("2.0")
    stage.acted.versions = ("1.0", "1.1", "1.2", "2.0")
    stage.acted.act = lambda version, _: "ice" if version in ("1.1", "1.2") else "ok"
    said = searched(stage, "acted")
    [bug] = check_store(stage.store)
    [along] = [each for each in bug.ranges if each.tool == "Acted"]
    assert along.words == " ".join(said)


def test_bugs_say_of_ptxas_what_the_bisection_said(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = [Version(each) for each in ("1.0", "2.0", "2.1")]
    stage.ptxas(*map(str, versions))
    back = type(back_end("acted", Target.parse("sm_80")))
    monkeypatch.setattr(back, "available", lambda _: versions)
    stage.acted.act = lambda *_: "2.0=ice *=ok"
    said = searched(stage, "ptxas")
    [bug] = check_store(stage.store)
    [along] = [each for each in bug.ranges if each.tool == "ptxas"]
    assert along.words == " ".join(said)
    assert bug.machine is MachineState.ABSENT  # a search is not a night
    before = [each.words for each in bug.ranges]
    # Flags and targets are variants of one of those cells: they move no bound.
    selection = stage.selection(compiler=["acted==1.1"], config="width=1", ptxas=["2.0"])
    for axis in ("flag", "target"):
        stage.run(contrast(selection, stage.store, stage.how, axis, None, stage.tell))
        [bug] = check_store(stage.store)
        assert bug.machine is MachineState.ABSENT
        pairs = zip(bug.ranges, before, strict=True)
        assert all(each.words.startswith(words) for each, words in pairs)
    assert len(bug.targets) > 3


def test_sentences_of_a_store_that_is_kept(tmp_path: Path) -> None:
    home = tmp_path / "kept"
    home.mkdir()
    with closing(sqlite3.connect(home / "triage.db")) as db:
        db.executescript((STORES / "small.sql").read_text())
    with closing(Store.open(home)) as store:
        assert check_store(store)
