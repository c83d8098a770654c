"""The tables are made once, whole or not at all, and newer ones are left alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from store_cases import filled, one_line, raw, run_rows

from harness.store import schema as migrations
from harness.store.store import Store
from harness.values.errors import StorageError

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

pytest_plugins = ("store_fixtures",)


def test_newer_database_is_refused_and_left_alone(home: Path) -> None:
    filled(home)
    with raw(home) as db:
        db.execute("INSERT INTO migrations VALUES ('9999-from-the-future', 0)")
    before = (home / "triage.db").read_bytes()
    for _ in range(2):
        with pytest.raises(StorageError, match="written by a newer triage") as error:
            Store.open(home)
        assert "9999-from-the-future" in one_line(error)
        (home / "triage.db.damaged").touch()
    assert (home / "triage.db").read_bytes() == before
    assert not list(home.glob("*.corrupt-*"))


def test_migration_is_applied_once_with_its_record(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = filled(home)
    extra = ("9000-notes", ("CREATE TABLE notes (text TEXT)", "INSERT INTO notes VALUES ('hi')"))
    monkeypatch.setattr(migrations, "_MIGRATIONS", (*migrations._MIGRATIONS, extra))
    for _ in range(2):
        with Store.open(home) as store, raw(home) as db:
            assert db.execute("SELECT text FROM notes").fetchall() == [("hi",)]
            assert len(run_rows(store, run)) == 300
            assert [name for (name,) in db.execute("SELECT name FROM migrations ORDER BY 1")] == [
                *(name for name, _ in migrations._MIGRATIONS)
            ]


def test_migration_that_another_process_has_just_applied(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = filled(home)
    applied = migrations.applied
    answers = [set[str]()]  # what was seen before the other process was done

    def late(db: sqlite3.Connection, path: Path) -> set[str]:
        return answers.pop() if answers else applied(db, path)

    monkeypatch.setattr(migrations, "applied", late)
    with Store.open(home) as store:
        assert not answers
        assert len(run_rows(store, run)) == 300


def test_migration_that_fails_leaves_the_old_state(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = filled(home)
    bad = ("9000-bad", ("CREATE TABLE notes (text TEXT)", "DELETE FROM results", "NONSENSE"))
    with monkeypatch.context() as patched:
        patched.setattr(migrations, "_MIGRATIONS", (*migrations._MIGRATIONS, bad))
        with pytest.raises(StorageError, match="NONSENSE") as error:
            Store.open(home)
        one_line(error)
    with Store.open(home) as store, raw(home) as db:
        assert store.notice is None
        assert len(run_rows(store, run)) == 300
        assert not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'notes'").fetchone()
        assert db.execute("SELECT count(*) FROM migrations").fetchone() == (
            len(migrations._MIGRATIONS),
        )


def test_migration_whose_record_fails_is_taken_back(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record is in the same transaction as the statements: without the one, not the other."""
    run = filled(home)
    unrecorded = (
        "9000-unrecorded",
        (
            "CREATE TABLE notes (text TEXT)",
            "DELETE FROM results",
            """CREATE TRIGGER refuse BEFORE INSERT ON migrations
            BEGIN SELECT RAISE(ABORT, 'no record'); END""",
        ),
    )
    with monkeypatch.context() as patched:
        patched.setattr(migrations, "_MIGRATIONS", (*migrations._MIGRATIONS, unrecorded))
        with pytest.raises(StorageError, match="no record") as error:
            Store.open(home)
        one_line(error)
    with Store.open(home) as store, raw(home) as db:
        assert store.notice is None
        assert len(run_rows(store, run)) == 300
        added = "SELECT count(*) FROM sqlite_master WHERE name IN ('notes', 'refuse')"
        assert db.execute(added).fetchone() == (0,)
        assert db.execute("SELECT count(*) FROM migrations").fetchone() == (
            len(migrations._MIGRATIONS),
        )


def test_a_rescue_brings_an_older_database_up_to_date(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = filled(home)
    (home / "triage.db.damaged").touch()
    extra = ("9000-host", ("ALTER TABLE runs ADD COLUMN note TEXT NOT NULL DEFAULT 'none'",))
    monkeypatch.setattr(migrations, "_MIGRATIONS", (*migrations._MIGRATIONS, extra))
    with Store.open(home) as store, raw(home) as db:
        assert len(run_rows(store, run)) == 300
        assert db.execute("SELECT command, note FROM runs").fetchall() == [
            ("triage compile", "none")
        ]


def test_a_stranger_s_database_is_not_touched(home: Path) -> None:
    home.mkdir()
    with raw(home) as db:
        db.execute("CREATE TABLE runs (mine TEXT)")
    with pytest.raises(StorageError, match="already exists") as error:
        Store.open(home)
    one_line(error)
    with raw(home) as db:
        assert db.execute("SELECT name FROM sqlite_master").fetchall() == [("runs",)]
