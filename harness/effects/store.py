"""What is kept between runs: evidence by content, and the history of every cell.

One folder (`home`) holds

- `triage.db`, SQLite in WAL mode. *Evidence* is a cache: what a capture, a lowering, an assembly
  or an inspection gave, by the hash of all that went into it. *History* is the record: runs and
  one result row for each cell of a run. Evidence may be trimmed, history never is.
- `artifacts/`, the bytes that evidence names (`harness.effects.artifacts`).
- `triage.lock`, held shared by every open store and exclusively while a damaged database is
  replaced. Renaming a database under another process would let that process, when it closes,
  delete the write-ahead log of the new one (sqlite.org/howtocorrupt.html, section 2.4).
- `triage.db.damaged`, present while such a replacement is due or under way.

Nothing of `sqlite3` leaves this module: what cannot be mended is a `StorageError`.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import time
import zlib
from collections import Counter
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from harness import __version__
from harness.effects.artifacts import ArtifactStore, disk_failure
from harness.values.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from typing_extensions import Self

__all__ = [
    "Evidence",
    "KindStats",
    "ResultRecord",
    "RunRecord",
    "Store",
    "StoreStats",
    "TrimReport",
]

ConfigValue: TypeAlias = str | int | float | bool | None
T = TypeVar("T")

_BUSY = 30.0
"""Seconds to wait for another process that writes, or that replaces a damaged database."""

_DAY = 86400.0
_GRACE = 3600.0
"""Seconds for which an artifact that nobody names is left alone: its maker may be about to."""

_PAGE = 1000
_SWEEP_BATCH = 500
_FOUND_LIMIT = 20

_MIGRATIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "0001-evidence-and-history",
        (
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
            "CREATE INDEX results_short ON results (short, cell)",
            "CREATE INDEX results_kernel ON results (kernel, created)",
            "CREATE INDEX results_config ON results (kernel, config, created)",
        ),
    ),
)
"""Ordered, append only. `checksum` columns guard what SQLite cannot: a changed byte inside a row,
which it would serve as if nothing had happened (it checks the structure of pages only)."""

_HISTORY = ("runs", "results")
"""Tables whose rows are rescued from a damaged database; the others can be made again."""

_RESULT_COLUMNS = (
    "run_id, cell, short, kernel, launch, config, target, triton, ptxas, verdict,"
    " signature_key, row, evidence, created"
)
_SELECT_RESULTS = f"SELECT {_RESULT_COLUMNS}, checksum, id FROM results"  # noqa: S608 - constants
_RUN_COLUMNS = "id, uid, started, finished, command, harness_version"


class Evidence(NamedTuple):
    """What one step gave: JSON, and the sha256 of the artifacts it needs, by role."""

    body: bytes
    artifacts: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultRecord:
    """One cell of one run, as it is kept for history.

    `row` is the JSON object that `--json` prints; the other fields are what history is searched
    by. `evidence` maps a kind to the key of the evidence that the row was judged from.
    `created` is in seconds since the epoch; it and `run` are set by the store.
    """

    cell: str
    short: str
    kernel: str
    launch: str
    config: Mapping[str, ConfigValue]
    target: str
    triton: str
    ptxas: str
    verdict: str
    row: bytes
    evidence: Mapping[str, str]
    signature_key: str | None = None
    created: float | None = None
    run: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class KindStats:
    """How many rows, and the bytes of their JSON."""

    rows: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStats:
    """What the store holds. Artifact sizes are compressed, as on disk.

    `orphans` are the artifacts that no evidence names.
    """

    evidence: Mapping[str, KindStats]
    results: KindStats
    runs: int
    artifacts: int
    artifact_bytes: int
    orphans: int
    orphan_bytes: int
    database_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrimReport:
    """What a trim removed; `bytes` counts artifacts on disk and the JSON of evidence."""

    evidence: int
    artifacts: int
    bytes: int


class Store:
    """The results folder, open. For one thread; other processes may have it open too.

    Each `put_*` is its own transaction, so that `kill -9` loses at most the cells in flight.

    A damaged database is moved aside to `triage.db.corrupt-N` whenever the damage shows, at
    opening or later; the history that can still be read is carried over, evidence is made again,
    and `notice` has one line for the user. The call that met the damage then goes on.
    """

    def __init__(self, home: Path, *, clock: Callable[[], float] = time.time) -> None:
        """Use `Store.open`. `clock` gives seconds since the epoch."""
        self.home = home
        self.notice: str | None = None
        self._clock = clock
        self._path = home / "triage.db"
        self._own_runs: dict[int, RunRecord] = {}
        self._db: sqlite3.Connection | None = None
        try:
            home.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise disk_failure(home, error) from error
        self._damage = _DamageMarker(home / "triage.db.damaged")
        self._lock = _UseLock(home / "triage.lock")
        try:
            self.artifacts = ArtifactStore(home / "artifacts")
        except StorageError:
            self._lock.close()
            raise

    @classmethod
    def open(cls, home: Path, *, clock: Callable[[], float] = time.time) -> Store:
        """Open the store in `home`, creating, migrating or replacing its database as needed.

        Raises:
            StorageError: the folder cannot be written, the disk is full, or the database was
                made by a newer version of this program.
        """
        store = cls(home, clock=clock)
        try:
            store._connection()
        except BaseException:
            store.close()
            raise
        return store

    def close(self) -> None:
        """Let go of the database and the lock; closing twice does no harm."""
        self._disconnect()
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- evidence -----------------------------------------------------------------------------

    def get_evidence(self, kind: str, key: str) -> Evidence | None:
        """Return what is known under this key, or None for "make it (again)".

        None also when one of its artifacts is gone. Artifacts are only looked for, not read:
        whoever reads one handles `UnusableArtifactError` by making the evidence again.

        Raises:
            StorageError: the database cannot be read.
        """
        return self.get_many(kind, [key]).get(key)

    def get_many(self, kind: str, keys: Iterable[str]) -> dict[str, Evidence]:
        """As `get_evidence`, for many keys at once; those to be made are not in the answer.

        Raises:
            StorageError: the database cannot be read.
        """
        wanted = json.dumps(list(keys))
        rows = self._do(lambda db: db.execute(_SELECT_EVIDENCE, (kind, wanted)).fetchall())
        found: dict[str, Evidence] = {}
        stale: list[str] = []
        changed: list[tuple[str, str, int]] = []
        now = self._clock()
        for key, body, used, checksum, names in rows:
            artifacts = _parse_names(names)
            if artifacts is None or checksum != _evidence_checksum(body, artifacts):
                changed.append((kind, key, checksum))
            elif all(map(self.artifacts.has, artifacts.values())):
                found[key] = Evidence(body, artifacts)
                if now - used > _DAY:
                    stale.append(key)
        if stale or changed:
            self._do(lambda db: _note_reads(db, kind, stale, changed, now))
        return found

    def put_evidence(self, kind: str, key: str, body: bytes, artifacts: Mapping[str, str]) -> None:
        """Keep evidence, in place of what was there; put its artifacts first.

        Args:
            kind: the step: `capture`, `lower`, `assemble`, `inspect`.
            key: the hash of everything that the step depends on.
            body: JSON.
            artifacts: role -> sha256 of each artifact without which the evidence is useless.

        Raises:
            StorageError: the database cannot be written.
        """
        now = self._clock()
        named = dict(artifacts)
        row = (kind, key, body, now, now, _evidence_checksum(body, named))

        def work(db: sqlite3.Connection) -> None:
            with _transaction(db):
                db.execute("DELETE FROM evidence WHERE kind = ? AND key = ?", (kind, key))
                db.execute("INSERT INTO evidence VALUES (?, ?, ?, ?, ?, ?)", row)
                db.executemany(
                    "INSERT INTO evidence_artifacts VALUES (?, ?, ?, ?)",
                    [(kind, key, role, sha256) for role, sha256 in named.items()],
                )

        self._do(work)

    def drop_evidence(self, kind: str, key: str) -> None:
        """Forget evidence, for instance because one of its artifacts was damaged.

        Raises:
            StorageError: the database cannot be written.
        """
        self._do(
            lambda db: db.execute("DELETE FROM evidence WHERE kind = ? AND key = ?", (kind, key))
        )

    # --- history ------------------------------------------------------------------------------

    def begin_run(self, command: str) -> int:
        """Record that a run starts now and return its id.

        Raises:
            StorageError: the database cannot be written.
        """
        uid = os.urandom(16).hex()
        started = self._clock()

        def work(db: sqlite3.Connection) -> int:
            cursor = db.execute(
                "INSERT INTO runs (uid, started, command, harness_version) VALUES (?, ?, ?, ?)",
                (uid, started, command, __version__),
            )
            assert cursor.lastrowid is not None
            return cursor.lastrowid

        run = self._do(work)
        self._own_runs[run] = RunRecord(
            id=run,
            uid=uid,
            started=started,
            finished=None,
            command=command,
            harness_version=__version__,
        )
        return run

    def put_result(self, run: int, record: ResultRecord) -> None:
        """Keep the result of one cell of a run, in place of an earlier one of the same run.

        Raises:
            StorageError: there is no such run, or the database cannot be written.
        """
        self.put_results(run, [record])

    def put_results(self, run: int, records: Iterable[ResultRecord]) -> None:
        """As `put_result`, for many cells in one transaction: all are kept, or none.

        Raises:
            StorageError: there is no such run, or the database cannot be written.
        """
        now = self._clock()
        rows = [_to_row(run, record, now) for record in records]

        def work(db: sqlite3.Connection) -> None:
            with _transaction(db):
                db.executemany(_PUT_RESULT, rows)

        try:
            self._do(work)
        except _ReferenceError as error:
            raise StorageError(
                f"run {run} is not in {self._path}: begin it before recording results"
            ) from error

    def finish_run(self, run: int) -> None:
        """Record that a run has come to its end.

        Raises:
            StorageError: the database cannot be written.
        """
        now = self._clock()
        self._do(lambda db: db.execute("UPDATE runs SET finished = ? WHERE id = ?", (now, run)))
        if run in self._own_runs:
            self._own_runs[run] = replace(self._own_runs[run], finished=now)

    def runs(self, limit: int = 20) -> list[RunRecord]:
        """Return the latest runs, newest first.

        Raises:
            StorageError: the database cannot be read.
        """
        sql = f"SELECT {_RUN_COLUMNS} FROM runs ORDER BY id DESC LIMIT ?"  # noqa: S608 - constants
        rows = self._do(lambda db: db.execute(sql, (limit,)).fetchall())
        return [_to_run(row) for row in rows]

    def last_run(self) -> RunRecord | None:
        """Return the run that began last, finished or not.

        Raises:
            StorageError: the database cannot be read.
        """
        return next(iter(self.runs(1)), None)

    def find_cells(self, text: str) -> list[ResultRecord]:
        """Return the latest record of each cell that `text` may mean, at most 20 cells.

        The cell with exactly this id; if there is none, those whose short hash begins with
        `text`; if there is none, those whose id contains it. One record: no doubt.

        Raises:
            StorageError: the database cannot be read.
        """
        if not text:
            return []

        def work(db: sqlite3.Connection) -> list[ResultRecord]:
            for select, values in (
                ("SELECT cell FROM results WHERE cell = ? LIMIT 1", (text,)),
                (_CELLS_BY_SHORT, (text, text + "\U0010ffff")),
                (_CELLS_CONTAINING, (text,)),
            ):
                if cells := db.execute(select, values).fetchall():
                    return [_latest(db, cell) for (cell,) in cells]
            return []

        return self._do(work)

    def run_rows(self, run: int) -> Iterator[ResultRecord]:
        """Yield the results of a run, ordered by cell, a thousand at a time in memory.

        Raises:
            StorageError: the database cannot be read.
        """
        sql = f"{_SELECT_RESULTS} WHERE run_id = ? AND cell > ? ORDER BY cell LIMIT ?"
        last = ""
        while page := self._page(sql, (run, last, _PAGE)):
            yield from (record for _, record in page)
            last = page[-1][1].cell

    def history(
        self, kernel: str, config: Mapping[str, ConfigValue] | None = None
    ) -> Iterator[ResultRecord]:
        """Yield all results of a kernel (and of exactly this config), oldest first.

        Raises:
            StorageError: the database cannot be read.
        """
        where = "kernel = ?" if config is None else "kernel = ? AND config = ?"
        fixed = (kernel,) if config is None else (kernel, _canonical(config))
        sql = (
            f"{_SELECT_RESULTS} WHERE {where} AND (created, id) > (?, ?)"
            " ORDER BY created, id LIMIT ?"
        )
        last = (float("-inf"), 0)
        while page := self._page(sql, (*fixed, *last, _PAGE)):
            yield from (record for _, record in page)
            last = (page[-1][1].created or 0.0, page[-1][0])

    def _page(self, sql: str, values: tuple[object, ...]) -> list[tuple[int, ResultRecord]]:
        return self._do(lambda db: [_to_record(row) for row in db.execute(sql, values)])

    # --- size ---------------------------------------------------------------------------------

    def stats(self) -> StoreStats:
        """Measure what is held; walks the whole artifact folder.

        Raises:
            StorageError: the database or the folder cannot be read.
        """
        on_disk = {sha256: size for sha256, size, _ in self.artifacts.all()}

        def work(db: sqlite3.Connection) -> StoreStats:
            kinds = db.execute("SELECT kind, count(*), sum(length(body)) FROM evidence GROUP BY 1")
            evidence = {kind: KindStats(rows=rows, bytes=size) for kind, rows, size in kinds}
            rows, size = db.execute(
                "SELECT count(*), coalesce(sum(length(row)), 0) FROM results"
            ).fetchone()
            named = {sha256 for (sha256,) in db.execute(_NAMED)}
            orphans = [size for sha256, size in on_disk.items() if sha256 not in named]
            pages, page_size = _pragma(db, "page_count"), _pragma(db, "page_size")
            return StoreStats(
                evidence=evidence,
                results=KindStats(rows=rows, bytes=size),
                runs=db.execute("SELECT count(*) FROM runs").fetchone()[0],
                artifacts=len(on_disk),
                artifact_bytes=sum(on_disk.values()),
                orphans=len(orphans),
                orphan_bytes=sum(orphans),
                database_bytes=int(pages) * int(page_size),
            )

        return self._do(work)

    def trim(self, *, max_bytes: int | None = None, older_than: float | None = None) -> TrimReport:
        """Forget evidence, least recently used first, and delete artifacts that nobody names.

        Evidence goes when it was last used more than `older_than` seconds ago, and while what is
        left (JSON and named artifacts on disk) is over `max_bytes`; with neither, only unnamed
        artifacts go. History stays.

        Safe beside writers. A writer puts artifacts first and names them afterwards, and `put`
        renews an artifact's time, so an unnamed one is deleted only if its last `put` is an hour
        ago, or was before the evidence that we just dropped was recorded (then nobody has put it
        since). Names are looked up, and files deleted, under the database's write lock: evidence
        recorded before that is seen; evidence recorded after it that lost its artifact all the
        same (put between our look at the file and its deletion) reads as "make it again".

        Raises:
            StorageError: the database or the folder cannot be read or written.
        """
        on_disk = {sha256: size for sha256, size, _ in self.artifacts.all()}
        now = self._clock()
        oldest = None if older_than is None else now - older_than
        dropped = self._do(lambda db: _drop_unused(db, on_disk, max_bytes, oldest))
        count = freed = 0
        candidates = list(on_disk)
        for at in range(0, len(candidates), _SWEEP_BATCH):
            batch = candidates[at : at + _SWEEP_BATCH]
            sizes = self._do(partial(self._sweep, batch=batch, dropped=dropped, now=now))
            count += len(sizes)
            freed += sum(sizes)
        # Gives back one page for each step; only executescript() steps to the end.
        self._do(lambda db: db.executescript("PRAGMA incremental_vacuum"))
        return TrimReport(evidence=dropped.rows, artifacts=count, bytes=dropped.bytes + freed)

    def _sweep(
        self, db: sqlite3.Connection, *, batch: Sequence[str], dropped: _Dropped, now: float
    ) -> list[int]:
        with _transaction(db):
            named = {sha256 for (sha256,) in db.execute(_NAMED_AMONG, (json.dumps(batch),))}
            removed = [
                self.artifacts.remove(
                    sha256, put_until=max(now - _GRACE, dropped.recorded.get(sha256, 0.0))
                )
                for sha256 in batch
                if sha256 not in named
            ]
        return [size for size in removed if size]

    # --- the connection -----------------------------------------------------------------------

    def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work`, which must be safe to repeat; replace the database if it proves damaged."""
        try:
            return work(self._connection())
        except sqlite3.Error as error:
            if not _is_damage(error):
                raise self._failure(error) from error
        self._damage.set()
        try:
            return work(self._connection())
        except sqlite3.Error as error:
            raise self._failure(error) from error

    def _connection(self) -> sqlite3.Connection:
        """Return the connection, opened again if the database was or must be replaced."""
        if self._db is not None and not self._damage.present():
            return self._db
        for _ in range(3):
            if self._damage.present():
                self._replace_database()
            self._lock.take(exclusive=False)
            try:
                self._db = _connect(self._path)
                self._restore_own_runs(self._db)
            except sqlite3.Error as error:
                if not _is_damage(error):
                    raise self._failure(error) from error
                self._damage.set()
            if self._db is not None and not self._damage.present():
                return self._db
        raise StorageError(f"{self._path} is damaged again and again: check the disk that holds it")

    def _disconnect(self) -> None:
        if self._db is not None:
            with suppress(sqlite3.Error):
                self._db.close()
            self._db = None

    def _replace_database(self) -> None:
        """Move the database that the marker calls damaged aside, and put what is rescued there.

        The marker is set by whoever finds the damage, under the shared lock that kept others from
        replacing the database meanwhile. It tells other processes to let go of theirs at their
        next call; once it is gone, one of them has done the work.
        """
        self._disconnect()
        try:
            # Looked at again under the lock: the last wait may have been for the one who did it.
            if self._lock.take(exclusive=True, while_=self._damage.present) and (
                self._damage.present()
            ):
                self.notice = _rebuild(self._path)
                self._damage.clear()
        except sqlite3.Error as error:
            raise self._failure(error) from error
        except OSError as error:
            raise disk_failure(self._path, error) from error
        finally:
            self._lock.take(exclusive=False)

    def _restore_own_runs(self, db: sqlite3.Connection) -> None:
        """Record our runs again where a replaced database lost them, so that results can follow."""
        for run in self._own_runs.values():
            values = (run.id, run.uid, run.started, run.finished, run.command, run.harness_version)
            db.execute(_RESTORE_RUN, values)
            if db.execute("SELECT uid FROM runs WHERE id = ?", (run.id,)).fetchone()[0] != run.uid:
                raise StorageError(
                    f"run {run.id} was lost with a damaged {self._path}: run the command again"
                )

    def _failure(self, error: sqlite3.Error) -> StorageError:
        text = str(error)
        if "foreign key" in text.lower():
            return _ReferenceError(f"{self._path}: {text}")
        if "is full" in text:
            return StorageError(
                f"no space left for {self._path}: free some space, or trim the cache with"
                " `triage cache`"
            )
        if "readonly" in text or "unable to open" in text:
            return StorageError(
                f"{self._path} is not writable: change its permissions or use another folder"
            )
        if "disk i/o" in text.lower():
            return StorageError(f"the disk that holds {self._path} is full or fails: {text}")
        if "is locked" in text:
            return StorageError(
                f"{self._path} was locked by another process for {_BUSY:.0f} s: try again when it"
                " has ended"
            )
        return StorageError(
            f"cannot use {self._path}: {text}; move the file away to start a new one"
        )


class _ReferenceError(StorageError):
    """A row refers to a run that is not there."""


class _DamagedRowError(sqlite3.DatabaseError):
    """A row is not what was written; SQLite itself did not notice."""


class _DamageMarker:
    """The file that says: this database is damaged and must be replaced."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def present(self) -> bool:
        return self._path.exists()

    def set(self) -> None:
        try:
            self._path.touch()
        except OSError as error:
            raise disk_failure(self._path, error) from error

    def clear(self) -> None:
        self._path.unlink(missing_ok=True)


class _UseLock:
    """Shared while a store is open, exclusive while its database is replaced.

    flock and not `filelock`, whose `FileLock` has no shared mode and takes 50 ms to import. The
    kernel lets go of it when the process dies, however it dies.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise disk_failure(path, error) from error

    def take(self, *, exclusive: bool, while_: Callable[[], bool] = lambda: True) -> bool:
        """Change to this mode, waiting for other processes for as long as `_BUSY`.

        Returns:
            False if `while_` no longer held and the wait was given up; no lock is held then.

        Raises:
            StorageError: they did not let go in time.
        """
        mode = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
        deadline = time.monotonic() + _BUSY
        while True:
            try:
                fcntl.flock(self._file, mode | fcntl.LOCK_NB)
            except BlockingIOError:  # noqa: PERF203 - it is a wait
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
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


# --- opening ----------------------------------------------------------------------------------


def _connect(path: Path) -> sqlite3.Connection:
    """Open and migrate the database.

    Raises:
        StorageError: a newer program made it.
        sqlite3.Error: anything else.
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
        _migrate(db, path)
    except BaseException:
        db.close()
        raise
    return db


def _use_wal(db: sqlite3.Connection) -> None:
    """Switch to the write-ahead log, once in a database's life.

    The busy timeout does not cover the switch, so two processes that create a database at once
    need a loop of our own.
    """
    if _pragma(db, "journal_mode") == "wal":
        return
    deadline = time.monotonic() + _BUSY
    while True:
        try:
            # Takes effect only in a database without tables: lets a trim give pages back.
            db.execute("PRAGMA auto_vacuum = INCREMENTAL")
            db.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:  # noqa: PERF203 - it is a wait
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return


def _migrate(db: sqlite3.Connection, path: Path) -> None:
    applied = _applied(db, path)
    for name, statements in _MIGRATIONS:
        if name in applied:
            continue
        with _transaction(db):
            # Another process may have been faster.
            if name in _applied(db, path):
                continue
            db.execute(
                "CREATE TABLE IF NOT EXISTS migrations"
                " (name TEXT PRIMARY KEY, applied_at REAL NOT NULL)"
            )
            for statement in statements:
                db.execute(statement)
            db.execute("INSERT INTO migrations VALUES (?, ?)", (name, time.time()))


def _applied(db: sqlite3.Connection, path: Path) -> set[str]:
    if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'migrations'").fetchone():
        return set()
    applied = {name for (name,) in db.execute("SELECT name FROM migrations")}
    if unknown := sorted(applied - {name for name, _ in _MIGRATIONS}):
        raise StorageError(
            f"{path} was made by a newer triage than {__version__} ({unknown[-1]}): upgrade"
            " kernel-triage or use another folder"
        )
    return applied


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        # SQLite has already rolled back by itself after some errors, a full disk among them.
        if db.in_transaction:
            with suppress(sqlite3.Error):
                db.execute("ROLLBACK")
        raise


def _pragma(db: sqlite3.Connection, name: str) -> str | int:
    value: str | int = db.execute(f"PRAGMA {name}").fetchone()[0]
    return value


# --- damage -----------------------------------------------------------------------------------


def _is_damage(error: sqlite3.Error) -> bool:
    """Whether the file itself is broken. Python 3.10 has no error codes: the words are SQLite's."""
    text = str(error).lower()
    return isinstance(error, _DamagedRowError) or any(
        words in text
        for words in (
            "file is not a database",
            "image is malformed",
            "malformed database schema",
            "unsupported file format",
            "could not decode to utf-8",
        )
    )


def _rebuild(path: Path) -> str:
    """Replace the database at `path` while nobody has it open; return a line for the user.

    Killed at any step, the next call takes up the work: the marker is still there, and the
    rescued database has its own name until it is complete.
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
        f"{path} was damaged: it is now {aside.name}, {kept} results of earlier runs were rescued,"
        " and compiled work is made again"
    )


_FILES = ("", "-wal", "-shm")


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
        _migrate(target, building)
        if not damaged.exists():
            return
        with closing(sqlite3.connect(damaged, isolation_level=None)) as source:
            # A damaged text is then a wrong checksum instead of the end of the table.
            source.text_factory = lambda text: text.decode(errors="replace")
            with suppress(sqlite3.Error):
                # Lets SQLite read a file that is shorter than its header says.
                source.execute("PRAGMA writable_schema = ON")
                # Refuses what a newer program made, if that much can be read.
                _applied(source, damaged)
            with _transaction(target):
                for table in _HISTORY:
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
        if table != "results" or _is_intact(dict(zip(names, row, strict=True))):
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


_RESTORE_RUN = f"""
    INSERT INTO runs ({_RUN_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET uid = excluded.uid, started = excluded.started,
        command = excluded.command, harness_version = excluded.harness_version
    WHERE uid LIKE 'lost-%'
"""  # noqa: S608 - constants

_INVENT_LOST_RUNS = """
    INSERT OR IGNORE INTO runs (id, uid, started, finished, command, harness_version)
    SELECT run_id, 'lost-' || lower(hex(randomblob(16))), min(created), NULL, '', ''
    FROM results WHERE run_id NOT IN (SELECT id FROM runs) GROUP BY run_id
"""


# --- rows -------------------------------------------------------------------------------------

_SELECT_EVIDENCE = """
    SELECT key, body, used, checksum, (
        SELECT json_group_object(role, sha256) FROM evidence_artifacts AS a
        WHERE a.kind = e.kind AND a.key = e.key
    )
    FROM evidence AS e WHERE kind = ? AND key IN (SELECT value FROM json_each(?))
"""
_NAMED = "SELECT DISTINCT sha256 FROM evidence_artifacts"
_NAMED_AMONG = """
    SELECT DISTINCT sha256 FROM evidence_artifacts
    WHERE sha256 IN (SELECT value FROM json_each(?))
"""

_PUT_RESULT = f"""
    INSERT INTO results ({_RESULT_COLUMNS}, checksum)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (run_id, cell) DO UPDATE SET
        short = excluded.short, kernel = excluded.kernel, launch = excluded.launch,
        config = excluded.config, target = excluded.target, triton = excluded.triton,
        ptxas = excluded.ptxas, verdict = excluded.verdict,
        signature_key = excluded.signature_key, row = excluded.row,
        evidence = excluded.evidence, created = excluded.created, checksum = excluded.checksum
"""  # noqa: S608 - constants

_CELLS_BY_SHORT = (
    f"SELECT DISTINCT cell FROM results WHERE short >= ? AND short < ? LIMIT {_FOUND_LIMIT}"  # noqa: S608 - constants
)
_CELLS_CONTAINING = (
    f"SELECT DISTINCT cell FROM results WHERE instr(cell, ?) > 0 ORDER BY cell LIMIT {_FOUND_LIMIT}"  # noqa: S608 - constants
)


def _canonical(value: Mapping[str, object]) -> str:
    return json.dumps(dict(value), sort_keys=True, separators=(",", ":"))


def _parse_names(names: str) -> dict[str, str] | None:
    try:
        return dict(json.loads(names))
    except ValueError:
        return None


def _evidence_checksum(body: bytes, artifacts: Mapping[str, str]) -> int:
    return zlib.crc32(ascii(sorted(artifacts.items())).encode(), zlib.crc32(body))


def _result_checksum(values: Sequence[object]) -> int:
    # ascii() and not repr(): what repr() escapes depends on Python's Unicode tables.
    return zlib.crc32(ascii(values).encode())


def _is_intact(values: Mapping[str, object]) -> bool:
    columns = tuple(values[name.strip()] for name in _RESULT_COLUMNS.split(","))
    return _result_checksum(columns) == values["checksum"]


def _to_row(run: int, record: ResultRecord, now: float) -> tuple[object, ...]:
    values = (
        run,
        record.cell,
        record.short,
        record.kernel,
        record.launch,
        _canonical(record.config),
        record.target,
        record.triton,
        record.ptxas,
        record.verdict,
        record.signature_key,
        record.row,
        _canonical(record.evidence),
        now if record.created is None else record.created,
    )
    return (*values, _result_checksum(values))


def _to_record(row: Sequence[Any]) -> tuple[int, ResultRecord]:
    *values, checksum, number = row
    if checksum != _result_checksum(tuple(values)):
        raise _DamagedRowError(f"result {number} is not what was written")
    run, cell, short, kernel, launch, config, target, triton, ptxas, verdict, *rest = values
    signature_key, body, evidence, created = rest
    record = ResultRecord(
        run=run,
        cell=cell,
        short=short,
        kernel=kernel,
        launch=launch,
        config=json.loads(config),
        target=target,
        triton=triton,
        ptxas=ptxas,
        verdict=verdict,
        signature_key=signature_key,
        row=body,
        evidence=json.loads(evidence),
        created=created,
    )
    return number, record


def _to_run(row: Sequence[Any]) -> RunRecord:
    number, uid, started, finished, command, version = row
    return RunRecord(
        id=number,
        uid=uid,
        started=started,
        finished=finished,
        command=command,
        harness_version=version,
    )


def _latest(db: sqlite3.Connection, cell: str) -> ResultRecord:
    sql = f"{_SELECT_RESULTS} WHERE cell = ? ORDER BY created DESC, id DESC LIMIT 1"
    return _to_record(db.execute(sql, (cell,)).fetchone())[1]


def _note_reads(
    db: sqlite3.Connection,
    kind: str,
    stale: list[str],
    changed: list[tuple[str, str, int]],
    now: float,
) -> None:
    with _transaction(db):
        db.executemany(
            "UPDATE evidence SET used = ? WHERE kind = ? AND key = ?",
            [(now, kind, key) for key in stale],
        )
        db.executemany("DELETE FROM evidence WHERE kind = ? AND key = ? AND checksum = ?", changed)


# --- trimming ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Dropped:
    """Evidence that a trim forgot; `recorded` says until when each of its artifacts was ours."""

    rows: int
    bytes: int
    recorded: Mapping[str, float]


def _drop_unused(
    db: sqlite3.Connection,
    on_disk: Mapping[str, int],
    max_bytes: int | None,
    oldest: float | None,
) -> _Dropped:
    rows = freed = 0
    recorded: dict[str, float] = {}
    with _transaction(db):
        names: dict[tuple[str, str], list[str]] = {}
        for kind, key, sha256 in db.execute("SELECT kind, key, sha256 FROM evidence_artifacts"):
            names.setdefault((kind, key), []).append(sha256)
        owners = Counter(sha256 for named in names.values() for sha256 in named)
        bodies = db.execute("SELECT coalesce(sum(length(body)), 0) FROM evidence").fetchone()[0]
        total = bodies + sum(on_disk.get(sha256, 0) for sha256 in owners)
        least_recent = db.execute(
            "SELECT kind, key, length(body), created, used FROM evidence ORDER BY used, created"
        ).fetchall()
        for kind, key, size, created, used in least_recent:
            expired = oldest is not None and used < oldest
            if not expired and (max_bytes is None or total <= max_bytes):
                continue
            db.execute("DELETE FROM evidence WHERE kind = ? AND key = ?", (kind, key))
            rows += 1
            freed += size
            total -= size
            for sha256 in names.get((kind, key), ()):
                recorded[sha256] = max(created, recorded.get(sha256, 0.0))
                owners[sha256] -= 1
                total -= on_disk.get(sha256, 0) if not owners[sha256] else 0
    return _Dropped(rows=rows, bytes=freed, recorded=recorded)
