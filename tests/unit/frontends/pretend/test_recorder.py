"""What a capture keeps of many launches, and what it counts."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from harness.frontends.pretend import recorded


@dataclass
class Launched:
    key: str
    settings: dict[str, int] = field(default_factory=dict)
    values: str = ""


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
