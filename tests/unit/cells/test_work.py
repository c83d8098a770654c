"""Running one cell several times, and what places have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

import harness.cells.places as module
from harness.cells.evaluate import Evaluated
from harness.cells.places import CellOptions, CompileOptions
from harness.frontends.bench import Workbench
from harness.frontends.plan import PlannedCell
from harness.io.processes import machine
from harness.io.processes.hub import ResourceLimits
from harness.values.row import Row
from harness.values.verdict import VerdictKind


class Bench:
    """Counts how it was taken apart."""

    def __init__(self) -> None:
        self.cpu_seconds = 0.0
        self.asked: list[tuple[ResourceLimits | None, bool]] = []

    def apart(self, *, limits: ResourceLimits | None, uncached: bool) -> SimpleNamespace:
        self.asked.append((limits, uncached))
        return SimpleNamespace(cpu_seconds=1.5)


def evaluate(
    monkeypatch: pytest.MonkeyPatch, rows: Sequence[Row], cell_options: CellOptions
) -> tuple[Evaluated, Bench]:
    left = iter(rows)

    async def answer(bench: object, plan: object) -> Evaluated:
        return Evaluated(row=next(left), evidence={})

    monkeypatch.setattr(module, "evaluate", answer)
    bench = Bench()
    plan = cast("PlannedCell", None)
    done = asyncio.run(module._evaluate(cast("Workbench", bench), plan, cell_options))
    assert next(left, None) is None
    return done, bench


def a_row(**changes: Any) -> Row:
    base = Row(
        cell="k/default/num_warps=4@sm_90a/triton-3.6.0/ptxas-13.0.88",
        short="01234567",
        kernel="k",
        launch="default",
        config={"num_warps": 4},
        target="sm_90a",
        triton="3.6.0",
        ptxas="13.0.88",
        ptxas_origin="nvidia-cuda-nvcc",
        verdict=VerdictKind.OK,
        reason="it is",
    )
    return replace(base, **changes)


def test_once_is_as_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    done, bench = evaluate(monkeypatch, [a_row()], CellOptions())
    assert not done.row.flaky
    assert bench.asked == []


def test_other_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = ResourceLimits(timeout=1.0, memory=2)
    _, bench = evaluate(monkeypatch, [a_row()], CellOptions(limits=limits))
    assert bench.asked == [(limits, False)]
    assert bench.cpu_seconds == 1.5


def test_runs_that_agree_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    done, bench = evaluate(monkeypatch, [a_row()] * 3, CellOptions(repeat=3))
    assert not done.row.flaky
    # Only the first may be from the store.
    assert [uncached for _, uncached in bench.asked] == [False, True, True]
    assert bench.cpu_seconds == 4.5


def test_runs_that_disagree_are_flaky_and_the_failure_is_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failed = a_row(verdict=VerdictKind.COMPILER_CRASH, signature="0123456789ab")
    done, _ = evaluate(monkeypatch, [a_row(), failed, a_row()], CellOptions(repeat=3))
    assert done.row.flaky
    assert done.row.verdict == "compiler_crash"


def test_other_machine_code_is_disagreement_too(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [a_row(cubin_sha256="aa"), a_row(cubin_sha256="bb")]
    done, _ = evaluate(monkeypatch, rows, CellOptions(repeat=2))
    assert done.row.flaky


def test_what_used_to_fail_and_compiles_is_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    done, bench = evaluate(monkeypatch, [a_row()] * 2, CellOptions(used_to_fail=True))
    assert not done.row.flaky
    # From nothing, the second time.
    assert bench.asked == [(None, True)]


def test_a_fix_that_does_not_last_is_flaky(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = a_row(verdict=VerdictKind.PTXAS_ICE, signature="s")
    done, _ = evaluate(monkeypatch, [a_row(), broken], CellOptions(used_to_fail=True))
    assert (done.row.verdict, done.row.flaky) == ("ptxas_ice", True)


def test_what_still_fails_needs_no_confirming(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = a_row(verdict=VerdictKind.PTXAS_ICE, signature="s")
    done, bench = evaluate(monkeypatch, [broken], CellOptions(used_to_fail=True))
    assert (done.row.verdict, bench.asked) == ("ptxas_ice", [])


@pytest.mark.parametrize("gibibytes", [24, 64])
@pytest.mark.parametrize("jobs", [1, 2, 8])
def test_children_together_get_half_of_the_machine(
    monkeypatch: pytest.MonkeyPatch, gibibytes: int, jobs: int
) -> None:
    monkeypatch.setattr(machine, "memory", lambda: gibibytes << 30)
    limits = CompileOptions(jobs=jobs).limits
    assert limits.memory == max((gibibytes << 29) // jobs, 2 << 30)
    assert CompileOptions(jobs=jobs, memory=3).limits.memory == 3
