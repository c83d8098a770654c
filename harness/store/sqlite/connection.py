"""One SQLite connection: how it is opened, its transactions, and what its errors mean."""

from __future__ import annotations

import errno
import os
import resource
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.store.files.artifacts import disk_failure
from harness.values.errors import StorageError

_BUSY = 30.0
"""Seconds to wait for another process that writes."""

_FILES = 8  # that SQLite may have open at once: database, log, index of the log, temporary ones


class DamagedRowError(sqlite3.DatabaseError):
    """A row is not what was written; SQLite itself did not notice."""


def connect(path: Path) -> sqlite3.Connection:
    """Open the database, creating it if need be, in WAL mode.

    Raises:
        sqlite3.Error: see `is_damage` and `storage_failure`.
    """
    db = sqlite3.connect(path, timeout=_BUSY, isolation_level=None)
    try:
        db.execute("PRAGMA foreign_keys = ON")
        db.execute("PRAGMA cell_size_check = ON")
        # In WAL mode NORMAL flushes at checkpoints only. A killed process loses nothing (the log
        # is in the kernel's hands after each commit); a power cut may lose the last commits, never
        # the database. What is lost so is made again: not worth a flush for each cell.
        db.execute("PRAGMA synchronous = NORMAL")
        _use_wal(db)
    except BaseException:
        db.close()
        raise
    return db


def _use_wal(db: sqlite3.Connection) -> None:
    """Switch to the write-ahead log, once in a database's life.

    The busy timeout does not cover the switch, so two processes that create a database at once
    need a loop of our own.
    """
    if db.execute("PRAGMA journal_mode").fetchone() == ("wal",):
        return
    deadline = time.monotonic() + _BUSY
    while True:
        try:
            # Takes effect only in a database without tables: lets a trim give pages back.
            db.execute("PRAGMA auto_vacuum = INCREMENTAL")
            db.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Take the write lock now; commit at the end, or roll back if that or the body fails."""
    db.execute("BEGIN IMMEDIATE")
    with db:
        yield


def is_damage(error: sqlite3.Error) -> bool:
    """Whether the file itself is broken. Python 3.10 has no error codes: the words are SQLite's."""
    text = str(error).lower()
    return isinstance(error, DamagedRowError) or any(
        words in text
        for words in (
            "file is not a database",
            "image is malformed",
            "malformed database schema",
            "unsupported file format",
            "could not decode to utf-8",
        )
    )


def storage_failure(path: Path, error: sqlite3.Error) -> StorageError:
    """Say in one line what SQLite refused at `path`, and what to do."""
    text = str(error)
    if "is full" in text:
        return StorageError(
            f"no space left for {path}: free some space, or trim the cache with `triage cache`"
        )
    if "unable to open" in text and _has_few_files():
        return disk_failure(path, OSError(errno.EMFILE, os.strerror(errno.EMFILE)))
    if "readonly" in text or "unable to open" in text:
        return StorageError(f"{path} is not writable: change its permissions or use another folder")
    if "disk i/o" in text.lower():
        return StorageError(f"the disk that holds {path} is full or fails: {text}")
    if "is locked" in text:
        return StorageError(
            f"{path} was locked by another process for {_BUSY:.0f} s: try again when it has ended"
        )
    return StorageError(f"cannot use {path}: {text}; move the file away to start a new one")


def _has_few_files() -> bool:
    """Whether this process may open no more files, or fewer than SQLite needs."""
    try:
        used = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - an error is of interest
    except OSError as error:
        return error.errno == errno.EMFILE
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0] - used < _FILES
