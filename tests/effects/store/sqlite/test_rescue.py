"""A damaged database is replaced, and nothing false is ever served."""

from __future__ import annotations

import os
import shutil
import sqlite3
from typing import TYPE_CHECKING

import pytest
from store_cases import filled, one_line, python, raw, record, run_rows

from harness.store import database
from harness.store import database as rescue
from harness.store import store as store_module
from harness.store.store import Store
from harness.values.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytest_plugins = ("store_fixtures",)


def garbage(data: bytes) -> bytes:
    return os.urandom(len(data))


def text(data: bytes) -> bytes:
    return b"hello"


def no_header(data: bytes) -> bytes:
    return bytes(100) + data[100:]


def no_schema(data: bytes) -> bytes:
    return data[:100] + os.urandom(3996) + data[4096:]


@pytest.mark.parametrize("damage", [garbage, text, no_header, no_schema])
def test_unreadable_database_is_moved_aside(home: Path, damage: Callable[[bytes], bytes]) -> None:
    filled(home)
    database = home / "triage.db"
    for number in (1, 2):
        damaged = damage(database.read_bytes())
        database.write_bytes(damaged)
        with Store.open(home) as store:
            assert store.notice is not None
            assert f"triage.db.corrupt-{number}" in store.notice
            assert "\n" not in store.notice
            assert store.get_evidence("lower", "key001") is None
            store.put_evidence("lower", "key001", b"again", {})
            run = store.begin_run("again")
            store.put_result(run, record())
            assert len(run_rows(store, run)) == 1
        assert (home / f"triage.db.corrupt-{number}").read_bytes() == damaged
        with Store.open(home) as store:
            assert store.notice is None
            assert store.get_evidence("lower", "key001") == (b"again", {})
    assert not (home / "triage.db.damaged").exists()
    assert not (home / "triage.db.rescued").exists()


def test_empty_database_is_a_new_one(home: Path) -> None:
    home.mkdir()
    (home / "triage.db").touch()
    with Store.open(home) as store:
        assert store.notice is None
        assert store.begin_run("c") == 1


@pytest.mark.parametrize("part", [0.25, 0.5, 0.9])
def test_truncated_database_keeps_the_history_that_is_left(home: Path, part: float) -> None:
    run = filled(home)
    database = home / "triage.db"
    os.truncate(database, int(database.stat().st_size * part) // 4096 * 4096 + 17)
    with Store.open(home) as store:
        assert store.notice is not None
        cells = [row.cell for row in run_rows(store, run)]
        assert f"{len(cells)} results" in store.notice
        assert len(cells) > 300 * part / 4
        assert len(set(cells)) == len(cells)
        (kept,) = store.runs()
        assert (kept.id, kept.command) == (run, "triage compile")
        assert store.begin_run("next") == run + 1


def test_zeroed_page_anywhere(home: Path, tmp_path: Path) -> None:
    """Wherever the hole is: nothing false is served, and what follows works."""
    run = filled(home)
    intact = (home / "triage.db").read_bytes()
    pages = len(intact) // 4096
    assert pages > 80
    with raw(home) as db:
        root = "SELECT rootpage FROM sqlite_master WHERE name = 'results'"
        results_root = db.execute(root).fetchone()[0] - 1
    noticed = 0
    for page in range(pages):
        damaged = tmp_path / f"copy{page}"
        damaged.mkdir()
        shutil.copytree(home / "artifacts", damaged / "artifacts")
        (damaged / "triage.db").write_bytes(
            intact[: page * 4096] + bytes(4096) + intact[(page + 1) * 4096 :]
        )
        with Store.open(damaged) as store:
            for number in range(0, 300, 5):
                found = store.get_evidence("lower", f"key{number:03}")
                assert found is None or found.body == bytes([number % 256]) * 700
            cells = [row.cell for row in run_rows(store, run)]
            assert len(cells) == len(set(cells))
            assert all(row.row == b'{"n": 1}' * 40 for row in run_rows(store, run))
            store.put_evidence("lower", "new", b"{}", {})
            new = store.begin_run("new")
            store.put_result(new, record("cell000"))
            assert [row.run for row in store.find_cells("cell000")] == [new]
            if store.notice:
                noticed += 1
                # A page holds some ten results; the root of their tree and the schema lead to all.
                assert len(cells) > (280 if page not in {0, results_root} else -1)
            else:
                assert len(cells) == 300
        shutil.rmtree(damaged)
    assert noticed > pages * 0.3


def test_damage_while_running_is_survived(home: Path) -> None:
    """The run goes on, under its own number, with what it has recorded so far."""
    filled(home)
    with Store.open(home) as store:
        run = store.begin_run("the one at work")
        store.put_result(run, record("before"))
        db = store.database._db
        assert db is not None
        root = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'results_cell'")
        hole = (root.fetchone()[0] - 1) * 4096
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with (home / "triage.db").open("r+b") as file:
            file.seek(hole)
            file.write(os.urandom(4096))
        # SQLite serves pages from its memory until it has reason to look again.
        db.execute("PRAGMA shrink_memory")
        store.put_result(run, record("after"))
        assert store.notice is not None
        assert [row.cell for row in run_rows(store, run)] == ["after", "before"]
        assert len(run_rows(store, 1)) == 300
        last = store.runs()[0]
        assert (last.id, last.command) == (run, "the one at work")


def test_other_process_lets_go_of_a_damaged_database(home: Path) -> None:
    """Two stores; one finds damage and must wait for the other, which joins at its next call."""
    filled(home)
    script = """
        import sys, time
        from pathlib import Path
        from harness.store.store import Store
        with Store.open(Path(sys.argv[1])) as store:
            run = store.begin_run("the other")
            print(run, flush=True)
            until = time.monotonic() + 20
            while not list(Path(sys.argv[1]).glob("*.corrupt-*")) and time.monotonic() < until:
                store.get_evidence("lower", "key001")
                time.sleep(0.01)
            store.put_evidence("lower", "from the other", b"1", {})
            while not store.get_evidence("lower", "from us") and time.monotonic() < until:
                time.sleep(0.01)
            print(store.get_evidence("lower", "from us"), flush=True)
    """
    other = python(script, home)
    assert other.stdout is not None
    with other, Store.open(home) as store:
        other.stdout.readline()
        store.database._mark()  # as if we had met a malformed page
        store.put_evidence("lower", "from us", b"2", {})
        rest, _ = other.communicate(timeout=60)
        assert other.returncode == 0
        assert "body=b'2'" in rest
        assert store.get_evidence("lower", "from the other") == (b"1", {})
        assert len(list(home.glob("*.corrupt-*"))) == 1
        assert [run.command for run in store.runs()] == ["the other", "triage compile"]


def test_waiting_for_a_process_that_does_not_let_go(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_PATIENCE", 0.2)
    filled(home)
    with Store.open(home), Store.open(home) as store:
        store.database._mark()
        with pytest.raises(StorageError, match="another triage is using") as error:
            store.get_evidence("lower", "key")
        one_line(error)
    with Store.open(home) as store:
        assert store.notice is not None
        assert len(run_rows(store, 1)) == 300


@pytest.mark.parametrize("moment", ["_rescue", "_free_name"])
def test_replacement_killed_in_the_middle_is_taken_up(
    home: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    class Killed(BaseException):
        pass

    def die(*_: object) -> None:
        raise Killed

    run = filled(home)
    (home / "triage.db.damaged").touch()
    monkeypatch.setattr(rescue, moment, die)
    with pytest.raises(Killed):
        Store.open(home)
    monkeypatch.undo()
    assert (home / "triage.db.damaged").exists()
    with Store.open(home) as store:
        assert len(run_rows(store, run)) == 300
    assert {path.name for path in home.iterdir()} == {
        "artifacts",
        "triage.db",
        "triage.db.corrupt-1",
        "triage.lock",
    }


@pytest.mark.parametrize("moved", [False, True])
def test_a_log_left_beside_a_replaced_database_is_not_picked_up(
    home: Path, tmp_path: Path, *, moved: bool
) -> None:
    """Killed before the log was moved aside: its frames fit the new database, and are stale."""
    run = filled(home)
    database_file, log = home / "triage.db", home / "triage.db-wal"
    shutil.copy(database_file, home / "triage.db.rescued")
    with raw(home) as db:
        db.execute("UPDATE results SET verdict = 'stale'")
        shutil.copy(log, tmp_path / "log")
    shutil.copy(home / "triage.db.rescued", database_file)
    if moved:
        database_file.rename(home / "triage.db.corrupt-1")
    stale = (tmp_path / "log").read_bytes()
    log.write_bytes(stale)
    (home / "triage.db.damaged").touch()
    with Store.open(home) as store:
        assert store.notice is not None
        assert [row.verdict for row in run_rows(store, run)] == ["ok"] * 300
        assert not log.exists() or log.read_bytes() != stale
        store.put_evidence("lower", "new", b"{}", {})
    aside = "triage.db.corrupt-2-wal" if moved else "triage.db.corrupt-1-wal"
    assert (home / aside).read_bytes() == stale
    with raw(home) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert db.execute("SELECT DISTINCT verdict FROM results").fetchall() == [("ok",)]


def test_results_that_are_still_in_the_log_are_rescued(home: Path, tmp_path: Path) -> None:
    run = filled(home)
    with Store.open(home) as store:
        store.put_result(run, record("in the log"))
        for name in ("triage.db", "triage.db-wal"):  # as a killed process leaves them
            shutil.copy(home / name, tmp_path / name)
    for name in ("triage.db", "triage.db-wal"):
        shutil.copy(tmp_path / name, home / name)
    (home / "triage.db.damaged").touch()
    with Store.open(home) as store:
        assert store.notice is not None
        assert len(run_rows(store, run)) == 301


def test_a_changed_byte_in_history_is_never_served(home: Path) -> None:
    run = filled(home)
    with raw(home) as db:
        db.execute("UPDATE results SET verdict = 'ok?' WHERE cell = 'cell007'")
    with Store.open(home) as store:
        cells = {row.cell for row in run_rows(store, run)}
        assert store.notice is not None
        assert cells == {f"cell{number:03}" for number in range(300)} - {"cell007"}


def test_result_without_its_run_gets_one(home: Path) -> None:
    run = filled(home)
    with raw(home) as db:
        db.execute("PRAGMA foreign_keys = OFF")
        db.execute("DELETE FROM runs")
    (home / "triage.db.damaged").touch()
    with Store.open(home) as store:
        assert len(run_rows(store, run)) == 300
        (invented,) = store.runs()
        assert (invented.id, invented.command) == (run, "")


def test_a_run_lost_with_the_database_is_recorded_again(home: Path) -> None:
    with Store.open(home) as store, raw(home) as db:
        run = store.begin_run("the one at work")
        db.execute("DELETE FROM runs")
        store.database._mark()
        store.put_result(run, record())
        assert [row.run for row in run_rows(store, run)] == [run]
        last = store.runs()[0]
        assert (last.id, last.command) == (run, "the one at work")


def test_a_replacement_that_could_not_record_our_run_is_not_worked_with(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        error = sqlite3.OperationalError("database is locked")
        error.sqlite_errorcode = sqlite3.SQLITE_BUSY  # as SQLite's own has it
        raise error

    with Store.open(home) as store, raw(home) as db:
        run = store.begin_run("the one at work")
        db.execute("DELETE FROM runs")
        store.database._mark()
        with monkeypatch.context() as patched:
            patched.setattr(store_module, "restore_runs", refuse)
            with pytest.raises(StorageError, match="locked by another process"):
                store.put_result(run, record())
        store.put_result(run, record())
        assert [row.run for row in run_rows(store, run)] == [run]
