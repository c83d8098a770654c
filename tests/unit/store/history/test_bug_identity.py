"""Which failures are one bug, and what histories say of those that say nothing themselves."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from harness.bugs.life import HistoryPlace, compare_histories
from harness.judging.signature import make_signature
from harness.run.judging import signature_of as signature_of_run
from harness.store.bug_identity import bug_key, identities, is_wordless, signature_of
from harness.values.row import BugFacts
from harness.values.verdict import Signature, Stage, VerdictKind


def signature(message: str, code: str | None = None) -> Signature:
    return make_signature(stage=Stage.CUBIN, kind=VerdictKind.PTXAS_ICE, message=message, code=code)


ICE = signature("Internal compiler error.", "C7907")
WORDS = signature("Unknown symbol 'x'")


@pytest.mark.parametrize(
    ("message", "wordless"),
    [
        ("Internal compiler error.", True),
        ("SIGSEGV: ", True),
        ("SIG40: ", True),
        ("Failures have been detected while processing an MLIR pass pipeline", True),
        ("A signal was caught while processing the MLIR module:reproducer generated at `x`", True),
        ("RuntimeError: PassManager::run failed", True),
        ("ptxas ended with exit code 0 and left no complete cubin", True),
        ("Triton (llir) timed out", True),
        ("ptxas out of memory", True),
        ("lowered to a trap", True),
        ("tensor memory over the limit, lowered to a trap", False),
        ("SIGABRT: Utility.cpp: Assertion `n == 2' failed", False),
        ("Internal compiler error: bad register class", False),
        ("LLVM ERROR: Cannot select: intrinsic", False),
        ("shared memory over the limit", False),
    ],
)
def test_what_says_nothing(message: str, *, wordless: bool) -> None:
    assert is_wordless(signature(message)) is wordless


def test_a_failure_with_words_is_one_bug_in_every_program() -> None:
    for kernel, triton, ptx in (("a", "3.6.0", "1" * 64), ("b", None, "2" * 64)):
        assert identities(WORDS, kernel=kernel, triton=triton, ptx=ptx) == (WORDS.key,)


def test_a_wordless_failure_is_one_bug_for_each_program() -> None:
    here = identities(ICE, kernel="k", triton="3.6.0", ptx="1" * 64)
    config = identities(ICE, kernel="k", triton="3.7.1", ptx="2" * 64)
    other = identities(ICE, kernel="other", triton="3.6.0", ptx="3" * 64)
    assert here[0] == config[0] != other[0]
    assert {signature_of(key) for key in (*here, *config, *other)} == {ICE.key}
    # The same PTX as a file: its name says nothing, its program all.
    assert identities(ICE, kernel="x.ptx", triton=None, ptx="1" * 64) == here[1:]
    # What fails before there is PTX is known by its kernel.
    assert identities(ICE, kernel="k", triton="3.6.0", ptx=None) == here[:1]


def test_what_a_run_did_is_one_bug_for_each_program() -> None:
    """A store out of bounds says what goes wrong, and not why."""
    fault = signature_of_run(VerdictKind.MEMORY_FAULT, "a store out of bounds; st.global")
    here, other = (identities(fault, kernel=name, triton="3.6.0", ptx=None) for name in "ab")
    assert here != other
    assert signature_of(here[0]) == signature_of(other[0]) == fault.key


def test_files_of_one_name_in_two_folders_are_two_programs() -> None:
    one, edited, moved, other = (
        set(identities(ICE, kernel="k.py::k", triton="3.6.0", ptx=None, file=file))
        for file in ("a:1", "a:2", "b:2", "c:3")
    )
    assert one & edited
    assert edited & moved
    assert not one & moved
    assert not other & (one | edited | moved)


def test_the_key_where_the_parts_of_a_signature_were_not_kept() -> None:
    facts = BugFacts(
        cell="c",
        short="s",
        kernel="k",
        launch="l",
        config={},
        target="sm_90",
        triton=None,
        ptxas="13.1.80",
        ptxas_origin="x",
        verdict=VerdictKind.PTXAS_ICE,
        reason="",
        signature="f" * 12,
        ptx_body_sha256="1" * 64,
    )
    assert bug_key(facts, None) == "f" * 12
    assert bug_key(facts, ICE) == f"{ICE.key}@ptx-{'1' * 16}"
    assert bug_key(replace(facts, signature=None), None) is None


def place(version: str, flags: str = "", target: str = "sm_100a") -> HistoryPlace:
    return HistoryPlace("ptxas", version, flags, target)


HISTORY = {place("12.9.86"): False, place("13.1.80"): True, place("13.3.33"): False}


def test_histories_that_agree_say_that_bugs_may_be_the_same() -> None:
    told = compare_histories((1, HISTORY), (2, {**HISTORY, place("13.5.37"): True}))
    assert (told.number, told.agrees) == (2, True)
    assert told.words == (
        "may be the same: histories agree (both fail with ptxas 13.1.80 for sm_100a; "
        "both work with ptxas 12.9.86 for sm_100a, ptxas 13.3.33 for sm_100a)"
    )


def test_histories_that_differ_say_where() -> None:
    told = compare_histories((1, HISTORY), (2, {**HISTORY, place("13.3.33"): True}))
    assert told.agrees is False
    assert told.words == (
        "are different: histories differ in ptxas 13.3.33 for sm_100a (bug 1 works, bug 2 fails)"
    )


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({place("13.1.80"): True}, "both fail with ptxas 13.1.80 for sm_100a"),
        ({place("13.1.80", target="sm_90"): False}, "no version was tried with both"),
        ({place("13.1.80", "-O1"): False}, "no version was tried with both"),
    ],
)
def test_without_a_version_that_works_nothing_is_told(
    other: dict[HistoryPlace, bool], said: str
) -> None:
    told = compare_histories((1, HISTORY), (2, other))
    assert told.agrees is None
    assert said in told.words
