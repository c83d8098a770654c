"""A fix is compiled once more, from nothing, before it is said."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from harness.effects.process import ResourceLimits
from harness.effects.workbench import Workbench
from harness.values.row import Row
from harness.verbs import work
from harness.verbs.cells import Evaluated, PlannedCell
from harness.verbs.work import Treatment


def evaluated(verdict: str) -> Evaluated:
    row = Row(
        cell="k/l/c@sm_80/triton-1/ptxas-1",
        short="01234567",
        kernel="k",
        launch="l",
        config={},
        target="sm_80",
        triton="1",
        ptxas="1",
        ptxas_origin="wheel",
        verdict=verdict,
        reason="",
        signature=None if verdict == "ok" else "s",
        cubin_sha256="c" if verdict == "ok" else None,
    )
    return Evaluated(row=row, evidence={})


def run(
    monkeypatch: pytest.MonkeyPatch, outcomes: list[str], treatment: Treatment
) -> tuple[Evaluated, list[bool]]:
    """What is kept of a cell that comes out like this, and whether each run began from nothing."""
    left = list(outcomes)
    afresh = []

    async def evaluate(bench: Workbench, plan: PlannedCell) -> Evaluated:
        afresh.append(not bench.use_cache)
        return evaluated(left.pop(0))

    async def work_on_it() -> Evaluated:
        bench = Workbench(
            hub=cast("Any", None),
            store=cast("Any", None),
            sessions=cast("Any", None),
            jobs=1,
            limits=ResourceLimits(timeout=1, memory=1),
        )
        return await work._evaluate(bench, cast("Any", None), treatment)

    monkeypatch.setattr(work, "evaluate", evaluate)
    done = asyncio.run(work_on_it())
    assert not left
    return done, afresh


def test_what_used_to_fail_and_compiles_is_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    done, afresh = run(monkeypatch, ["ok", "ok"], Treatment(used_to_fail=True))
    assert (done.row.verdict, done.row.flaky, afresh) == ("ok", False, [False, True])


def test_a_fix_that_does_not_last_is_flaky(monkeypatch: pytest.MonkeyPatch) -> None:
    done, _ = run(monkeypatch, ["ok", "ptxas_ice"], Treatment(used_to_fail=True))
    assert (done.row.verdict, done.row.flaky) == ("ptxas_ice", True)


@pytest.mark.parametrize(
    ("outcomes", "treatment"),
    [
        (["ok"], Treatment()),
        (["ptxas_ice"], Treatment(used_to_fail=True)),
        (["ok", "ok", "ok"], Treatment(used_to_fail=True, repeat=3)),
    ],
)
def test_nothing_else_is(
    monkeypatch: pytest.MonkeyPatch, outcomes: list[str], treatment: Treatment
) -> None:
    done, _ = run(monkeypatch, outcomes, treatment)
    assert done.row.verdict == outcomes[0]
    assert not done.row.flaky
