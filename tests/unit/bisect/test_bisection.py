from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.bisect.search import Finding, Probe, conclude, next_probes
from harness.judging.answers import VerdictAnswer

WORDS = {
    "+": VerdictAnswer.OK,
    "x": VerdictAnswer.SAME,
    "o": VerdictAnswer.OTHER,
    "?": VerdictAnswer.UNTESTABLE,
    "!": VerdictAnswer.INFRA,
}


def probes_of(history: str) -> list[Probe]:
    return [Probe(outcome=WORDS[letter]) for letter in history]


def search(
    history: str, *, budget: int, focus: int | None = None, at_once: int = 1
) -> tuple[dict[int, Probe], Finding]:
    """Play a search against a history; what it asked for, and what it concluded."""
    answers = probes_of(history)
    known: dict[int, Probe] = {}
    while wanted := next_probes(
        len(answers), known, budget=budget - len(known), focus=focus, at_once=at_once
    ):
        assert len(set(wanted)) == len(wanted) <= at_once
        assert not known.keys() & set(wanted), "no version is probed twice"
        known.update({index: answers[index] for index in wanted})
    assert len(known) <= min(budget, len(answers))
    return known, conclude(len(answers), known, focus=focus)


def assert_true_of(history: str, known: dict[int, Probe], found: Finding) -> None:
    """Every claim, checked against the history itself."""
    asked = "".join(history[index] for index in sorted(known))
    for boundaries, before, after in ((found.regressions, "+", "x"), (found.fixes, "x", "+")):
        for boundary in boundaries:
            assert history[boundary.before] == before
            assert history[boundary.after] == after
            inside = range(boundary.before + 1, boundary.after)
            assert {*boundary.holes, *boundary.unprobed, *boundary.turned} == set(inside)
            assert all(history[index] == "o" and after == "+" for index in boundary.turned)
            assert all(history[index] in "o?!" for index in boundary.holes)
            assert not known.keys() & set(boundary.unprobed)
            # A bare version only where nothing lies between that may work.
            assert boundary.exact == (set(inside) == set(boundary.turned))
            assert boundary.candidates[-1] == boundary.after
    changes = asked.replace("o", "").replace("?", "").replace("!", "")
    alternations = [pair for pair in itertools.pairwise(changes) if pair[0] != pair[1]]
    assert len(found.regressions) == alternations.count(("+", "x"))
    assert len(found.fixes) == alternations.count(("x", "+"))
    assert found.came_back == (len([k for k, _ in itertools.groupby(changes) if k == "x"]) > 1)
    assert set(found.holes) == {index for index in known if history[index] in "o?!"}
    assert set(found.unprobed) == set(range(len(history))) - set(known)
    assert [found.oldest_bad, found.newest_bad] == [
        next((i for i in sorted(known) if history[i] == "x"), None),
        next((i for i in sorted(known, reverse=True) if history[i] == "x"), None),
    ]
    covered = [i for part in found.segments for i in range(part.first, part.last + 1)]
    assert covered == sorted(known)
    for part in found.segments:
        assert {known[i] for i in range(part.first, part.last + 1)} == {part.probe}


def strings(letters: str, longest: int) -> itertools.chain[Sequence[str]]:
    return itertools.chain.from_iterable(
        itertools.product(letters, repeat=length) for length in range(1, longest + 1)
    )


@pytest.mark.parametrize("budget", [1, 3, 5, 99])
def test_every_claim_is_true_of_every_history_of_all_words(budget: int) -> None:
    for letters in strings("+xo?!", 6):
        history = "".join(letters)
        assert_true_of(history, *search(history, budget=budget))


def test_the_search_does_not_tell_holes_apart() -> None:
    """So that one kind of hole stands for all three in the longer histories below."""
    for letters in strings("+x?", 6):
        plain = "".join(letters)
        for other in "o!":
            replaced = plain.replace("?", other)
            assert list(search(plain, budget=4)[0]) == list(search(replaced, budget=4)[0])


@pytest.mark.parametrize("longest", [8, pytest.param(10, marks=pytest.mark.long)])
def test_every_claim_is_true_of_every_history_up_to(longest: int) -> None:
    for letters in strings("+x?", longest):
        history = "".join(letters)
        assert_true_of(history, *search(history, budget=6 + len(history) % 4))


@given(
    st.text("+xo?!", min_size=1, max_size=80),
    st.integers(1, 90),
    st.integers(1, 5),
    st.none() | st.integers(0, 79),
)
def test_every_claim_is_true_of_long_histories(
    history: str, budget: int, at_once: int, focus: int | None
) -> None:
    focus = focus if focus is not None and focus < len(history) else None
    assert_true_of(history, *search(history, budget=budget, at_once=at_once, focus=focus))


@given(
    st.lists(st.tuples(st.sampled_from("+xo?!"), st.sampled_from("ab")), min_size=1, max_size=40),
    st.integers(1, 45),
    st.integers(1, 4),
)
def test_no_boundary_lies_between_two_places(
    versions: list[tuple[str, str]], budget: int, at_once: int
) -> None:
    """A version that has only another place of the kernel cannot tell."""
    history = "".join(letter if place == "a" else "?" for letter, place in versions)
    known, found = search(history, budget=budget, at_once=at_once)
    assert_true_of(history, known, found)
    ends = {
        end for bound in (*found.regressions, *found.fixes) for end in (bound.before, bound.after)
    }
    assert {versions[end][1] for end in ends} <= {"a"}


@given(st.integers(0, 199), st.integers(0, 199))
def test_a_monotone_history_takes_logarithmically_many_probes(good: int, bad: int) -> None:
    history = "+" * good + "x" * bad
    if not history:
        return
    known, found = search(history, budget=12)
    assert len(known) <= 12
    if good and bad:
        assert found.regression is not None
        assert found.regression.exact
        assert found.regression.after == good
    else:
        assert found.regression is None


def test_what_fits_the_budget_is_swept_and_shown_whole() -> None:
    known, found = search("+x+x?x+", budget=7)
    assert len(known) == 7
    assert found.came_back
    assert [(b.before, b.after) for b in found.regressions] == [(0, 1), (2, 3)]
    assert [(b.before, b.after) for b in found.fixes] == [(1, 2), (5, 6)]
    # The newest failure is what today's user meets.
    assert found.regression == found.regressions[1]
    assert found.fix == found.fixes[1]


def test_a_named_failure_has_its_own_bounds() -> None:
    _, found = search("+x+x+", budget=5, focus=1)
    assert found.regression is not None
    assert found.fix is not None
    assert (found.regression.after, found.fix.after) == (1, 2)


def test_a_hole_makes_a_bracket() -> None:
    _, found = search("++?oxx", budget=6)
    assert found.regression is not None
    assert not found.regression.exact
    assert found.regression.candidates == (2, 3, 4)
    assert found.regression.holes == (2, 3)


def test_a_long_row_of_untestable_versions_costs_little() -> None:
    history = "?" * 60 + "+" * 30 + "x" * 30
    known, found = search(history, budget=15)
    assert found.regression is not None
    assert found.regression.after == 90
    assert sum(history[index] == "?" for index in known) < 10


def test_the_ends_are_verified_before_anything_between() -> None:
    history = "+" * 50 + "x" * 50
    known, _ = search(history, budget=10, focus=70)
    assert list(known)[:3] == [70, 99, 0]


def test_signatures_keep_segments_apart() -> None:
    answers = [
        Probe(outcome=VerdictAnswer.OTHER, verdict="compiler_crash", signature="a"),
        Probe(outcome=VerdictAnswer.OK, verdict="ok"),
        Probe(outcome=VerdictAnswer.SAME, verdict="ptxas_ice", signature="b"),
        Probe(outcome=VerdictAnswer.OK, verdict="ok"),
    ]
    found = conclude(4, dict(enumerate(answers)))
    assert [part.probe for part in found.segments] == answers
    assert found.regression is not None
    assert found.fix is not None
    assert (found.regression.after, found.fix.after) == (2, 3)


def test_nothing_is_probed_without_a_budget() -> None:
    assert next_probes(5, {}, budget=0) == []
    assert conclude(5, {}).regression is None
