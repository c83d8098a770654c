"""Records: what was found once and cannot be made again, by kind and key.

A part of the store. A hunt of eight hours, the least input of a bug, a pack that is on its way to a
GPU: no trim takes them, `matrix merge` brings them, and the newest under a key stays.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, TypeVar

import msgspec

from harness.store.artifacts import ArtifactStore
from harness.store.schema import RECORD_KINDS, SELECT_RECORDS, Evidence, put_record, read_row

if TYPE_CHECKING:
    import sqlite3

    from harness.store.database import Database


T = TypeVar("T")


class Records:
    """The part of `Store` that keeps records; their bodies are JSON of a type of the caller."""

    database: Database
    artifacts: ArtifactStore
    clock: Callable[[], float]

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
