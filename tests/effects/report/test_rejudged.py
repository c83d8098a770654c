"""A stored result is judged again from its evidence, or not where that may be of something else."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import structs
from nights import record as record_of
from nights import row
from store_cases import drop_evidence

from harness.judging.judge import CellEvidence, judge
from harness.report.rejudged import row_of_evidence
from harness.store.store import Store
from harness.values.outcome import Lowering, ProcessEnd, RaisedError
from harness.values.row import Row
from harness.values.target import Target

pytest_plugins = ("store_fixtures",)

OLD = "0" * 12


def lowering(message: str) -> Lowering:
    error = RaisedError(type="RuntimeError", kinds=("RuntimeError",), message=message)
    return Lowering(end=ProcessEnd(exit_code=0), stage="ttgir", error=error)


def key_of(message: str) -> str:
    target = Target.parse("sm_100a")
    signature = judge(CellEvidence(target=target, lowering=lowering(message))).signature
    assert signature
    return signature.key


def keep(store: Store, run: int, message: str, **words: Any) -> Row:
    """A result that says what its evidence does not, with that evidence."""
    changes = {name: words.pop(name) for name in ("flaky",) if name in words}
    found = structs.replace(row("pass_failure", OLD, **words), **changes)
    store.put_evidence("lower", message, msgspec.json.encode(lowering(message)), {})
    store.put_result(run, structs.replace(record_of(found), evidence={"lower": message}))
    return found


def test_what_cannot_be_judged_again(store: Store) -> None:
    run = store.begin_run("x")
    trimmed = keep(store, run, "trimmed")
    drop_evidence(store.home, "trimmed")
    remade = keep(store, run, "made again", warps=8)
    again = msgspec.json.encode(lowering("something else"))
    store.put_evidence("lower", "made again", again, {})  # later than the result
    flaky = keep(store, run, "own runs disagree", warps=16, flaky=True)
    for found in (trimmed, remade, flaky):
        assert row_of_evidence(store, found.cell) is None


def test_a_row_that_was_tampered_with_is_not_what_its_evidence_gives(store: Store) -> None:
    """Numbers and verdict of a stored result are checked against what they were judged from."""
    run = store.begin_run("x")
    found = row("ok", None, spill_stores=12)
    store.put_evidence("lower", "kept", msgspec.json.encode(lowering("pass P failed")), {})
    store.put_result(run, structs.replace(record_of(found), evidence={"lower": "kept"}))
    judged = row_of_evidence(store, found.cell)
    assert judged
    assert (judged.verdict, judged.signature) == ("pass_failure", key_of("pass P failed"))
    assert judged.spill_stores is None
    assert row_of_evidence(store, "no such cell") is None
    drop_evidence(store.home, "kept")
    assert row_of_evidence(store, found.cell) is None


def test_evidence_that_is_put_again_unchanged_keeps_its_results(store: Store) -> None:
    """A front end that reads its program again for each cell must not cost other results theirs."""
    found = keep(store, store.begin_run("x"), "pass P failed")
    store.put_evidence("lower", "pass P failed", msgspec.json.encode(lowering("pass P failed")), {})
    judged = row_of_evidence(store, found.cell)
    assert judged
    assert judged.signature == key_of("pass P failed")


def test_evidence_that_was_made_again_and_left_the_same_bytes_counts(store: Store) -> None:
    """A fix is confirmed by compiling again: cells with the same program keep their evidence."""
    run = store.begin_run("x")
    program = store.artifacts.put(b"// a program")
    other = store.artifacts.put(b"// another program")

    def made(seconds: float, left: str) -> None:
        body = structs.replace(lowering("pass P failed"), end=ProcessEnd(exit_code=0, wall=seconds))
        store.put_evidence("lower", "shared", msgspec.json.encode(body), {"steps": left})

    made(1.0, program)
    found = structs.replace(row("pass_failure", OLD), program_sha256=program)
    store.put_result(run, structs.replace(record_of(found), evidence={"lower": "shared"}))
    made(2.0, program)
    assert row_of_evidence(store, found.cell)
    made(3.0, other)
    assert row_of_evidence(store, found.cell) is None
