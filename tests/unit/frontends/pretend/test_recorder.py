"""What a capture keeps of many launches, and what it counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from harness.frontends.pretend import recorded


@dataclass
class Launched:
    key: str
    config: dict[str, int] = field(default_factory=dict)
    values: str = ""
    call: object = None

    def describe(self) -> dict[str, Any]:
        return {"key": self.key}


def test_launches_beyond_the_limit_are_counted_and_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recorded, "LIMIT", 2)
    recorder = recorded.Recorder()
    kept = [recorder.keep(Launched(key)) for key in ("a", "b", "a", "c", "d")]
    assert kept == [True, True, False, False, False]
    # A known one is no launch too many, whenever it comes.
    assert (len(recorder.records), recorder.dropped) == (2, 2)
    assert recorder.noted == [0, 1, 0]
    assert not recorder.keep(Launched("b"))
    assert recorder.dropped == 2


def launches_of(*kept: tuple[str, int, object]) -> Sequence[tuple[str, int]]:
    """The code and the number of launch of each record, of launches by code, config and call."""
    recorder = recorded.Recorder()
    for key, config, call in kept:
        recorder.keep(Launched(key, {"config": config}, call=call))
    return [(facts["key"], facts["launch"]) for facts in recorder.described()]


def test_configs_of_one_call_are_one_launch_and_other_calls_are_others() -> None:
    of_two = launches_of(("a1", 1, "a"), ("b3", 3, "b"), ("a2", 2, "a"), ("b4", 4, "b"))
    assert of_two == [("a1", 0), ("b3", 1), ("a2", 0), ("b4", 1)]
    # Which configs a call has says nothing about the others.
    assert launches_of(("a1", 1, "a"), ("b4", 4, "b")) == [("a1", 0), ("b4", 1)]
    assert launches_of(("a", 1, None), ("b", 2, None)) == [("a", 0), ("b", 0)]


@pytest.mark.parametrize(
    "other", [[("x2", 2, "y"), ("x3", 3, "y")], [("x3", 3, "y"), ("x2", 2, "y")]]
)
def test_calls_that_come_to_the_same_code_are_one_launch(other: list[tuple[str, int, str]]) -> None:
    """In whatever order; and the calls that follow count as if there had been one."""
    found = launches_of(("x1", 1, "x"), ("x2", 2, "x"), *other, ("z1", 1, "z"), *other)
    assert found == [("x1", 0), ("x2", 0), ("x3", 0), ("z1", 1)]
