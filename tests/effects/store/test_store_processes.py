"""The store, whatever happens to its processes and its disk."""

from __future__ import annotations

import errno
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from store_cases import BUSY_WRITER, filled, one_line, python, raw, run_rows

from harness.store import schema as connection
from harness.store.store import Store
from harness.values.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

pytest_plugins = ("store_fixtures",)


# --- processes ------------------------------------------------------------------------------------


def test_two_processes_create_and_write_at_once(home: Path) -> None:
    for attempt in range(3):
        place = home / str(attempt)
        writers = [python(BUSY_WRITER, place, name, 200) for name in ("left", "right", "third")]
        runs = [int(writer.communicate(timeout=120)[0]) for writer in writers]
        assert [writer.returncode for writer in writers] == [0, 0, 0]
        assert sorted(runs) == [1, 2, 3]
        with Store.open(place) as store:
            assert store.notice is None
            for name in ("left", "right", "third"):
                assert len(store.get_many("lower", [f"{name}{n}" for n in range(200)])) == 200
            for run in runs:
                assert len(run_rows(store, run)) == 200
            assert all(run.finished for run in store.runs())


def test_kill_9_leaves_a_valid_store(home: Path) -> None:
    for attempt in range(20):
        writer = python(BUSY_WRITER, home, f"writer{attempt}-", 100_000)
        assert writer.stdout is not None
        with writer:
            run = int(writer.stdout.readline())
            time.sleep(0.005 * attempt)
            writer.kill()
        with Store.open(home) as store:
            assert store.notice is None
            last = store.runs()[0]
            assert last.id == run == attempt + 1
            rows = [row.cell for row in run_rows(store, run)]
            assert rows == [f"cell{number:05}" for number in range(len(rows))]
            # Everything before the cell in flight is there, evidence and artifacts too.
            keys = [f"writer{attempt}-{number}" for number in range(len(rows))]
            evidence = store.get_many("lower", keys)
            assert len(evidence) == len(rows)
            for number, key in enumerate(keys):
                content = store.artifacts.get(evidence[key].artifacts["ptx"])
                assert content == f"writer{attempt}- {number}".encode() * 200
    with raw(home) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert db.execute("PRAGMA foreign_key_check").fetchall() == []


def test_locked_for_too_long(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(home)
    monkeypatch.setattr(connection, "_BUSY", 0.1)
    with Store.open(home) as store, raw(home) as db:
        db.execute("BEGIN IMMEDIATE")
        assert store.get_evidence("lower", "key001") is not None
        with pytest.raises(StorageError, match="locked by another process") as error:
            store.put_evidence("lower", "key", b"{}", {})
        one_line(error)
        db.execute("ROLLBACK")
        store.put_evidence("lower", "key", b"{}", {})
        assert store.get_evidence("lower", "key") == (b"{}", {})


# --- the disk -------------------------------------------------------------------------------------


def test_database_that_cannot_grow(home: Path) -> None:
    """SQLite's own limit gives the very error of a full disk, on every machine."""
    with Store.open(home) as store:
        store.put_evidence("lower", "small", b"{}", {})
        assert store.database._db is not None
        pages = store.database._db.execute("PRAGMA page_count").fetchone()[0]
        store.database._db.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StorageError, match="no space left") as error:
            store.put_evidence("lower", "large", bytes(100_000), {})
        one_line(error)
        assert store.get_evidence("lower", "small") == (b"{}", {})
        assert store.get_evidence("lower", "large") is None
        store.database._db.execute("PRAGMA max_page_count = 1000000")
        store.put_evidence("lower", "large", bytes(100_000), {})
        assert store.get_evidence("lower", "large") is not None


def test_full_disk(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    with Store.open(small_disk / "home") as store:
        kept = store.artifacts.put(b"kept")
        store.put_evidence("lower", "kept", b"{}", {"ptx": kept})
        with pytest.raises(OSError, match="No space") as full:
            ballast.write_bytes(bytes(2**21))
        assert full.value.errno == errno.ENOSPC
        with pytest.raises(StorageError, match="no space left") as error:
            store.artifacts.put(os.urandom(100_000))
        one_line(error)
        with pytest.raises(StorageError, match="no space left") as error:
            store.put_evidence("lower", "large", os.urandom(100_000), {})
        one_line(error)
        assert store.get_evidence("lower", "kept") == (b"{}", {"ptx": kept})
        with pytest.raises(StorageError) as error:
            Store.open(small_disk / "another")
        one_line(error)
        ballast.unlink()
        store.put_evidence("lower", "large", bytes(1000), {})
        assert store.get_evidence("lower", "large") == (bytes(1000), {})
        assert store.notice is None


def as_nobody(work: Callable[[], str]) -> str:
    """Run `work` in a forked child without root's power to write everywhere."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            os.write(writer, work().encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        said = answer.read()
    os.waitpid(pid, 0)
    return said


@pytest.mark.parametrize("existing", [True, False])
def test_read_only_folder(*, existing: bool) -> None:
    # Not in tmp_path, whose parents only their owner may enter.
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        if existing:
            filled(home)
        for path in (*home.rglob("*"), home):
            path.chmod(0o555 if path.is_dir() else 0o444)

        def work() -> str:
            try:
                Store.open(home).close()
            except StorageError as error:
                return f"refused: {error}"
            return "opened"

        said = as_nobody(work)
        home.chmod(0o755)
        for path in home.rglob("*"):
            path.chmod(0o755)
        assert said.startswith("refused: ")
        assert "is not writable" in said
        assert "\n" not in said


@pytest.mark.parametrize("name", ["triage.db", "triage.lock", "artifacts"])
def test_something_else_is_in_the_way(home: Path, name: str) -> None:
    home.mkdir()
    if name == "artifacts":
        (home / name).write_text("a file")
    else:
        (home / name).mkdir()
    with pytest.raises(StorageError, match=name) as error:
        Store.open(home)
    one_line(error)


def test_home_is_a_file(home: Path) -> None:
    home.write_text("x")
    with pytest.raises(StorageError) as error:
        Store.open(home)
    one_line(error)
