"""`triage.db`, open, whatever happens to it: a damaged database is replaced and work goes on.

Beside it lie

- `triage.lock`, held shared by every open store and exclusively while a damaged database is
  replaced. Renaming a database under another process would let that process, when it closes,
  delete the write-ahead log of the new one (sqlite.org/howtocorrupt.html, section 2.4).
- `triage.db.damaged`, the marker that such a replacement is due or under way. It is set by the
  process that finds the damage, under the shared lock that kept others from replacing the
  database meanwhile.
  It tells other processes to let go of theirs at their next call; once it is gone, one of them
  has done the work.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import astuple

from harness.store.artifacts import disk_failure
from harness.store.schema import (
    NAME_CELLS,
    RESULT_COLUMNS,
    RUN_COLUMNS,
    RunRecord,
    connect,
    has_tables,
    is_damage,
    is_intact,
    make_tables,
    storage_failure,
    transaction,
)
from harness.values.errors import StorageError

# Carrying history over from a damaged database to a new one; evidence is made again. Killed at any
# step, the next call takes up the work: the rescued database has its own name until it is complete,
# and the caller keeps a marker until the end.

_FILES = ("", "-wal", "-shm")
"""What SQLite keeps of one database, by suffix. A log left behind would be replayed into whatever
database takes the name next (sqlite.org/howtocorrupt.html, section 1.4)."""

_TABLES = (
    *("runs", "results", "executions", "signatures", "bugs", "bug_keys", "shards"),
    *("workarounds", "records"),
)

_INVENT_LOST_RUNS = """
    INSERT OR IGNORE INTO runs (id, uid, started, finished, command, harness_version)
    SELECT run_id, 'lost-' || lower(hex(randomblob(16))), min(created), NULL, '', ''
    FROM results WHERE run_id NOT IN (SELECT id FROM runs) GROUP BY run_id
"""

_RESTORE_RUN = f"""
    INSERT INTO runs ({", ".join(RUN_COLUMNS)}) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET uid = excluded.uid, started = excluded.started,
        command = excluded.command, harness_version = excluded.harness_version
    WHERE uid LIKE 'lost-%'
"""  # noqa: S608 - constants


def rebuild(path: Path) -> str:
    """Replace the database at `path` while no process has it open; return a line for the user.

    The damaged one, with its log, is `path` with `.corrupt-N` appended.

    Raises:
        StorageError: another version of this program, or another program, made it.
        sqlite3.Error, OSError: the new database cannot be written.
    """
    building, rescued = _beside(path, ".rebuilding"), _beside(path, ".rescued")
    if not rescued.exists():
        for leftover in (building, _beside(building, "-journal")):
            leftover.unlink(missing_ok=True)
        _rescue(path, building)
        building.replace(rescued)
    aside = _free_name(path)
    for suffix in _FILES:
        with suppress(FileNotFoundError):
            _beside(path, suffix).replace(_beside(aside, suffix))
    with closing(sqlite3.connect(rescued)) as db:
        results = db.execute("SELECT count(*) FROM results").fetchone()[0]
    rescued.replace(path)
    return (
        f"{path} was damaged: it is now {aside.name}, {results} results of earlier runs are kept,"
        " and compiled work is done again"
    )


def restore_runs(db: sqlite3.Connection, path: Path, runs: Iterable[RunRecord]) -> None:
    """Record runs again where a replaced database lost them, so that results can follow.

    Raises:
        StorageError: another run has the number of one of them.
        sqlite3.Error: the database cannot be written.
    """
    for run in runs:
        db.execute(_RESTORE_RUN, astuple(run))
        if db.execute("SELECT uid FROM runs WHERE id = ?", (run.id,)).fetchone() != (run.uid,):
            raise StorageError(
                f"run {run.id} was lost with a damaged {path}: run the command again"
            )


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _free_name(path: Path) -> Path:
    names = (_beside(path, f".corrupt-{number}") for number in count(1))
    return next(name for name in names if not any(_beside(name, s).exists() for s in _FILES))


def _rescue(damaged: Path, building: Path) -> None:
    with closing(sqlite3.connect(building, isolation_level=None)) as target:
        target.execute("PRAGMA auto_vacuum = INCREMENTAL")
        make_tables(target, building)
        if not damaged.exists():
            return
        with closing(sqlite3.connect(damaged, isolation_level=None)) as source:
            # A damaged text is then a wrong checksum instead of the end of the table.
            source.text_factory = lambda text: text.decode(errors="replace")
            with suppress(sqlite3.Error):
                # Lets SQLite read a file that is shorter than its header says.
                source.execute("PRAGMA writable_schema = ON")
                # Refuses what another program made, if that much can be read.
                has_tables(source, damaged)
            with transaction(target):
                for table in _TABLES:
                    names = [column[1] for column in target.execute(f"PRAGMA table_info({table})")]
                    columns = ", ".join(names)
                    marks = ", ".join("?" for _ in names)
                    insert = f"INSERT INTO {table} ({columns}) VALUES ({marks})"  # noqa: S608 - constants
                    for row in _readable_rows(source, table, columns):
                        values = dict(zip(names, row, strict=True))
                        if table != "results" or is_intact(
                            [values[name] for name in RESULT_COLUMNS]
                        ):
                            # A damaged index no longer keeps doubles out.
                            with suppress(sqlite3.IntegrityError):
                                target.execute(insert, row)
                target.execute(NAME_CELLS)
                target.execute(_INVENT_LOST_RUNS)


def _readable_rows(
    source: sqlite3.Connection, table: str, columns: str
) -> Iterator[tuple[object, ...]]:
    """Yield rows up to the first damaged page, then from the end back to the last one."""
    last = -1
    select = f"SELECT rowid, {columns} FROM {table}"  # noqa: S608 - constants
    try:
        for row in source.execute(f"{select} ORDER BY rowid"):
            # A damaged tree may lead round in circles.
            if row[0] <= last:
                break
            last = row[0]
            yield row[1:]
        else:
            return
    except sqlite3.Error:
        pass
    before = None
    with suppress(sqlite3.Error):
        for row in source.execute(f"{select} WHERE rowid > ? ORDER BY rowid DESC", (last,)):
            if before is not None and row[0] >= before:
                return
            before = row[0]
            yield row[1:]


T = TypeVar("T")

_PATIENCE = 30.0
"""Seconds to wait for another process that replaces a damaged database, or still has it open."""


class Database:
    """The database at `path`. For one thread; other processes may have it open too.

    `notice` is one line for the user once a damaged database was replaced.
    """

    def __init__(self, path: Path, *, on_open: Callable[[sqlite3.Connection], object]) -> None:
        """Open it, creating or replacing it as needed; its folder must exist.

        Args:
            path: of the database file.
            on_open: called with each new connection: now, and after each replacement.

        Raises:
            StorageError: the folder cannot be written, the disk is full, or the database was
                made by another version of this program.
        """
        self.path = path
        self.notice: str | None = None
        self._on_open = on_open
        self._marker = path.with_name(f"{path.name}.damaged")
        self._db: sqlite3.Connection | None = None
        self._lock = _UseLock(path.with_suffix(".lock"))
        try:
            self._connection()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the database and the lock; closing twice does no harm."""
        self._disconnect()
        self._lock.close()

    def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work`, which must be safe to repeat; replace the database if it proves damaged.

        Raises:
            StorageError: in place of every `sqlite3.Error`.
        """
        try:
            return work(self._connection())
        except sqlite3.Error as error:
            if not is_damage(error):
                raise storage_failure(self.path, error) from error
        self._mark()
        try:
            return work(self._connection())
        except sqlite3.Error as error:
            raise storage_failure(self.path, error) from error

    def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """As `run`, in one transaction."""

        def whole(db: sqlite3.Connection) -> T:
            with transaction(db):
                return work(db)

        return self.run(whole)

    def select(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """The rows of one statement; errors as `run`."""
        return self.run(lambda db: db.execute(sql, values).fetchall())

    def _connection(self) -> sqlite3.Connection:
        if self._db is not None and not self._marker.exists():
            return self._db
        for _ in range(3):
            if self._marker.exists():
                self._replace()
            self._lock.take(exclusive=False)
            try:
                if self.path.exists() and not self.path.is_file():
                    raise StorageError(
                        f"{self.path} is not a file: move it away, or use another folder"
                    )
                db = connect(self.path)
                try:
                    make_tables(db, self.path)
                    self._on_open(db)
                except BaseException:
                    db.close()
                    raise
                self._db = db
            except sqlite3.Error as error:
                if not is_damage(error):
                    raise storage_failure(self.path, error) from error
                self._mark()
            if self._db is not None and not self._marker.exists():
                return self._db
        raise StorageError(f"{self.path} is damaged again and again: check the disk that holds it")

    def _disconnect(self) -> None:
        if self._db is not None:
            with suppress(sqlite3.Error):
                self._db.close()
            self._db = None

    def _mark(self) -> None:
        try:
            self._marker.touch()
        except OSError as error:
            raise disk_failure(self._marker, error) from error

    def _replace(self) -> None:
        """Move the database that the marker calls damaged aside, and put what is rescued there."""
        self._disconnect()
        try:
            # Looked at again under the lock: the last wait may have been for the one who did it.
            if self._lock.take(exclusive=True, while_=self._marker.exists) and (
                self._marker.exists()
            ):
                self.notice = rebuild(self.path)
                self._marker.unlink(missing_ok=True)
        except sqlite3.Error as error:
            raise storage_failure(self.path, error) from error
        except OSError as error:
            raise disk_failure(self.path, error) from error
        finally:
            self._lock.take(exclusive=False)


class _UseLock:
    """Shared while a store is open, exclusive while its database is replaced.

    flock and not `filelock`, whose `FileLock` has no shared mode and takes 50 ms to import. The
    kernel lets go of it when the process dies, however it dies.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
        try:
            self._file = os.fdopen(os.open(path, flags, 0o666), "ab")
        except OSError as error:
            raise disk_failure(path, error) from error
        if not stat.S_ISREG(os.fstat(self._file.fileno()).st_mode):
            self._file.close()
            raise StorageError(f"{path} is not a file: move it away, or use another folder")

    def take(self, *, exclusive: bool, while_: Callable[[], bool] = lambda: True) -> bool:
        """Change to this mode, waiting for other processes for as long as `_PATIENCE`.

        Returns:
            False if `while_` no longer held and the wait was given up; no lock is held then.

        Raises:
            StorageError: they did not let go in time.
        """
        mode = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                fcntl.flock(self._file, mode | fcntl.LOCK_NB)
            except BlockingIOError:
                if not while_():
                    return False
                if time.monotonic() > deadline:
                    raise StorageError(
                        f"{self._path.parent} holds a damaged database that another triage is"
                        " using: try again when it has ended"
                    ) from None
                time.sleep(0.02)
            except OSError as error:
                raise disk_failure(self._path, error) from error
            else:
                return True

    def close(self) -> None:
        self._file.close()
