"""How much a run would do, in words."""

from __future__ import annotations

from dataclasses import replace

from harness.matrix.dry_run import Estimate, estimate_words

ESTIMATE = Estimate(
    cells=9,
    carried=0,
    excluded=0,
    lowerings=9,
    lowerings_stored=0,
    assemblies=9,
    seconds=None,
    has_history=False,
    about=9,
    uncaptured=2,
)


def test_launches_without_a_count_are_named_where_there_are_any() -> None:
    assert estimate_words(ESTIMATE).endswith("before any of them are excluded.")
    words = estimate_words(replace(ESTIMATE, uncounted=1))
    assert words.endswith("The repros of 1 of these launches state no count.")


def test_the_time_of_a_fresh_store_has_its_basis() -> None:
    assert "Time: unknown, nothing of it is captured" in estimate_words(ESTIMATE)
    fresh = replace(ESTIMATE, seconds=7300.0)
    assert "Time: about 2 h 1 min, at 1.1 s of a core for each" in estimate_words(fresh)
    assert "Time: at least about 2 h" in estimate_words(replace(fresh, uncounted=1))
    before = estimate_words(replace(ESTIMATE, seconds=61.0, has_history=True))
    assert "Time: about 1 min 1 s, by what such cells took before." in before


def test_of_launches_whose_configs_nobody_counted_no_amount_is_stated() -> None:
    nothing = replace(
        ESTIMATE, cells=0, lowerings=0, assemblies=0, about=0, uncaptured=8, uncounted=8
    )
    words = estimate_words(nothing)
    assert words.startswith("8 launches are selected. Their configs are not counted yet: ")
    assert "0 " not in words.replace("10m", "")
    one = estimate_words(replace(nothing, uncaptured=1))
    assert one.startswith("1 launch is selected. ")
    assert estimate_words(replace(nothing, cells=1)).startswith("about 1 cell, ")
