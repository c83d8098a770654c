"""What is kept between runs: evidence by content, and the history of every cell.

One folder (`home`) holds

- `triage.db`, SQLite in WAL mode (`harness.store.database`). *Evidence* is a cache: what a
  capture, a lowering, an assembly or an inspection gave, by the hash of all that went into it.
  *History* is the record: runs and one result row for each cell of a run. Evidence may be trimmed,
  history never is.
  *Records* are what was found once: hunts, least inputs, packs on their way. They stay, too.
- `artifacts/`, the bytes that evidence names (`harness.store.artifacts`).

Nothing of `sqlite3` is raised from here: what cannot be repaired is a `StorageError`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from msgspec.structs import replace

from harness import __version__
from harness.store.artifacts import DATABASE, ArtifactStore, database_copy, is_writable
from harness.store.bugs import put_signatures
from harness.store.database import Database, restore_runs
from harness.store.records import Records
from harness.store.results import NightPart, PastResults, begin_part, finish_part
from harness.store.schema import (
    EVIDENCE_KINDS,
    RESULT_COLUMNS,
    RUN_COLUMNS,
    SAME_CONTENT,
    SELECT_EVIDENCE,
    Evidence,
    ResultRecord,
    RunRecord,
    put_row,
    read_row,
    run_checksum,
    to_row,
    when_made,
)
from harness.values.errors import FullDiskError, StorageError

if TYPE_CHECKING:
    import sqlite3


_DAY = 86400.0
_PAGE = 1000
_FOUND_LIMIT = 20

# Below, all that is put into the text of a statement is a constant.
# Times of a damaged database may be text.
_RUN_VALUES = [
    f"CAST({name} AS REAL)" if name in ("started", "finished") else name for name in RUN_COLUMNS
]
_SELECT_RUNS = f"SELECT {', '.join(_RUN_VALUES)} FROM runs ORDER BY id DESC LIMIT ?"  # noqa: S608
_PUT_RESULT = f"""
    INSERT OR REPLACE INTO results ({", ".join(RESULT_COLUMNS)})
    VALUES ({", ".join("?" for _ in RESULT_COLUMNS)})
"""  # noqa: S608
_PUT_CELL = "INSERT OR IGNORE INTO cells VALUES (?, ?, ?)"
_COPY_RESULTS = f"""
    INSERT OR REPLACE INTO results ({", ".join(RESULT_COLUMNS)})
    SELECT ?, {", ".join(RESULT_COLUMNS[1:-2])}, ?, checksum & {SAME_CONTENT} | ?
    FROM results
    WHERE run_id = ? AND cell IN (SELECT value FROM json_each(?))
"""  # noqa: S608
_CELLS_MEANT = (
    "SELECT cell FROM cells WHERE cell = :text",
    """SELECT cell FROM cells WHERE short >= :text AND short < :text || char(0x10ffff)
    ORDER BY short, cell LIMIT :limit""",
    "SELECT cell FROM cells WHERE instr(cell, :text) > 0 ORDER BY cell LIMIT :limit",
)
"""Each is asked only if those before it find nothing."""


class Store(PastResults, Records):
    """The results folder, open. For one thread; other processes may have it open too.

    Each `put_*` is its own transaction, so that `kill -9` loses at most the cells in flight.

    A damaged database is moved aside to `triage.db.corrupt-N` whenever the damage shows, at
    opening or later; the history that can still be read is carried over, evidence is made again,
    and `notice` has one line for the user. The call that met the damage then goes on.
    """

    def __init__(
        self, home: Path, *, clock: Callable[[], float] = time.time, copy: Path | None = None
    ) -> None:
        self.home = home
        self.clock = clock
        self._own_runs: dict[int, RunRecord] = {}
        self._own_parts: dict[int, NightPart] = {}
        self.artifacts = ArtifactStore(home / "artifacts", writable=copy is None)
        path = (copy or home) / DATABASE
        self.database = Database(
            path, on_open=lambda db: restore_runs(db, path, self._own_runs.values())
        )

    @classmethod
    def open(cls, home: Path, *, clock: Callable[[], float] = time.time) -> Store:
        """Open the store in `home`, creating or replacing its database as needed.

        `clock` gives seconds since the epoch. A database that another version of this program
        has made is a `StorageError`.
        """
        return cls(home, clock=clock)

    @classmethod
    @contextmanager
    def for_reading(cls, home: Path) -> Iterator[Store]:
        """As `open`, for who changes nothing: `home` may be read-only, and need not be there.

        Where it cannot be written, or the disk is full, a copy of the database is read: SQLite
        writes beside a database in WAL mode even to read it.
        """
        store = None
        if home.is_dir() and is_writable(home):
            with suppress(FullDiskError):
                store = cls.open(home)
        if store:
            with store:
                yield store
            return
        with database_copy(home) as folder, cls(home, copy=folder) as store:
            yield store

    @property
    def notice(self) -> str | None:
        """One line for the user, once a damaged database was replaced."""
        return self.database.notice

    def close(self) -> None:
        """Let go of the database and the lock; closing twice does no harm."""
        self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get_evidence(self, kind: str, key: str) -> Evidence | None:
        """Return what is known under this key, or None for "make it (again)".

        None also when one of its artifacts is gone. Artifacts are only looked for, not read:
        a reader handles `UnusableArtifactError` by making the evidence again.
        """
        return self.get_many(kind, [key]).get(key)

    def get_many(self, kind: str, keys: Iterable[str]) -> dict[str, Evidence]:
        """As `get_evidence`, for many keys at once; those to be made are not in the answer."""
        rows = self.database.select(SELECT_EVIDENCE, kind, json.dumps(list(keys)))
        evidence: dict[str, Evidence] = {}
        stale: list[str] = []
        changed: list[tuple[str, str, int]] = []
        now = self.clock()
        for row in rows:
            entry = read_row(row)
            if entry is None:
                changed.append((kind, row[0], row[4]))
            elif all(map(self.artifacts.has, entry.evidence.artifacts.values())):
                evidence[entry.key] = entry.evidence
                if now - entry.used > _DAY:
                    stale.append(entry.key)
        if stale or changed:
            self.database.write(lambda db: _note_reads(db, kind, stale, changed, now))
        return evidence

    def put_evidence(self, kind: str, key: str, body: bytes, artifacts: Mapping[str, str]) -> None:
        """Keep evidence, in place of what was there; put its artifacts first.

        Evidence that is put again unchanged keeps the time when it was made: results that were
        judged from it can still be judged again.

        Args:
            kind: the step, one of `EVIDENCE_KINDS`: what cannot be made again is a record.
            key: the hash of everything that the step depends on.
            body: JSON.
            artifacts: role -> sha256 of each artifact without which the evidence is useless.
        """
        if kind not in EVIDENCE_KINDS:
            raise ValueError(f"{kind!r} is no kind of evidence: a trim would delete it")
        now = self.clock()
        evidence = Evidence(body, dict(artifacts))

        def work(db: sqlite3.Connection) -> None:
            created = when_made(db, kind, key, evidence)
            put_row(db, kind, key, evidence, created=now if created is None else created, used=now)

        self.database.write(work)

    def begin_run(
        self, command: str, part: NightPart | None = None, *, uid: str | None = None
    ) -> int:
        """Record that a run starts now and return its id.

        With `part` it is that shard of a night; all shards of a night are one run. With `uid` it
        is a part of a run that another store has begun.
        """
        uid = part.uid if part else uid or os.urandom(16).hex()
        started = self.clock()

        def work(db: sqlite3.Connection) -> int:
            db.execute(
                "INSERT INTO runs (uid, started, command, harness_version) VALUES (?, ?, ?, ?)"
                " ON CONFLICT (uid) DO NOTHING",
                (uid, started, command, __version__),
            )
            (number,) = db.execute("SELECT id FROM runs WHERE uid = ?", (uid,)).fetchone()
            if part:
                begin_part(db, number, part, started)
            return int(number)

        run = self.database.write(work)
        if part:
            self._own_parts[run] = part
        self._own_runs[run] = RunRecord(
            id=run,
            uid=uid,
            started=started,
            finished=None,
            command=command,
            harness_version=__version__,
        )
        return run

    def uid_of(self, run: int) -> str:
        """Return what all machines call a run that this process has begun."""
        return self._own_runs[run].uid

    def put_result(self, run: int, record: ResultRecord) -> None:
        """As `put_results`, for one cell."""
        self.put_results(run, [record])

    def put_results(self, run: int, records: Iterable[ResultRecord]) -> None:
        """Keep results of cells of a run, in place of earlier ones: all are kept, or none.

        Raises:
            StorageError: there is no such run, or the database cannot be written.
        """
        now = self.clock()
        records = list(records)
        rows = [to_row(run, record, now) for record in records]
        cells = [(record.cell, record.short, record.kernel) for record in records]
        signatures = [record.signature for record in records if record.signature]

        def work(db: sqlite3.Connection) -> None:
            self._check_run(db, run)
            db.executemany(_PUT_RESULT, rows)
            db.executemany(_PUT_CELL, cells)
            if signatures:
                put_signatures(db, signatures)

        self.database.write(work)

    def put_again(self, run: int, records: Iterable[ResultRecord]) -> None:
        """Keep results as they were read from here as those of another run, too.

        Raises:
            StorageError: there is no such run, or the database cannot be written.
        """
        now = self.clock()
        by_run: dict[int | None, list[ResultRecord]] = {}
        for record in records:
            by_run.setdefault(record.run, []).append(record)

        def work(db: sqlite3.Connection) -> None:
            self._check_run(db, run)
            for number, same in by_run.items():
                cells = json.dumps([record.cell for record in same])
                db.execute(_COPY_RESULTS, (run, now, run_checksum(run, now), number, cells))

        self.database.write(work)

    def _check_run(self, db: sqlite3.Connection, run: int) -> None:
        if not db.execute("SELECT 1 FROM runs WHERE id = ?", (run,)).fetchone():
            raise StorageError(
                f"run {run} is not in {self.database.path}: begin it before recording results"
            )

    def finish_run(self, run: int) -> None:
        """Record that a run has come to its end."""
        now = self.clock()
        part = self._own_parts.get(run)

        def work(db: sqlite3.Connection) -> None:
            if part:
                finish_part(db, run, part, now)
            else:
                db.execute("UPDATE runs SET finished = ? WHERE id = ?", (now, run))

        self.database.write(work)
        if run in self._own_runs:
            self._own_runs[run] = replace(self._own_runs[run], finished=now)

    def runs(self, limit: int = 20) -> list[RunRecord]:
        """Return the latest runs, newest first."""
        rows = self.database.select(_SELECT_RUNS, limit)
        return [RunRecord(**dict(zip(RUN_COLUMNS, row, strict=True))) for row in rows]

    def find_cells(self, text: str) -> list[ResultRecord]:
        """Return the latest record of each cell that `text` may mean, at most 20 cells.

        The cell with exactly this id; if there is none, those whose short hash begins with
        `text`; if there is none, those whose id contains it. One record: no doubt.
        """
        if not text:
            return []
        values = {"text": text, "limit": _FOUND_LIMIT}

        def work(db: sqlite3.Connection) -> list[str]:
            for select in _CELLS_MEANT:
                if cells := db.execute(select, values).fetchall():
                    return [cell for (cell,) in cells]
            return []

        cells = self.database.run(work)
        latest = self.latest_of(cells)
        # What is damaged was taken out as it was read.
        return [latest[cell] for cell in cells if cell in latest]


def _note_reads(
    db: sqlite3.Connection,
    kind: str,
    stale: list[str],
    changed: list[tuple[str, str, int]],
    now: float,
) -> None:
    db.executemany(
        "UPDATE evidence SET used = ? WHERE kind = ? AND key = ?",
        [(now, kind, key) for key in stale],
    )
    db.executemany("DELETE FROM evidence WHERE kind = ? AND key = ? AND checksum = ?", changed)
