"""A report of what PTX computes: each kind of its statements is made false, one at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from msgspec import structs
from report_cases import EXECUTED, NOT_RUN, ONE_STAGE, RAN, RIGHT, WRONG

from harness.report.claims import AttachedPlace, ClaimKind, ClaimsTrial, prove
from harness.report.dossier import Upstream
from harness.report.issue import render_report
from harness.values.execution import RunRow
from harness.values.row import Row
from harness.values.verdict import VerdictKind


def place(version: str) -> AttachedPlace:
    return AttachedPlace(file="kernel.py", tool="Triton", version=version, target="sm_100a")


ISSUE = render_report(EXECUTED, Upstream.TRITON)
FILE_ROWS = {place("3.4.0"): NOT_RUN, place("3.6.0"): WRONG, place("3.8.0"): RIGHT}
HONEST = ClaimsTrial(
    files={file.name: file.data for file in EXECUTED.attachments},
    rows=FILE_ROWS,
    outcomes={where: EXECUTED.outcome(row) for where, row in FILE_ROWS.items()},
    stored={row.cell: row for row in (WRONG, RIGHT, NOT_RUN, ONE_STAGE)},
    runs={place("3.6.0"): RAN, RAN.cell: RAN},
    counts={ClaimKind.LINES: {"min.py": 2, "original.py": 3}},
)


def test_all_that_is_executed_again_is_proved() -> None:
    proof = prove(ISSUE.claims, HONEST, ISSUE.text)
    assert proof.false == ()
    assert proof.checked == proof.claims > 25


def test_what_was_not_executed_again_is_not_counted() -> None:
    proof = prove(ISSUE.claims, replace(HONEST, stored={}, runs={}, rows={}), ISSUE.text)
    assert proof.false == ()
    assert proof.checked < proof.claims - 8
    assert "Triton/LLVM is to blame." in {said for said, _ in proof.unchecked}
    assert prove(ISSUE.claims, HONEST, ISSUE.text).unchecked == ()


def test_every_cell_that_is_named_is_executed_again() -> None:
    assert {row.cell for row in EXECUTED.executed_rows} == set(HONEST.stored)
    assert {claim.cell for claim in ISSUE.claims if claim.cell} <= set(HONEST.stored)


def with_file(version: str, row: Row) -> Callable[[ClaimsTrial], ClaimsTrial]:
    def plant(trial: ClaimsTrial) -> ClaimsTrial:
        rows = {**trial.rows, place(version): row}
        outcomes = {where: EXECUTED.outcome(each) for where, each in rows.items()}
        return replace(trial, rows=rows, outcomes=outcomes)

    return plant


def with_cell(row: Row, **values: object) -> Callable[[ClaimsTrial], ClaimsTrial]:
    other = structs.replace(row, **values)
    return lambda trial: replace(trial, stored={**trial.stored, row.cell: other})


def with_run(run: RunRow) -> Callable[[ClaimsTrial], ClaimsTrial]:
    return lambda trial: replace(trial, runs={**trial.runs, place("3.6.0"): run})


FIRST = RAN.outputs[0]
PLANTED: dict[str, tuple[Callable[[ClaimsTrial], ClaimsTrial], str]] = {
    "the file is right": (with_file("3.6.0", RIGHT), "kernel.py with Triton 3.6.0"),
    "the file is wrong where it is said to be right": (
        with_file("3.8.0", WRONG),
        "kernel.py with Triton 3.8.0 for sm_100a gives 'same', not 'ok'",
    ),
    "the file can be executed where it is said that it cannot": (
        with_file("3.4.0", WRONG),
        "gives 'same', not 'untestable'",
    ),
    "how many elements": (
        with_run(
            structs.replace(RAN, outputs=(structs.replace(FIRST, differing=11), RAN.outputs[1]))
        ),
        "12 is stored, its evidence gives 11",
    ),
    "by how much": (
        with_run(
            structs.replace(RAN, outputs=(structs.replace(FIRST, max_abs=3.0), RAN.outputs[1]))
        ),
        "31.5 is stored, its evidence gives 3.0",
    ),
    "an expected value": (
        with_run(
            structs.replace(RAN, outputs=(structs.replace(FIRST, expected=2.5), RAN.outputs[1]))
        ),
        "1.5 is stored, its evidence gives 2.5",
    ),
    "an actual value": (
        with_run(
            structs.replace(RAN, outputs=(structs.replace(FIRST, actual=1.0), RAN.outputs[1]))
        ),
        "-30.0 is stored, its evidence gives 1.0",
    ),
    "where": (
        with_run(
            structs.replace(RAN, outputs=(structs.replace(FIRST, where="[0, 0]"), RAN.outputs[1]))
        ),
        "'[3, 0]' is stored, its evidence gives '[0, 0]'",
    ),
    "an output that is not there": (
        with_run(structs.replace(RAN, outputs=())),
        "gives 'no such output'",
    ),
    "the schedule": (with_run(structs.replace(RAN, schedule="first/early")), "gives 'first/early'"),
    "accesses that nothing orders": (
        with_run(structs.replace(RAN, races=RAN.races[1:])),
        "(24, 31), ('kernel.py:1', 'helper.py:7'))",
    ),
    "the reference": (
        with_run(structs.replace(RAN, reference="the interpreter")),
        "'the interpreter'",
    ),
    "the kernel itself": (
        with_cell(WRONG, verdict=VerdictKind.RIGHT, signature=None),
        "'wrong_result' is stored, its evidence gives 'right'",
    ),
    "a version of the history": (
        with_cell(RIGHT, verdict=VerdictKind.WRONG_RESULT),
        "triton-3.8.0/emulator: 'right' is stored, its evidence gives 'wrong_result'",
    ),
    "a version that could not be determined": (
        with_cell(NOT_RUN, verdict=VerdictKind.RIGHT, reason="emulated PTX: agrees"),
        "'not_run' is stored, its evidence gives 'right'",
    ),
    "a workaround, and the blame that rests on it": (
        with_cell(ONE_STAGE, verdict=VerdictKind.RACE),
        "'Triton/LLVM is to blame.' is not so",
    ),
    "another program": (
        with_cell(RIGHT, ptx_body_sha256="another"),
        "'3.8.0-body' is stored, its evidence gives 'another'",
    ),
    "lines of the source": (
        lambda trial: replace(trial, counts={ClaimKind.LINES: {"min.py": 9, "original.py": 3}}),
        "min.py gives 9, not 2",
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_falsehood_is_named(name: str) -> None:
    plant, words = PLANTED[name]
    proof = prove(ISSUE.claims, plant(HONEST), ISSUE.text)
    assert any(words in each for each in proof.false), proof.false


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("| 12 of 64 |", "| 13 of 64 |"),
        ("| 31.5 |", "| 3.15 |"),
        ("| -30 |", "| 30 |"),
        ("schedule first/late", "schedule first/early"),
        ("| 3.8.0 | is right", "| 3.8.0 | wrong_result"),
        ("2 pairs of instructions", "3 pairs of instructions"),
        ("With num_stages=1 in place", "With num_stages=3 in place"),
        ("Triton/LLVM is to blame.", "ptxas is to blame."),
        ("3 lines of functions reduced to 2", "3 lines of functions reduced to 1"),
    ],
)
def test_a_text_that_was_edited_is_not_what_was_computed(old: str, new: str) -> None:
    assert old in ISSUE.text
    assert prove(ISSUE.claims, HONEST, ISSUE.text.replace(old, new)).false
