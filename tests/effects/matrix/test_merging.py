"""Histories of several stores, united: in any order, any number of times, and warily."""

from __future__ import annotations

import itertools
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from nights import night, record, row
from store_cases import run_rows

from harness.bugs.list import list_bugs, set_state
from harness.store.merge import Merged, merge_stores, take_over
from harness.store.store import Shard, Store
from harness.values.bug import HumanState
from harness.values.row import Row

A, B = "a" * 12, "b" * 12
ROWS = [
    row("ptxas_ice", A),
    row(warps=8),
    row("trap_stub", B, warps=16, stage="llir"),
    row(target="sm_90a"),
]


def shard(home: Path, number: int, rows: list[Row], *, of: int = 2, finish: bool = True) -> None:
    part = Shard(night="n1", number=number, of=of)
    with Store.open(home, clock=lambda: 1000.0 + number) as store:
        run = store.begin_run("triage matrix run", part)
        store.put_results(run, [record(each) for each in rows])
        if finish:
            store.finish_run(run)


def merge(home: Path, *folders: Path) -> Merged:
    with Store.open(home) as store:
        return merge_stores(store, folders)


def content(home: Path) -> Any:
    """All that a store holds, down to its numbers."""
    with closing(sqlite3.connect(home / "triage.db")) as db:
        tables = ("runs", "results", "shards", "signatures", "bugs", "bug_keys")
        return {
            table: sorted(db.execute(f"SELECT * FROM {table}").fetchall(), key=repr)
            for table in tables
        }


def meaning(home: Path) -> Any:
    """What is known of each cell of each run, however it came in."""
    with Store.open(home) as store:
        return [
            (
                run.uid,
                run.command,
                run.started,
                run.finished,
                [(each.cell, each.row, each.signature_key) for each in run_rows(store, run.id)],
            )
            for run in sorted(store.runs(), key=lambda run: run.uid)
        ]


def test_two_shards_merged_are_one_whole_run(tmp_path: Path) -> None:
    shard(tmp_path / "1", 1, ROWS[:2])
    shard(tmp_path / "2", 2, ROWS[2:])
    report = merge(tmp_path / "all", tmp_path / "1", tmp_path / "2")
    assert (report.runs, report.results, report.unfinished) == (1, 4, ())
    # As if one machine had run both parts, one after the other.
    shard(tmp_path / "one", 1, ROWS[:2])
    shard(tmp_path / "one", 2, ROWS[2:])
    assert meaning(tmp_path / "all") == meaning(tmp_path / "one")
    with Store.open(tmp_path / "all") as store:
        (run,) = store.runs()
        assert (run.started, run.finished) == (1001.0, 1002.0)


def test_a_night_without_one_shard_is_not_finished(tmp_path: Path) -> None:
    shard(tmp_path / "1", 1, ROWS[:2])
    shard(tmp_path / "2", 2, ROWS[2:], finish=False)
    assert merge(tmp_path / "all", tmp_path / "1").unfinished == (1,)
    assert merge(tmp_path / "all", tmp_path / "2").unfinished == (1,)
    shard(tmp_path / "2", 2, ROWS[2:])
    assert merge(tmp_path / "all", tmp_path / "2").unfinished == ()


def test_merging_is_idempotent_and_order_free(tmp_path: Path) -> None:
    homes = [tmp_path / name for name in ("1", "2", "3")]
    shard(homes[0], 1, ROWS[:2])
    shard(homes[1], 2, ROWS[2:])
    night(homes[2], [row("ptxas_error", "c" * 12), row(warps=8)])
    with Store.open(homes[2]) as store:
        list_bugs(store)
        set_state(store, 1, HumanState.WONTFIX, None)
    found = []
    for index, order in enumerate(itertools.permutations(homes)):
        together = tmp_path / f"together{index}"
        merge(together, *order)
        assert merge(together, *order[::-1]) == Merged(
            runs=0,
            results=0,
            bugs=0,
            merged=tuple(str(home / "triage.db") for home in order[::-1]),
            refused=(),
            unfinished=(),
        )
        found.append(content(together))
        one_by_one = tmp_path / f"single{index}"
        for home in order:
            merge(one_by_one, home)
        assert meaning(one_by_one) == meaning(together)
    assert all(each == found[0] for each in found)


def test_of_two_results_of_one_cell_the_later_stays(tmp_path: Path) -> None:
    for name, clock, verdict in (("1", 10.0, "ptxas_ice"), ("2", 20.0, "ok")):
        with Store.open(tmp_path / name, clock=lambda clock=clock: clock) as store:  # type: ignore[misc]
            run = store.begin_run("triage matrix run", Shard(night="n"))
            store.put_result(run, record(row(verdict, A if verdict != "ok" else None)))
    for order in (("1", "2"), ("2", "1")):
        home = tmp_path / "-".join(order)
        for name in order:
            merge(home, tmp_path / name)
        with Store.open(home) as store:
            assert [each.verdict for each in run_rows(store, 1)] == ["ok"]


def test_what_people_said_later_is_taken_and_numbers_here_stay(tmp_path: Path) -> None:
    night(tmp_path / "here", [row("ptxas_ice", A)])
    night(tmp_path / "there", [row("trap_stub", B, warps=8), row("ptxas_ice", A)])
    with Store.open(tmp_path / "here") as store:
        list_bugs(store)
    with Store.open(tmp_path / "there") as store:
        numbers = {bug.record.key: bug.record.number for bug in list_bugs(store)}
        set_state(store, numbers[A], HumanState.REPORTED, "https://example.org/1")
        set_state(store, numbers[B], HumanState.DUPLICATE, str(numbers[A]))
    assert merge(tmp_path / "here", tmp_path / "there").bugs == 2
    with Store.open(tmp_path / "here") as store:
        bugs = {bug.record.key: bug.record for bug in list_bugs(store)}
        assert (bugs[A].number, bugs[A].state, bugs[A].url) == (
            1,
            HumanState.REPORTED,
            "https://example.org/1",
        )
        assert (bugs[B].number, bugs[B].duplicate_of) == (2, 1)
        set_state(store, 1, HumanState.INVALID, None)
    assert merge(tmp_path / "here", tmp_path / "there").bugs == 0
    with Store.open(tmp_path / "here") as store:
        assert list_bugs(store)[0].record.state is HumanState.INVALID


def test_a_killed_run_s_log_is_read_and_nothing_is_written_there(tmp_path: Path) -> None:
    home, copy = tmp_path / "killed", tmp_path / "copy"
    copy.mkdir()
    with Store.open(home) as store:
        run = store.begin_run("triage matrix run")
        store.put_results(run, [record(each) for each in ROWS])
        for name in ("triage.db", "triage.db-wal"):
            (copy / name).write_bytes((home / name).read_bytes())
    before = {path.name: path.read_bytes() for path in copy.iterdir()}
    assert merge(tmp_path / "all", copy).results == 4
    assert {path.name: path.read_bytes() for path in copy.iterdir()} == before


# --- what is refused --------------------------------------------------------------------------


def _spoil(sql: str, *values: object) -> Any:
    def work(path: Path) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("PRAGMA foreign_keys = OFF")
            db.execute(sql, values)
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    return work


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _garble(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[5000:9000] = b"\x5a" * 4000
    path.write_bytes(data)


def _stranger(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE photos (name TEXT)")


REFUSED = {
    "newer": (_spoil("PRAGMA user_version = 9999"), "written by a newer triage"),
    "older": (_spoil("PRAGMA user_version = 0"), "an older triage or another program made it"),
    "truncated": (_truncate, "damaged"),
    "garbled": (_garble, "damaged|what no triage wrote"),
    "no database": (lambda path: path.write_bytes(b"hello" * 1000), "not a database"),
    "stranger": (_stranger, "not a database of triage"),
    "changed row": (_spoil("UPDATE results SET verdict = 'ok'"), "was changed"),
    "infinite time": (_spoil("UPDATE runs SET started = 9e999"), "what no triage wrote"),
    "words for a time": (_spoil("UPDATE runs SET started = 'soon'"), "what no triage wrote"),
    "blob for a uid": (_spoil("UPDATE runs SET uid = zeroblob(9)"), "what no triage wrote"),
    "orphans": (_spoil("DELETE FROM runs"), "a result of no run"),
    "bad shard": (
        _spoil("INSERT INTO shards VALUES (1, 5, 2, 0, 0)"),
        "a shard that is not a part",
    ),
    "false key": (
        _spoil("INSERT INTO signatures VALUES ('x', 'ptx', 'sick', NULL, NULL, 't')"),
        "another's key",
    ),
    "bad state": (
        _spoil("INSERT INTO bugs (key, state, created) VALUES ('k', 'eaten', 0)"),
        "what no triage wrote",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_history_is_refused_and_the_others_are_not(tmp_path: Path, name: str) -> None:
    spoil, said = REFUSED[name]
    night(tmp_path / "bad", ROWS)
    night(tmp_path / "good", ROWS[:1])
    spoil(tmp_path / "bad" / "triage.db")
    report = merge(tmp_path / "all", tmp_path / "bad", tmp_path / "good")
    (line,) = report.refused
    assert "\n" not in line
    assert str(tmp_path / "bad") in line
    assert re.search(said, line), line
    assert (report.runs, report.results) == (1, 1)


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    report = merge(tmp_path / "all", tmp_path / "nowhere")
    assert "there is no triage.db" in report.refused[0]


def test_nothing_to_take_over(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        assert take_over(store, []) == Merged(runs=0, results=0, bugs=0)
