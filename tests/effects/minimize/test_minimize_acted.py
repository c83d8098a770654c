"""Reductions of what an acted compiler generates: what ends one, and what is left of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from acted_front_end import Stage
from bug_checker import check_store
from made_minimization import changed

from harness.bugs.list import reproducer_of
from harness.minimize.minimizing import keep_reproducer, minimize
from harness.minimize.reduction.minimization import Ending, Minimization, NothingToReduce
from harness.minimize.reduction.work import MinimizeOptions, ReductionStep, Watch
from harness.values.errors import EmptySelectionError, UsageError

pytest_plugins = ("acted_fixtures",)


def reduced(
    stage: Stage, *, stop_after: int = 0, out: str = "min", config: str = "width=1", **options: Any
) -> Minimization | NothingToReduce:
    """The result; with `stop_after`, Ctrl-C comes after so many tests."""

    async def work() -> Minimization | NothingToReduce:
        task = asyncio.current_task()
        assert task is not None

        def step(heard: ReductionStep) -> None:
            if heard.tests == stop_after:
                task.cancel()

        selection = stage.selection(compiler=["acted==1.1"], config=config)
        asked = MinimizeOptions(folder_of=lambda _: Path(out), **options)
        watch = Watch(tell=stage.tell, step=step)
        return await minimize(selection, stage.store, stage.how, asked, watch)

    return stage.run(work())


def result(found: Minimization | NothingToReduce) -> Minimization:
    assert isinstance(found, Minimization), found
    return found


@pytest.fixture
def crashes(stage: Stage) -> Stage:
    stage.ptxas("1.0", "2.0")
    stage.acted.act = lambda *_: "2.0=ice *=ok"
    return stage


def test_what_works_is_not_reduced(stage: Stage) -> None:
    stage.ptxas("2.0")
    found = reduced(stage)
    assert isinstance(found, NothingToReduce)
    assert not Path("min").exists()


def test_what_ptxas_does_not_do_alone_is_not_reduced(stage: Stage) -> None:
    stage.ptxas("2.0")
    stage.acted.act = lambda *_: "ice>ok"
    found = reduced(stage)
    assert isinstance(found, NothingToReduce)
    assert found.reason.startswith("the cell is ptxas_ice")
    assert "but its PTX alone makes ptxas 2.0 say ok: compiled" in found.reason


def test_what_the_compiler_refuses_has_no_ptx(stage: Stage) -> None:
    stage.ptxas("2.0")
    stage.acted.act = lambda *_: "refuses"
    found = reduced(stage)
    assert isinstance(found, NothingToReduce)
    assert found.reason == (
        "Acted refuses it: no such thing: there is no PTX, and a kernel of Acted is reduced at ptx"
    )


def test_interrupted_it_keeps_the_best_and_goes_on(crashes: Stage) -> None:
    stopped = result(reduced(crashes, stop_after=4))
    assert stopped.spent.ending is Ending.INTERRUPTED
    assert Path("min/min.ptx").read_text() == stopped.left.text
    assert "act: 2.0=ice" in stopped.left.text
    whole = result(reduced(crashes, resume=True))
    assert whole.spent.ending is Ending.FINISHED
    assert whole.spent.tests > stopped.spent.tests
    assert len(whole.left.text) <= len(stopped.left.text)
    assert result(reduced(crashes, out="at-once")).left.text == whole.left.text


def test_a_budget_ends_it_with_what_there_is(crashes: Stage) -> None:
    found = result(reduced(crashes, tests=3))
    assert (found.spent.ending, found.spent.tests) == (Ending.BUDGET, 3)
    assert Path("min/min.ptx").read_text() == found.left.text


def test_a_budget_counts_what_was_spent_before(crashes: Stage) -> None:
    first = result(reduced(crashes, tests=3))
    again = result(reduced(crashes, tests=3, resume=True))
    assert (again.spent.ending, again.spent.tests) == (Ending.BUDGET, 3)
    # As much time as was spent already is no time at all.
    timed = result(reduced(crashes, seconds=first.spent.seconds, resume=True))
    assert (timed.spent.ending, timed.spent.tests) == (Ending.BUDGET, 3)
    assert result(reduced(crashes, tests=1000, resume=True)).spent.ending is Ending.FINISHED


def test_a_machine_that_fails_ends_it_with_what_there_is(stage: Stage) -> None:
    # Once the address is gone, somebody else kills ptxas.
    stage.ptxas("2.0", before='if "ld.param" not in text: die(signal.SIGKILL)\n')
    stage.acted.act = lambda *_: "ice"
    found = result(reduced(stage))
    assert found.spent.ending is Ending.TROUBLE
    assert "killed from outside" in (found.spent.trouble or "")
    assert "ld.param" in found.left.text


def test_what_cannot_be_asked_is_a_usage_error(crashes: Stage) -> None:
    Path("taken").mkdir()
    Path("taken/notes.txt").write_text("mine\n")
    with pytest.raises(UsageError, match="taken"):
        reduced(crashes, out="taken")
    with pytest.raises(UsageError, match="a kernel of Acted is reduced at ptx"):
        reduced(crashes, level="source")
    with pytest.raises(EmptySelectionError):
        reduced(crashes, config="width=7")
    assert Path("taken/notes.txt").read_text() == "mine\n"


def test_what_is_left_is_kept_for_the_page_of_its_bug(crashes: Stage) -> None:
    whole = result(reduced(crashes))
    [bug] = check_store(crashes.store)
    kept = reproducer_of(crashes.store, bug)
    assert kept is not None
    assert (kept.text, kept.name, kept.tool) == (whole.left.text, "min.ptx", "ptxas 2.0")
    assert (
        "instructions",
        whole.subject.size.instructions,
        whole.left.size.instructions,
    ) in kept.sizes
    assert kept.ablation == tuple((each.instruction, each.words) for each in whole.left.ablation)
    # What is larger does not take its place.
    longer = changed(whole, text=f"{whole.left.text}// more\n")
    keep_reproducer(crashes.store, longer, "triage minimize")
    assert reproducer_of(crashes.store, bug) == kept
