"""`triage.db`: its connections, its tables, and what their rows hold."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import sqlite3
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec

from harness import __version__
from harness.store.artifacts import disk_failure
from harness.values.errors import StorageError
from harness.values.verdict import Signature

if TYPE_CHECKING:
    import sqlite3


_BUSY = 30.0
"""Seconds to wait for another process that writes."""

_LEAST_SPACE = 1 << 20
"""Bytes: a disk with fewer is full for SQLite."""

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
        # With less, a night's rows push each other's pages of the indices out.
        db.execute("PRAGMA cache_size = -65536")
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
            is_locked = _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
            if not is_locked or time.monotonic() > deadline:
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
    """Whether the file itself is broken."""
    # These two come without a code of their own.
    words = ("unsupported file format", "could not decode to utf-8")
    return (
        isinstance(error, DamagedRowError)
        or _code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
        or any(text in str(error).lower() for text in words)
    )


def _code(error: sqlite3.Error) -> int:
    """SQLite's code without what extends it; 0 where the error is of Python's module."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def storage_failure(path: Path, error: sqlite3.Error) -> StorageError:
    """Say in one line what SQLite refused at `path`, and what to do."""
    code = _code(error)
    # A full disk has no room for the index of the log either: that is an error of input and output.
    is_full = code == sqlite3.SQLITE_IOERR and shutil.disk_usage(path.parent).free < _LEAST_SPACE
    number = 0
    if code == sqlite3.SQLITE_FULL or is_full:
        number = errno.ENOSPC
    elif code == sqlite3.SQLITE_CANTOPEN and _has_few_files():
        number = errno.EMFILE
    elif code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
        number = errno.EROFS
    if number:
        return disk_failure(path, OSError(number, os.strerror(number)))
    if code == sqlite3.SQLITE_IOERR:
        return StorageError(f"the disk that holds {path} fails: {error}")
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StorageError(
            f"{path} was locked by another process for {_BUSY:.0f} s: try again when it has ended"
        )
    return StorageError(f"cannot use {path}: {error}; move the file away to start a new one")


def _has_few_files() -> bool:
    """Whether this process may open no more files, or fewer than SQLite needs."""
    try:
        used = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - an error is of interest
    except OSError as error:
        return error.errno == errno.EMFILE
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0] - used < _FILES


NAME_CELLS = "INSERT OR IGNORE INTO cells SELECT cell, short, kernel FROM results"
"""What has to follow wherever results of new cells are kept."""

_VERSION = 1
"""Goes up with each change of the tables: a database of another version is refused."""

_TABLES: tuple[str, ...] = (
    """CREATE TABLE evidence (
        kind TEXT NOT NULL,
        key TEXT NOT NULL,
        body BLOB NOT NULL,
        created REAL NOT NULL,
        used REAL NOT NULL,
        checksum INTEGER NOT NULL,
        PRIMARY KEY (kind, key)
    )""",
    """CREATE TABLE evidence_artifacts (
        kind TEXT NOT NULL,
        key TEXT NOT NULL,
        role TEXT NOT NULL,
        sha256 TEXT NOT NULL,
        PRIMARY KEY (kind, key, role),
        FOREIGN KEY (kind, key) REFERENCES evidence (kind, key) ON DELETE CASCADE
    ) WITHOUT ROWID""",
    "CREATE INDEX evidence_artifacts_sha256 ON evidence_artifacts (sha256)",
    """CREATE TABLE runs (
        id INTEGER PRIMARY KEY,
        uid TEXT NOT NULL UNIQUE,
        started REAL NOT NULL,
        finished REAL,
        command TEXT NOT NULL,
        harness_version TEXT NOT NULL
    )""",
    """CREATE TABLE results (
        id INTEGER PRIMARY KEY,
        run_id INTEGER NOT NULL REFERENCES runs (id),
        cell TEXT NOT NULL,
        short TEXT NOT NULL,
        kernel TEXT NOT NULL,
        launch TEXT NOT NULL,
        config TEXT NOT NULL,
        target TEXT NOT NULL,
        triton TEXT NOT NULL,
        ptxas TEXT NOT NULL,
        verdict TEXT NOT NULL,
        signature_key TEXT,
        row BLOB NOT NULL,
        evidence TEXT NOT NULL,
        created REAL NOT NULL,
        checksum INTEGER NOT NULL,
        UNIQUE (run_id, cell)
    )""",
    "CREATE INDEX results_cell ON results (cell, created)",
    """CREATE TABLE signatures (
        key TEXT PRIMARY KEY,
        stage TEXT NOT NULL,
        kind TEXT NOT NULL,
        failing_pass TEXT,
        code TEXT,
        template TEXT NOT NULL
    )""",
    """CREATE TABLE bugs (
        number INTEGER PRIMARY KEY,
        key TEXT NOT NULL,
        state TEXT NOT NULL DEFAULT 'untriaged',
        url TEXT,
        duplicate_of INTEGER REFERENCES bugs (number),
        note TEXT NOT NULL DEFAULT '',
        created REAL NOT NULL,
        changed REAL
    )""",
    """CREATE TABLE bug_keys (
        key TEXT PRIMARY KEY,
        number INTEGER NOT NULL REFERENCES bugs (number)
    )""",
    """CREATE TABLE shards (
        run_id INTEGER NOT NULL REFERENCES runs (id),
        number INTEGER NOT NULL,
        of INTEGER NOT NULL,
        started REAL NOT NULL,
        finished REAL,
        PRIMARY KEY (run_id, number, of)
    )""",
    """CREATE INDEX results_signature ON results (signature_key, verdict, created)
    WHERE signature_key IS NOT NULL""",
    """CREATE TABLE workarounds (
        cell TEXT PRIMARY KEY,
        created REAL NOT NULL,
        body BLOB NOT NULL,
        checksum INTEGER NOT NULL
    )""",
    """CREATE TABLE executions (
        id INTEGER PRIMARY KEY,
        run_id INTEGER NOT NULL REFERENCES runs (id),
        cell TEXT NOT NULL,
        verdict TEXT NOT NULL,
        signature_key TEXT,
        created REAL NOT NULL,
        body BLOB NOT NULL,
        checksum INTEGER NOT NULL
    )""",
    "CREATE INDEX executions_cell ON executions (cell, created)",
    """CREATE TABLE cells (
        cell TEXT PRIMARY KEY,
        short TEXT NOT NULL,
        kernel TEXT NOT NULL
    ) WITHOUT ROWID""",
    "CREATE INDEX cells_short ON cells (short)",
    "CREATE INDEX cells_kernel ON cells (kernel)",
    """CREATE TABLE records (
        kind TEXT NOT NULL,
        key TEXT NOT NULL,
        body BLOB NOT NULL,
        created REAL NOT NULL,
        checksum INTEGER NOT NULL,
        artifacts TEXT NOT NULL,
        PRIMARY KEY (kind, key)
    )""",
)
"""`checksum` columns guard what SQLite cannot: a changed byte inside a row, which it would serve as
if nothing had happened (it checks the structure of pages only)."""


def make_tables(db: sqlite3.Connection, path: Path) -> None:
    """Make all tables of the database at `path` that has none yet, or nothing.

    Raises:
        StorageError: another version of this program, or another program, made it.
        sqlite3.Error: anything else.
    """
    if has_tables(db, path):
        return
    with transaction(db):
        # Another process may have been faster.
        if has_tables(db, path):
            return
        for statement in _TABLES:
            # SQLite keeps the text: without the indentation all tables fit on one page, and no
            # other page can take them along when it is damaged.
            db.execute(" ".join(statement.split()))
        db.execute(f"PRAGMA user_version = {_VERSION}")


def has_tables(db: sqlite3.Connection, path: Path) -> bool:
    """Whether the database at `path` has the tables of this version; else it has none at all.

    Raises:
        StorageError: another version of this program, or another program, made it.
        sqlite3.Error: it cannot be read.
    """
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version > _VERSION:
        raise StorageError(
            f"{path} was written by a newer triage than {__version__} (tables of version {version},"
            f" and not {_VERSION}): upgrade kernel-triage or use another folder"
        )
    if version < _VERSION and db.execute("SELECT 1 FROM sqlite_master").fetchone():
        raise StorageError(
            f"{path} already exists, and its tables are not those of triage {__version__}: an older"
            " triage or another program made it; move it away or use another folder"
        )
    return bool(version == _VERSION)


# Evidence and records as rows of the database, and how a changed one is found out.

EVIDENCE_KINDS = frozenset(
    (
        "assemble",
        "capture",
        "check",
        "inputs",
        "inspect",
        "listing",
        "live",
        "lower",
        "operations",
        "ptx",
        "reference",
        "run",
        "times",
    )
)
"""What a step gave that can be taken again: all of it may be trimmed."""

RECORD_KINDS = frozenset(
    ("batch", "hunt", "learned", "matrix", "minimized", "packed_workarounds", "rank")
)
"""What was found by luck, by time or on hardware, and what is under way: none of it is trimmed."""

SELECT_RECORDS = """
    SELECT key, body, created, created, checksum, artifacts FROM records
    WHERE kind = ?1 AND (?2 IS NULL OR key IN (SELECT value FROM json_each(?2)))
    ORDER BY created, key
"""
"""The rows of `read_row`, for a kind and a JSON list of keys, or all; the oldest first."""

SELECT_EVIDENCE = """
    SELECT key, body, created, used, checksum, (
        SELECT json_group_object(role, sha256) FROM evidence_artifacts AS a
        WHERE a.kind = e.kind AND a.key = e.key
    )
    FROM evidence AS e WHERE kind = ? AND key IN (SELECT value FROM json_each(?))
"""
"""The rows of `read_row`, for a kind and a JSON list of keys."""


class Evidence(NamedTuple):
    """What one step gave: JSON, and the sha256 of the artifacts it needs, by role."""

    body: bytes
    artifacts: dict[str, str]


class EvidenceRow(NamedTuple):
    """Evidence with its key, and when it was made and last used (seconds since the epoch)."""

    key: str
    evidence: Evidence
    created: float
    used: float


def read_row(row: tuple[object, ...]) -> EvidenceRow | None:
    """A row of `SELECT_EVIDENCE`; None where it is not what was written.

    SQLite lets any type stand in any column, so that the types are looked at, too.
    """
    key, body, created, used, checksum, names = row
    try:
        artifacts = dict(json.loads(str(names)))
    except ValueError:
        return None
    if not isinstance(body, bytes) or checksum != _checksum(body, artifacts):
        return None
    if not isinstance(created, float | int) or not isinstance(used, float | int):
        return None
    return EvidenceRow(str(key), Evidence(body, artifacts), float(created), float(used))


def put_row(
    db: sqlite3.Connection, kind: str, key: str, evidence: Evidence, *, created: float, used: float
) -> None:
    """Put evidence in the place of what was there; inside a transaction."""
    body, artifacts = evidence
    db.execute("DELETE FROM evidence WHERE kind = ? AND key = ?", (kind, key))
    row = (kind, key, body, created, used, _checksum(body, artifacts))
    db.execute("INSERT INTO evidence VALUES (?, ?, ?, ?, ?, ?)", row)
    db.executemany(
        "INSERT INTO evidence_artifacts VALUES (?, ?, ?, ?)",
        [(kind, key, role, sha256) for role, sha256 in artifacts.items()],
    )


def put_record(
    db: sqlite3.Connection, kind: str, key: str, record: Evidence, *, created: float
) -> None:
    """Put a record in the place of what was there."""
    body, artifacts = record
    row = (kind, key, body, created, _checksum(body, artifacts), json.dumps(artifacts))
    db.execute("INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?, ?, ?)", row)


def artifacts_of_records(db: sqlite3.Connection) -> set[str]:
    """The sha256 of all artifacts that records need: they stay as long as these."""
    names: set[str] = set()
    for (artifacts,) in db.execute("SELECT artifacts FROM records WHERE artifacts <> '{}'"):
        with suppress(ValueError, AttributeError):  # changed by the disk
            names.update(json.loads(artifacts).values())
    return names


def when_made(db: sqlite3.Connection, kind: str, key: str, evidence: Evidence) -> float | None:
    """When this very evidence was made; None where none is kept under the key, or another."""
    body, artifacts = evidence
    row = db.execute(
        "SELECT created FROM evidence WHERE kind = ? AND key = ? AND body = ? AND checksum = ?",
        (kind, key, body, _checksum(body, artifacts)),
    ).fetchone()
    return float(row[0]) if row else None


def _checksum(body: bytes, artifacts: Mapping[str, str]) -> int:
    return zlib.crc32(ascii(sorted(artifacts.items())).encode(), zlib.crc32(body))


Config: TypeAlias = Mapping[str, str | int | float | bool | None]


class ResultRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One cell of one run, as it is kept for history.

    `row` is the JSON object that `--json` prints; the other fields are what history is searched
    by. `evidence` maps a kind to the key of the evidence that the row was judged from.
    `created` is in seconds since the epoch; it and `run` are set by the store. `signature` has the
    parts of the key; the store keeps them once for all results, and does not return them here.
    """

    cell: str
    short: str
    kernel: str
    launch: str
    config: Config
    target: str
    triton: str
    ptxas: str
    verdict: str
    signature_key: str | None = None
    row: bytes
    evidence: Mapping[str, str]
    created: float | None = None
    run: int | None = None
    signature: Signature | None = None


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One invocation that recorded results.

    Times are in seconds since the epoch; `finished` is None while it works, or when it was
    killed. `uid` is unique over all machines, `id` only within this store.
    """

    id: int
    uid: str
    started: float
    finished: float | None
    command: str
    harness_version: str


# Fields of `ResultRecord` that are columns of the same name, in the order of the checksum.
_FIELDS = tuple(ResultRecord.__annotations__)[: -len(("run", "signature"))]
RESULT_COLUMNS = ("run_id", *_FIELDS, "checksum")
"""What `to_row` makes and `from_row` reads."""
RUN_COLUMNS = tuple(RunRecord.__annotations__)


def canonical(value: Mapping[str, object]) -> str:
    """JSON by which equal configs are equal texts."""
    return json.dumps(dict(value), sort_keys=True, separators=(",", ":"))


def to_row(run: int, record: ResultRecord, now: float) -> tuple[object, ...]:
    """Return the `RESULT_COLUMNS` of a record; `now` is when it was made if it does not say."""
    stored = {name: getattr(record, name) for name in _FIELDS}
    stored["config"] = canonical(record.config)
    stored["evidence"] = canonical(record.evidence)
    stored["created"] = now if record.created is None else record.created
    values = (run, *stored.values())
    return (*values, _row_checksum(values))


def from_row(row: Sequence[Any]) -> ResultRecord:
    """Make a record from its `RESULT_COLUMNS`.

    Raises:
        DamagedRowError: it is not what was written.
    """
    # Named one by one: a night reads as many as a matrix has cells.
    run, cell, short, kernel, launch, config, target, triton, ptxas, *others = intact(row)
    verdict, signature_key, body, evidence, created, *_ = others
    return ResultRecord(
        cell=cell,
        short=short,
        kernel=kernel,
        launch=launch,
        config=_parsed(config),
        target=target,
        triton=triton,
        ptxas=ptxas,
        verdict=verdict,
        signature_key=signature_key,
        row=body,
        evidence=_decode_evidence(evidence),
        created=created,
        run=run,
    )


_decode_evidence = msgspec.json.Decoder().decode


@lru_cache(maxsize=4096)
def _parsed(config: str) -> Config:
    """A config that was stored; cells of many toolchains have the same one."""
    parsed: Config = MappingProxyType(json.loads(config))
    return parsed


def intact(row: Sequence[Any]) -> Sequence[Any]:
    """The same row, its `RESULT_COLUMNS` checked.

    Raises:
        DamagedRowError: they are not what was written.
    """
    if not is_intact(row[: len(RESULT_COLUMNS)]):
        run, cell, *_ = row
        raise DamagedRowError(f"the result of {cell} in run {run} was changed")
    return row


def is_intact(row: Sequence[object]) -> bool:
    """Whether these `RESULT_COLUMNS` are what was written."""
    *values, checksum = row
    return checksum == _row_checksum(values)


# One number of two: a result that is the same as one of an earlier run is copied by SQLite, which
# changes what guards its run and time, and keeps what guards the rest.
_RUN_BITS = 30
SAME_CONTENT = -1 << _RUN_BITS
"""The bits of a checksum that two results have in common where they differ in run and time alone;
the others are `run_checksum`."""


def _row_checksum(values: Sequence[object]) -> int:
    run, *content, created = values
    guarded = zlib.crc32(msgspec.msgpack.encode(content)) << _RUN_BITS
    return guarded | run_checksum(run, created)


@lru_cache(maxsize=64, typed=True)
def run_checksum(run: object, created: object) -> int:
    """What guards the run of a result, and when it was made (seconds since the epoch)."""
    return zlib.crc32(msgspec.msgpack.encode((run, created))) & ~SAME_CONTENT
