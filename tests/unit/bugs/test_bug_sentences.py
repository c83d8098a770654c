"""Each sentence about the versions of a bug, held against the rows by an independent reader."""

from __future__ import annotations

from typing import Any

from bug_checker import Result, check_range
from change_cases import facts
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from harness.bugs.life import BugHistory
from harness.values.bug import MachineState, Occasion
from harness.values.row import BugFacts

PTXAS = ("12.9.86", "13.0.88", "13.1.80", "13.1.115", "13.2.51", "13.3.33", "13.5.37")
TRITONS = ("3.3.1", "3.4.0", "3.5.0", "3.6.0")
DAY = 86_400.0


def made(verdict: str = "ptxas_ice", *, flags: str = "", **words: Any) -> BugFacts:
    signature = {"ptxas_ice": "s1", "ptxas_error": "s2", "ok": None, "sick": None}.get(verdict, "u")
    probe_of = words.pop("probe_of", None)
    stage = words.pop("stage", None if verdict in ("ok", "sick") else "cubin")
    file = words.pop("file", None)
    base = replace(facts(verdict, signature, **words), file=file)
    names = {name: getattr(base, name) for name in base.__struct_fields__}
    cell = f"{base.cell},{flags}" if flags else base.cell
    return BugFacts(**{**names, "cell": cell, "stage": stage, "probe_of": probe_of})


def number_of(each: BugFacts) -> int | None:
    failed = each.signature and each.verdict.is_failure
    return {"s1": 1, "s2": 2}.get(each.signature or "") if failed else None


def told(
    runs: list[tuple[Occasion, list[BugFacts]]], known: tuple[str, ...] = ()
) -> tuple[BugHistory, list[Result]]:
    history, results = BugHistory(known=lambda kind: known if kind == "ptxas" else ()), []
    for run, rows in runs:
        for each in rows:
            bug = number_of(each)
            history.add(run, each, bug)
            results.append(Result(run.started if run.is_night else None, each, bug))
    return history, results


def occasion(number: int, *, is_night: bool = False) -> Occasion:
    return Occasion(number=number, started=number * DAY, is_night=is_night)


def words(*rows: BugFacts, known: tuple[str, ...] = PTXAS) -> str:
    history, results = told([(occasion(1), list(rows))], known)
    found = history.stories()[1].ranges[-1]
    check_range(found.words, found.tool, known, results, 1)
    return found.words


def test_no_end_is_named_that_was_not_tried() -> None:
    assert words(made(ptxas="13.1.80")) == (
        "Present in the oldest ptxas that was tried, 13.1.80. Still present in the newest ptxas "
        "that was tried, 13.1.80. 6 versions were not tried."
    )
    assert words(*(made(ptxas=each) for each in PTXAS[1:])).endswith(" 1 version was not tried.")
    assert words(*(made(ptxas=each) for each in PTXAS)).startswith(
        "Present in the oldest ptxas there is, 12.9.86. Still present in the newest ptxas there is"
    )
    # Without the list of those that there are, none is the oldest there is.
    assert "there is" not in words(*(made(ptxas=each) for each in PTXAS), known=())


def test_what_was_not_tried_is_named_between_the_bounds() -> None:
    said = words(made(ptxas="13.1.80"), made("ok", ptxas="13.5.37"), made("ok", ptxas="13.0.88"))
    assert "First bad: ptxas 13.1.80. Last good: 13.0.88." in said
    assert "First fixed: any of 13.1.115, 13.2.51, 13.3.33, 13.5.37." in said
    assert "Untestable between: none. Not tried between: 13.1.115, 13.2.51, 13.3.33." in said


def test_a_failure_before_ptxas_has_no_versions_of_ptxas() -> None:
    history, _ = told([(occasion(1), [made("ptxas_ice", stage="ttgir")])])
    assert [each.tool for each in history.stories()[1].ranges] == ["Triton"]


def test_flags_and_other_targets_are_no_newer_version() -> None:
    clean = [(occasion(n, is_night=True), [made("ok", ptxas="13.3.33")]) for n in (2, 3, 4)]
    runs = [(occasion(1), [made(ptxas="13.1.80")]), *clean]
    history, _ = told(runs)
    before = history.stories()[1]
    assert before.machine is MachineState.FIXED_VERIFIED
    cell = made(ptxas="13.1.80").cell
    probes = [
        made(ptxas="13.1.80", flags="-O2", probe_of=cell),
        made(ptxas="13.1.80", target="sm_90a", probe_of=cell),
        made("ok", ptxas="13.1.80", flags="-O0", probe_of=cell),
    ]
    history, _ = told([*runs, (occasion(5), probes)])
    after = history.stories()[1]
    assert after.machine is MachineState.FIXED_VERIFIED
    assert [each.words for each in after.ranges] == [each.words for each in before.ranges]
    assert after.targets == ("sm_100a", "sm_90a")
    # Where nothing else ever had it, they are all that there is to follow.
    history, _ = told([(occasion(1), [made(ptxas="13.1.80", target="sm_90a", probe_of=cell)])])
    assert history.stories()[1].machine is MachineState.NEW


def test_files_of_one_name_in_two_folders_are_two_kernels() -> None:
    one, other = ("place1:text1", "place2:text2")
    runs = [
        (occasion(1), [made(ptxas="13.1.80", file=one)]),
        (occasion(2, is_night=True), [made("ok", ptxas="13.3.33", file=other)]),
        (occasion(3), [made("ptxas_error", ptxas="13.1.80", file=other)]),
    ]
    history, results = told(runs, PTXAS)
    story = history.stories()[1]
    assert (story.machine, story.cells, story.cells_now) == (MachineState.NEW, 1, 1)
    found = story.ranges[-1]
    assert "First fixed" not in found.words
    check_range(found.words, found.tool, PTXAS, results, 1)
    # One that is edited where it lies, and then moved, is one kernel all the time.
    edited = [(occasion(4), [made("ok", ptxas="13.3.33", file="place1:text3")])]
    moved = [(occasion(5), [made(ptxas="13.3.33", file="place4:text3")])]
    assert told([*runs, *edited])[0].stories()[1].machine is MachineState.ABSENT
    assert told([*runs, *edited, *moved])[0].stories()[1].machine is MachineState.PRESENT


def test_one_compile_is_no_night_and_three_of_one_hour_are_one() -> None:
    first = (occasion(1), [made(ptxas="13.1.80")])
    well = [made("ok", ptxas="13.3.33")]
    compiled = [first, *((occasion(n), well) for n in (2, 3, 4, 5))]
    assert told(compiled)[0].stories()[1].machine is MachineState.ABSENT
    hasty = [
        first,
        *((Occasion(number=n, started=2 * DAY + 600 * n, is_night=True), well) for n in (2, 3, 4)),
    ]
    life = told(hasty)[0].stories()[1]
    assert (life.machine, life.clean_nights) == (MachineState.FIXED_CANDIDATE, 1)


def test_a_bug_that_is_back_where_it_was_gone_has_regressed_and_elsewhere_it_has_not() -> None:
    runs = [
        (occasion(1), [made(ptxas="13.1.80")]),
        (occasion(2, is_night=True), [made("ok", ptxas="13.3.33")]),
    ]
    back = [*runs, (occasion(3), [made(ptxas="13.5.37")])]
    assert told(back)[0].stories()[1].machine is MachineState.REGRESSED
    # Another config with the old version: the newer one is without it.
    other = [*runs, (occasion(3), [made(ptxas="13.1.80", warps=8)])]
    assert told(other)[0].stories()[1].machine is MachineState.ABSENT


VERDICTS = st.sampled_from(
    ["ptxas_ice", "ptxas_ice", "ok", "ok", "ptxas_error", "unsupported", "timeout", "sick"]
)
ROWS = st.builds(
    made,
    VERDICTS,
    ptxas=st.sampled_from(PTXAS),
    triton=st.sampled_from(TRITONS),
    warps=st.sampled_from((4, 8)),
    target=st.sampled_from(("sm_100a", "sm_90a")),
    flags=st.sampled_from(("", "", "-O0")),
    bundled=st.sampled_from((False, False, True)),
)
ONE_LINE = st.builds(made, VERDICTS, ptxas=st.sampled_from(PTXAS))
RUNS = st.lists(
    st.tuples(st.booleans(), st.lists(ROWS | ONE_LINE, max_size=8, unique_by=lambda r: r.cell)),
    max_size=5,
)


@settings(deadline=None)
@given(RUNS, st.sampled_from([(), PTXAS, PTXAS[1:5], ("11.8.89", *PTXAS, "14.0.1")]))
def test_every_sentence_holds_of_the_rows(
    nights: list[tuple[bool, list[BugFacts]]], known: tuple[str, ...]
) -> None:
    runs = [(occasion(n, is_night=is_night), rows) for n, (is_night, rows) in enumerate(nights)]
    history, results = told(runs, known)
    for bug, story in history.stories().items():
        for found in story.ranges:
            check_range(
                found.words, found.tool, known if found.tool == "ptxas" else (), results, bug
            )
            assert found.first_bad in {each.version for each in found.marks}
        life = story
        nights_of = [run.number for run, _ in runs if run.is_night]
        if life.machine in (MachineState.FIXED_CANDIDATE, MachineState.FIXED_VERIFIED):
            assert 0 < life.clean_nights <= len(nights_of)
        if life.machine is MachineState.REGRESSED:
            assert nights_of
            assert min(nights_of) < life.last_seen
