"""What is kept between runs: evidence by content, and the history of every cell.

One folder (`home`) holds `triage.db` (`harness.store.database`) with evidence, history and records,
and `artifacts/`, the bytes that evidence and records name (`harness.store.artifacts`).

Nothing of `sqlite3` is raised from here: what cannot be repaired is a `StorageError`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar

import msgspec
from msgspec.structs import replace

from harness import __version__
from harness.store.artifacts import DATABASE, ArtifactStore, database_copy, is_writable
from harness.store.bugs import put_signatures
from harness.store.database import Database, restore_runs
from harness.store.schema import (
    EVIDENCE_KINDS,
    RECORD_KINDS,
    RESULT_COLUMNS,
    RUN_COLUMNS,
    SAME_CONTENT,
    SELECT_EVIDENCE,
    SELECT_RECORDS,
    Evidence,
    ResultRecord,
    RunRecord,
    from_row,
    intact,
    put_record,
    put_row,
    read_row,
    run_checksum,
    to_row,
    when_made,
)
from harness.values.bug import KeptWorkaround
from harness.values.errors import FullDiskError, StorageError, UsageError
from harness.values.execution import RunRow
from harness.values.verdict import Signature

if TYPE_CHECKING:
    import sqlite3


T = TypeVar("T")

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
SELECT_RESULTS = f"SELECT {', '.join(RESULT_COLUMNS)}, id FROM results"  # noqa: S608
_SELECT_PAGE = f"""
    {SELECT_RESULTS}
    WHERE run_id = ?1 AND cell > ?2 AND cell < ?3 || char(0x10ffff) ORDER BY cell LIMIT {_PAGE}
"""
_SELECT_CHANGED = """
    SELECT cell FROM results AS one
    WHERE run_id IN (?1, ?2) AND (
        verdict NOT IN (SELECT value FROM json_each(?3))
        OR kernel IN (SELECT value FROM json_each(?4))
        OR NOT EXISTS (
            SELECT 1 FROM results AS other
            WHERE other.run_id = ?1 + ?2 - one.run_id AND other.cell = one.cell
                AND other.row = one.row AND other.verdict = one.verdict
        )
    )
"""
_SELECT_LAST = (
    f"{SELECT_RESULTS} WHERE cell = ? AND created < ?"  # noqa: S608
    " AND run_id NOT IN (SELECT value FROM json_each(?))"
    " AND verdict NOT IN (SELECT value FROM json_each(?)) ORDER BY created DESC, id DESC LIMIT 1"
)
_SELECT_LATEST = f"""
    SELECT {", ".join(f"results.{name}" for name in RESULT_COLUMNS)}, results.id
    FROM json_each(?) AS wanted JOIN results ON results.id = (
        SELECT id FROM results WHERE cell = wanted.value ORDER BY created DESC, id DESC LIMIT 1
    )
"""  # noqa: S608
_FOR_EVER = float("inf")
_CELL, _CREATED, _ROW = (RESULT_COLUMNS.index(name) for name in ("cell", "created", "row"))
_SELECT_EXECUTIONS = (
    "SELECT body, checksum FROM executions WHERE cell = ? ORDER BY created DESC, id DESC"
)
_PUT_EXECUTION = (
    "INSERT INTO executions (run_id, cell, verdict, signature_key, created, body, checksum)"
    " VALUES (?, ?, ?, ?, ?, ?, ?)"
)
_SELECT_WORKAROUNDS = "SELECT body, checksum FROM workarounds ORDER BY created, cell"
_PUT_WORKAROUND = "INSERT OR REPLACE INTO workarounds VALUES (?, ?, ?, ?)"
_CELLS_MEANT = (
    "SELECT cell FROM cells WHERE cell = :text",
    """SELECT cell FROM cells WHERE short >= :text AND short < :text || char(0x10ffff)
    ORDER BY short, cell LIMIT :limit""",
    "SELECT cell FROM cells WHERE instr(cell, :text) > 0 ORDER BY cell LIMIT :limit",
)
"""Each is asked only if those before it find nothing."""


# Runs that are worked off in parts: the shards of one night, on one machine or on many. All shards
# of a night are one run. Its uid follows from the night's name, so that stores which know nothing
# of each other call it the same, and merging them unites it. The run has finished when all of its
# shards have.

_UID_DIGITS = 32
_SHARD = re.compile(r"(\d{1,4})/(\d{1,4})")


class Shard(msgspec.Struct, frozen=True, kw_only=True):
    """The part `number` (from 1) of `of`: every capture is in one of them, whatever the others.

    Parts of a `night` with one name are one run.
    """

    number: int = 1
    of: int = 1
    night: str | None = None

    @classmethod
    def parse(cls, text: str, night: str | None = None) -> Shard:
        """Read `2/4`.

        Raises:
            UsageError: it is not part of a whole.
        """
        match = _SHARD.fullmatch(text.strip())
        if not match or not 1 <= int(match[1]) <= int(match[2]):
            raise UsageError(f"--shard {text[:40]}: write I/N, for example 2/4, with I from 1 to N")
        return cls(number=int(match[1]), of=int(match[2]), night=night)

    def has(self, capture: str) -> bool:
        """Whether this capture is worked on here; a hash, so that new versions move no other."""
        digest = hashlib.sha256(capture.encode()).digest()
        return int.from_bytes(digest[:8], "big") % self.of == self.number - 1

    @property
    def uid(self) -> str:
        """The uid of the run that all parts of the night make up."""
        return hashlib.sha256(f"night {self.night}".encode()).hexdigest()[:_UID_DIGITS]


class StoredRow(NamedTuple):
    """The JSON of one row, and the run and time (seconds since the epoch) that it is from."""

    run: int
    created: float
    row: bytes


class Store:
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
        self._own_parts: dict[int, Shard] = {}
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

        def note(db: sqlite3.Connection) -> None:
            renewed = [(now, kind, key) for key in stale]
            db.executemany("UPDATE evidence SET used = ? WHERE kind = ? AND key = ?", renewed)
            gone = "DELETE FROM evidence WHERE kind = ? AND key = ? AND checksum = ?"
            db.executemany(gone, changed)

        if stale or changed:
            self.database.write(note)
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

    def begin_run(self, command: str, part: Shard | None = None, *, uid: str | None = None) -> int:
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
                db.execute(
                    "INSERT INTO shards VALUES (?, ?, ?, ?, NULL)"
                    " ON CONFLICT (run_id, number, of) DO UPDATE SET finished = NULL",
                    (number, part.number, part.of, started),
                )
                settle(db, number)
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

    def command_of(self, run: int) -> str:
        """The command line of a run."""
        [[command]] = self.database.select("SELECT command FROM runs WHERE id = ?", run)
        return str(command)

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
                db.execute(
                    "UPDATE shards SET finished = ? WHERE run_id = ? AND number = ? AND of = ?",
                    (now, run, part.number, part.of),
                )
                settle(db, run)
            else:
                db.execute("UPDATE runs SET finished = ? WHERE id = ?", (now, run))

        self.database.write(work)
        if run in self._own_runs:
            self._own_runs[run] = replace(self._own_runs[run], finished=now)

    def runs(self, limit: int = 20) -> list[RunRecord]:
        """Return the latest runs, newest first."""
        rows = self.database.select(_SELECT_RUNS, limit)
        return [RunRecord(**dict(zip(RUN_COLUMNS, row, strict=True))) for row in rows]

    def all_runs(self) -> list[RunRecord]:
        """Return all runs by their start: numbers are in the order in which stores were merged."""
        return sorted(self.runs(limit=1 << 31), key=lambda run: (run.started, run.id))

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

    def kernels(self) -> list[str]:
        """Return the names of all kernels that have results, in order."""
        sql = "SELECT DISTINCT kernel FROM cells ORDER BY kernel"
        return [name for (name,) in self.database.select(sql)]

    def latest_results(self, kernel: str, *, but: Collection[int] = ()) -> Iterator[ResultRecord]:
        """Yield the last result of each cell of a kernel, in any run but these."""
        sql = "SELECT cell FROM cells WHERE kernel = ? ORDER BY cell"
        cells = (cell for (cell,) in self.database.select(sql, kernel))
        return self.last_results(cells, besides=but)

    def cells_from(self, start: str) -> list[str]:
        """Return the ids of all cells that begin so."""
        sql = "SELECT cell FROM cells WHERE cell >= ?1 AND cell < ?1 || char(0x10ffff)"
        return [cell for (cell,) in self.database.select(sql, start)]

    def last_results(
        self,
        cells: Iterable[str],
        *,
        before: float = _FOR_EVER,
        besides: int | Collection[int] = (),
        not_in: Iterable[str] = (),
    ) -> Iterator[ResultRecord]:
        """Yield the last result of each cell before that time, in any run but `besides`.

        Results whose verdict is one of `not_in` are passed over.
        """
        verdicts = json.dumps(list(not_in))
        runs = json.dumps([besides] if isinstance(besides, int) else list(besides))
        for cell in cells:
            page = self._page(_SELECT_LAST, (cell, before, runs, verdicts))
            yield from (record for record, _ in page)

    def latest_of(self, cells: Sequence[str]) -> dict[str, ResultRecord]:
        """Return the last result of each of these cells, by cell; one statement a thousand."""
        records: dict[str, ResultRecord] = {}
        for first in range(0, len(cells), _PAGE):
            page = self._page(_SELECT_LATEST, (json.dumps(cells[first : first + _PAGE]),))
            records.update((record.cell, record) for record, _ in page)
        return records

    def run_bodies(self, run: int, starts: Iterable[str] = ("",)) -> Iterator[StoredRow]:
        """Yield the rows of a run in the order of its cells; half the work of whole records.

        Of cells whose ids begin with one of the `starts`, which are in order.
        """
        for start in starts:
            last = start
            while page := self.database.run(
                lambda db, last=last, start=start: [  # type: ignore[misc]
                    intact(row) for row in db.execute(_SELECT_PAGE, (run, last, start))
                ]
            ):
                for record in page:
                    yield StoredRow(run, record[_CREATED], record[_ROW])
                last = page[-1][_CELL]

    def tally(self, run: int) -> Counter[tuple[str, str, str]]:
        """Count the results of a run by their kernel, target and verdict."""
        sql = """SELECT kernel, target, verdict, count(*) FROM results
            WHERE run_id = ? GROUP BY 1, 2, 3"""
        return Counter({tuple(row[:3]): row[3] for row in self.database.select(sql, run)})

    def verdicts(self, run: int) -> Counter[str]:
        """Count the results of a run by their verdict."""
        counts = Counter[str]()
        for (*_, verdict), count in self.tally(run).items():
            counts[verdict] += count
        return counts

    def changed_cells(
        self, older: int, newer: int, *, but: Iterable[str], kernels: Iterable[str]
    ) -> list[str]:
        """The cells of two runs whose rows are not the same, byte for byte.

        And all whose verdict is not one of `but`, and those of these kernels.
        """
        lists = json.dumps(list(but)), json.dumps(list(kernels))
        return [cell for (cell,) in self.database.select(_SELECT_CHANGED, older, newer, *lists)]

    def _page(self, sql: str, values: tuple[object, ...]) -> list[tuple[ResultRecord, int]]:
        return self.database.run(
            lambda db: [(from_row(row), row[-1]) for row in db.execute(sql, values)]
        )

    def put_execution(self, run: int, row: RunRow, signature: Signature | None) -> None:
        """Keep what came out of one cell, with the parts of its signature."""
        body = msgspec.json.encode(row)
        now = self.clock()
        values = (run, row.cell, row.run.value, row.run_signature, now, body, zlib.crc32(body))

        def work(db: sqlite3.Connection) -> None:
            db.execute(_PUT_EXECUTION, values)
            if signature:
                put_signatures(db, [signature])

        self.database.write(work)

    def executions(self, cell: str) -> list[RunRow]:
        """What came out of a cell, the latest first; what the disk has changed is left out."""
        return self.database.run(
            lambda db: _bodies(db.execute(_SELECT_EXECUTIONS, (cell,)), RunRow)
        )

    def put_workaround(self, workaround: KeptWorkaround) -> None:
        """Keep what was found for a cell, in place of what was found before."""
        body = msgspec.json.encode(workaround)
        values = (workaround.baseline.cell, workaround.created, body, zlib.crc32(body))
        self.database.run(lambda db: db.execute(_PUT_WORKAROUND, values))

    def workarounds(self) -> list[KeptWorkaround]:
        """All that are kept, oldest first; one that was changed by the disk is left out."""
        return self.database.run(
            lambda db: _bodies(db.execute(_SELECT_WORKAROUNDS), KeptWorkaround)
        )

    def evidence_times(self, kind: str, keys: Iterable[str]) -> dict[str, float]:
        """Return when each piece of evidence was made, in seconds since the epoch."""
        rows = self.database.select(SELECT_EVIDENCE, kind, json.dumps(list(keys)))
        return {key: created for key, _, created, *_ in rows}

    def records(
        self, kind: str, schema: type[T], keys: Iterable[str] | None = None
    ) -> dict[str, T]:
        """The records of a kind by key, the oldest first: all, or those with these keys.

        Left out is what the disk has changed, what lacks an artifact, and what another version of
        this program wrote in another form.
        """
        return self.database.run(lambda db: self._read(db, kind, schema, keys))

    def keep_record(
        self, kind: str, key: str, value: object, *, artifacts: Collection[str] = ()
    ) -> None:
        """Keep a record in the place of an older one; put its artifacts (their sha256) first."""
        self.change_record(kind, key, msgspec.Raw, lambda _: value, artifacts=artifacts)

    def change_record(
        self,
        kind: str,
        key: str,
        schema: type[T],
        change: Callable[[T | None], object],
        *,
        artifacts: Collection[str] = (),
    ) -> None:
        """Keep what `change` makes of a record, in one transaction; None leaves it as it is.

        `change` may be called twice; it gets None where there is no record that can be read.
        """
        if kind not in RECORD_KINDS:
            raise ValueError(f"{kind!r} is no kind of record: see RECORD_KINDS")

        def work(db: sqlite3.Connection) -> None:
            value = change(self._read(db, kind, schema, [key]).get(key))
            if value is not None:
                record = Evidence(msgspec.json.encode(value), {name: name for name in artifacts})
                put_record(db, kind, key, record, created=self.clock())

        self.database.write(work)

    def _read(
        self, db: sqlite3.Connection, kind: str, schema: type[T], keys: Iterable[str] | None
    ) -> dict[str, T]:
        values: dict[str, T] = {}
        named = None if keys is None else json.dumps(list(keys))
        for row in db.execute(SELECT_RECORDS, (kind, named)):
            entry = read_row(row)
            if entry and all(map(self.artifacts.has, entry.evidence.artifacts.values())):
                try:
                    values[entry.key] = msgspec.json.decode(entry.evidence.body, type=schema)
                except msgspec.MsgspecError:
                    continue
        return values


def _bodies(rows: Iterable[tuple[bytes, int]], kind: type[T]) -> list[T]:
    """What rows of a body and its checksum hold, but for damaged ones and other versions'."""
    decoded = []
    for body, checksum in rows:
        with suppress(msgspec.MsgspecError):
            if zlib.crc32(body) == checksum:
                decoded.append(msgspec.json.decode(body, type=kind))
    return decoded


def settle(db: sqlite3.Connection, run: int) -> None:
    """A run in parts began with the first of them, and ends with the last of all."""
    parts = db.execute(
        "SELECT number, of, started, finished FROM shards WHERE run_id = ?", (run,)
    ).fetchall()
    if not parts:
        return
    finished_parts: dict[int, dict[int, float]] = {}
    for number, of, _, finished in parts:
        if finished is not None:
            finished_parts.setdefault(of, {})[number] = finished
    whole = [max(ends.values()) for of, ends in finished_parts.items() if len(ends) == of]
    db.execute(
        "UPDATE runs SET started = ?, finished = ? WHERE id = ?",
        (min(started for _, _, started, _ in parts), min(whole, default=None), run),
    )
