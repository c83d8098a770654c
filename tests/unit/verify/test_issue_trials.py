"""What the claims need, and what they come to by what was seen: no compiler is started."""

import pytest
from issue_cases import KERNEL, PTX, RELEASES, fenced, read

from harness.values.execution import RunRow
from harness.values.row import Row
from harness.values.verdict import VerdictKind
from harness.verify.trials import Holds, Judged, Planned, Seen, Trial, judge, plan

LAUNCH, RUN = "run(size())\n", "run()\n"
FAILURE = "pass Scan crashed: Scan.cpp: Assertion `a == b' failed"


def planned(text: str, program: str = KERNEL) -> list[Planned]:
    return plan(read(f"# A report\n\n{text}\n\n{fenced(program)}"), RELEASES)[0]


def versions(text: str, program: str = KERNEL) -> list[str | None]:
    [one] = planned(text, program)
    return [trial.compiler or trial.ptxas for trial in (*one.trials, *one.otherwise)]


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("It crashes on 3.4.0.", ["3.4.0"]),
        ("It crashes on 3.3.", ["3.3.1"]),
        ("It crashes on 3.3 - 3.5.", ["3.3.0", "3.5.1"]),
        ("It crashes since 3.4.", ["3.4.0", "3.3.1"]),
        ("It compiles before 3.4.0.", ["3.3.1"]),
        ("It crashes on main.", ["3.6.0"]),
    ],
)
def test_a_claim_needs_releases(sentence: str, expected: list[str]) -> None:
    assert versions(sentence) == expected


def test_cuda_means_its_ptxas() -> None:
    assert versions("It crashes with CUDA 12.9.", PTX) == ["12.9.86"]
    assert versions("It crashes with CUDA 12.8.0.", PTX) == ["12.8.61"]
    assert versions("It crashes with CUDA 12.8 Update 1.", PTX) == ["12.8.93"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "It crashes on triton 2.3.1.",
            "Triton 2.3.1 is not available here, which has 3.2.0 to 3.6.0",
        ),
        ("It is slower on 3.6.0.", "it is about time, which only a GPU tells"),
        ("It works on 3.5.1 with `num_warps=8`.", "a change of the program"),
        ("It crashes with -O3.", "levels of ptxas are tried of PTX alone"),
    ],
)
def test_what_cannot_be_tried_has_a_reason(text: str, words: str) -> None:
    [one] = planned(text)
    [judged] = judge([one], {})
    assert judged.holds is Holds.UNCHECKED
    assert words in judged.why


def test_a_fragment_and_an_issue_without_a_program_are_not_tried() -> None:
    [one], lacks = plan(read(f"# It crashes\n\n{fenced(KERNEL + LAUNCH)}"), RELEASES)
    assert one.why_not == "the program is a fragment: size is missing"
    assert "the program at line 3 is a fragment: nothing defines size" in lacks
    [one], lacks = plan(read("# It crashes\n\nOn 3.4.0.\n"), RELEASES)
    assert one.why_not == "the issue has no program"
    assert lacks == ["it has no program: none of its code blocks can be compiled"]


def test_what_is_taken_in_place_of_what_the_issue_lacks_is_said() -> None:
    _, lacks = plan(read(f"# It crashes\n\n{fenced(KERNEL + RUN)}"), RELEASES)
    assert lacks == ["it names no version: the newest is taken", "it names no GPU: sm_90a is taken"]


def test_ptx_for_a_newer_gpu_gets_the_target_in_its_header() -> None:
    older, newer = (
        planned(f"It crashes on {name}.", PTX)[0].trials[0] for name in ("A100", "B200")
    )
    assert (older.is_retargeted, newer.is_retargeted) == (True, False)


def row(verdict: VerdictKind, reason: str = "", signature: str | None = None) -> Row:
    fails = verdict.fails
    return Row(
        cell=f"k/{verdict.value}",
        short="12345678",
        kernel="k",
        launch="main",
        config={},
        target="sm_90a",
        triton="3.4.0",
        ptxas="12.8.93",
        ptxas_origin="bundled",
        verdict=verdict,
        reason=reason,
        signature=signature or (reason if fails else None),
    )


def run(verdict: VerdictKind, reason: str = "") -> RunRow:
    return RunRow(
        cell="k/run",
        short="12345678",
        kernel="k",
        launch="main",
        config={},
        target="sm_90a",
        triton="3.4.0",
        on="emulator",
        run=verdict,
        run_reason=reason,
    )


OK = Seen(rows=(row(VerdictKind.OK),))
CRASH = Seen(rows=(row(VerdictKind.PASS_FAILURE, FAILURE),))
OTHER = Seen(rows=(row(VerdictKind.PASS_FAILURE, "Scan.cpp: Assertion `c == d' failed"),))
UNTRIED = Seen(rows=(row(VerdictKind.UNSUPPORTED, "this Triton cannot do it"),))
RIGHT = Seen(rows=OK.rows, runs=(run(VerdictKind.CONSISTENT),))
BAD = Seen(rows=OK.rows, runs=(run(VerdictKind.WRONG_RESULT, "1 of 8 elements differ"),))
LOG = fenced("k: Scan.cpp:1: void f(): Assertion `a == b' failed.\n")
ON_H100 = "The GPU is an H100.\n\n"


def judged(text: str, by_version: dict[str, Seen], at: int = 0) -> Judged:
    """The claim `at` this place, where each version gives what is named."""
    one = planned(ON_H100 + text)[at]
    trials: list[Trial] = [*one.trials, *one.otherwise]
    [found] = judge([one], {trial: by_version[trial.compiler or ""] for trial in trials})
    return found


@pytest.mark.parametrize(
    ("text", "seen", "holds"),
    [
        ("It crashes on 3.4.0.", CRASH, Holds.HOLDS),
        ("It crashes on 3.4.0.", OK, Holds.NOT),
        ("It crashes on 3.4.0.", UNTRIED, Holds.UNCHECKED),
        ("It crashes on 3.4.0.", Seen(trouble="no such file"), Holds.UNCHECKED),
        ("It crashes on 3.4.0 with `N = 3`.", OK, Holds.UNCHECKED),
        ("It works on 3.4.0.", RIGHT, Holds.UNCHECKED),
        ("It works on 3.4.0.", BAD, Holds.NOT),
        ("It works on 3.4.0.", CRASH, Holds.NOT),
        ("It is wrong on 3.4.0.", BAD, Holds.HOLDS),
        ("It is wrong on 3.4.0.", RIGHT, Holds.UNCHECKED),
        ("It is wrong on 3.4.0.", CRASH, Holds.UNCHECKED),
        ("It is wrong on 3.4.0.", Seen(rows=OK.rows, trouble="no values"), Holds.UNCHECKED),
        ("It fails on 3.4.0.", OK, Holds.UNCHECKED),
        ("It fails on 3.4.0.", BAD, Holds.HOLDS),
    ],
)
def test_a_claim_on_what_was_seen(text: str, seen: Seen, holds: Holds) -> None:
    assert judged(text, {"3.4.0": seen}).holds is holds


def test_in_an_issue_about_a_crash_what_compiles_works() -> None:
    text = "It crashes on 3.4.0, works on 3.3.1."
    assert judged(text, {"3.3.1": OK}, at=1).holds is Holds.HOLDS


def test_what_fails_to_compile_elsewhere_works_where_it_runs() -> None:
    fails, works = planned(ON_H100 + "It fails on 3.4.0, works on 3.3.1.")
    seen = {fails.trials[0]: CRASH, works.trials[0]: RIGHT}
    assert [each.holds for each in judge([fails, works], seen)] == [Holds.HOLDS, Holds.HOLDS]


def test_both_ends_of_a_range_count() -> None:
    text = "It crashes on 3.3.1 - 3.4.0."
    assert judged(text, {"3.3.1": CRASH, "3.4.0": CRASH}).holds is Holds.HOLDS
    assert judged(text, {"3.3.1": CRASH, "3.4.0": OK}).holds is Holds.NOT
    assert judged(text, {"3.3.1": CRASH, "3.4.0": UNTRIED}).holds is Holds.UNCHECKED


@pytest.mark.parametrize(
    ("before", "holds"),
    [(OK, Holds.HOLDS), (CRASH, Holds.NOT), (OTHER, Holds.UNCHECKED), (UNTRIED, Holds.UNCHECKED)],
)
def test_since_means_that_it_was_otherwise_before(before: Seen, holds: Holds) -> None:
    text = "It crashes since 3.4.0."
    assert judged(text, {"3.4.0": CRASH, "3.3.1": before}).holds is holds


def test_a_log_is_held_to_what_the_compiler_prints_here() -> None:
    text = f"Triton 3.4.0:\n\n{LOG}"
    assert judged(text, {"3.4.0": CRASH}).holds is Holds.HOLDS
    other = judged(text, {"3.4.0": OTHER})
    assert other.holds is Holds.NOT
    assert "another failure" in other.why


def test_what_differs_at_one_place_shows_that_the_inputs_can_tell() -> None:
    wrong, works = planned(ON_H100 + "It is wrong on 3.4.0, works on 3.3.1.")
    seen = {wrong.trials[0]: BAD, works.trials[0]: RIGHT}
    assert [each.holds for each in judge([wrong, works], seen)] == [Holds.HOLDS, Holds.HOLDS]
    otherwise = {wrong.trials[0]: RIGHT, works.trials[0]: BAD}
    assert [each.holds for each in judge([wrong, works], otherwise)] == [Holds.NOT, Holds.NOT]


def test_what_is_not_seen_on_a_gpu_that_was_assumed_is_not_denied() -> None:
    [one] = planned("It crashes on 3.4.0.")
    [found] = judge([one], {one.trials[0]: OK})
    assert found.holds is Holds.UNCHECKED
    assert "the issue names no GPU" in found.why


def test_a_failure_on_a_gpu_that_was_assumed_has_to_be_the_one_that_is_described() -> None:
    plain, printed = planned(f"On 3.4.0 it crashes in OtherScan.\n\n{LOG}")
    [trial] = plain.trials
    assert judge([plain], {trial: CRASH})[0].holds is Holds.UNCHECKED
    # One claim that describes it is enough for all.
    assert {each.holds for each in judge([plain, printed], {trial: CRASH})} == {Holds.HOLDS}
    [by_name] = planned("On 3.4.0 it crashes in ScanOpToLLVM.")
    inside = Seen(rows=(row(VerdictKind.PASS_FAILURE, "pass ScanOpToLLVM failed"),))
    assert judge([by_name], {by_name.trials[0]: inside})[0].holds is Holds.HOLDS


def test_ptx_that_gets_another_target_does_not_deny() -> None:
    [one] = planned("With 12.9.86 it works on sm_80.", PTX)
    [found] = judge([one], {one.trials[0]: CRASH})
    assert found.holds is Holds.UNCHECKED
    assert "the issue names no PTX for it" in found.why


def test_the_newest_of_another_day_is_not_the_newest_of_today() -> None:
    assert judged("It crashes on main.", {"3.6.0": OK}).holds is Holds.UNCHECKED
    assert judged("It is fixed on main.", {"3.6.0": BAD}).holds is Holds.UNCHECKED
