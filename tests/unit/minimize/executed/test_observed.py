"""Two texts that were executed: whether one goes wrong as the other does."""

from __future__ import annotations

from collections import Counter

import pytest

from harness.minimize.executed.ptx_level import ObservedRuns, compared
from harness.run.judging import Judgement
from harness.values.verdict import Signature, VerdictKind


def observed(
    verdict: VerdictKind, words: str = "", *faults: str, races: int = 0, value: bytes = b"\1"
) -> ObservedRuns:
    signature = Signature(
        stage="run", kind=verdict.value, failing_pass=None, code=None, template=words
    )
    judgement = Judgement(
        verdict=verdict, reason="so", signature=signature if verdict.is_failure else None
    )
    pairs = Counter({("write-read shared: st and ld", False): races})
    values = {"first/early": value}
    return ObservedRuns(judgement=judgement, values=values, faults=faults, races=pairs)


WRONG = observed(VerdictKind.WRONG_RESULT, "differs: out")
FAULT = observed(VerdictKind.MEMORY_FAULT, "a store", "byte 512 of out", "byte 512 of out")
RACE = observed(VerdictKind.RACE, "st and ld", races=2)


@pytest.mark.parametrize(
    ("found", "wanted", "answer"),
    [
        (WRONG, WRONG, "same"),
        (observed(VerdictKind.WRONG_RESULT, "differs: out", value=b"\2"), WRONG, "other"),
        (observed(VerdictKind.WRONG_RESULT, "differs: more"), WRONG, "other"),
        (observed(VerdictKind.RIGHT), WRONG, "accepts"),
        (observed(VerdictKind.NOT_RUN), WRONG, "untold"),
        (observed(VerdictKind.WRONG_RESULT, "differs: out", races=1), WRONG, "other"),
        (FAULT, FAULT, "same"),
        (observed(VerdictKind.MEMORY_FAULT, "a store", "byte 8 of out"), FAULT, "other"),
        (
            observed(VerdictKind.MEMORY_FAULT, "a store", *FAULT.faults[:1], "no fault"),
            FAULT,
            "other",
        ),
        (observed(VerdictKind.RACE, "st and ld", races=1), RACE, "same"),
        (observed(VerdictKind.RACE, "st and ld", races=3), RACE, "other"),
        (observed(VerdictKind.RACE, "st and st", races=1), RACE, "other"),
    ],
)
def test_only_the_same_is_kept(found: ObservedRuns, wanted: ObservedRuns, answer: str) -> None:
    assert compared(found, wanted).answer.value == answer
