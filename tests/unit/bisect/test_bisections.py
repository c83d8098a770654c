"""What a bisection says: the sentences, for the failures that come, go, or give way to others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from harness.bisect.bisect_words import BisectReport, bisect_document, report_line, spans
from harness.bisect.search import Probe, Tally, conclude
from harness.judging.answers import VerdictAnswer
from harness.judging.followed import FollowedFailure, follow, read_while
from harness.values.row import Row
from harness.values.verdict import VerdictKind

VERSIONS = tuple(f"13.{minor}.0" for minor in range(6))


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
        "ptxas": "13.0.0",
        "ptxas_origin": "nvidia-cuda-nvcc",
        "verdict": VerdictKind(verdict),
        "reason": f"{verdict} it is",
        "ptx_body_sha256": "a",
    }
    return Row(**{**values, **fields})


ICE = row("ptxas_ice", stage="cubin", signature="ice")
ENDS = {
    "+": row("ok", n_regs=255, spill_stores=616, spill_loads=700),
    "x": ICE,
    "e": row("ptxas_error", stage="cubin", signature="e", reason="ptxas says: bad operand."),
    "?": row("unsupported", stage="cubin", signature="u", reason="Unsupported .version 8.8"),
    "t": row("timeout", stage="cubin", signature="t", reason="ptxas was killed after 300 s"),
    "s": row("sick", stage="cubin", signature="s", n_regs=32, spill_stores=3796, spill_loads=4000),
}


def _at(each: Row, axis: str, version: str) -> Row:
    return (
        structs.replace(each, triton=version)
        if axis == "triton"
        else structs.replace(each, ptxas=version)
    )


def report(
    letters: str, followed: FollowedFailure | None = None, axis: str = "ptxas"
) -> BisectReport:
    """A letter of `ENDS` for each version, a dot where it was not tried."""
    rows = {
        index: _at(ENDS[letter], axis, VERSIONS[index])
        for index, letter in enumerate(letters)
        if letter != "."
    }
    followed = followed or follow(ICE)
    tallies = {
        VERSIONS[index]: Tally(failures=5 * (followed.of(row) is VerdictAnswer.SAME), runs=5)
        for index, row in rows.items()
    }
    return report_of(axis, VERSIONS[: len(letters)], rows, followed, tallies)


def report_of(
    axis: str,
    versions: tuple[str, ...],
    rows: dict[int, Row],
    followed: FollowedFailure,
    tallies: dict[str, Tally] | None = None,
) -> BisectReport:
    probes = {
        index: Probe(outcome=followed.of(row), verdict=row.verdict, signature=row.signature)
        for index, row in rows.items()
    }
    return BisectReport(
        axis=axis,
        versions=versions,
        rows={versions[index]: row for index, row in rows.items()},
        reasons={},
        tallies=tallies or {},
        finding=conclude(len(versions), probes),
        followed=followed,
        cell=None,
        others=(),
        stages=None,
        trouble=None,
    )


@pytest.mark.parametrize(
    ("letters", "begins", "ends"),
    [
        ("++xx++", "First bad: ptxas 13.2.0. Last good: 13.1.0.", "First fixed: 13.4.0."),
        ("xxxxxx", "Present in the oldest ptxas there is, 13.0.0.", "Still present in the newest"),
        (
            "?xxxee",
            (
                "First seen: ptxas 13.1.0. No older one that was tried works: 13.0.0 ends with: "
                "Unsupported .version 8.8."
            ),
            "Gone from 13.4.0 on, which ends with: ptxas says: bad operand.",
        ),
        (
            "exxxx.",
            (
                "First seen: ptxas 13.1.0. No older one that was tried works: 13.0.0 ends with: "
                "ptxas says: bad operand."
            ),
            "Still present in the newest ptxas that was tried, 13.4.0.",
        ),
        (
            "txxxxt",
            "Present in the oldest testable ptxas, 13.1.0.",
            (
                "Still present in 13.4.0, the newest testable ptxas; 13.5.0 ends with: ptxas was "
                "killed after 300 s."
            ),
        ),
        ("+xx.e.", "First bad: ptxas 13.1.0.", "Gone from any of 13.3.0, 13.4.0 on, which ends"),
    ],
)
def test_how_a_history_begins_and_ends(letters: str, begins: str, ends: str) -> None:
    said = report_line(report(letters))
    assert begins in said
    assert ends in said
    assert ".." not in said


def test_what_lies_inside_a_boundary_never_contradicts_it() -> None:
    said = report_line(report("+xxtt+"))
    assert "First fixed: any of 13.3.0, 13.4.0, 13.5.0." in said
    assert "Untestable between: 13.3.0, 13.4.0." in said
    said = report_line(report("+x..+."))
    assert "First fixed: any of 13.2.0, 13.3.0, 13.4.0." in said
    assert "Untestable between: none. Not tried between: 13.2.0, 13.3.0." in said
    assert "Untestable between: none. Confidence" in report_line(report("++xx++"))


def test_a_version_that_fails_otherwise_is_no_fix_and_was_tested() -> None:
    said = report_line(report("+xxee+"))
    assert (
        "Gone from 13.3.0 on, which ends with: ptxas says: bad operand; works again from 13.5.0 on."
    ) in said
    assert "Untestable between: none." in said
    said = report_line(report("+xte.+"))
    assert "Gone from any of 13.2.0, 13.3.0 on, which ends with" in said
    # 13.3.0 does not work: whatever 13.2.0 does, it is not since then that it works.
    assert "works again from any of 13.4.0, 13.5.0 on." in said


def test_gone_is_not_fixed_in_the_document_either() -> None:
    found = bisect_document(report("++xxee"))
    assert found["first_fixed"] is None
    assert found["first_fixed_candidates"] == []
    assert found["gone_from"] == {"candidates": ["13.4.0"], "ends_with": "ptxas says: bad operand."}
    assert bisect_document(report("++xxtt"))["gone_from"] is None
    # It turned into another failure, which ended, too.
    found = bisect_document(report("+xxee+"))
    assert found["gone_from"] == {"candidates": ["13.3.0"], "ends_with": "ptxas says: bad operand."}
    assert (found["first_fixed"], found["first_fixed_candidates"]) == ("13.5.0", ["13.5.0"])
    assert bisect_document(report("++xx++"))["gone_from"] is None


def test_a_regression_of_spills_is_told_with_its_numbers() -> None:
    bad = ENDS["s"]
    found = report("++ss+e", follow(bad, others=[ENDS["+"]]), axis="triton")
    said = report_line(found)
    assert "First bad: Triton 13.2.0. Last good: 13.1.0. First fixed: 13.4.0." in said
    assert (
        "Numbers: 255 registers, 616 B of spill stores with 13.1.0, 32 registers, 3,796 B of "
        "spill stores with 13.2.0."
    ) in said
    document = bisect_document(found)
    assert document["followed"].startswith("spill_stores >= 3080 (5 times the best")
    assert document["signature"] == "s"


def test_other_failures_are_listed_once_each_by_the_newest_version() -> None:
    found = report("s+xxes")
    assert [(each.ptxas, each.verdict) for each in found.other_failures] == [
        ("13.5.0", "sick"),
        ("13.4.0", "ptxas_error"),
    ]
    # Who follows numbers wants no list of those that are better.
    asked = FollowedFailure(condition=read_while("n_regs<=16"))
    assert report("++ss++", asked).other_failures == ()
    assert "No ptxas that was tried meets the condition." in report_line(report("++ss++", asked))


def test_versions_with_different_reasons_are_apart() -> None:
    evidence = report("xxxx")
    rows = {**evidence.rows, "13.2.0": structs.replace(ICE, reason="asks for 576 columns")}
    found = spans(replace(evidence, rows=rows))
    assert [(each.first, each.last, each.reason) for each in found] == [
        ("13.0.0", "13.1.0", "ptxas_ice it is"),
        ("13.2.0", "13.2.0", "asks for 576 columns"),
        ("13.3.0", "13.3.0", "ptxas_ice it is"),
    ]
    (segment,) = bisect_document(replace(evidence, rows=rows))["segments"]
    assert segment["reasons"] == ["ptxas_ice it is", "asks for 576 columns"]


def test_what_came_out_of_the_ptx_is_followed_like_a_failure_to_compile() -> None:
    executed = {"stage": "run", "ptxas": "emulator", "ptxas_origin": "emulator"}
    wrong = row("wrong_result", signature="w", **executed)
    ends = {
        "n": row("not_run", **executed, reason="it does not compile: unsupported"),
        "w": wrong,
        "r": row("right", ptxas="emulator", ptxas_origin="emulator", ptx_body_sha256="b"),
        "-": row("ran", ptxas="emulator", ptxas_origin="emulator"),
    }
    followed = follow(wrong)

    def said(letters: str) -> str:
        rows = {
            n: structs.replace(ends[letter], triton=VERSIONS[n]) for n, letter in enumerate(letters)
        }
        return report_line(report_of("triton", VERSIONS, rows, followed))

    words = said("nwwwrr")
    assert "Present in the oldest testable Triton, 13.1.0. First fixed: 13.4.0." in words
    assert "Emulated: the PTX of each Triton, executed on the same inputs." in words
    assert "First bad: Triton 13.1.0. Last good: 13.0.0." in said("rwwwww")
    # What nothing was compared with is a hole.
    assert "First fixed: any of 13.3.0, 13.4.0." in said("rww-rr")
    assert "Emulated" not in report_line(report("++xx++"))


def test_versions_that_do_not_go_together_are_nobodys_fault() -> None:
    """One PTX, byte for byte, on both sides: that alone does not make it ptxas."""
    found = report("??++", follow(ENDS["?"]))
    assert (found.ptx_identical, found.blame) == (True, "pairing")
    assert report_line(found).endswith(
        "PTX identical on both sides: yes; these versions do not go together, and no component is "
        "at fault."
    )
    assert bisect_document(found)["blame"] == "pairing"
    # A condition on numbers may be met by a version that is not supported, too.
    assert report("++xx").blame == "ptxas"
