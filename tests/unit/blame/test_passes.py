"""Which pass is named, by what a kernel does without some of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from harness.blame import compiler_passes as passes
from harness.blame.compiler_passes import Looked, find_pass
from harness.blame.grid import PairTrial, Varied
from harness.frontends.base import PartLowering
from harness.frontends.bench import Kept
from harness.judging.answers import VerdictAnswer
from harness.values.outcome import Lowering, ProcessEnd, RaisedError

NAMES = [f"p{number}" for number in range(12)]
NEEDED = 1
FENCE = 10
Does = Callable[[set[int]], VerdictAnswer]
FAILS, WORKS, OTHERWISE = VerdictAnswer.SAME, VerdictAnswer.OK, VerdictAnswer.OTHER


class Compiler:
    """One that does not lower a kernel without the pass that is needed."""

    async def lower_part(self, *_: object, without: Any = (), **__: object) -> PartLowering:
        error = RaisedError(type="RuntimeError", kinds=("RuntimeError",), message="no")
        lowering = Lowering(
            end=ProcessEnd(exit_code=0),
            stage="llir",
            error=error if NEEDED in without else None,
            metadata={"without": sorted(without)},
        )
        kept = Kept(value=lowering, key="", artifacts={}, cached=False)
        return PartLowering(lowering=kept, passes=tuple(NAMES))


@pytest.fixture
def name_it(monkeypatch: pytest.MonkeyPatch) -> Callable[[Does], PairTrial | None]:
    monkeypatch.setattr(passes, "front_end", lambda _: Compiler())
    cell: Any = SimpleNamespace(
        launch=1,
        record=1,
        seen_ptxas=None,
        compiler=SimpleNamespace(kind="triton", version="3.9.0"),
    )

    def find(does: Does) -> PairTrial | None:
        async def look(lowering: Kept[Lowering]) -> Looked:
            left_out: Any = lowering.value.metadata["without"]
            return does(set(left_out)), "verdict", ""

        bench: Any = None
        return asyncio.run(find_pass(bench, cell, "none", look, Varied.MLIR))

    return find


def test_the_pass_behind_which_it_fails_is_named(
    name_it: Callable[[Does], PairTrial | None],
) -> None:
    trial = name_it(lambda without: WORKS if 6 in without else FAILS)
    assert trial is not None
    assert trial.label == (
        "it works with the first 5 of 11, and fails with the next, p6; "
        "without that one alone it works"
    )
    assert trial.after is WORKS


def test_of_two_that_it_takes_the_second_is_named(
    name_it: Callable[[Does], PairTrial | None],
) -> None:
    trial = name_it(lambda without: WORKS if without & {3, 6} else FAILS)
    assert trial is not None
    assert " fails with the next, p6;" in trial.label


def test_where_a_number_tells_nothing_the_passes_beside_it_are_named(
    name_it: Callable[[Does], PairTrial | None],
) -> None:
    def does(without: set[int]) -> VerdictAnswer:
        if 6 not in without:
            return FAILS
        return WORKS if 5 in without else OTHERWISE

    trial = name_it(does)
    assert trial is not None
    assert trial.label == "it works with the first 4 of 11, and fails with the next, p5 or p6"


def test_a_later_pass_may_be_needed_for_what_is_right(
    name_it: Callable[[Does], PairTrial | None],
) -> None:
    def does(without: set[int]) -> VerdictAnswer:
        if FENCE in without:
            return OTHERWISE
        return WORKS if 6 in without else FAILS

    trial = name_it(does)
    assert trial is not None
    assert (trial.label, trial.after) == ("without p6 it works", WORKS)


def test_the_same_failure_without_a_fence_does_not_hide_the_pass(
    name_it: Callable[[Does], PairTrial | None],
) -> None:
    trial = name_it(lambda without: WORKS if 6 in without and FENCE not in without else FAILS)
    assert trial is not None
    assert trial.label == "without p6 it works"


def test_passes_that_are_left_out_together_are_named_together(
    name_it: Callable[[Does], PairTrial | None],
) -> None:
    def does(without: set[int]) -> VerdictAnswer:
        if FENCE in without:
            return OTHERWISE
        return WORKS if {6, 7} <= without else FAILS

    trial = name_it(does)
    assert trial is not None
    assert trial.label == "without p4, p5, p6, p7 it works"


def test_what_no_pass_decides_comes_about_elsewhere(
    name_it: Callable[[Does], PairTrial | None],
) -> None:
    trial = name_it(lambda _: FAILS)
    assert trial is not None
    assert trial.after is FAILS
    assert trial.label == (
        "without any of them it is the same: it comes about elsewhere, or in one that it needs (p1)"
    )


def test_nothing_is_said_where_nothing_tells(name_it: Callable[[Does], PairTrial | None]) -> None:
    assert name_it(lambda without: OTHERWISE if without else FAILS) is None
