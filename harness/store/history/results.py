"""Results of past runs, asked for by cell and by kernel; a part of the store."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from harness.store.sqlite.connection import DamagedRowError
from harness.store.sqlite.records import RESULT_COLUMNS, from_row, is_intact

if TYPE_CHECKING:
    from harness.store.sqlite.database import Database
    from harness.store.sqlite.records import ResultRecord


# All that is put into the text of a statement is a constant.
SELECT_RESULTS = f"SELECT {', '.join(RESULT_COLUMNS)}, id FROM results"  # noqa: S608
_SELECT_LAST = (
    f"{SELECT_RESULTS} WHERE cell = ? AND created < ? AND run_id <> ?"  # noqa: S608
    " AND verdict NOT IN (SELECT value FROM json_each(?)) ORDER BY created DESC, id DESC LIMIT 1"
)
_SELECT_LATEST = f"""
    SELECT {", ".join(f"results.{name}" for name in RESULT_COLUMNS)}, results.id
    FROM json_each(?) AS wanted JOIN results ON results.id = (
        SELECT id FROM results WHERE cell = wanted.value ORDER BY created DESC, id DESC LIMIT 1
    )
"""  # noqa: S608
_SELECT_KERNELS = """
    WITH RECURSIVE kernels (name) AS (
        SELECT min(kernel) FROM results
        UNION ALL
        SELECT (SELECT min(kernel) FROM results WHERE kernel > name) FROM kernels
        WHERE name IS NOT NULL
    )
    SELECT name FROM kernels WHERE name IS NOT NULL
"""
"""One step in the index a kernel, where DISTINCT would walk over every result."""
_FOR_EVER = float("inf")
_NO_RUN = -1
_PAGE = 1000
_CELL, _CREATED, _ROW = (RESULT_COLUMNS.index(name) for name in ("cell", "created", "row"))


class StoredRow(NamedTuple):
    """The JSON of one row, and the run and time (seconds since the epoch) that it is from."""

    run: int
    created: float
    row: bytes


class PastResults:
    """The part of `Store` that looks back over all runs."""

    _database: Database

    def kernels(self) -> list[str]:
        """Return the names of all kernels that have results, in order.

        Raises:
            StorageError: the database cannot be read.
        """
        return self._database.run(
            lambda db: [name for (name,) in db.execute(_SELECT_KERNELS).fetchall()]
        )

    def latest_results(self, kernel: str) -> Iterator[ResultRecord]:
        """Yield the last result of each cell of a kernel.

        Raises:
            StorageError: the database cannot be read.
        """
        sql = "SELECT DISTINCT cell FROM results WHERE kernel = ? ORDER BY cell"
        cells = self._database.run(lambda db: db.execute(sql, (kernel,)).fetchall())
        return self.last_results(cell for (cell,) in cells)

    def cells_from(self, start: str) -> list[str]:
        """Return the ids of all cells that begin so.

        Raises:
            StorageError: the database cannot be read.
        """
        sql = "SELECT DISTINCT cell FROM results WHERE cell >= ?1 AND cell < ?1 || char(0x10ffff)"
        return self._database.run(
            lambda db: [cell for (cell,) in db.execute(sql, (start,)).fetchall()]
        )

    def last_results(
        self,
        cells: Iterable[str],
        *,
        before: float = _FOR_EVER,
        besides: int = _NO_RUN,
        not_in: Iterable[str] = (),
    ) -> Iterator[ResultRecord]:
        """Yield the last result of each cell before that time, in any run but `besides`.

        Results whose verdict is one of `not_in` are passed over.

        Raises:
            StorageError: the database cannot be read.
        """
        verdicts = json.dumps(list(not_in))
        for cell in cells:
            page = self._page(_SELECT_LAST, (cell, before, besides, verdicts))
            yield from (record for record, _ in page)

    def latest_of(self, cells: Sequence[str]) -> dict[str, ResultRecord]:
        """Return the last result of each of these cells, by cell; one statement a thousand.

        Raises:
            StorageError: the database cannot be read.
        """
        found: dict[str, ResultRecord] = {}
        for first in range(0, len(cells), _PAGE):
            page = self._page(_SELECT_LATEST, (json.dumps(cells[first : first + _PAGE]),))
            found.update((record.cell, record) for record, _ in page)
        return found

    def run_bodies(self, run: int) -> Iterator[StoredRow]:
        """Yield the rows of a run in the order of its cells; half the work of whole records.

        Raises:
            StorageError: the database cannot be read.
        """
        sql = f"{SELECT_RESULTS} WHERE run_id = ? AND cell > ? ORDER BY cell LIMIT {_PAGE}"
        last = ""
        while page := self._bodies(sql, (run, last)):
            yield from (body for _, body in page)
            last = page[-1][0]

    def _bodies(self, sql: str, values: tuple[object, ...]) -> list[tuple[str, StoredRow]]:
        return self._database.run(lambda db: _bodies(db.execute(sql, values)))

    def _page(self, sql: str, values: tuple[object, ...]) -> list[tuple[ResultRecord, int]]:
        """The records that a `SELECT_RESULTS` finds, each with its number."""
        return self._database.run(
            lambda db: [(from_row(row), number) for *row, number in db.execute(sql, values)]
        )


def _bodies(rows: Iterable[Sequence[Any]]) -> list[tuple[str, StoredRow]]:
    """The cell and body of each row.

    Raises:
        DamagedRowError: one is not what was written.
    """
    found = []
    for *row, _ in rows:
        if not is_intact(row):
            raise DamagedRowError(f"the result of {row[_CELL]} in run {row[0]} was changed")
        found.append((row[_CELL], StoredRow(row[0], row[_CREATED], row[_ROW])))
    return found
