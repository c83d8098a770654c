"""Blame over an acted compiler: each culprit, and each way of not knowing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from acted_front_end import Stage

from harness.blame.blame_words import BlameReport
from harness.blame.blaming import BlameOptions, find_blame
from harness.blame.grid import Ground
from harness.cells.selection import select
from harness.cells.spelling import SelectionOptions
from harness.cli.blame import _would_tell
from harness.values.errors import EmptySelectionError

pytest_plugins = ("acted_fixtures",)


def blamed(stage: Stage, *, stop_at: int = 0, budget: int = 60, **words: Any) -> BlameReport:
    chosen = {"compiler": ["acted==1.1"], "config": "width=1", **words}
    work = find_blame(
        stage.selection(**chosen), stage.store, stage.how, BlameOptions(budget=budget), stage.tell
    )
    return stage.run(work, stop_at=stop_at)


@pytest.fixture
def ptxas(stage: Stage) -> Stage:
    stage.ptxas("1.0", "2.0", "3.0")
    return stage


@pytest.mark.parametrize(
    ("acts", "headline"),
    [
        ({"*": "ok"}, "Nothing that was tried shows a failure."),
        ({"*": "2.0=ice *=ok"}, "ptxas is to blame."),
        ({"*": "ice"}, "ptxas is to blame."),
        ({"1.1": "rejects", "*": "ok"}, "Acted is to blame."),
        ({"1.1": "refuses", "*": "ok"}, "Incompatible versions: this source does not compile"),
        ({"*": "refuses"}, "The kernel is to blame."),
        ({"*": "rejects"}, "The kernel is to blame."),
        # Nothing answers but the ptxas that fails.
        ({"*": "2.0=rejects *=killed"}, "Cannot determine who is to blame."),
    ],
)
def test_who_is_to_blame(ptxas: Stage, acts: dict[str, str], headline: str) -> None:
    ptxas.acted.act = lambda version, _: acts.get(version, acts["*"])
    found = blamed(ptxas)
    assert found.blame.headline.startswith(headline), found.blame
    assert bool(found.blame.reasons) or found.blame.ground is Ground.NOTHING_FAILS


def test_a_failure_that_does_not_come_again_says_so(ptxas: Stage) -> None:
    ptxas.acted.act = lambda *_: "2.0=ice>ok *=ok"
    found = blamed(ptxas)
    assert found.case.verdict == "ptxas_ice"
    said = " ".join([found.blame.headline, *found.blame.reasons])
    assert "gave another result" in said, found.blame


def test_one_version_that_answers_is_not_blamed(ptxas: Stage) -> None:
    ptxas.acted.act = lambda version, _: "rejects" if version == "1.1" else "ok"
    ptxas.acted.absent, ptxas.acted.failing = {"1.0"}, {"2.0"}
    found = blamed(ptxas)
    assert found.blame.headline == "Cannot determine who is to blame."
    assert "Only Acted 1.1 gave a result." in found.blame.reasons
    untestable = [each for each in found.blame.reasons if each.startswith("Untestable")]
    assert untestable == [
        "Untestable with Acted 2.0: Acted 2.0: its process died twice.",
        "Untestable with Acted 1.0: Acted 1.0 cannot be installed: the index is down.",
    ]
    assert any("Acted 1.0 cannot be installed" in each for each in found.troubles)


@pytest.mark.parametrize("spec", ["acted==0.1.9", "acted>=0"])
def test_what_was_tried_is_not_advised(
    ptxas: Stage, monkeypatch: pytest.MonkeyPatch, spec: str
) -> None:
    # A compiler of one minor version, all of whose releases are installed.
    monkeypatch.setattr(type(ptxas.acted), "versions", ("0.1.8", "0.1.9", "0.1.10"))
    ptxas.acted.act = lambda *_: "refuses"
    ptxas.acted.uncaptured = {"0.1.8", "0.1.10"}
    found = blamed(ptxas, compiler=[spec])
    assert found.blame.ground is Ground.ONE_TRITON
    assert {name for line in found.grid.lines for name in line.compilers} == {*ptxas.acted.versions}
    words = SelectionOptions(kernel="kernel.acted", sm=["80"], ptxas=["2.0"], compiler=[spec])
    assert list(_would_tell(found, select(words), words, None)) == []
    # One that was not tried is.
    monkeypatch.setattr(type(ptxas.acted), "versions", (*ptxas.acted.versions, "0.1.11"))
    assert list(_would_tell(found, select(words), words, None))


def test_what_the_budget_leaves_out_is_said(ptxas: Stage) -> None:
    ptxas.acted.act = lambda *_: "ice"
    found = blamed(ptxas, budget=1)
    assert any("ptxas were not tried (--max-tries)" in note for note in found.notes)


def test_an_interrupted_blame_leaves_what_it_knows(ptxas: Stage) -> None:
    ptxas.acted.act = lambda version, _: "rejects" if version == "1.1" else "ok"
    with pytest.raises(asyncio.CancelledError):
        blamed(ptxas, stop_at=2)
    kept = list(ptxas.acted.asked)
    assert blamed(ptxas).blame.headline == "Acted is to blame."
    assert kept
    assert ptxas.acted.asked.count("1.1") == 1


def test_no_config_is_an_empty_selection(ptxas: Stage) -> None:
    with pytest.raises(EmptySelectionError, match="matches none of the configs"):
        blamed(ptxas, config="width=7")
