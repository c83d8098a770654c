"""How much a run would do, in words."""

from __future__ import annotations

from dataclasses import replace

from harness.matrix.nights.listing import Estimate, estimate_words

ESTIMATE = Estimate(
    cells=9,
    carried=0,
    excluded=0,
    lowerings=9,
    lowerings_stored=0,
    assemblies=9,
    seconds=None,
    about=9,
    uncaptured=2,
)


def test_launches_without_a_count_are_named_where_there_are_any() -> None:
    assert estimate_words(ESTIMATE).endswith("before any of them are excluded.")
    words = estimate_words(replace(ESTIMATE, uncounted=1))
    assert words.endswith("The repros of 1 of these launches state no count.")
