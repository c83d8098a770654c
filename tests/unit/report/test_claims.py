"""A report states only what can be proved: each kind of claim is made false, one at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from msgspec import structs
from report_cases import CRASH, FINE, IN_PTXAS, IN_TRITON, PTX, TRAP, VERSIONS, history

from harness.judging.answers import VerdictAnswer
from harness.report.claims import AttachedPlace, ClaimKind, ClaimsTrial, gives, prove
from harness.report.dossier import Dossier, Upstream
from harness.report.issue import render_report
from harness.values.row import Row
from harness.values.verdict import VerdictKind

COMPILES = structs.replace(FINE, verdict=VerdictKind.OK, reason="compiled", spill_stores=0)
UNSUPPORTED = structs.replace(
    CRASH,
    verdict=VerdictKind.UNSUPPORTED,
    reason="Unsupported .version 8.8",
    signature=None,
    exit_code=1,
)
DOES = dict(zip(VERSIONS, (UNSUPPORTED, COMPILES, CRASH, COMPILES), strict=True))


def places(version: str) -> list[AttachedPlace]:
    return [
        AttachedPlace(file=file, tool="ptxas", version=version, target="sm_100a")
        for file in ("min.ptx", "original.ptx")
    ]


def distinct() -> Dossier:
    """The dossier with a cell of its own for each version, each neighbour, and each elsewhere."""
    history, flags = IN_PTXAS.along_ptxas, IN_PTXAS.flags
    assert history
    assert flags
    rows = {
        version: structs.replace(row, cell=f"cell/{version}")
        for version, row in history.rows.items()
    }
    points = tuple(
        replace(each, row=structs.replace(each.row, cell=f"cell/{each.label}"))
        for each in flags.points
        if each.row
    )
    elsewhere = {
        version: tuple(
            structs.replace(row, cell=f"{row.cell.rpartition('/')[0]}/ptxas-{version}")
            for row in found
        )
        for version, found in IN_PTXAS.elsewhere.items()
    }
    return replace(
        IN_PTXAS,
        along_ptxas=replace(history, rows=rows),
        flags=replace(flags, points=points),
        targets=None,
        ways=(),
        elsewhere=elsewhere,
    )


def cells(dossier: Dossier) -> dict[str, Row]:
    """The cells of a dossier, by id."""
    history, flags = dossier.along_ptxas, dossier.flags
    assert history
    assert flags
    found = [*history.rows.values(), *dossier.rows]
    found += [point.row for point in flags.points if point.row]
    found += [row for rows in dossier.elsewhere.values() for row in rows]
    return {row.cell: row for row in found}


DOSSIER = distinct()
ISSUE = render_report(DOSSIER, Upstream.NVIDIA)
FLAGS = {"-O0": COMPILES, "-O3": CRASH}
ROWS = {where: row for version, row in DOES.items() for where in places(version)} | {
    replace(places("13.1.80")[1], flag=flag): row for flag, row in FLAGS.items()
}
HONEST = ClaimsTrial(
    files={file.name: file.data for file in DOSSIER.attachments},
    rows=ROWS,
    outcomes={where: DOSSIER.outcome(row) for where, row in ROWS.items()},
    stored=cells(DOSSIER),
    counts={
        ClaimKind.INSTRUCTIONS: {"min.ptx": 2, "original.ptx": 2000},
        ClaimKind.UNWRITTEN: {"min.ptx": 0},
    },
)


def test_what_is_so_is_proved() -> None:
    proof = prove(ISSUE.claims, HONEST, ISSUE.text)
    assert proof.false == ()
    assert proof.checked == proof.claims > 30


def with_rows(trial: ClaimsTrial, version: str, row: Row) -> ClaimsTrial:
    rows = {**trial.rows, places(version)[0]: row}
    return replace(
        trial, rows=rows, outcomes={where: DOSSIER.outcome(each) for where, each in rows.items()}
    )


def with_stored(trial: ClaimsTrial, cell: str, **values: object) -> ClaimsTrial:
    row = structs.replace(trial.stored[cell], **values)
    return replace(trial, stored={**trial.stored, cell: row})


def with_count(trial: ClaimsTrial, kind: ClaimKind, count: int) -> ClaimsTrial:
    counts = {**trial.counts[kind], "min.ptx": count}
    return replace(trial, counts={**trial.counts, kind: counts})


def changed(trial: ClaimsTrial) -> ClaimsTrial:
    return replace(trial, files={**trial.files, "min.ptx": PTX.encode() + b"// more\n"})


PLANTED: dict[str, tuple[Callable[[ClaimsTrial], ClaimsTrial], str]] = {
    "fails": (lambda t: with_rows(t, "13.1.80", COMPILES), "min.ptx with ptxas 13.1.80"),
    "works": (lambda t: with_rows(t, "13.0.88", CRASH), "min.ptx with ptxas 13.0.88"),
    "fixed in": (
        lambda t: with_rows(t, "13.3.33", CRASH),
        "'fixed in 13.3.33' is not so: min.ptx with ptxas 13.3.33",
    ),
    "fails in another way": (
        lambda t: with_rows(t, "13.1.80", structs.replace(CRASH, signature="f" * 12)),
        "gives 'other', not 'same'",
    ),
    "exit code": (
        lambda t: with_rows(t, "13.1.80", structs.replace(CRASH, exit_code=1)),
        "'Exit code: 255.' is not so: min.ptx with ptxas 13.1.80 for sm_100a gives 'exit code 1'",
    ),
    "signal": (
        lambda t: with_rows(t, "13.1.80", structs.replace(CRASH, exit_code=None, signal=11)),
        "gives 'signal 11', not 'exit code 255'",
    ),
    "sha256": (changed, "| `min.ptx` | `"),
    "bytes": (changed, f"not {len(PTX)}"),
    "missing file": (
        lambda t: replace(t, files={k: v for k, v in t.files.items() if k != "repro.sh"}),
        "repro.sh gives 'no such file'",
    ),
    "instructions": (lambda t: with_count(t, ClaimKind.INSTRUCTIONS, 3), "min.ptx gives 3, not 2"),
    "a register that nothing wrote": (
        lambda t: with_count(t, ClaimKind.UNWRITTEN, 1),
        "min.ptx gives 1, not 0",
    ),
    "spills of a config": (
        lambda t: with_stored(t, FINE.cell, spill_stores=0),
        "512 is stored, its evidence gives 0",
    ),
    "verdict of a config": (
        lambda t: with_stored(t, CRASH.cell, verdict=VerdictKind.OK, signature=None),
        "'ptxas_ice' is stored, its evidence gives 'ok'",
    ),
    "a version of the history": (
        lambda t: with_stored(t, "cell/13.3.33", verdict=VerdictKind.PTXAS_ICE),
        "cell/13.3.33: ",
    ),
    "a flag": (
        lambda t: with_stored(t, "cell/-O0", verdict=VerdictKind.PTXAS_ERROR),
        "'Works: -O0.'",
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
        ("| 13.1.80 | ptxas", "| 13.1.80 - 13.3.33 | ptxas"),
        ("fixed in 13.3.33", "fixed in 13.1.80"),
        ("Exit code: 255.", "Exit code: 1."),
        ("1 of the 2 configs", "2 of the 2 configs"),
        ("| 512 | 600 |", "| 0 | 0 |"),
        ("Works: -O0.", "Works: -O0, -O3."),
        ("reduced to 2 (", "reduced to 1 ("),
        ("it compiles.", "it fails."),
    ],
)
def test_a_text_that_was_edited_is_not_what_was_computed(old: str, new: str) -> None:
    assert old in ISSUE.text
    edited = ISSUE.text.replace(old, new)
    assert prove(ISSUE.claims, HONEST, edited).false
    assert not prove(ISSUE.claims, HONEST, ISSUE.text).false


def test_what_could_not_be_tried_is_not_counted_as_checked() -> None:
    nothing = prove(ISSUE.claims, ClaimsTrial(), ISSUE.text)
    texts = sum(claim.kind is ClaimKind.TEXT for claim in set(ISSUE.claims))
    files = sum(claim.file is not None for claim in set(ISSUE.claims))
    assert nothing.checked == texts + files  # a file that is not there is a finding
    assert nothing.checked < nothing.claims


def test_every_version_of_the_table_is_a_claim() -> None:
    claimed = {claim.place.version for claim in ISSUE.claims if claim.place}
    assert set(VERSIONS) <= claimed


def test_what_is_not_checked_is_named_with_the_reason() -> None:
    place = AttachedPlace(file="min.ptx", tool="ptxas", version="13.3.33", target="sm_100a")
    bound = replace(gives(place, VerdictAnswer.OK)[0], sentence="fixed in 13.3.33", is_bound=True)
    other = replace(gives(place, VerdictAnswer.OK)[0], sentence="compiles")
    text = "fixed in 13.3.33 compiles"
    untried: dict[AttachedPlace | str, str] = {place: "the index is down"}
    proof = prove([bound, other], ClaimsTrial(untried=untried), text)
    why = "min.ptx with ptxas 13.3.33 for sm_100a: the index is down"
    assert proof.unchecked == (("fixed in 13.3.33", why), ("compiles", why))
    # The title rests on it, so that the report is not ready without it.
    assert proof.unproved == (f"'fixed in 13.3.33' could not be checked: {why}",)


def test_the_sides_of_a_boundary_are_held_to_the_stored_rows() -> None:
    issue = render_report(IN_PTXAS, Upstream.NVIDIA)
    bounds = [claim for claim in issue.claims if claim.is_bound and claim.cell]
    assert {claim.sentence for claim in bounds} >= {"since 13.1.80", "fixed in 13.3.33"}
    assert prove(issue.claims, ClaimsTrial(), issue.text).unproved != ()


def test_a_crash_that_newer_versions_refuse_with_a_message_says_so_in_its_title() -> None:
    rejected = structs.replace(
        TRAP, verdict=VerdictKind.REJECTED, reason="no such layout", signature="e" * 12
    )
    along = history("triton", ("3.4.0", "3.5.0", "3.6.0", "3.8.0"), "++xo", TRAP, {3: rejected})
    dossier = replace(IN_TRITON, rows=(TRAP,), along_triton=along)
    title = render_report(dossier, Upstream.TRITON).text.splitlines()[0]
    assert title.endswith("Triton since 3.6.0, rejected with a message from 3.8.0 on)")


def test_what_is_printed_keeps_the_line_of_the_assertion() -> None:
    line = f"python: Layout.cpp:12: void f({'T, ' * 900}T): Assertion `rank > 1' failed."
    shown = render_report(replace(IN_PTXAS, log=f"{line}\n" + "stack\n" * 900), Upstream.NVIDIA)
    assert "Assertion `rank > 1' failed." in shown.text
    assert "python: Layout.cpp:12:" in shown.text
