"""How often to run before one believes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.bisect.search import DOUBT, Tally, confidence, runs_to_trust

FLAKY = st.integers(2, 60).flatmap(
    lambda runs: st.builds(Tally, failures=st.integers(1, runs - 1), runs=st.just(runs))
)


@given(FLAKY)
def test_so_many_runs_and_no_fewer(bad: Tally) -> None:
    runs = runs_to_trust(bad)
    assert (1 - bad.rate) ** runs <= DOUBT * (1 + 1e-9)
    assert runs == 1 or (1 - bad.rate) ** (runs - 1) > DOUBT * (1 - 1e-9)
    assert confidence(bad, Tally(runs=runs)) >= 1 - DOUBT * (1 + 1e-9)


def test_a_steady_failure_needs_one_run() -> None:
    assert runs_to_trust(Tally(failures=5, runs=5)) == 1
    assert confidence(Tally(failures=5, runs=5), Tally(runs=5)) == 1
    assert not Tally(failures=5, runs=5).is_flaky


def test_nothing_seen_is_nothing_known() -> None:
    assert confidence(Tally(runs=5), Tally(runs=5)) == 0
    assert confidence(Tally(failures=5, runs=5), Tally()) == 0
    assert confidence(Tally(failures=5, runs=5), Tally(failures=1, runs=5)) == 0
    with pytest.raises(ValueError, match="never seen"):
        runs_to_trust(Tally(runs=5))
