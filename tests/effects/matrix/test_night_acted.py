"""Nights with an acted compiler: parts that are missing, time that is up, and what was expected."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from acted_front_end import Stage
from msgspec.structs import replace

from harness.bugs.list import list_bugs, reproducer_of
from harness.cells.matrix_file import read_matrix
from harness.cells.places import RunProgress
from harness.diff.between_runs import matrix_of
from harness.matrix import night as night_module
from harness.matrix.night import MatrixReport, make_plan, run_matrix
from harness.matrix.run_policy import MatrixOptions
from harness.minimize.minimizing import minimize
from harness.minimize.reduction.minimization import Minimization
from harness.minimize.reduction.work import MinimizeOptions, Watch
from harness.values.bug import MachineState
from harness.values.errors import StorageError

pytest_plugins = ("acted_fixtures",)

MATRIX = """\
version: 1
toolchains:
  ptxas: {spec: ['==1.0', '==2.0']}
  compilers: {acted: {spec: '>=1'}}
targets: [sm_80]
kernels: [kernel.acted]
"""
EXPECTED = """\
expect:
  - {kernel: kernel.acted, when: {cell: '*/acted-1.1/*'}, verdict: ptxas_ice}
"""


def night(
    stage: Stage,
    more: str = "",
    *,
    max_time: float | None = None,
    stop_at: int = 0,
    matrix: str = MATRIX,
) -> MatrixReport:
    path = Path("m.yaml")
    path.write_text(matrix + more)
    asked = read_matrix(path)
    how = replace(stage.how, command="triage matrix run")
    options = MatrixOptions(max_time=max_time, work=how)

    async def work() -> MatrixReport:
        plan = make_plan(asked, options, stage.store)
        return await run_matrix(asked, stage.store, options, RunProgress(), plan)

    return stage.run(work(), stop_at=stop_at)


@pytest.fixture
def crashes(stage: Stage) -> Stage:
    stage.ptxas("1.0", "2.0")
    stage.acted.act = lambda version, _: "ice" if version == "1.1" else "ok"
    return stage


def test_a_failure_is_unexpected_until_it_is_expected(crashes: Stage) -> None:
    first = night(crashes)
    assert first.verdicts == {"ok": 8, "ptxas_ice": 4}
    assert (first.unexpected, first.exit_code(strict_fixed=False)) == (4, 1)
    second = night(crashes, EXPECTED)
    assert (second.unexpected, second.exit_code(strict_fixed=False)) == (0, 0)
    # The same program needs no work.
    assert second.carried == 12
    assert sorted(crashes.acted.asked) == ["1.0"] * 2 + ["1.1"] * 2 + ["2.0"] * 2


def test_the_matrix_of_a_night_is_the_file_that_it_was_run_with(
    crashes: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    night(crashes, EXPECTED)
    [run] = crashes.store.runs(limit=2)
    monkeypatch.chdir(tmp_path)
    Path("matrix.yaml").write_text(MATRIX)
    for command in (run.command, f"{run.command} --matrix m.yaml"):
        found = matrix_of(crashes.store, replace(run, command=command))
        assert found
        assert len(found.expect) == 1


def test_what_was_fixed_matters_only_where_it_is_asked_for(crashes: Stage) -> None:
    night(crashes)
    crashes.acted.act = lambda *_: "ok"
    crashes.acted.revision = 1
    report = night(crashes)
    assert report.verdicts == {"ok": 12}
    assert report.exit_code(strict_fixed=False) == 0
    assert report.exit_code(strict_fixed=True) == 5


def test_a_compiler_that_is_missing_leaves_the_night_incomplete(crashes: Stage) -> None:
    crashes.acted.act = lambda *_: "ok"
    crashes.acted.uncaptured = {"1.1"}
    report = night(crashes)
    assert report.verdicts == {"ok": 8}
    assert any("the launch raised ValueError" in each for each in report.failures)
    assert not report.is_complete
    assert report.exit_code(strict_fixed=False) == 4


def test_without_time_nothing_is_started_and_the_next_goes_on(crashes: Stage) -> None:
    stopped = night(crashes, max_time=0.0)
    assert (stopped.verdicts, stopped.changes) == ({}, None)
    assert stopped.skipped or stopped.skipped_captures
    assert stopped.exit_code(strict_fixed=False) == 4
    assert crashes.acted.asked == []
    whole = night(crashes)
    assert whole.verdicts == {"ok": 8, "ptxas_ice": 4}
    assert whole.is_complete


def test_an_interrupted_night_goes_on_where_it_was(crashes: Stage) -> None:
    with pytest.raises(asyncio.CancelledError):
        night(crashes, stop_at=4)
    done = list(crashes.acted.asked)
    assert done
    whole = night(crashes)
    assert whole.verdicts == {"ok": 8, "ptxas_ice": 4}
    # What was lowered and stored is not lowered again.
    assert len(crashes.acted.asked) <= 6 + 1


@pytest.mark.parametrize("is_accepted", [True, False])
def test_a_bug_is_only_fixed_where_its_smallest_input_is_accepted(
    stage: Stage, *, is_accepted: bool
) -> None:
    stage.ptxas("1.0", "2.0")
    stage.acted.act = lambda *_: "2.0=ice *=ok"
    night(stage)
    options = MinimizeOptions(folder_of=lambda _: Path("min"))
    # As the cells of a night, so that it is no line of its own.
    selection = stage.selection(compiler=["acted==1.1"], config="width=1", freeze_ptx=True)
    found = stage.run(minimize(selection, stage.store, stage.how, options, Watch()))
    assert isinstance(found, Minimization)
    # What is left has no store any more.
    assert "st.global" not in found.left.text
    [bug] = list_bugs(stage.store)
    kept = reproducer_of(stage.store, bug)
    assert kept
    assert (kept.kind, kept.accepted_by) == ("ptxas", ("1.0",))
    stage.ptxas("3.0", before="" if is_accepted else 'if "st.global" not in text: ice("C7907")\n')
    fixed = MATRIX.replace("'==2.0'", "'==2.0', '==3.0'")
    night(stage, matrix=fixed)
    [bug] = list_bugs(stage.store, clean_nights=1)
    assert bug.untried == (None if is_accepted else "3.0")
    expected = MachineState.FIXED_VERIFIED if is_accepted else MachineState.FIXED_CANDIDATE
    assert bug.machine is expected


def test_a_night_has_ended_before_its_reproducers_are_tried(
    crashes: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk then costs no night: the next one is compared with it."""

    async def fails(*_: object) -> None:
        raise StorageError("no space left")

    monkeypatch.setattr(night_module, "try_reproducers", fails)
    with pytest.raises(StorageError, match="no space left"):
        night(crashes)
    [run] = crashes.store.runs()
    assert run.finished is not None
