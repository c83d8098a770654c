from __future__ import annotations

import pytest

from harness.diff.compare import UNTOLD
from harness.judging.answers import COULD_NOT_TELL, VerdictAnswer, answer_of, works
from harness.values.verdict import VerdictKind

OTHER_FAILURES = (
    VerdictKind.TRAP_STUB,
    VerdictKind.OUT_OF_RESOURCES,
    VerdictKind.REJECTED,
    VerdictKind.PASS_FAILURE,
    VerdictKind.COMPILER_CRASH,
    VerdictKind.PTXAS_ICE,
    VerdictKind.PTXAS_ERROR,
    VerdictKind.WRONG_RESULT,
    VerdictKind.RACE,
    VerdictKind.NONDETERMINISTIC,
    VerdictKind.MEMORY_FAULT,
    VerdictKind.UNINITIALISED,
    VerdictKind.HANG,
    VerdictKind.LAUNCH_FAILED,
)
WORKS = (
    VerdictKind.OK,
    VerdictKind.RIGHT,
    VerdictKind.AS_INTERPRETED,
    VerdictKind.CONSISTENT,
    VerdictKind.RAN,
)


def answer(kind: VerdictKind, signature: str | None, stage: str = "cubin") -> VerdictAnswer:
    return answer_of(kind, stage=stage, signature=signature, followed="followed")


@pytest.mark.parametrize("kind", OTHER_FAILURES)
def test_a_failure_answers_by_its_signature(kind: VerdictKind) -> None:
    assert answer(kind, "followed") is VerdictAnswer.SAME
    assert answer(kind, "another") is VerdictAnswer.OTHER
    assert kind.is_failure


@pytest.mark.parametrize("kind", sorted(COULD_NOT_TELL - {VerdictKind.INFRA}))
def test_what_cannot_be_told_can_be_followed(kind: VerdictKind) -> None:
    assert answer(kind, "followed") is VerdictAnswer.SAME
    assert answer(kind, "another") is VerdictAnswer.UNTESTABLE
    assert not answer(kind, "another").moves_a_bound
    assert UNTOLD[kind].is_gap


def test_a_machine_that_fails_us_is_never_the_failure() -> None:
    assert answer(VerdictKind.INFRA, "followed") is VerdictAnswer.INFRA
    assert answer(VerdictKind.INFRA, None) is VerdictAnswer.INFRA


def test_sick_works_unless_sickness_is_followed_or_the_kernel_is_gone() -> None:
    assert answer(VerdictKind.SICK, "another") is VerdictAnswer.OK
    assert answer(VerdictKind.SICK, "followed") is VerdictAnswer.SAME
    assert answer(VerdictKind.SICK, "another", stage="llir") is VerdictAnswer.OTHER
    assert not works(VerdictKind.SICK, "llir")
    otherwise = answer_of(
        VerdictKind.SICK,
        stage="cubin",
        signature="another",
        followed="followed",
        followed_kind=VerdictKind.SICK,
    )
    assert otherwise is VerdictAnswer.OTHER


@pytest.mark.parametrize("kind", WORKS)
def test_what_works_is_ok_whatever_is_asked(kind: VerdictKind) -> None:
    assert answer(kind, None) is VerdictAnswer.OK
    assert works(kind, None)
    assert not kind.is_failure


@pytest.mark.parametrize("followed", [VerdictKind.SICK, VerdictKind.WRONG_RESULT])
def test_what_is_well_ends_sickness_and_a_wrong_result(followed: VerdictKind) -> None:
    for kind in (VerdictKind.OK, VerdictKind.RIGHT):
        told = answer_of(kind, stage=None, followed="followed", followed_kind=followed)
        assert told is VerdictAnswer.OK


def test_every_verdict_has_an_answer() -> None:
    listed = {*OTHER_FAILURES, *COULD_NOT_TELL, *WORKS, VerdictKind.SICK}
    assert listed == set(VerdictKind)


def test_no_failure_without_a_signature_is_the_one_that_is_followed() -> None:
    assert answer_of(VerdictKind.REJECTED, stage="ttir", signature=None, followed=None) is (
        VerdictAnswer.OTHER
    )


def test_what_nothing_was_compared_with_does_not_end_a_wrong_result() -> None:
    def ran(followed_kind: VerdictKind) -> VerdictAnswer:
        return answer_of(
            VerdictKind.RAN,
            stage=None,
            signature=None,
            followed="followed",
            followed_kind=followed_kind,
        )

    assert ran(VerdictKind.WRONG_RESULT) is VerdictAnswer.UNTESTABLE
    assert ran(VerdictKind.RACE) is VerdictAnswer.OK
