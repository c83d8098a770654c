"""Evidence as rows of the database, and how a changed one is found out."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import sqlite3


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


def when_made(db: sqlite3.Connection, kind: str, key: str, evidence: Evidence) -> float | None:
    """When this very evidence was made; None where none is kept under the key, or another."""
    body, artifacts = evidence
    found = db.execute(
        "SELECT created FROM evidence WHERE kind = ? AND key = ? AND body = ? AND checksum = ?",
        (kind, key, body, _checksum(body, artifacts)),
    ).fetchone()
    return float(found[0]) if found else None


def _checksum(body: bytes, artifacts: Mapping[str, str]) -> int:
    return zlib.crc32(ascii(sorted(artifacts.items())).encode(), zlib.crc32(body))
