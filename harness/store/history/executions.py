"""The part of the store that keeps what came out when cells were executed: history, too."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from harness.store.history.bugs import put_signatures
from harness.store.sqlite.connection import transaction
from harness.values.execution import RunRow
from harness.values.verdict import Signature

if TYPE_CHECKING:
    import sqlite3

    from harness.store.sqlite.database import Database


_SELECT = "SELECT body, checksum FROM executions WHERE cell = ? ORDER BY created DESC, id DESC"
_PUT = (
    "INSERT INTO executions (run_id, cell, verdict, signature_key, created, body, checksum)"
    " VALUES (?, ?, ?, ?, ?, ?, ?)"
)


class ExecutionRecords:
    """The part of `Store` that knows executions."""

    _database: Database
    _clock: Callable[[], float]

    def put_execution(self, run: int, row: RunRow, signature: Signature | None) -> None:
        """Keep what came out of one cell, with the parts of its signature.

        Raises:
            StorageError: the database cannot be written.
        """
        body = msgspec.json.encode(row)
        now = self._clock()
        values = (run, row.cell, row.run.value, row.run_signature, now, body, zlib.crc32(body))

        def work(db: sqlite3.Connection) -> None:
            with transaction(db):
                db.execute(_PUT, values)
                if signature:
                    put_signatures(db, [signature])

        self._database.run(work)

    def executions(self, cell: str) -> list[RunRow]:
        """What came out of a cell, the latest first; what the disk has changed is left out.

        Raises:
            StorageError: the database cannot be read.
        """

        def work(db: sqlite3.Connection) -> list[RunRow]:
            found = []
            for body, checksum in db.execute(_SELECT, (cell,)):
                if zlib.crc32(body) != checksum:
                    continue
                try:
                    found.append(msgspec.json.decode(body, type=RunRow))
                except msgspec.MsgspecError:
                    continue  # written by another version of this program
            return found

        return self._database.run(work)
