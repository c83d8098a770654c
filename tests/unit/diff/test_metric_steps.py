from __future__ import annotations

from typing import Any

import pytest
from change_cases import facts

from harness.diff.compare import direction, metric_steps
from harness.values.change import Severity
from harness.values.timing import TimeMs


def severity(older: dict[str, Any], newer: dict[str, Any]) -> Severity | None:
    """That of the gravest step, which the way back must have too, in the other direction."""
    there = metric_steps(facts(**older), facts(**newer))
    back = metric_steps(facts(**newer), facts(**older))
    assert [(step.metric, step.severity) for step in there] == [
        (step.metric, step.severity) for step in back
    ]
    assert [step.worse for step in there] == [not step.worse for step in back]
    return there[0].severity if there else None


@pytest.mark.parametrize(
    ("older", "newer", "expected"),
    [
        (0, 1, Severity.SPILLS_BEGIN),
        (0, 16, Severity.SPILLS_BEGIN),
        (100, 115, Severity.INFORMATIONAL),
        (100, 116, Severity.SPILLS),
        (160, 176, Severity.SPILLS),
        (1000, 1099, Severity.INFORMATIONAL),
        (1000, 1100, Severity.SPILLS),
        (100, 100, None),
        (None, 100, None),
    ],
)
def test_spills(older: int | None, newer: int, expected: Severity | None) -> None:
    assert severity({"spill_stores": older}, {"spill_stores": newer}) is expected


def test_spills_are_stores_and_loads_together() -> None:
    assert severity({"spill_stores": 64, "spill_loads": 0}, {"spill_loads": 64}) is None


@pytest.mark.parametrize(
    ("older", "newer", "expected"),
    [
        (64, 71, Severity.INFORMATIONAL),
        (64, 72, Severity.REGISTERS),
        (200, 209, Severity.INFORMATIONAL),
        (200, 210, Severity.REGISTERS),
        (255, 255, None),
        (None, 255, None),
    ],
)
def test_registers(older: int | None, newer: int, expected: Severity | None) -> None:
    assert severity({"n_regs": older}, {"n_regs": newer}) is expected


def test_a_limit_of_occupancy_is_crossed() -> None:
    assert severity({"occupancy": 0.25}, {"occupancy": 0.125}) is Severity.LIMIT
    assert severity({"occupancy": 0.25}, {"occupancy": None}) is None


@pytest.mark.parametrize("metric", ["stack", "shared", "tmem_size"])
def test_the_rest_is_informational(metric: str) -> None:
    older: dict[str, Any] = {metric: 0}
    newer: dict[str, Any] = {metric: 4096}
    assert severity(older, newer) is Severity.INFORMATIONAL
    assert direction(metric_steps(facts(**older), facts(**newer))) is None


def test_the_gravest_step_decides_and_comes_first() -> None:
    steps = metric_steps(
        facts(n_regs=128, spill_stores=1000, occupancy=0.25),
        facts(n_regs=255, spill_stores=0, occupancy=0.125),
    )
    assert [step.metric for step in steps] == ["spills", "occupancy", "n_regs"]
    assert direction(steps) is False


def test_sick_is_worse_than_ok_whatever_the_numbers() -> None:
    steps = metric_steps(facts(spill_stores=40), facts("sick", spill_stores=0, spill_loads=0))
    assert steps[0].severity is Severity.HEALTH
    assert direction(steps) is True
    assert direction(metric_steps(facts("sick"), facts())) is False


def test_the_same_machine_code_says_nothing() -> None:
    older = {"cubin_sha256": "c", "n_regs": 64}
    assert severity(older, {"cubin_sha256": "c", "n_regs": 128}) is None
    assert severity(older, {"cubin_sha256": "d", "n_regs": 128}) is Severity.REGISTERS
    assert severity({"n_regs": 64}, {"n_regs": 128}) is Severity.REGISTERS


def test_memory_that_is_asked_for_at_launch_is_not_in_the_machine_code() -> None:
    older = {"cubin_sha256": "c", "shared": 1024, "occupancy": 0.5}
    newer = {"cubin_sha256": "c", "shared": 102400, "occupancy": 0.125}
    assert severity(older, newer) is Severity.LIMIT


def milliseconds(low: float, high: float) -> TimeMs:
    return TimeMs(median=(low + high) / 2, min=low, q3=high, samples=30, sm_mhz=1980)


@pytest.mark.parametrize(
    ("older", "newer", "expected"),
    [
        (milliseconds(1.0, 1.1), milliseconds(1.5, 1.6), Severity.TIME),
        # The median is a third higher, and it says nothing: the intervals overlap.
        (milliseconds(1.0, 1.5), milliseconds(1.4, 1.9), None),
        (None, milliseconds(1.4, 1.9), None),
    ],
)
def test_times_step_only_where_noise_does_not_explain_it(
    older: TimeMs | None, newer: TimeMs, expected: Severity | None
) -> None:
    assert severity({"time_ms": older}, {"time_ms": newer}) is expected


def test_the_same_code_has_no_step_of_time() -> None:
    same: dict[str, Any] = {"cubin_sha256": "1" * 64}
    older, newer = milliseconds(1.0, 1.1), milliseconds(2.0, 2.1)
    assert severity({**same, "time_ms": older}, {**same, "time_ms": newer}) is None
