"""Results of past runs: asked for by cell and by kernel, executed, judged again, worked around.

Parts of the store. What a result was judged from never changes here; a result whose evidence is
gone, or is of a later time than the result, is not judged again.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec

from harness.store.bugs import put_signatures
from harness.store.schema import RESULT_COLUMNS, ResultRecord, from_row, intact
from harness.values.bug import KeptWorkaround
from harness.values.execution import RunRow
from harness.values.verdict import Signature

if TYPE_CHECKING:
    import sqlite3

    from harness.store.database import Database


T = TypeVar("T")

_PAGE = 1000

# All that is put into the text of a statement is a constant.
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
_SELECT_KERNELS = "SELECT DISTINCT kernel FROM cells ORDER BY kernel"
_FOR_EVER = float("inf")
_CELL, _CREATED, _ROW = (RESULT_COLUMNS.index(name) for name in ("cell", "created", "row"))


class StoredRow(NamedTuple):
    """The JSON of one row, and the run and time (seconds since the epoch) that it is from."""

    run: int
    created: float
    row: bytes


class PastResults:
    """The part of `Store` that keeps what came out: results, executions, workarounds."""

    database: Database
    clock: Callable[[], float]

    def kernels(self) -> list[str]:
        """Return the names of all kernels that have results, in order."""
        return [name for (name,) in self.database.select(_SELECT_KERNELS)]

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

    def verdicts(self, run: int) -> Counter[str]:
        """Count the results of a run by their verdict."""
        sql = "SELECT verdict, count(*) FROM results WHERE run_id = ? GROUP BY verdict"
        return Counter(dict(self.database.select(sql, run)))

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
            db.execute(_PUT, values)
            if signature:
                put_signatures(db, [signature])

        self.database.write(work)

    def executions(self, cell: str) -> list[RunRow]:
        """What came out of a cell, the latest first; what the disk has changed is left out."""
        return self.database.run(lambda db: _bodies(db.execute(_SELECT, (cell,)), RunRow))

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
        sql = (
            "SELECT key, created FROM evidence"
            " WHERE kind = ? AND key IN (SELECT value FROM json_each(?))"
        )
        return dict(self.database.select(sql, kind, json.dumps(list(keys))))


def _bodies(rows: Iterable[tuple[bytes, int]], kind: type[T]) -> list[T]:
    """What rows of a body and its checksum hold, but for damaged ones and other versions'."""
    decoded = []
    for body, checksum in rows:
        with suppress(msgspec.MsgspecError):
            if zlib.crc32(body) == checksum:
                decoded.append(msgspec.json.decode(body, type=kind))
    return decoded


_SELECT = "SELECT body, checksum FROM executions WHERE cell = ? ORDER BY created DESC, id DESC"
_PUT = (
    "INSERT INTO executions (run_id, cell, verdict, signature_key, created, body, checksum)"
    " VALUES (?, ?, ?, ?, ?, ?, ?)"
)


# Runs that are worked off in parts: the shards of one night, on one machine or on many. All shards
# of a night are one run. Its uid follows from the night's name, so that stores which know nothing
# of each other call it the same, and merging them unites it. The run has finished when all of its
# shards have.

_UID_DIGITS = 32


class NightPart(msgspec.Struct, frozen=True, kw_only=True):
    """Shard `number` (from 1) `of` so many, of the night with this name."""

    night: str
    number: int = 1
    of: int = 1

    @property
    def uid(self) -> str:
        """The uid of the run that all parts of the night make up."""
        return hashlib.sha256(f"night {self.night}".encode()).hexdigest()[:_UID_DIGITS]


def begin_part(db: sqlite3.Connection, run: int, part: NightPart, now: float) -> None:
    """Record that a shard begins, or begins again."""
    db.execute(
        "INSERT INTO shards VALUES (?, ?, ?, ?, NULL)"
        " ON CONFLICT (run_id, number, of) DO UPDATE SET finished = NULL",
        (run, part.number, part.of, now),
    )
    settle(db, run)


def finish_part(db: sqlite3.Connection, run: int, part: NightPart, now: float) -> None:
    """Record that a shard has come to its end, and with the last one the run."""
    db.execute(
        "UPDATE shards SET finished = ? WHERE run_id = ? AND number = ? AND of = ?",
        (now, run, part.number, part.of),
    )
    settle(db, run)


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


_SELECT_WORKAROUNDS = "SELECT body, checksum FROM workarounds ORDER BY created, cell"
_PUT_WORKAROUND = "INSERT OR REPLACE INTO workarounds VALUES (?, ?, ?, ?)"
