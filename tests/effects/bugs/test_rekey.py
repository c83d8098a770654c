"""All history judged again: bugs keep their numbers, and what cannot be judged stays."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import structs
from nights import record as record_of
from nights import row
from store_cases import drop_evidence

from harness.bugs.list import list_bugs, set_state
from harness.bugs.rekey import rekey, row_of_evidence
from harness.judging.judge import CellEvidence, judge
from harness.judging.signature import RULE
from harness.store.store import Store
from harness.values.bug import HumanState
from harness.values.outcome import Lowering, ProcessEnd, RaisedError
from harness.values.target import Target
from harness.values.verdict import Signature

pytest_plugins = ("store_fixtures",)

OLD, OLDER = "0" * 12, "1" * 12


def lowering(message: str) -> Lowering:
    error = RaisedError(type="RuntimeError", kinds=("RuntimeError",), message=message)
    return Lowering(end=ProcessEnd(exit_code=0), stage="ttgir", error=error)


def key_of(message: str) -> str:
    target = Target.parse("sm_100a")
    signature = judge(CellEvidence(target=target, lowering=lowering(message))).signature
    assert signature
    return signature.key


def keep(store: Store, run: int, message: str, key: str, **words: Any) -> None:
    """A result that an older rule has given this key, with the evidence that it was judged from."""
    changes = {name: words.pop(name) for name in ("cubin_sha256", "flaky") if name in words}
    found = row("pass_failure", key, **words)
    if store.get_evidence("lower", message) is None:
        store.put_evidence("lower", message, msgspec.json.encode(lowering(message)), {})
    record = record_of(structs.replace(found, **changes))
    store.put_result(run, structs.replace(record, evidence={"lower": message}))


def keys(store: Store) -> list[str | None]:
    return [record.signature_key for _, record in store.every_result()]


def test_a_bug_keeps_number_and_words_when_its_key_changes(store: Store) -> None:
    run = store.begin_run("x")
    keep(store, run, "pass P failed", OLD)
    list_bugs(store)
    set_state(store, 1, HumanState.REPORTED, "https://example.org/1")
    done = rekey(store)
    assert (done.rule, done.results, done.judged, done.changed) == (RULE, 1, 1, 1)
    assert (done.bugs, done.merged) == (1, 0)
    new = key_of("pass P failed")
    assert keys(store) == [new]
    (bug,) = list_bugs(store)
    assert (bug.record.number, bug.record.key, bug.record.other_keys) == (1, new, (OLD,))
    assert (bug.record.state, bug.record.url) == (HumanState.REPORTED, "https://example.org/1")
    assert "pass P failed" in bug.title
    again = rekey(store)
    assert (again.judged, again.changed, again.bugs) == (1, 0, 0)


def test_a_run_is_known_by_its_older_signature(store: Store) -> None:
    """What it did is not kept, but what was said of it: rule 3 said in which file, too."""

    def signature(rule: int, words: str) -> Signature:
        parts: dict[str, Any] = {"stage": "run", "kind": "hang", "failing_pass": None, "code": None}
        return Signature(rule=rule, template=words, **parts)

    new = signature(4, "warp N waits; bar.sync")
    old = signature(3, f"{new.template} (two.py:L)")
    run = store.begin_run("x")
    # What was compiled of it says nothing of the run.
    body = msgspec.json.encode(lowering("pass P failed"))
    store.put_evidence("lower", "compiled", body, {})
    for kernel, words, tool in (
        ("one", old, "emulator"),
        ("two", old, "sass:ptxas-13.0.88"),
        ("three", new, "emulator"),
    ):
        found = row("hang", words.key, kernel=kernel, ptxas="emulator", stage="run")
        found = structs.replace(found, cell=f"{found.cell.rpartition('/')[0]}/{tool}")
        record = structs.replace(record_of(found), signature=words, evidence={"lower": "compiled"})
        store.put_result(run, record)
    before = {bug.example.kernel: bug.record.number for bug in list_bugs(store)}
    assert len(before) == 3
    done = rekey(store)
    assert (done.judged, done.changed, done.bugs, done.merged) == (3, 2, 2, 0)
    assert set(keys(store)) == {new.key}
    bugs = list_bugs(store)
    assert {bug.example.kernel: bug.record.number for bug in bugs} == before
    assert {bug.title for bug in bugs} == {new.template}
    assert rekey(store).changed == 0


def test_bugs_that_come_to_one_key_become_duplicates(store: Store) -> None:
    run = store.begin_run("x")
    keep(store, run, "pass P failed", OLD)
    keep(store, run, "pass P failed", OLDER, warps=8)
    numbers = {bug.record.key: bug.record.number for bug in list_bugs(store)}
    assert set(numbers.values()) == {1, 2}
    set_state(store, 2, HumanState.WONTFIX, None, note="by design")
    assert rekey(store).merged == 1
    (bug,) = list_bugs(store)
    assert (bug.record.number, bug.record.state, bug.cells) == (2, HumanState.WONTFIX, 2)
    other = next(record for record in store.bugs() if record.number == 1)
    assert (other.state, other.duplicate_of) == (HumanState.DUPLICATE, 2)
    assert set(bug.record.other_keys) == {OLD, OLDER}


def test_a_bug_that_splits_goes_with_most_of_its_results(store: Store) -> None:
    run = store.begin_run("x")
    for warps in (1, 2, 4):
        keep(store, run, "pass P failed", OLD, warps=warps)
    keep(store, run, "unlike all else", OLD, warps=8)
    list_bugs(store)
    rekey(store)
    bugs = {bug.record.key: bug for bug in list_bugs(store)}
    assert bugs[key_of("pass P failed")].record.number == 1
    assert bugs[key_of("unlike all else")].record.number == 2


def test_what_cannot_be_judged_again_stays(store: Store) -> None:
    run = store.begin_run("x")
    keep(store, run, "trimmed", OLD)
    drop_evidence(store.home, "trimmed")
    keep(store, run, "made again", OLDER, warps=8)
    again = msgspec.json.encode(lowering("something else"))
    store.put_evidence("lower", "made again", again, {})  # later than the result
    keep(store, run, "own runs disagree", OLDER, warps=16, flaky=True)
    before = [(number, record) for number, record in store.every_result()]
    done = rekey(store)
    assert (done.results, done.judged, done.kept, done.changed) == (3, 0, 3, 0)
    assert list(store.every_result()) == before
    assert sorted(bug.record.key for bug in list_bugs(store)) == [OLD, OLDER]


def test_trimmed_results_stay_with_their_bug(store: Store) -> None:
    run = store.begin_run("x")
    keep(store, run, "pass P failed", OLD)
    keep(store, run, "trimmed", OLD, warps=8)
    drop_evidence(store.home, "trimmed")
    rekey(store)
    assert set(keys(store)) == {OLD, key_of("pass P failed")}
    (bug,) = list_bugs(store)
    assert (bug.record.number, bug.cells) == (1, 2)


def test_an_interrupted_rekey_changes_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = store.begin_run("x")
    keep(store, run, "pass P failed", OLD)
    keep(store, run, "unlike all else", OLDER, warps=8)
    from harness.store import results as rekeying

    def interrupted(*_: object) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(rekeying, "move_keys", interrupted)
    with pytest.raises(KeyboardInterrupt):
        rekey(store)
    assert set(keys(store)) == {OLD, OLDER}


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
    """A front end that reads its program anew for each cell must not cost older results theirs."""
    run = store.begin_run("x")
    keep(store, run, "pass P failed", OLD)
    store.put_evidence("lower", "pass P failed", msgspec.json.encode(lowering("pass P failed")), {})
    assert rekey(store).judged == 1


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
    assert rekey(store).judged == 1
    made(3.0, other)
    assert rekey(store).judged == 0
