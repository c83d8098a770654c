"""How much a store holds, and making it hold less: evidence is forgotten, nothing else is."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.store.artifacts import ArtifactStore, database_copy
from harness.store.schema import artifacts_of_records, transaction
from harness.store.store import Store

if TYPE_CHECKING:
    import sqlite3


_GRACE = 3600.0
"""Seconds for which an artifact that nothing names is left alone: its maker may be about to."""

_SWEEP_BATCH = 500

_NAMED_AMONG = """
    SELECT DISTINCT sha256 FROM evidence_artifacts
    WHERE sha256 IN (SELECT value FROM json_each(?))
"""


class KindStats(msgspec.Struct, frozen=True, kw_only=True):
    """How many rows, and the bytes of their JSON."""

    rows: int
    bytes: int


class StoreStats(msgspec.Struct, frozen=True, kw_only=True):
    """What the store holds. Artifact sizes are compressed, as on disk.

    `orphans` are the artifacts that neither evidence nor a record names.
    """

    evidence: Mapping[str, KindStats]
    records: Mapping[str, KindStats]
    results: KindStats
    runs: int
    artifacts: int
    artifact_bytes: int
    orphans: int
    orphan_bytes: int
    database_bytes: int


class TrimReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a trim removed; `bytes` counts artifacts on disk and the JSON of evidence."""

    evidence: int
    artifacts: int
    bytes: int


def store_stats(store: Store) -> StoreStats:
    """Measure what is held; walks the whole artifact folder."""
    on_disk = {sha256: size for sha256, size, _ in store.artifacts.all()}

    def work(db: sqlite3.Connection) -> StoreStats:
        evidence, records = (
            {
                kind: KindStats(rows=rows, bytes=size)
                for kind, rows, size in db.execute(
                    f"SELECT kind, count(*), sum(length(body)) FROM {table} GROUP BY 1"  # noqa: S608 - constants
                )
            }
            for table in ("evidence", "records")
        )
        rows, size, runs, pages = db.execute(
            "SELECT count(*), coalesce(sum(length(row)), 0), (SELECT count(*) FROM runs),"
            " (SELECT page_count * page_size FROM pragma_page_count, pragma_page_size)"
            " FROM results"
        ).fetchone()
        named = {name for (name,) in db.execute("SELECT sha256 FROM evidence_artifacts")}
        named |= artifacts_of_records(db)
        orphans = [size for sha256, size in on_disk.items() if sha256 not in named]
        return StoreStats(
            evidence=evidence,
            records=records,
            results=KindStats(rows=rows, bytes=size),
            runs=runs,
            artifacts=len(on_disk),
            artifact_bytes=sum(on_disk.values()),
            orphans=len(orphans),
            orphan_bytes=sum(orphans),
            database_bytes=pages,
        )

    return store.database.run(work)


def trim_store(
    store: Store, *, max_bytes: int | None = None, older_than: float | None = None
) -> TrimReport:
    """Forget evidence, least recently used first, and delete artifacts that nothing names.

    Evidence goes when it was last used more than `older_than` seconds ago, and while what is
    left (JSON and named artifacts on disk) is over `max_bytes`; with neither, only unnamed
    artifacts go. History stays, and so do records with their artifacts, which are not counted.

    Safe beside writers. A writer puts artifacts first and names them afterwards, and `put`
    renews an artifact's time, so an unnamed one is deleted only if its last `put` is an hour
    ago, or was before the evidence that we just dropped was recorded (then it was not put
    since). Names are looked up, and files deleted, under the database's write lock: evidence
    recorded before that is seen; evidence recorded after it that lost its artifact all the
    same (put between our look at the file and its deletion) reads as "make it again".
    """
    now = store.clock()
    on_disk = {sha256: size for sha256, size, _ in store.artifacts.all()}
    oldest = None if older_than is None else now - older_than
    rows, freed, recorded = store.database.run(
        lambda db: _drop_unused(db, on_disk, max_bytes, oldest)
    )
    put_until = [(name, max(now - _GRACE, recorded.get(name, 0.0))) for name in on_disk]
    sizes: list[int] = []
    for at in range(0, len(put_until), _SWEEP_BATCH):
        batch = dict(put_until[at : at + _SWEEP_BATCH])
        sizes += store.database.write(partial(_sweep, artifacts=store.artifacts, put_until=batch))
    # Gives back one page for each step; only executescript() steps to the end.
    store.database.run(lambda db: db.executescript("PRAGMA incremental_vacuum"))
    return TrimReport(evidence=rows, artifacts=len(sizes), bytes=freed + sum(sizes))


def make_room(home: Path, *, max_bytes: int | None, older_than: float | None) -> TrimReport:
    """As `trim_store`, where the disk is full: what is to go is found in a copy of the database.

    Artifacts are deleted here. Their evidence is made again when it is asked for.

    Raises:
        StorageError: the database cannot be copied to the temporary folder.
    """
    with database_copy(home) as folder, Store(home, copy=folder) as store:
        store.artifacts = ArtifactStore(home / "artifacts")
        return trim_store(store, max_bytes=max_bytes, older_than=older_than)


def _drop_unused(
    db: sqlite3.Connection, on_disk: Mapping[str, int], max_bytes: int | None, oldest: float | None
) -> tuple[int, int, dict[str, float]]:
    """How many rows were forgotten, their bytes, and when artifacts of theirs were recorded."""
    rows = freed = 0
    recorded: dict[str, float] = {}
    with transaction(db):
        names: dict[tuple[str, str], list[str]] = {}
        on_disk = {**on_disk, **dict.fromkeys(artifacts_of_records(db), 0)}
        for kind, key, sha256 in db.execute("SELECT kind, key, sha256 FROM evidence_artifacts"):
            names.setdefault((kind, key), []).append(sha256)
        owners = Counter(sha256 for named in names.values() for sha256 in named)
        bodies = db.execute("SELECT coalesce(sum(length(body)), 0) FROM evidence").fetchone()[0]
        total = bodies + sum(on_disk.get(sha256, 0) for sha256 in owners)
        least_recent = db.execute(
            "SELECT kind, key, length(body), created, used FROM evidence ORDER BY used, created"
        ).fetchall()
        for kind, key, size, created, used in least_recent:
            expired = oldest is not None and used < oldest
            if not expired and (max_bytes is None or total <= max_bytes):
                continue
            db.execute("DELETE FROM evidence WHERE kind = ? AND key = ?", (kind, key))
            rows += 1
            freed += size
            total -= size
            for sha256 in names.get((kind, key), ()):
                recorded[sha256] = max(created, recorded.get(sha256, 0.0))
                owners[sha256] -= 1
                total -= on_disk.get(sha256, 0) if not owners[sha256] else 0
    return rows, freed, recorded


def _sweep(
    db: sqlite3.Connection, *, artifacts: ArtifactStore, put_until: Mapping[str, float]
) -> list[int]:
    """Delete those that nothing names and nothing put since; return the bytes of each."""
    among = json.dumps(list(put_until))
    named = {sha256 for (sha256,) in db.execute(_NAMED_AMONG, (among,))}
    named |= artifacts_of_records(db)
    removed = [
        artifacts.remove(sha256, put_until=until)
        for sha256, until in put_until.items()
        if sha256 not in named
    ]
    return [size for size in removed if size]
