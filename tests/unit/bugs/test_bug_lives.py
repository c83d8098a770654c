"""The life of a bug, told from results alone."""

from __future__ import annotations

from typing import Any

import pytest
from change_cases import facts
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from harness.bugs.life import BugHistory, Lifecycle, related
from harness.values.bug import MachineState, Occasion, Seen, Sighting
from harness.values.row import BugFacts
from harness.values.verdict import VerdictKind

BUG = "ptxas_ice"
States = MachineState


def sighting(seen: Seen, *, line: str = "a", version: str = "13.1.80", compiled: int = 1) -> Any:
    return Sighting(line=(line,), version=version, seen=seen, compiled=compiled)


DAY = 86_400.0


def night_of(number: int) -> Occasion:
    return Occasion(number=number, started=number * DAY, is_night=True)


def lifecycle(runs: list[tuple[Occasion, list[Sighting]]]) -> Lifecycle | None:
    life = Lifecycle()
    for run, night in runs:
        life.add(run, night)
    return life if life.machine else None


def states(*nights: list[Sighting]) -> list[MachineState | None]:
    """The state after each night."""
    numbered = [(night_of(number), night) for number, night in enumerate(nights, start=1)]
    lives = [lifecycle(numbered[:count]) for count in range(1, len(numbered) + 1)]
    return [life.machine if life else None for life in lives]


HERE, CLEAN = [sighting(Seen.HERE)], [sighting(Seen.CLEAN)]
OTHER, UNTOLD, FLAKY = [sighting(Seen.OTHER)], [sighting(Seen.UNTOLD)], [sighting(Seen.FLAKY)]


def test_a_bug_is_new_then_confirmed_then_present() -> None:
    assert states(HERE, HERE, HERE) == [States.NEW, States.CONFIRMED, States.PRESENT]


def test_reading_the_store_confirms_nothing() -> None:
    stored = [sighting(Seen.HERE, compiled=0)]
    assert states(HERE, stored, stored, HERE) == [
        States.NEW,
        States.PRESENT,
        States.PRESENT,
        States.CONFIRMED,
    ]


def test_a_crash_that_was_repeated_is_confirmed_at_once() -> None:
    assert states([sighting(Seen.HERE, compiled=2)]) == [States.CONFIRMED]


def test_fixed_after_three_clean_nights_and_regressed_when_it_is_back() -> None:
    assert states(HERE, CLEAN, CLEAN, CLEAN, HERE, HERE, CLEAN) == [
        States.NEW,
        States.FIXED_CANDIDATE,
        States.FIXED_CANDIDATE,
        States.FIXED_VERIFIED,
        States.REGRESSED,
        States.REGRESSED,
        States.FIXED_CANDIDATE,
    ]


def test_what_cannot_be_told_is_never_fixed_and_breaks_no_streak() -> None:
    assert states(HERE, UNTOLD, CLEAN, UNTOLD, CLEAN, CLEAN) == [
        States.NEW,
        States.UNTESTABLE,
        States.FIXED_CANDIDATE,
        States.UNTESTABLE,
        States.FIXED_CANDIDATE,
        States.FIXED_VERIFIED,
    ]


def test_another_failure_is_no_fix() -> None:
    assert states(HERE, OTHER, CLEAN, OTHER)[1:] == [
        States.MUTATED,
        States.FIXED_CANDIDATE,
        States.MUTATED,
    ]
    assert states(HERE, FLAKY)[1] is States.FLAKY


def test_a_night_in_part_is_no_whole_night() -> None:
    both = [sighting(Seen.HERE), sighting(Seen.HERE, line="b")]
    part = [sighting(Seen.CLEAN)]
    rest = [sighting(Seen.CLEAN, line="b")]
    assert states(both, part, rest) == [States.NEW, States.NEW, States.ABSENT]
    assert states(both, part, rest, [*part, *rest])[-1] is States.FIXED_CANDIDATE


def test_the_newest_version_that_could_be_told_counts() -> None:
    old = sighting(Seen.HERE, version="13.1.80")
    assert states([old], [old, sighting(Seen.CLEAN, version="13.10.1")])[-1] is (
        States.FIXED_CANDIDATE
    )
    assert states([old], [old, sighting(Seen.UNTOLD, version="13.10.1")])[-1] is States.CONFIRMED
    again = sighting(Seen.HERE, version="13.11.0")
    fixed = sighting(Seen.CLEAN, version="13.10.1")
    assert states([old], [old, fixed], [old, fixed, again])[-1] is States.REGRESSED


def test_a_version_of_another_tool_passes_nothing() -> None:
    """A bug of Triton 3.9 is passed by no clean ptxas 13.0, though 13.0 is the greater number."""
    bad = Sighting(line=("Triton", "a"), version="3.9.0", seen=Seen.HERE, compiled=1)
    for tool, state in (("ptxas", States.PRESENT), ("Triton", States.ABSENT)):
        clean = Sighting(line=(tool, "b"), version="13.0.88", seen=Seen.CLEAN, compiled=1)
        stored = structs.replace(bad, compiled=0)
        assert states([bad], [stored, clean])[-1] is state


NIGHT = st.lists(
    st.builds(
        Sighting,
        line=st.sampled_from([("a",), ("b",)]),
        version=st.sampled_from(["1.9", "1.10", "2.0"]),
        seen=st.sampled_from(Seen),
        compiled=st.integers(0, 2),
    ),
    max_size=4,
    unique_by=lambda each: (each.line, each.version),
)


@given(st.lists(NIGHT, max_size=8))
def test_properties_of_every_life(nights: list[list[Sighting]]) -> None:
    numbered = [(night_of(number), night) for number, night in enumerate(nights)]
    life = lifecycle(numbered)
    seen = [
        run.number for run, night in numbered if {s.seen for s in night} & {Seen.HERE, Seen.FLAKY}
    ]
    if not seen:
        assert life is None
        return
    assert life is not None
    assert (life.seen_in[0], life.seen_in[-1]) == (seen[0], seen[-1])
    if life.machine is States.FIXED_VERIFIED:
        assert life.clean_nights >= 3
    if life.machine in (States.FIXED_CANDIDATE, States.FIXED_VERIFIED):
        assert life.clean_nights >= 1
    # A night that tried nothing says nothing.
    assert lifecycle([*numbered, (night_of(99), [])]) == life
    # The order within a night does not matter.
    assert lifecycle([(run, night[::-1]) for run, night in numbered]) == life


@given(st.lists(NIGHT, max_size=8))
def test_no_night_that_tells_nothing_fixes_anything(nights: list[list[Sighting]]) -> None:
    numbered = [(night_of(number), night) for number, night in enumerate(nights)]
    before = lifecycle(numbered)
    untold = [sighting(Seen.UNTOLD, line=line, version=v) for line in "ab" for v in ("1.9", "2.0")]
    after = lifecycle([*numbered, (night_of(99), untold)])
    fixed = (States.ABSENT, States.FIXED_CANDIDATE, States.FIXED_VERIFIED)
    assert (before is None) == (after is None)
    if before and after and after.machine in fixed:
        assert after.machine is before.machine


# --- from results ------------------------------------------------------------------------------


def result(verdict: str = BUG, signature: str | None = "s1", **words: Any) -> BugFacts:
    base = facts(verdict, signature if verdict not in ("ok", "sick") else None, **words)
    names = {name: getattr(base, name) for name in base.__struct_fields__}
    return BugFacts(**{**names, "stage": "cubin", "code": "C7907"})


def told(*nights: list[BugFacts]) -> BugHistory:
    history = BugHistory()
    for run, night in enumerate(nights, start=1):
        for each in night:
            failed = each.signature and each.verdict.is_failure
            history.add(night_of(run), each, int((each.signature or "s0")[1:]) if failed else None)
    return history


def sweep(bad: tuple[str, ...], *, untold: tuple[str, ...] = ()) -> list[BugFacts]:
    versions = ("12.9.86", "13.0.88", "13.1.80", "13.1.115", "13.2.51", "13.3.33")
    return [
        result(BUG if v in bad else "unsupported" if v in untold else "ok", ptxas=v)
        for v in versions
    ]


def test_ranges_say_last_good_first_bad_and_first_fixed() -> None:
    stories = told(sweep(("13.1.80", "13.1.115"), untold=("13.0.88",))).stories()
    (found,) = stories[1].ranges[1:]
    assert (found.last_good, found.first_bad, found.last_bad, found.first_fixed) == (
        "12.9.86",
        "13.1.80",
        "13.1.115",
        "13.2.51",
    )
    assert found.untestable == ("13.0.88",)
    assert stories[1].machine is States.FIXED_CANDIDATE


def test_a_bug_in_the_newest_version_is_not_fixed() -> None:
    story = told(sweep(("13.1.80", "13.3.33"))).stories()[1]
    (found,) = story.ranges[1:]
    assert (found.first_fixed, found.clean_between) == (None, ("13.1.115", "13.2.51"))
    assert story.machine is States.NEW


def test_cells_are_counted_once_and_those_that_have_it_now() -> None:
    first = [result(), result(warps=8), result(kernel="other")]
    story = told(first, [result("ok"), result(warps=8)]).stories()[1]
    assert (story.cells, story.cells_now) == (3, 2)
    assert story.kernels == {"k": 2, "other": 1}


def test_nights_count_in_the_order_in_which_they_are_told() -> None:
    history = BugHistory()
    history.add(night_of(9), result("ok"), None)
    history.add(night_of(2), result(), 1)
    life = history.stories()[1]
    assert (life.machine, life.first_seen) == (States.NEW, 2)


@pytest.mark.parametrize("kind", VerdictKind)
def test_what_compiles_or_tells_nothing_is_no_bug(kind: VerdictKind) -> None:
    assert kind.is_failure == (not kind.compiles and not kind.tells_nothing)


def test_likeness_is_shown_and_never_across_kinds() -> None:
    one = ("cubin", "ptxas_ice", "C7907")
    other = ("cubin", "ptxas_error", None)
    words = "Internal compiler error in block %V"
    found = related({1: (one, words), 2: (one, words + "s"), 3: (other, words), 4: (one, "no")})
    assert found == {1: (2,), 2: (1,), 3: (), 4: ()}
