"""The tables are made once, whole or not at all, and those of other versions are left alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from store_cases import filled, one_line, raw, run_rows

from harness.store import schema
from harness.store.store import Store
from harness.values.errors import StorageError

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

pytest_plugins = ("store_fixtures",)


@pytest.mark.parametrize(
    ("version", "said"), [(9999, "written by a newer triage"), (0, "an older triage")]
)
def test_another_version_s_database_is_refused_and_left_alone(
    home: Path, version: int, said: str
) -> None:
    filled(home)
    with raw(home) as db:
        db.execute(f"PRAGMA user_version = {version}")
    before = (home / "triage.db").read_bytes()
    for _ in range(2):
        with pytest.raises(StorageError, match=said) as error:
            Store.open(home)
        assert "use another folder" in one_line(error)
        (home / "triage.db.damaged").touch()
    assert (home / "triage.db").read_bytes() == before
    assert not list(home.glob("*.corrupt-*"))


def test_tables_that_another_process_has_just_made(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = filled(home)
    has_tables = schema.has_tables
    answers = [False]  # what was seen before the other process was done

    def late(db: sqlite3.Connection, path: Path) -> bool:
        return answers.pop() if answers else has_tables(db, path)

    monkeypatch.setattr(schema, "has_tables", late)
    with Store.open(home) as store:
        assert not answers
        assert len(run_rows(store, run)) == 300


def test_tables_that_cannot_all_be_made_are_taken_back(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.mkdir()
    with monkeypatch.context() as patched:
        patched.setattr(schema, "_TABLES", (*schema._TABLES, "NONSENSE"))
        with pytest.raises(StorageError, match="NONSENSE") as error:
            Store.open(home)
        one_line(error)
    with raw(home) as db:
        assert not db.execute("SELECT 1 FROM sqlite_master").fetchone()
        assert db.execute("PRAGMA user_version").fetchone() == (0,)
    run = filled(home)
    with Store.open(home) as store:
        assert len(run_rows(store, run)) == 300


def test_a_stranger_s_database_is_not_touched(home: Path) -> None:
    home.mkdir()
    with raw(home) as db:
        db.execute("CREATE TABLE runs (mine TEXT)")
    with pytest.raises(StorageError, match="already exists") as error:
        Store.open(home)
    one_line(error)
    with raw(home) as db:
        assert db.execute("SELECT name FROM sqlite_master").fetchall() == [("runs",)]
