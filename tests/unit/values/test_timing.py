from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.values.timing import GAP, Faster, TimeMs, compare_times, time_of


def time(low: float, high: float, mhz: int | None = None) -> TimeMs:
    return TimeMs(median=(low + high) / 2, min=low, q3=high, samples=9, sm_mhz=mhz)


def test_a_time_is_median_interval_and_clock() -> None:
    found = time_of([4.0, 1.0, 2.0, 9.0, 3.0], [1980, 1980, 1500])
    assert found == TimeMs(median=3.0, min=1.0, q3=4.0, samples=5, sm_mhz=1980)
    assert time_of([]) is None
    assert time_of([2.0]) == TimeMs(median=2.0, min=2.0, q3=2.0, samples=1)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (time(1.0, 1.1), time(1.2, 1.3), Faster.FIRST),
        (time(1.2, 1.3), time(1.0, 1.1), Faster.SECOND),
        (time(1.0, 1.2), time(1.1, 1.3), Faster.AMBIGUOUS),
        # Apart, but by less than the gap.
        (time(1.0, 1.1), time(1.1 * (1 + GAP / 2), 1.3), Faster.AMBIGUOUS),
        # As many cycles: the GPU clocked down.
        (time(1.0, 1.1, 1980), time(1.98, 2.18, 1000), Faster.AMBIGUOUS),
        (time(1.0, 1.1, 1980), time(1.98, 2.18, 1980), Faster.FIRST),
        (time(1.0, 1.1, 1980), time(1.98, 2.18), Faster.FIRST),
    ],
)
def test_times_are_apart_where_their_intervals_are(
    first: TimeMs, second: TimeMs, expected: Faster
) -> None:
    assert compare_times(first, second) is expected


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=40), st.floats(1.5, 50))
def test_the_same_samples_are_never_apart_and_slower_ones_are_never_faster(
    samples: list[float], factor: float
) -> None:
    one, other = time_of(samples), time_of([factor * each for each in samples])
    assert one is not None
    assert other is not None
    assert one.min <= one.median <= one.q3
    assert compare_times(one, one) is Faster.AMBIGUOUS
    assert compare_times(one, other) is not Faster.SECOND
    assert compare_times(other, one) is not Faster.FIRST
