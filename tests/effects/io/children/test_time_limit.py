"""How long launch code may take: seconds in which it waits for a core do not count."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from harness.io.children import captures
from harness.io.children.captures import time_limit
from harness.io.children.launch_code import TimeUpError


@pytest.mark.parametrize(
    ("waits", "takes"),
    [(0.0, 0.5), (1.5, 2.0), (100.0, 2.0)],  # of 0.5 s, three times as much at most
)
def test_seconds_in_which_it_waits_for_a_core_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: float, takes: float
) -> None:
    told = iter([0.0])
    monkeypatch.setattr(captures, "waited", lambda: next(told, waits))
    before = signal.getsignal(signal.SIGALRM)

    def endless() -> None:
        with time_limit(0.5, 9, tmp_path / "capture.late"):
            while True:
                time.sleep(0.01)

    began = time.monotonic()
    try:
        with pytest.raises(TimeUpError, match="did not end within 9 s"):
            endless()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - began >= takes
    ends, waited = map(float, (tmp_path / "capture.time").read_text().split())
    assert ends == pytest.approx(began + takes, abs=0.4)
    assert waited == waits


def test_a_process_knows_how_long_it_waited() -> None:
    before = captures.waited()
    time.sleep(0.2)
    assert 0 <= before <= captures.waited()
