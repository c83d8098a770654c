"""Workarounds for an acted compiler: nothing to do, nothing better, nothing proved."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from acted_front_end import Stage
from msgspec.structs import replace
from packaging.version import Version

from harness.bugs.list import list_bugs
from harness.frontends import back_end
from harness.frontends.bench import Workbench
from harness.frontends.plan import CapturePlace, Plan
from harness.tables.said import Block, SaidLine
from harness.values.errors import InfrastructureError
from harness.values.row import Row
from harness.workaround import search
from harness.workaround.result import WorkaroundReport, workarounds_said
from harness.workaround.settings import SettingKind
from harness.workaround.trials import Trials
from harness.workaround.workarounds import WorkaroundOptions, find_workarounds

pytest_plugins = ("acted_fixtures",)

CONFIGS = (SettingKind.CONFIG,)
TOOLS = (SettingKind.PTXAS, SettingKind.TRITON)


def found(
    stage: Stage,
    *,
    kinds: tuple[SettingKind, ...] = CONFIGS,
    budget: float = 60.0,
    stop_at: int = 0,
    **words: Any,
) -> WorkaroundReport:
    chosen = {"compiler": ["acted==1.1"], "config": "width=2", **words}
    options = WorkaroundOptions(budget=budget, kinds=kinds)
    work = find_workarounds(stage.selection(**chosen), stage.store, stage.how, options, stage.tell)
    return stage.run(work, stop_at=stop_at)


def lines(blocks: list[Block]) -> list[str]:
    return [block.text for block in blocks if isinstance(block, SaidLine)]


@pytest.fixture
def narrow_works(stage: Stage) -> Stage:
    """A width of 2 makes ptxas crash, a width of 1 does not."""
    stage.ptxas("1.0", "2.0")
    stage.acted.act = lambda _, config: "ice" if config["width"] == 2 else "ok"
    return stage


def test_what_works_needs_nothing(stage: Stage) -> None:
    stage.ptxas("2.0")
    report = found(stage)
    assert (report.is_needed, report.candidates, report.patch) == (False, (), None)
    said = lines(workarounds_said(report))
    assert said[-1] == "Nothing to work around: all compiled configs work."


def test_a_config_that_works_is_proved_and_kept(narrow_works: Stage) -> None:
    stage = narrow_works
    report = found(stage)
    assert [each.change for each in report.candidates] == ["width 2 -> 1"]
    assert report.candidates[0].row.verdict == "ok"
    [kept] = stage.store.workarounds()
    assert kept.change == "width 2 -> 1"


def test_a_config_of_the_list_that_was_not_selected_is_tried(stage: Stage) -> None:
    stage.ptxas("2.0")
    (stage.folder / "kernel.acted").write_text("kernel kernel\nconfig width = 2 24\n")
    stage.acted.act = lambda _, config: "ok" if config["width"] == 24 else "ice"
    report = found(stage)
    assert [(each.change, each.is_listed) for each in report.candidates] == [
        ("width 2 -> 24", True)
    ]


def test_a_config_that_was_not_selected_belongs_to_the_bug_of_the_one_that_was(
    stage: Stage,
) -> None:
    stage.ptxas("2.0")
    stage.acted.act = lambda _, config: "ice" if config["width"] == 2 else "rejects"
    found(stage)
    bodies = [body.row for run in stage.store.runs() for body in stage.store.run_bodies(run.id)]
    decoded = [msgspec.json.decode(body, type=Row) for body in bodies]
    rows = {row.config["width"]: row for row in decoded}
    assert rows[1].verdict == "ptxas_error"
    assert (rows[2].probe_of, rows[1].probe_of) == (None, rows[2].cell)
    [bug] = list_bugs(stage.store)
    assert bug.code == "C7907"


def test_nothing_is_told_of_a_config_that_the_launch_did_not_make(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.ptxas("2.0")
    stage.acted.act = lambda *_: "ice"
    planned = stage.acted.stored_plan

    def untuned(bench: Workbench, place: CapturePlace) -> Plan | None:
        # As a launch without a tuner: whatever is asked for, its meta-parameters are its own.
        plan = planned(bench, replace(place, adapt=None))
        assert plan is not None
        cells = [
            replace(cell, record=replace(cell.record, autotuned=False))
            for cell in plan.cells
            if cell.record
        ]
        return replace(plan, cells=tuple(cells))

    monkeypatch.setattr(stage.acted, "stored_plan", untuned)
    (stage.folder / "kernel.acted").write_text("kernel kernel\nconfig width = 2\n")
    report = found(stage)
    assert report.is_needed
    assert report.tried == len(report.listed)
    assert not [line for line in stage.heard if line.startswith("width")]
    assert report.notes == ("no other value was tried of what the launch code itself sets: width",)
    assert lines(workarounds_said(report))[-2:] == [
        "Nothing better was found.",
        f"  {report.notes[0]}",
    ]


def test_time_that_is_left_goes_to_what_had_too_little(
    narrow_works: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = []
    real = search._configs

    async def short(trials: Trials, *more: Any) -> None:
        turns.append(trials.bench.deadline)
        trials.is_time_up = len(turns) == 1
        if len(turns) > 1:
            await real(trials, *more)

    monkeypatch.setattr(search, "_configs", short)
    report = found(narrow_works)
    assert [each.change for each in report.candidates] == ["width 2 -> 1"]
    assert report.left_out == ()


def test_what_the_time_did_not_suffice_for_is_told_by_kind(
    narrow_works: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(trials: Trials, *_: Any) -> None:
        await asyncio.sleep(0.1)
        trials.is_time_up = True

    monkeypatch.setattr(search, "_configs", never)
    report = found(narrow_works, kinds=(SettingKind.CONFIG, SettingKind.TRITON), budget=6.0)
    assert report.left_out == (SettingKind.CONFIG,)
    left_out = "The time was up (--max-time) before all was tried of: config."
    assert left_out in lines(workarounds_said(report))


def test_what_only_another_tool_refuses_is_no_bug_of_the_user(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.ptxas("1.0", "2.0")
    known = [
        SimpleNamespace(version=Version(each), name=f"ptxas-{each}") for each in ("1.0", "2.0")
    ]
    monkeypatch.setattr(back_end, "available_wheels", lambda *_, **__: known)
    stage.acted.act = lambda *_: "2.0=ice *=rejects"
    found(stage, kinds=(SettingKind.PTXAS,))
    assert [bug.code for bug in list_bugs(stage.store)] == ["C7907"]


def test_what_is_listed_is_of_the_launch_that_is_in_trouble(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.ptxas("2.0")
    stage.acted.act = lambda _, config: "ice" if config.get("second") else "ok"
    planned = stage.acted.stored_plan

    def twice(bench: Workbench, place: CapturePlace) -> Plan | None:
        plan = planned(bench, place)
        assert plan is not None
        second = [
            replace(
                cell,
                cell=replace(cell.cell, launch=f"{cell.cell.launch}#2"),
                record=replace(
                    cell.record, key="second", config={**cell.record.config, "second": 1}
                ),
            )
            for cell in plan.cells
            if cell.record
        ]
        return replace(plan, cells=(*plan.cells, *second))

    monkeypatch.setattr(stage.acted, "stored_plan", twice)
    report = found(stage)
    assert report.is_needed
    assert {row.launch for row in (report.baseline, *report.listed)} == {"acted#2"}
    assert report.survivor is None
    assert report.candidates == ()


def test_nothing_better_is_said(stage: Stage) -> None:
    stage.ptxas("2.0")
    stage.acted.act = lambda *_: "ice"
    report = found(stage)
    assert report.is_needed
    assert report.candidates == ()
    assert "Nothing better was found." in lines(workarounds_said(report))
    assert stage.store.workarounds() == []


def test_what_does_not_come_again_is_no_workaround(stage: Stage) -> None:
    stage.ptxas("2.0")
    # It compiles in the search, and crashes when it is to be proved.
    stage.acted.act = lambda _, config: "ice" if config["width"] == 2 else "ok>ice"
    report = found(stage)
    assert report.candidates == ()
    assert any("did not come out again: ptxas_ice" in note for note in report.notes)


def test_other_toolchains_are_tried_and_missing_ones_say_nothing(stage: Stage) -> None:
    stage.ptxas("1.0", "2.0")
    stage.acted.act = lambda version, _: "ok" if version == "2.0" else "2.0=ice *=killed"
    stage.acted.failing = {"1.0"}
    report = found(stage, kinds=TOOLS)
    assert report.candidates
    for each in report.candidates:
        assert each.row.compiler_version == "2.0"


def test_a_ptxas_gets_the_program_of_the_bundled_one_unless_it_is_older(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = ("1.0", "2.0", "3.0")
    stage.ptxas(*versions)
    known = [SimpleNamespace(version=Version(each), name=f"ptxas-{each}") for each in versions]
    monkeypatch.setattr(back_end, "available_wheels", lambda *_, **__: known)
    stage.acted.act = lambda *_: "2.0=ice *=ok"
    planned = stage.acted.stored_plan

    def bundled(bench: Workbench, place: CapturePlace) -> Plan | None:
        plan = planned(bench, place)
        cells = [replace(cell, bundled=cell.ptxas) for cell in plan.cells] if plan else []
        return replace(plan, cells=tuple(cells)) if plan else None

    monkeypatch.setattr(stage.acted, "stored_plan", bundled)
    assert found(stage, kinds=(SettingKind.PTXAS,)).candidates
    [run] = stage.store.runs()
    rows = [msgspec.json.decode(body.row, type=Row) for body in stage.store.run_bodies(run.id)]
    assert {row.ptxas: row.frozen for row in rows} == {"1.0": False, "2.0": False, "3.0": True}


def test_interrupted_it_keeps_no_workaround(narrow_works: Stage) -> None:
    with pytest.raises(asyncio.CancelledError):
        found(narrow_works, stop_at=2)
    assert narrow_works.store.workarounds() == []
    assert found(narrow_works).candidates


HANGS = 'if "act: *=hangs" in text: hang()\n'


def test_at_the_end_of_the_budget_what_is_under_way_is_ended(stage: Stage) -> None:
    stage.ptxas("2.0", before=HANGS)
    stage.acted.act = lambda _, config: "ice" if config["width"] == 2 else "hangs"
    started = time.monotonic()
    report = found(stage, budget=4.0)
    # Each ptxas may take 60 s here: it is not waited for.
    assert time.monotonic() - started < 30
    assert report.is_time_up
    assert report.baseline.verdict == "ptxas_ice"
    assert report.candidates == ()


def test_a_budget_that_ends_before_anything_is_known_says_so(stage: Stage) -> None:
    stage.ptxas("2.0", before=HANGS)
    stage.acted.act = lambda *_: "hangs"
    started = time.monotonic()
    with pytest.raises(InfrastructureError, match=r"2 s \(--max-time\) are over"):
        found(stage, budget=2.0)
    assert time.monotonic() - started < 30
