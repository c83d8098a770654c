"""A report on an acted compiler: what it refuses to report, and what it says is missing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from acted_front_end import Stage
from bug_checker import check_store

from harness.bisect.bisect_words import report_line
from harness.cells.spelling import SelectionOptions
from harness.judging.conditions import parse_condition
from harness.report.dossier import Dossier, Upstream
from harness.report.filing import inspect_dossier
from harness.report.gather import Case, gather
from harness.values.errors import UsageError

pytest_plugins = ("acted_fixtures",)


def gathered(stage: Stage, *, config: str = "width=1", stop_at: int = 0, **options: Any) -> Dossier:
    asked: dict[str, Any] = {
        "words": SelectionOptions(kernel="kernel.acted"),
        "upstream": Upstream.PROJECT,
        "minimized": lambda _: Path("min"),
        **options,
    }
    selection = stage.selection(compiler=["acted==1.1"], config=config)
    case = Case(selection=selection, store=stage.store, how=stage.how, tell=stage.tell, **asked)
    found: tuple[Dossier, Upstream] = stage.run(gather(case), stop_at=stop_at)
    return found[0]


@pytest.fixture
def crashes(stage: Stage) -> Stage:
    """Assembler 2.0 crashes on what Acted 1.1 generates for a width of 1."""
    stage.ptxas("1.0", "2.0")
    bad = ("1.1", 1)
    stage.acted.act = lambda version, config: (
        "2.0=ice *=ok" if (version, config["width"]) == bad else "ok"
    )
    return stage


@pytest.mark.parametrize(
    ("config", "options", "said"),
    [
        ("width=2", {}, "none of the 1 cells that were selected fails"),
        ("width=1", {"signature": "0" * 12}, "fails with signature 000000000000"),
        ("width=1", {"upstream": Upstream.TRITON}, "is compiled by Acted 1.1; report it with"),
        (
            "width=1",
            {"condition": parse_condition("n_regs > 4000")},
            "--while holds for none of the 1 selected cells",
        ),
    ],
)
def test_what_is_no_report(crashes: Stage, config: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        gathered(crashes, config=config, quick=True, **options)


def test_what_ptxas_never_saw_is_not_for_nvidia(crashes: Stage) -> None:
    crashes.acted.act = lambda *_: "refuses"
    with pytest.raises(UsageError, match=r"not a failure of ptxas: rejected .* with --for project"):
        gathered(crashes, quick=True, upstream=Upstream.NVIDIA)


@pytest.mark.parametrize("options", [{}, {"quick": True}])
def test_a_report_that_names_nobody_goes_to_whom_the_evidence_accuses(
    crashes: Stage, options: dict[str, Any]
) -> None:
    """Blame says it; with --quick, which asks no blame, that an assembler crashes."""
    assert gathered(crashes, upstream=None, **options).made_by.endswith(" --for nvidia")


def test_what_blame_lays_to_a_compiler_whose_form_is_not_known_goes_to_the_project(
    refused: Stage,
) -> None:
    assert gathered(refused, upstream=None).made_by.endswith(" --for project")


def test_who_is_accused_by_nobody_is_to_be_named(refused: Stage) -> None:
    """A refusal may be the fault of either side, until blame has looked."""
    said = r"^ptxas_error does not say who is to blame\. Name with --for whom .*: project, nvidia"
    with pytest.raises(UsageError, match=said):
        gathered(refused, upstream=None, quick=True)


def test_quick_names_the_command_for_each_piece_that_it_leaves_out(crashes: Stage) -> None:
    dossier = gathered(crashes, quick=True, upstream=Upstream.NVIDIA)
    assert dossier.case.verdict == "ptxas_ice"
    assert (dossier.along_ptxas, dossier.blame, dossier.minimized) == (None, None, None)
    assert {each.why for each in dossier.missing} == {"left out by --quick"}
    defects = [str(each) for each in inspect_dossier(dossier, "# title", ())]
    words = "issue.md: not in the report: other targets (left out by --quick); to add it: "
    assert f"{words}triage bisect --kernel kernel.acted --axis target" in defects
    commands = [each.command for each in dossier.missing]
    assert "triage bisect --kernel kernel.acted --axis ptxas" in commands
    assert "triage minimize --kernel kernel.acted" in commands
    # Only the configs of the kernel were compiled.
    assert crashes.acted.asked == ["1.1", "1.1"]


def test_quick_takes_the_reduction_that_is_there(crashes: Stage) -> None:
    reduced = gathered(crashes).minimized
    dossier = gathered(crashes, quick=True)
    assert reduced is not None
    assert dossier.minimized is not None
    assert dossier.minimized.left.text == reduced.left.text
    missing = {each.what for each in dossier.missing}
    assert "the smallest input" not in missing
    assert "workarounds" in missing


def test_a_piece_that_fails_is_missing_and_the_others_are_there(crashes: Stage) -> None:
    # Something of the user's lies where the reduction would go.
    Path("min").mkdir()
    Path("min/notes.txt").write_text("mine\n")
    dossier = gathered(crashes)
    missing = {each.what: each.why for each in dossier.missing}
    assert set(missing) == {"the history along ptxas", "the smallest input"}
    assert "TRIAGE_OFFLINE" in missing["the history along ptxas"]
    assert "min" in missing["the smallest input"]
    assert dossier.blame is not None
    assert dossier.blame.headline == "ptxas is to blame."
    assert dossier.along_ptxas is None
    assert dossier.ways
    [bug] = check_store(crashes.store)
    assert bug.kernels == {"kernel.acted": bug.cells}


def test_interrupted_it_writes_nothing(crashes: Stage) -> None:
    with pytest.raises(asyncio.CancelledError):
        gathered(crashes, stop_at=2)
    assert not Path("min").exists()


@pytest.fixture
def refused(stage: Stage) -> Stage:
    """Every assembler refuses what Acted 1.1 generates; what other versions generate is fine."""
    stage.ptxas("1.0", "2.0")
    stage.acted.act = lambda version, _: "rejects" if version == "1.1" else "ok"
    return stage


def test_the_history_runs_along_the_tool_that_blame_names(refused: Stage) -> None:
    """It shows in ptxas, and is in what one version of the compiler writes."""
    dossier = gathered(refused)
    assert (dossier.case.stage, dossier.case.verdict) == ("cubin", "ptxas_error")
    assert dossier.blame is not None
    assert dossier.blame.headline == "Acted is to blame."
    assert (dossier.history_axis, dossier.tool, dossier.version) == ("acted", "Acted", "1.1")
    assert dossier.along_ptxas is None
    assert dossier.along_triton is not None
    assert len(check_store(refused.store)) == 1
    line = report_line(dossier.along_triton)
    assert line.startswith("First bad: Acted 1.1. Last good: 1.0. First fixed: 2.0.")


def test_what_blame_lays_to_the_compiler_is_not_for_nvidia(refused: Stage) -> None:
    with pytest.raises(UsageError, match=r"--for nvidia: Acted is to blame\. .* --for project"):
        gathered(refused, upstream=Upstream.NVIDIA)
