"""Cubins that must compute the same are held to one another by few numbers of what they left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from harness.run.gpu.cubin_judging import CubinDigest, judge_together
from harness.run.gpu.evaluating import glimpse_before
from harness.run.judging import Judgement
from harness.values.verdict import VerdictKind

VALUES = np.linspace(-1, 1, 64)
RAN = Judgement(verdict=VerdictKind.RAN, reason="measured: it came to its end")


def seen(
    number: int, values: object = VALUES, place: str = "a", dtype: str = "float32"
) -> CubinDigest:
    return CubinDigest(
        place=place,
        cubin=str(number),
        words=f"num_warps={number}",
        judgement=RAN,
        types=frozenset({dtype}),
        numbers={"out": (dtype, np.asarray(values, np.float64)), "x": (dtype, VALUES + 3)},
        changed=frozenset({"out"}),
    )


def verdicts(each: Sequence[CubinDigest]) -> list[str]:
    return [judgement.verdict.value for judgement in judge_together(each)]


OTHER = VALUES + np.eye(64)[7]


def test_one_that_stands_alone_is_wrong() -> None:
    found = judge_together([seen(1, OTHER), seen(2), seen(4)])
    assert [each.verdict.value for each in found] == ["wrong_result", "ran", "ran"]
    assert found[0].reason == (
        "measured: 1 of 64 numbers of out that were looked at differ from those of num_warps=2, "
        "by up to 1, and 2 cubins of the launch agree with one another"
    )
    assert (found[0].reference, found[0].outputs[0].differing) == ("num_warps=2", 1)
    assert found[0].signature is not None
    assert found[1].reason == (
        "measured: it came to its end; 64 numbers that were looked at agree with those of 1 of 2 "
        "other cubins of the launch"
    )


@pytest.mark.parametrize(
    ("each", "said"),
    [
        # Two against two, or one against one: nothing says which is right.
        ([seen(1), seen(2), seen(4, OTHER), seen(8, OTHER)], ["not_run"] * 4),
        ([seen(n, VALUES if n < 5 else OTHER) for n in range(7)], ["ran"] * 5 + ["not_run"] * 2),
        ([seen(1), seen(2, OTHER)], ["not_run", "not_run"]),
        # The same bytes are one witness.
        ([seen(1), seen(1), seen(2, OTHER)], ["not_run", "not_run", "not_run"]),
        ([seen(1), seen(1)], ["ran", "ran"]),
        # Only what must be the same is compared.
        ([seen(1), seen(2), seen(4, OTHER, place="b")], ["ran", "ran", "ran"]),
    ],
)
def test_nobody_is_accused_without_witnesses(each: list[CubinDigest], said: list[str]) -> None:
    assert verdicts(each) == said


@pytest.mark.parametrize(("dtype", "verdict"), [("bfloat16", "ran"), ("float32", "wrong_result")])
def test_arithmetic_explains_small_differences(dtype: str, verdict: str) -> None:
    near = seen(1, VALUES * 1.01, dtype=dtype)
    assert verdicts([near, seen(2, dtype=dtype), seen(4, dtype=dtype)])[0] == verdict


def test_what_no_cubin_changes_is_not_counted() -> None:
    idle = [replace(seen(n), changed=frozenset()) for n in (1, 2)]
    assert [each.reason for each in judge_together(idle)] == [RAN.reason] * 2


def test_what_was_there_before_is_known_without_a_gpu() -> None:
    whole = bytes(range(100)) * 200
    assert glimpse_before(bytes(range(100)), 20_000)[:32] == whole[:16].hex()
    assert glimpse_before(bytes(range(100)), 20_000)[-32:] == whole[19_984:].hex()
    assert glimpse_before(b"", 20_000) == glimpse_before(b"1", 15) == ""


def test_what_overflows_is_not_compared() -> None:
    infinite = np.where(np.arange(64) == 3, np.inf, VALUES)
    assert verdicts([seen(1, infinite), seen(2), seen(4)]) == ["ran"] * 3
