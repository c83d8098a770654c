"""What an issue claims: sentences, tables and logs of our own writing."""

import pytest
from issue_cases import KERNEL, PTX, fenced, read

from harness.verify.claims import Claim, Outcome, Place, are_alike, marks_of

WORKS, FAILS, COMPILE, WRONG = Outcome.WORKS, Outcome.FAILS, Outcome.COMPILE, Outcome.WRONG
DIFFERS, TIME = Outcome.DIFFERS, Outcome.TIME
Said = list[tuple[Outcome, str]]


def spelled(place: Place) -> str:
    """A place in a few words: `since 3.4.0`, `3.3 to 3.5`, `newest`, `-O3`, `sm_90a`, `run(32)`."""
    words = []
    if versions := place.versions:
        before = "since " if versions.since else "before " if versions.before else ""
        behind = f" to {versions.last}" if versions.last else ""
        words.append("newest" if versions.dated else f"{before}{versions.first}{behind}")
    words += [f"-O{place.level}"] if place.level is not None else []
    words += [str(place.target)] if place.target else []
    return " ".join(filter(None, [*words, place.call or ""]))


def issue(text: str, program: str = KERNEL) -> tuple[Claim, ...]:
    return read(f"# A report\n\n{text}\n\n{fenced(program)}").claims


def said(text: str, program: str = KERNEL) -> Said:
    return [(claim.outcome, spelled(claim.place)) for claim in issue(text, program)]


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("It works on 3.3.1 but crashes on 3.4.0.", [(WORKS, "3.3.1"), (COMPILE, "3.4.0")]),
        ("With triton==3.5.1 it does not compile.", [(COMPILE, "3.5.1")]),
        ("Triton 3.4 - 3.6 segfaults.", [(COMPILE, "3.4 to 3.6")]),
        ("This is a regression since 3.4.0.", [(FAILS, "since 3.4.0")]),
        ("It used to work, but breaks since the update to triton 3.4.", [(FAILS, "since 3.4")]),
        ("It compiles before 3.4.0.", [(WORKS, "before 3.4.0")]),
        ("It is fixed on main.", [(WORKS, "newest")]),
        ("It crashes with the latest nightly.", [(COMPILE, "newest")]),
        ("It crashes on an H100.", [(COMPILE, "sm_90a")]),
        ("Crashes on sm_100 and on an RTX 5090.", [(COMPILE, "sm_100a"), (COMPILE, "sm_120a")]),
        ("On 3.5.1 the result is wrong on an A100.", [(WRONG, "3.5.1 sm_80")]),
        ("`run(32)` works, `run(64)` crashes.", [(WORKS, "run(32)"), (COMPILE, "run(64)")]),
        ("It no longer crashes on 3.6.0.", [(WORKS, "3.6.0")]),
        ("It is slower on 3.6.0.", [(TIME, "3.6.0")]),
        ("Fails in the same way: 3.4.0, 3.5.1.", [(FAILS, "3.4.0"), (FAILS, "3.5.1")]),
    ],
)
def test_a_sentence_has_an_outcome_and_a_place(sentence: str, expected: Said) -> None:
    assert said(sentence) == expected


@pytest.mark.parametrize(
    "sentence",
    [
        "It should work on 3.5.1.",
        "Does it work on 3.5.1?",
        "Maybe it fails on 3.5.1.",
        "I use PyTorch 2.8.0 and Python 3.11.7, which work.",
        "None of these works: 3.4.0, 3.5.1.",
        "The kernel stores 3 values.",
    ],
)
def test_what_is_asked_or_hoped_is_no_claim(sentence: str) -> None:
    assert said(sentence) == []


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        (
            "-O2, -O3 fail, -O0, -O1 work.",
            [*[(FAILS, "-O2"), (FAILS, "-O3")], *[(WORKS, "-O0"), (WORKS, "-O1")]],
        ),
        ("It works with -O0, -O3 fails.", [(WORKS, "-O0"), (FAILS, "-O3")]),
        (
            "`ptxas -O0` stores `1`. `ptxas -O2` and `-O3` store `0`.",
            [(DIFFERS, "-O2"), (DIFFERS, "-O3")],
        ),
        ("It crashes on sm_90 with CUDA 12.9.", [(COMPILE, "12.9 sm_90")]),
        ("It crashes with CUDA 12.8 Update 1.", [(COMPILE, "12.8.1")]),
        ("Reproduced with CUDA 13.0 (V13.0.88).", [(FAILS, "13.0.88")]),
    ],
)
def test_a_sentence_about_ptx(sentence: str, expected: Said) -> None:
    assert said(sentence, PTX) == expected


def test_a_list_belongs_to_what_introduces_it() -> None:
    text = "It miscompiles with:\n\n* ptxas 12.9.86\n* ptxas 13.0.88\n"
    assert said(text, PTX) == [(WRONG, "12.9.86"), (WRONG, "13.0.88")]


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (
            "| Triton | result |\n|---|---|\n| 3.3.1 | works |\n| 3.4.0 - 3.5.1 | crashes |\n",
            [(WORKS, "3.3.1"), (COMPILE, "3.4.0 to 3.5.1")],
        ),
        (
            "| Triton | A100 | H100 |\n|-|-|-|\n| 3.4.0 | ok | crash |\n| 3.5.1 | ok | n/a |\n",
            [(WORKS, "3.4.0 sm_80"), (COMPILE, "3.4.0 sm_90a"), (WORKS, "3.5.1 sm_80")],
        ),
    ],
)
def test_a_table_has_a_claim_in_each_verdict(table: str, expected: Said) -> None:
    assert said(table) == expected


@pytest.mark.parametrize(
    "text",
    [
        "| N | result |\n|---|---|\n| 192 | crashes |\n",
        "| change | result |\n|---|---|\n| num_warps 4 -> 2, triton 3.4.0 -> 3.5.1 | ok |\n",
        "On 3.5.1 it works with `num_warps=8`.",
        "It works on 3.5.1 with CUTLASS 4.2.0.",
    ],
)
def test_a_claim_of_another_program_is_marked(text: str) -> None:
    assert all(claim.variation for claim in issue(text))
    assert issue(text)


def test_a_value_that_the_program_has_is_no_change_of_it() -> None:
    text = "It crashes on 3.4.0 with `num_warps=4`.\n\nIt crashes on 3.5.1 with `N = 3`.\n"
    assert [claim.variation for claim in issue(text)] == [False, True]


def test_the_title_claims_too_and_says_how_the_rest_fails() -> None:
    reading = read(f"# Crash in a scan\n\nIt fails on 3.4.0.\n\n{fenced(KERNEL)}")
    assert [claim.outcome for claim in reading.claims] == [COMPILE, COMPILE]


def test_where_a_claim_says_no_place_the_issue_does() -> None:
    text = "# It crashes\n\nOn 3.3.1 it works.\n\n## Environment\n\nTriton 3.4.0, NVIDIA H100\n\n"
    place = read(text + fenced(KERNEL)).place
    assert spelled(place) == "3.4.0 sm_90a"
    assert spelled(read(f"# It crashes\n\n{fenced(PTX)}").place) == "sm_90"
    command = fenced("ptxas -O0 -arch=sm_90 k.ptx\n", "sh")
    assert spelled(read(f"# It crashes\n\n{command}\n{fenced(PTX)}").place) == "-O0 sm_90"
    heading = "# It crashes\n\n## What version of TileLang?\n\n0.1.7.post1\n\n"
    tilelang = "import tilelang.language as T\n\ndef f():\n    pass\n"
    assert spelled(read(heading + fenced(tilelang)).place) == "0.1.7.post1"


def test_a_failing_call_is_what_the_rest_is_about() -> None:
    reading = read(f"# It crashes\n\n`run(16)` works but `run(32)` crashes.\n\n{fenced(KERNEL)}")
    assert reading.place.call == "run(32)"


def test_a_log_claims_what_it_prints() -> None:
    log = (
        "k.py:5:0: note: Pipeline failed while executing [`SomePass` on 'builtin.module' operation]"
    )
    [claim] = issue(fenced(log + "\n"))
    assert (claim.outcome, claim.marks) == (COMPILE, {"pass": ("SomePass",)})


@pytest.mark.parametrize(
    ("text", "kind", "mark"),
    [
        ("ptxas fatal   : (C9876) Internal compiler error", "code", "C9876"),
        ("x: Scan.cpp:15: void f(): Assertion `a == b' failed.", "assertion", "a == b"),
        ("ValueError: bad shape", "raised", "ValueError: bad shape"),
        ("Segmentation fault (core dumped)", "signal", "SIGSEGV"),
        (
            "out of resource: shared memory, Required: 9, Hardware limit: 8",
            "resource",
            "shared memory/9/8",
        ),
    ],
)
def test_a_failure_has_marks(text: str, kind: str, mark: str) -> None:
    assert marks_of(text)[kind] == (mark,)


def test_messages_are_alike_whatever_numbers_they_hold() -> None:
    assert are_alike("ValueError: needs 12 of shape [3]", "RuntimeError: needs 7 of shape [4]")
    assert not are_alike("ValueError: needs 12", "ValueError: has 12")
    assert not are_alike("", "ValueError: has 12")


def test_a_claim_is_about_the_program_above_it() -> None:
    first, second = "On 12.9.86 it crashes.\n\n", "On 13.0.88 it works.\n"
    text = f"# It crashes\n\n{fenced(PTX)}\n{first}{fenced(PTX)}\n{second}"
    assert [claim.program for claim in read(text).claims] == [0, 0, 1]


def test_a_sentence_with_a_place_and_no_outcome_is_kept_as_not_understood() -> None:
    reading = read(f"# A report\n\nWe all use 3.5.1 in this house.\n\n{fenced(KERNEL)}")
    assert reading.unread == ("We all use 3.5.1 in this house.",)


def test_what_is_quoted_is_no_claim() -> None:
    words = 'The manual of 3.4.0 says that it "only works on simple loops of one product".'
    assert said(words) == []
    assert said('With 3.4.0 it fails and prints "the loop cannot be compiled".') == [
        (FAILS, "3.4.0")
    ]
