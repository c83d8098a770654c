"""What is followed of a row: its failure, or a condition on its numbers."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from harness.judging.answers import VerdictAnswer
from harness.judging.conditions import spell
from harness.judging.followed import (
    FollowedFailure,
    follow,
    gravest,
    is_followable,
    measured,
    rank,
    read_while,
    severity,
    sickness_of,
)
from harness.values.errors import UsageError
from harness.values.row import Row
from harness.values.verdict import Thresholds, VerdictKind

SAME, OK, OTHER, HOLE = (
    VerdictAnswer.SAME,
    VerdictAnswer.OK,
    VerdictAnswer.OTHER,
    VerdictAnswer.UNTESTABLE,
)


def row(verdict: str, **fields: Any) -> Row:
    values: dict[str, Any] = {
        "cell": "k@sm_90a",
        "short": "k",
        "kernel": "k",
        "launch": "default",
        "config": {},
        "target": "sm_90a",
        "triton": "3.6.0",
        "compiler": "triton",
        "compiler_version": "3.6.0",
        "ptxas": "12.8.93",
        "ptxas_origin": "bundled",
        "verdict": VerdictKind(verdict),
        "reason": verdict,
    }
    return Row(**{**values, **fields})


def spilling(stores: int, *, regs: int = 255, triton: str = "3.6.0") -> Row:
    """Of a kernel that compiles: sick from 1,024 B of spill traffic on."""
    numbers: dict[str, Any] = {"n_regs": regs, "spill_stores": stores, "spill_loads": stores}
    numbers |= {"triton": triton, "compiler_version": triton}
    if 2 * stores < 1024:
        return row("ok", **numbers)
    return row("sick", stage="cubin", signature="s", **numbers)


def test_a_regression_of_spills_is_followed_by_its_numbers() -> None:
    bad = spilling(3796, regs=32)
    others = [spilling(740, triton="3.8.0"), spilling(616, triton="3.5.1"), spilling(3700, regs=32)]
    found = follow(bad, others=others)
    assert found.condition is not None
    assert spell(found.condition) == "spill_stores >= 3080"
    assert [found.of(each) for each in (bad, *others)] == [SAME, OK, OK, SAME]
    assert found.words == (
        "spill_stores >= 3080 (5 times the best toolchain or worse; the best, Triton 3.5.1, ptxas "
        "12.8.93: 255 registers, 616 B of spill stores)"
    )
    # What fails, or cannot be compiled, says nothing of the spills.
    assert found.of(row("trap_stub", stage="llir", spill_stores=0, signature="t")) is OTHER
    assert found.of(row("rejected", stage="ttir", signature="r")) is OTHER
    assert found.of(row("unsupported", stage="cubin")) is HOLE
    assert found.of(row("infra")) is VerdictAnswer.INFRA


def test_what_is_nearly_as_sick_is_no_better() -> None:
    bad = spilling(1030)
    found = follow(bad, others=[spilling(1000), spilling(500)])
    assert [found.of(spilling(stores)) for stores in (1030, 1000, 500)] == [SAME, SAME, OK]
    alone = sickness_of(bad)
    assert alone is not None
    assert (spell(alone.condition), alone.best) == ("spill_stores >= 515", None)
    # 511 B is not a verdict of sickness, and not another kernel either.
    found = follow(spilling(520), others=[spilling(505)])
    assert found.of(spilling(505)) is SAME


def test_a_best_without_any_spill_does_not_make_every_spill_a_regression() -> None:
    found = follow(spilling(5000), others=[spilling(0)])
    assert [found.of(spilling(stores)) for stores in (0, 300, 400)] == [OK, OK, SAME]


def test_the_factors_are_data() -> None:
    bad, best = spilling(3000), spilling(1000)
    assert spell(sickness_of(bad, [best]).condition) == "spill_stores >= 2000"  # type: ignore[union-attr]
    stricter = Thresholds(worse=(3,))
    assert spell(sickness_of(bad, [best], stricter).condition) == "spill_stores >= 3000"  # type: ignore[union-attr]


def test_other_ways_to_be_sick() -> None:
    local = row("sick", stage="cubin", signature="l", stack=4096, spill_stores=0, spill_loads=0)
    # Sick by something else: it is the local memory that is asked about.
    assert follow(local).of(replace(spilling(5000), stack=8)) is OK
    assert follow(local).of(replace(local, verdict=VerdictKind.OK, stack=8)) is OK
    cliff = row("sick", stage="cubin", signature="o", occupancy=0.015625, stack=0)
    assert follow(cliff).of(cliff) is SAME
    assert follow(cliff).of(replace(cliff, verdict=VerdictKind.OK, occupancy=0.25)) is OK
    # A kernel that is gone from the PTX is not a matter of degree.
    gone = row("sick", stage="llir", signature="w", spill_stores=0)
    assert follow(gone).condition is None
    assert follow(gone).of(gone) is SAME
    assert follow(gone).of(spilling(4000)) is OTHER


def test_a_condition_decides_alone() -> None:
    asked = read_while("n_regs<=32 and spill_stores>4096")
    found = follow(spilling(5000, regs=32), condition=asked)
    assert found.of(spilling(5000, regs=32)) is SAME
    assert found.of(spilling(5000)) is OK
    stub = read_while("verdict=trap_stub")
    found = follow(row("trap_stub", stage="llir", signature="a"), condition=stub)
    assert found.of(row("trap_stub", stage="llir", signature="b")) is SAME
    assert not found.is_crash
    assert read_while(None) is None
    for text in ("", "  ", "n_regs"):
        with pytest.raises(UsageError):
            read_while(text)


def test_unsupported_can_be_followed_when_it_is_what_is_asked_about() -> None:
    said = "this ptxas cannot do it: Unsupported .version 8.8; current version is '8.4'"
    old = row("unsupported", stage="cubin", signature="u", reason=said)
    older = replace(old, signature="v", reason=said.replace("8.4", "8.3"))
    other = replace(old, signature="x", reason="this ptxas cannot do it: no such target")
    found = follow(old)
    assert [found.of(each) for each in (old, older, other, spilling(0))] == [SAME, SAME, HOLE, OK]
    assert FollowedFailure(signature="z").of(old) is HOLE


def test_the_gravest_failure_is_the_newest_of_the_worst_kind() -> None:
    sick, ice = spilling(5000), row("ptxas_ice", stage="cubin", signature="i")
    crash = row("compiler_crash", stage="cubin", signature="c")
    refused = row("rejected", stage="ttir", signature="r")
    assert gravest([ice, sick, refused]) is ice
    assert gravest([crash, ice, sick]) is ice
    assert gravest([refused, sick]) is sick
    assert gravest([row("ok"), row("unsupported", signature="u"), row("infra")]) is None
    assert not is_followable(row("unsupported", signature="u"))


def test_which_row_is_meant() -> None:
    rows = [
        row("ptxas_ice", stage="cubin", signature="i"),
        spilling(5000),
        row("unsupported", stage="cubin", signature="u"),
        row("ok"),
        row("infra"),
    ]
    assert [rank(each, FollowedFailure()) for each in rows] == [0, 1, 2, 3, 4]
    assert [rank(each, FollowedFailure(signature="s")) for each in rows] == [3, 0, 3, 3, 4]
    asked = FollowedFailure(condition=read_while("verdict=ok"))
    assert [rank(each, asked) for each in rows] == [3, 3, 3, 0, 4]


def test_numbers_in_words() -> None:
    rows = [spilling(616), spilling(740), row("rejected")]
    assert measured(("n_regs", "spill_stores"), rows) == (
        "255 registers, 616 - 740 B of spill stores"
    )
    assert measured(("occupancy",), [row("ok", occupancy=0.125)]) == "occupancy 12.5%"
    assert measured(("stack",), [row("ok")]) == ""


def test_what_is_sick_is_fine_for_who_follows_a_crash() -> None:
    crash = FollowedFailure(kind=VerdictKind.PTXAS_ICE, stage="cubin", signature="i")
    assert crash.of(spilling(5000)) is OK
    assert crash.is_crash


@pytest.mark.parametrize(
    ("said", "is_crash"),
    [("pass TritonGPUPipeline crashed", True), ("pass TritonGPUPipeline failed", False),
     (None, False)],
)  # fmt: skip
def test_a_pass_that_crashed_is_the_compiler_s_and_one_that_failed_need_not_be(
    said: str | None, is_crash: bool
) -> None:
    failed = FollowedFailure(kind=VerdictKind.PASS_FAILURE, stage="ttgir", said=said)
    assert failed.is_crash == is_crash


def test_the_sickest_comes_first() -> None:
    cliff = row("sick", stage="cubin", signature="o", occupancy=0.015625, stack=0)
    rows = [spilling(0), cliff, spilling(3000), spilling(5000)]
    assert max(rows, key=severity) is rows[-1]
    assert severity(rows[0]) == 0
    assert severity(cliff) > severity(replace(cliff, occupancy=0.03125))
