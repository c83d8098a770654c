"""Records are what cannot be made again: no trim takes them, and a merge brings them."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from store_cases import filled

from harness.store.merge import open_foreign, take_over
from harness.store.schema import EVIDENCE_KINDS, RECORD_KINDS
from harness.store.store import Store
from harness.store.trim import store_stats, trim_store
from harness.values.execution import RunRow
from harness.values.verdict import VerdictKind

pytest_plugins = ("store_fixtures",)

Facts = dict[str, int]


def test_every_kind_is_evidence_or_a_record(store: Store) -> None:
    assert sorted(EVIDENCE_KINDS) == [
        *("assemble", "capture", "check", "inputs", "inspect", "listing", "live", "lower"),
        *("operations", "ptx", "reference", "run", "times"),
    ]
    assert sorted(RECORD_KINDS) == [
        *("batch", "hunt", "learned", "matrix", "minimized", "packed_workarounds", "rank")
    ]
    for kind in (*RECORD_KINDS, "new"):
        with pytest.raises(ValueError, match="a trim would delete it"):
            store.put_evidence(kind, "key", b"{}", {})
    for kind in (*EVIDENCE_KINDS, "new"):
        with pytest.raises(ValueError, match="no kind of record"):
            store.keep_record(kind, "key", {})


@pytest.mark.parametrize("kind", sorted(RECORD_KINDS))
def test_a_trim_leaves_records_and_their_artifacts(store: Store, kind: str) -> None:
    shared, alone = store.artifacts.put(b"shared"), store.artifacts.put(b"alone")
    store.put_evidence("lower", "key", b"{}", {"ptx": shared})
    store.keep_record(kind, "key", {"seconds": 28_800}, artifacts=[shared, alone])
    report = trim_store(store, max_bytes=0)
    assert (report.evidence, report.artifacts) == (1, 0)
    assert store.records(kind, Facts) == {"key": {"seconds": 28_800}}
    assert store.artifacts.get(alone) == b"alone"
    stats = store_stats(store)
    assert (stats.evidence, stats.records[kind].rows, stats.orphans) == ({}, 1, 0)


def test_what_records_need_does_not_push_evidence_out(store: Store) -> None:
    store.keep_record("batch", "pack", {}, artifacts=[store.artifacts.put(b"x" * 10_000)])
    store.put_evidence("lower", "key", b"{}", {})
    assert trim_store(store, max_bytes=100).evidence == 0


def test_the_newest_of_two_records_is_merged(tmp_path: Path) -> None:
    def home(name: str, now: float, **values: int) -> Path:
        folder = tmp_path / name
        with Store.open(folder, clock=lambda: now) as store:
            for key, value in values.items():
                sha256 = store.artifacts.put(key.encode())
                store.keep_record("hunt", key, {"n": value}, artifacts=[sha256])
        return folder

    ours = home("ours", 2.0, older=1, newer=1)
    others = [home("one", 3.0, older=2, new=2), home("two", 1.0, newer=3)]
    with Store.open(ours) as store:
        taken = []
        for other in [*others, *others]:
            with open_foreign(other) as source:
                taken.append(take_over(store, [source]).records)
        assert taken == [2, 0, 0, 0]
        trim_store(store, max_bytes=0)
        kept = {key: value["n"] for key, value in store.records("hunt", Facts).items()}
    assert kept == {"older": 2, "newer": 1, "new": 2}


def test_executions_are_merged_once(tmp_path: Path) -> None:
    row = RunRow(
        cell="k/default/c@sm_90a/triton-3.6.0/ptxas-1",
        short="01234567",
        kernel="k",
        launch="default",
        config={},
        target="sm_90a",
        triton="3.6.0",
        on="gpu",
        run=VerdictKind.RIGHT,
        run_reason="",
    )
    with Store.open(tmp_path / "other") as other:
        other.put_execution(other.begin_run("triage run"), row, None)
    with Store.open(tmp_path / "home") as store:
        for _ in range(2):
            with open_foreign(tmp_path / "other") as source:
                take_over(store, [source])
        assert store.executions(row.cell) == [row]


def test_a_damaged_record_is_left_out_and_one_of_another_form_too(home: Path) -> None:
    with Store.open(home) as store:
        for key in ("whole", "changed", "other"):
            store.keep_record("learned", key, {"n": 1})
        store.keep_record("learned", "other", ["n"])
        with sqlite3.connect(home / "triage.db") as db:
            db.execute("UPDATE records SET body = CAST('{\"n\": 2}' AS BLOB) WHERE key = 'changed'")
        assert store.records("learned", Facts) == {"whole": {"n": 1}}


def test_a_replaced_database_keeps_records_and_executions(home: Path) -> None:
    filled(home)
    with Store.open(home) as store:
        store.keep_record("hunt", "key", {"n": 1})
    (home / "triage.db.damaged").touch()
    with Store.open(home) as store:
        assert store.notice
        assert store.records("hunt", Facts) == {"key": {"n": 1}}


def test_what_is_read_and_written_at_once_loses_nothing(home: Path) -> None:
    with Store.open(home) as one, Store.open(home) as two:
        for store in (one, two, one):
            store.change_record("learned", "key", int, lambda kept: (kept or 0) + 1)
        one.change_record("learned", "key", int, lambda _: None)
        assert two.records("learned", int) == {"key": 3}
