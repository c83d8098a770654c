"""What merged results were judged from, with its artifacts; captures, and kept workarounds.

Without it a merged cell can be listed, and neither shown nor judged again. It is taken before the
results, a page at a time; what was taken when the merge is interrupted does no harm, because
evidence says what it is of by its key. What is here already stays.
"""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from harness.store.files.artifacts import DamagedArtifactError
from harness.store.sqlite.connection import transaction
from harness.store.sqlite.evidence_rows import SELECT_EVIDENCE, EvidenceRow, put_row, read_row

if TYPE_CHECKING:
    import sqlite3

    from harness.store.exchange.foreign import ForeignStore
    from harness.store.files.artifacts import ArtifactStore
    from harness.store.sqlite.database import Database


_PAGE = 500
_PUT_WORKAROUND = """
    INSERT INTO workarounds VALUES (?, ?, ?, ?)
    ON CONFLICT (cell) DO UPDATE
    SET created = excluded.created, body = excluded.body, checksum = excluded.checksum
    WHERE excluded.created > created
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """How many pieces of evidence and artifacts are new here; `lacking` have lost an artifact."""

    evidence: int = 0
    artifacts: int = 0
    lacking: int = 0

    def __add__(self, other: Taken) -> Taken:
        return Taken(
            evidence=self.evidence + other.evidence,
            artifacts=self.artifacts + other.artifacts,
            lacking=self.lacking + other.lacking,
        )


def take_evidence(
    database: Database, artifacts: ArtifactStore, source: ForeignStore, now: float
) -> Taken:
    """Take what the results of another store were judged from.

    Raises:
        StorageError: it cannot be kept here.
    """
    if not source.has_evidence:
        return Taken()
    done = Taken()
    named = _named(source)
    while page := list(islice(named, _PAGE)):
        rows, copied, lacking = _read_page(source, page, artifacts)
        new = database.run(partial(_put_page, rows=rows, now=now))
        done += Taken(evidence=new, artifacts=copied, lacking=lacking)
    return done


def _named(source: ForeignStore) -> Iterator[tuple[str, str]]:
    """Kind and key of each piece of evidence that a result names, and of each capture.

    A capture has the cells that the next night looks for; what it came to is in no result.
    """
    seen: set[tuple[str, str]] = set()
    for (key,) in source.db.execute("SELECT key FROM evidence WHERE kind = 'capture'"):
        if isinstance(key, str):
            yield "capture", key
    for run in source.runs:
        for record in source.results(run.id):
            for pair in record.evidence.items():
                if pair not in seen:
                    seen.add(pair)
                    yield pair


def _read_page(
    source: ForeignStore, page: list[tuple[str, str]], ours: ArtifactStore
) -> tuple[list[tuple[str, EvidenceRow]], int, int]:
    """What is whole of a page, its artifacts copied; how many these are; how many are not whole."""
    keys: defaultdict[str, list[str]] = defaultdict(list)
    for kind, key in page:
        keys[kind].append(key)
    rows: list[tuple[str, EvidenceRow]] = []
    copied = lacking = 0
    for kind, wanted in keys.items():
        for row in source.db.execute(SELECT_EVIDENCE, (kind, json.dumps(wanted))):
            found = read_row(row)
            count = _copy(found, source, ours) if found else None
            if found is None or count is None:
                lacking += 1
            else:
                rows.append((kind, found))
                copied += count
    return rows, copied, lacking


def _copy(found: EvidenceRow, source: ForeignStore, ours: ArtifactStore) -> int | None:
    """How many artifacts were copied; None where one is missing, so that it is of no use."""
    copied = 0
    for sha256 in set(found.evidence.artifacts.values()):
        if ours.has(sha256):
            continue
        packed = source.packed(sha256)
        if packed is None:
            return None
        try:
            ours.put_packed(sha256, packed)
        except DamagedArtifactError:
            return None
        copied += 1
    return copied


def _put_page(db: sqlite3.Connection, *, rows: list[tuple[str, EvidenceRow]], now: float) -> int:
    new = 0
    with transaction(db):
        for kind, row in rows:
            known = "SELECT 1 FROM evidence WHERE kind = ? AND key = ?"
            if not db.execute(known, (kind, row.key)).fetchone():
                # Made when it was: a result older than its evidence is not judged again.
                put_row(db, kind, row.key, row.evidence, created=row.created, used=now)
                new += 1
    return new


def take_workarounds(db: sqlite3.Connection, source: ForeignStore) -> int:
    """Take the workarounds that are newer than those here, or for other cells; how many.

    Only of repros, by name: one for a file would have a night run what lies under that name here.
    """
    taken = 0
    for kept in source.workarounds:
        if not any(sign in kept.baseline.kernel for sign in "/."):
            body = msgspec.json.encode(kept)
            values = (kept.baseline.cell, kept.created, body, zlib.crc32(body))
            taken += db.execute(_PUT_WORKAROUND, values).rowcount
    return taken
