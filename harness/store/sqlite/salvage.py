"""Carrying history over from a damaged database to a new one; evidence is made again.

Killed at any step, the next call takes up the work: the rescued database has its own name until
it is complete, and the caller keeps a marker until the end.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import astuple
from pathlib import Path

from harness.store.sqlite.connection import transaction
from harness.store.sqlite.migrations import applied, migrate
from harness.store.sqlite.records import RESULT_COLUMNS, RUN_COLUMNS, RunRecord, is_intact
from harness.values.errors import StorageError

_FILES = ("", "-wal", "-shm")
"""What SQLite keeps of one database, by suffix. A log left behind would be replayed into whatever
database takes the name next (sqlite.org/howtocorrupt.html, section 1.4)."""

_TABLES = ("runs", "results", "signatures", "bugs", "bug_keys", "shards", "workarounds")

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
        StorageError: a newer program made it.
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
        kept = db.execute("SELECT count(*) FROM results").fetchone()[0]
    rescued.replace(path)
    return (
        f"{path} was damaged: it is now {aside.name}, {kept} results of earlier runs are kept,"
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
    number = 1
    while any(_beside(path, f".corrupt-{number}{suffix}").exists() for suffix in _FILES):
        number += 1
    return _beside(path, f".corrupt-{number}")


def _rescue(damaged: Path, building: Path) -> None:
    """Make a new database at `building` with the history that can be read in `damaged`."""
    with closing(sqlite3.connect(building, isolation_level=None)) as target:
        target.execute("PRAGMA auto_vacuum = INCREMENTAL")
        migrate(target, building)
        if not damaged.exists():
            return
        with closing(sqlite3.connect(damaged, isolation_level=None)) as source:
            # A damaged text is then a wrong checksum instead of the end of the table.
            source.text_factory = lambda text: text.decode(errors="replace")
            with suppress(sqlite3.Error):
                # Lets SQLite read a file that is shorter than its header says.
                source.execute("PRAGMA writable_schema = ON")
                # Refuses what a newer program made, if that much can be read.
                applied(source, damaged)
            with transaction(target):
                for table in _TABLES:
                    _copy_readable(source, target, table)
                target.execute(_INVENT_LOST_RUNS)


def _copy_readable(source: sqlite3.Connection, target: sqlite3.Connection, table: str) -> None:
    # An older database may lack columns that have a default here.
    known = _columns(source, table)
    names = [name for name in _columns(target, table) if not known or name in known]
    columns = ", ".join(names)
    marks = ", ".join("?" for _ in names)
    insert = f"INSERT INTO {table} ({columns}) VALUES ({marks})"  # noqa: S608 - constants
    for row in _readable_rows(source, table, columns):
        values = dict(zip(names, row, strict=True))
        if table != "results" or is_intact([values[name] for name in RESULT_COLUMNS]):
            # A damaged index no longer keeps doubles out.
            with suppress(sqlite3.IntegrityError):
                target.execute(insert, row)


def _columns(db: sqlite3.Connection, table: str) -> list[str]:
    try:
        return [column[1] for column in db.execute(f"PRAGMA table_info({table})")]
    except sqlite3.Error:
        return []


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
