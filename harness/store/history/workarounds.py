"""The part of the store that keeps workarounds: one for each cell that had one found."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import msgspec

from harness.values.workaround import KeptWorkaround

if TYPE_CHECKING:
    import sqlite3

    from harness.store.sqlite.database import Database


_SELECT = "SELECT body, checksum FROM workarounds ORDER BY created, cell"
_PUT = "INSERT OR REPLACE INTO workarounds VALUES (?, ?, ?, ?)"


class WorkaroundRecords:
    """The part of `Store` that knows workarounds."""

    _database: Database

    def put_workaround(self, kept: KeptWorkaround) -> None:
        """Keep what was found for a cell, in place of what was found before.

        Raises:
            StorageError: the database cannot be written.
        """
        body = msgspec.json.encode(kept)
        values = (kept.baseline.cell, kept.created, body, zlib.crc32(body))
        self._database.run(lambda db: db.execute(_PUT, values))

    def workarounds(self) -> list[KeptWorkaround]:
        """All that are kept, oldest first; one that was changed by the disk is left out.

        Raises:
            StorageError: the database cannot be read.
        """

        def work(db: sqlite3.Connection) -> list[KeptWorkaround]:
            found = []
            for body, checksum in db.execute(_SELECT):
                if zlib.crc32(body) != checksum:
                    continue
                try:
                    found.append(msgspec.json.decode(body, type=KeptWorkaround))
                except msgspec.MsgspecError:
                    continue  # written by another version of this program
            return found

        return self._database.run(work)
