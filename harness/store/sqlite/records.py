"""History as rows: what is kept of a run and of each of its cells, and how it is written down."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from harness.store.sqlite.connection import DamagedRowError
from harness.values.verdict import Signature

if TYPE_CHECKING:
    import sqlite3


# Evidence as rows of the database, and how a changed one is found out.

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


Config: TypeAlias = Mapping[str, str | int | float | bool | None]

_FIELDS = (
    "cell",
    "short",
    "kernel",
    "launch",
    "config",
    "target",
    "triton",
    "ptxas",
    "verdict",
    "signature_key",
    "row",
    "evidence",
    "created",
)
"""Fields of `ResultRecord` that are columns of the same name, in the order of the checksum."""

RESULT_COLUMNS = ("run_id", *_FIELDS, "checksum")
"""What `to_row` makes and `from_row` reads."""

RUN_COLUMNS = ("id", "uid", "started", "finished", "command", "harness_version")
"""The fields of `RunRecord`, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultRecord:
    """One cell of one run, as it is kept for history.

    `row` is the JSON object that `--json` prints; the other fields are what history is searched
    by. `evidence` maps a kind to the key of the evidence that the row was judged from.
    `created` is in seconds since the epoch; it and `run` are set by the store. `signature` has the
    parts of the key; the store keeps them once for all results, and does not return them here.
    """

    cell: str
    short: str
    kernel: str
    launch: str
    config: Config
    target: str
    triton: str
    ptxas: str
    verdict: str
    row: bytes
    evidence: Mapping[str, str]
    signature_key: str | None = None
    created: float | None = None
    run: int | None = None
    signature: Signature | None = None


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


def canonical(value: Mapping[str, object]) -> str:
    """JSON by which equal configs are equal texts."""
    return json.dumps(dict(value), sort_keys=True, separators=(",", ":"))


def to_row(run: int, record: ResultRecord, now: float) -> tuple[object, ...]:
    """Return the `RESULT_COLUMNS` of a record; `now` is when it was made if it does not say."""
    stored = {name: getattr(record, name) for name in _FIELDS}
    stored["config"] = canonical(record.config)
    stored["evidence"] = canonical(record.evidence)
    stored["created"] = now if record.created is None else record.created
    values = (run, *stored.values())
    return (*values, _row_checksum(values))


def from_row(row: Sequence[Any]) -> ResultRecord:
    """Make a record from its `RESULT_COLUMNS`.

    Raises:
        DamagedRowError: it is not what was written.
    """
    run, *values, _ = row
    stored = dict(zip(_FIELDS, values, strict=True))
    if not is_intact(row):
        raise DamagedRowError(f"the result of {stored['cell']} in run {run} was changed")
    stored["config"] = json.loads(stored["config"])
    stored["evidence"] = json.loads(stored["evidence"])
    return ResultRecord(run=run, **stored)


def is_intact(row: Sequence[object]) -> bool:
    """Whether these `RESULT_COLUMNS` are what was written."""
    *values, checksum = row
    return checksum == _row_checksum(tuple(values))


def _row_checksum(values: tuple[object, ...]) -> int:
    # ascii() and not repr(): what repr() escapes depends on Python's Unicode tables.
    return zlib.crc32(ascii(values).encode())
