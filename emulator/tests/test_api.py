"""What the interface promises: a launch in, an outcome out, never an exception."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from programs import kernel

from gpu_emulator.api import (
    Allocation,
    Budget,
    Element,
    Launch,
    Pointer,
    Schedule,
    Trace,
    origins,
    run,
    trace,
)

LAUNCH = Launch(
    ptx=kernel("st.global.u32 [%rd40], %r40;", 1),
    grid=(1, 1, 1),
    block=(1, 1, 1),
    allocations=(Allocation(name="out", data=np.zeros(8, np.uint8)),),
    arguments=(Pointer(allocation=0),),
)
WORD = Element(allocation=0, offset=0, size=4)


def data(values: Any, written: Any = None) -> dict[str, Any]:
    return {"allocations": (Allocation(name="out", data=values, written=written),)}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"ptx": ""}, "the PTX has 0 entries"),
        ({"ptx": None}, "cannot execute this program"),
        ({"ptx": "no PTX at all {"}, "the PTX has 0 entries"),
        ({"entry": "other"}, "other"),
        ({"grid": (0, 1, 1)}, "the driver refuses a grid"),
        ({"grid": "1"}, "cannot execute this program"),
        ({"arguments": (Pointer(allocation=3),)}, "no allocation 3"),
        (data(np.zeros(2, np.uint32)), "out is not one row of bytes"),
        (data(np.zeros((2, 4), np.uint8)), "out is not one row of bytes"),
        (data(np.zeros(8, np.uint8), np.zeros(4, np.bool_)), "`written` does not fit"),
    ],
)
def test_a_launch_that_cannot_be_executed_has_a_reason(change: dict[str, Any], why: str) -> None:
    assert run(LAUNCH).not_run is None
    launch = replace(LAUNCH, **change)
    outcome = run(launch)
    assert why in (outcome.not_run or "")
    assert outcome.allocations == ()
    for follow in (trace, origins):
        assert why in (twice(follow, launch, WORD).not_run or "")


def twice(follow: Any, launch: Launch, element: Element) -> Trace:
    found: Trace = follow((launch, launch), (Schedule(), Schedule(seed=1)), Budget(), element)
    return found


@pytest.mark.parametrize(
    ("element", "why"),
    [
        (Element(allocation=1, offset=0, size=4), "no allocation 1"),
        (Element(allocation=-1, offset=0, size=4), "no allocation -1"),
        (Element(allocation=0, offset=6, size=4), "no bytes 6 to 10"),
        (Element(allocation=0, offset=0, size=0), "no bytes 0 to 0"),
        (Element(allocation=0, offset=4, size=4), "no program writes this element"),
    ],
)
def test_an_element_that_cannot_be_followed_has_a_reason(element: Element, why: str) -> None:
    for follow in (trace, origins):
        assert twice(follow, LAUNCH, WORD).not_run is None
        assert why in (twice(follow, LAUNCH, element).not_run or "")


def test_what_is_no_launch_is_answered() -> None:
    nothing: Any = None
    assert run(nothing).not_run
    for follow in (trace, origins):
        assert "cannot trace this" in (twice(follow, nothing, WORD).not_run or "")
