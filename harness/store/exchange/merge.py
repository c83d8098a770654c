"""Taking over the history of other stores: idempotent, and in whatever order they come.

Runs are the same where their uids are; their results are united. Of two results of one cell in one
run the later stays. What people say of a bug is taken where it was said later. Numbers of bugs that
are given here stay; one that is given elsewhere is kept where it is free here.
"""

from __future__ import annotations

import heapq
import json
import tempfile
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.store.exchange.foreign import ForeignRun, ForeignStore, open_foreign
from harness.store.files.artifacts import DATABASE, ArtifactStore, DamagedArtifactError
from harness.store.history.bugs import join, put_signatures, read_numbers
from harness.store.history.results import settle
from harness.store.sqlite.connection import transaction
from harness.store.sqlite.records import (
    RESULT_COLUMNS,
    SELECT_EVIDENCE,
    EvidenceRow,
    put_row,
    read_row,
    to_row,
)
from harness.values.bug import BugRecord, HumanState
from harness.values.errors import UsageError

if TYPE_CHECKING:
    import sqlite3

    from harness.store.sqlite.database import Database


# What merged results were judged from, with its artifacts; captures, and kept workarounds. Without
# it a merged cell can be listed, and neither shown nor judged again. It is taken before the
# results, a page at a time; what was taken when the merge is interrupted does no harm, because
# evidence says what it is of by its key. What is here already stays.

_PAGE = 500
_PUT_WORKAROUND = """
    INSERT INTO workarounds VALUES (?, ?, ?, ?)
    ON CONFLICT (cell) DO UPDATE
    SET created = excluded.created, body = excluded.body, checksum = excluded.checksum
    WHERE excluded.created > created
"""


class Taken(msgspec.Struct, frozen=True, kw_only=True):
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
    taken = Taken()
    named = _named(source)
    while page := list(islice(named, _PAGE)):
        # What is whole of a page, its artifacts copied; how many these are; how many are not whole.
        keys: defaultdict[str, list[str]] = defaultdict(list)
        for kind, key in page:
            keys[kind].append(key)
        rows: list[tuple[str, EvidenceRow]] = []
        copied = lacking = 0
        for kind, wanted in keys.items():
            for row in source.db.execute(SELECT_EVIDENCE, (kind, json.dumps(wanted))):
                found = read_row(row)
                count = _copy(found, source, artifacts) if found else None
                if found is None or count is None:
                    lacking += 1
                else:
                    rows.append((kind, found))
                    copied += count
        new = database.run(partial(_put_page, rows=rows, now=now))
        taken += Taken(evidence=new, artifacts=copied, lacking=lacking)
    return taken


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


# All that is put into the text of a statement is a constant.
_PUT_RESULT = f"""
    INSERT INTO results ({", ".join(RESULT_COLUMNS)})
    VALUES ({", ".join("?" for _ in RESULT_COLUMNS)})
    ON CONFLICT (run_id, cell) DO UPDATE SET
        {", ".join(f"{name} = excluded.{name}" for name in RESULT_COLUMNS)}
    WHERE (excluded.created, excluded.checksum) > (created, checksum)
"""  # noqa: S608
_PUT_RUN = """
    INSERT INTO runs (uid, started, finished, command, harness_version) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (uid) DO UPDATE SET
        started = min(started, excluded.started),
        finished = coalesce(max(finished, excluded.finished), finished, excluded.finished),
        command = min(command, excluded.command),
        harness_version = min(harness_version, excluded.harness_version)
"""
_PUT_SHARD = """
    INSERT INTO shards VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (run_id, number, of) DO UPDATE SET
        started = min(started, excluded.started),
        finished = coalesce(max(finished, excluded.finished), finished, excluded.finished)
"""


_NOTHING = Taken()


class Merged(msgspec.Struct, frozen=True, kw_only=True):
    """How many runs, results and workarounds were new here, and bugs with later words of people.

    `taken` is what the results were judged from.
    """

    runs: int
    results: int
    bugs: int
    workarounds: int = 0
    taken: Taken = _NOTHING


class Merging:
    """The part of `Store` that takes over what others have."""

    _database: Database
    artifacts: ArtifactStore
    _clock: Callable[[], float]

    def take_over(self, sources: Sequence[ForeignStore]) -> Merged:
        """Take over everything of these stores; if it is interrupted, evidence at the most.

        Raises:
            StorageError: the database cannot be written.
        """
        taken = Taken()
        for source in sources:
            taken += take_evidence(self._database, self.artifacts, source, self._clock())

        def work(db: sqlite3.Connection) -> Merged:
            with transaction(db):
                before = _counts(db)
                put_signatures(db, {each for source in sources for each in source.signatures})
                # The uids of all runs, oldest first, so that they get the same numbers in any
                # order.
                started: dict[str, float] = {}
                for source in sources:
                    for run in source.runs:
                        started[run.uid] = min(run.started, started.get(run.uid, run.started))
                for uid in sorted(started, key=lambda uid: (started[uid], uid)):
                    found: list[tuple[ForeignStore, ForeignRun]] = [
                        (source, run) for source in sources for run in source.runs if run.uid == uid
                    ]
                    for _, run in found:
                        db.execute(
                            _PUT_RUN,
                            (uid, run.started, run.finished, run.command, run.harness_version),
                        )
                    (number,) = db.execute("SELECT id FROM runs WHERE uid = ?", (uid,)).fetchone()
                    for _, run in found:
                        db.executemany(_PUT_SHARD, [(number, *part) for part in run.parts])
                    streams = [source.results(run.id) for source, run in found]
                    together = heapq.merge(*streams, key=lambda record: record.cell)
                    db.executemany(
                        _PUT_RESULT, (to_row(number, record, 0.0) for record in together)
                    )
                    settle(db, number)
                bugs = _take_bugs(db, sources)
                workarounds = sum(take_workarounds(db, source) for source in sources)
                after = _counts(db)
            return Merged(
                runs=after[0] - before[0],
                results=after[1] - before[1],
                bugs=bugs,
                workarounds=workarounds,
                taken=taken,
            )

        return self._database.run(work)

    def take_evidence_of(self, source: ForeignStore) -> set[str]:
        """Take over the evidence of a store, and no result; the keys of all that it has.

        Raises:
            StorageError: the database cannot be written.
        """
        take_evidence(self._database, self.artifacts, source, self._clock())
        return {key for (key,) in source.db.execute("SELECT key FROM evidence") if key}


def _counts(db: sqlite3.Connection) -> tuple[int, int]:
    found = db.execute("SELECT (SELECT count(*) FROM runs), (SELECT count(*) FROM results)")
    runs, results = found.fetchone()
    return runs, results


def _take_bugs(db: sqlite3.Connection, sources: Sequence[ForeignStore]) -> int:
    numbers = read_numbers(db)
    every = [
        (record, source) for source in sources for record in source.bugs if _keys(record)
    ]  # one that is a duplicate by a re-keying has none of its own
    for record, _ in sorted(every, key=lambda each: (each[0].created, each[0].key)):
        known = sorted({numbers[key] for key in _keys(record) if key in numbers})
        number = known[0] if known else _new_number(db, record)
        for key in _keys(record):
            if key not in numbers:
                numbers[key] = number
                db.execute("INSERT INTO bug_keys VALUES (?, ?)", (key, number))
        if len(known) > 1:
            join(db, known, "another store has joined them")
            numbers = read_numbers(db)
    taken = 0
    said = [each for each in every if each[0].changed is not None]
    for record, source in sorted(said, key=lambda each: _latest(each[0])):
        taken += _take_words(db, numbers, record, source)
    return taken


def _keys(record: BugRecord) -> tuple[str, ...]:
    return tuple(dict.fromkeys((record.key, *record.other_keys)))


def _latest(record: BugRecord) -> tuple[object, ...]:
    return record.changed, record.state.value, record.url or "", record.note


def _new_number(db: sqlite3.Connection, record: BugRecord) -> int:
    free = not db.execute("SELECT 1 FROM bugs WHERE number = ?", (record.number,)).fetchone()
    number = db.execute(
        "INSERT INTO bugs (number, key, created) VALUES (?, ?, ?)",
        (record.number if free else None, record.key, record.created),
    ).lastrowid
    assert number is not None
    return number


def _take_words(
    db: sqlite3.Connection, numbers: dict[str, int], record: BugRecord, source: ForeignStore
) -> int:
    number = numbers[record.key]
    state, original = record.state, None
    if state is HumanState.DUPLICATE:
        theirs = next((bug for bug in source.bugs if bug.number == record.duplicate_of), None)
        original = numbers.get(theirs.key) if theirs else None
        if original in (None, number):
            return 0
    return db.execute(
        "UPDATE bugs SET state = ?, url = ?, duplicate_of = ?, note = ?, changed = ?"
        " WHERE number = ? AND (changed IS NULL OR changed < ?)",
        (state.value, record.url, original, record.note, record.changed, number, record.changed),
    ).rowcount


# A whole results folder as bytes: what a worker found out, on its way to the store of a night. It
# is read like any other store that is merged: as data from elsewhere, checked whole.


class _Parcel(msgspec.Struct):
    """The database, and the files of artifacts by their sha256, compressed as they lie there."""

    database: bytes
    artifacts: dict[str, bytes]


def pack(home: Path) -> bytes:
    """The results in a folder whose store is closed."""
    held = ArtifactStore(home / "artifacts", writable=False)
    return msgspec.msgpack.encode(
        _Parcel(
            database=(home / DATABASE).read_bytes(),
            artifacts={name: held.packed(name) or b"" for name, _, _ in held.all()},
        )
    )


@contextmanager
def open_parcel(data: bytes) -> Iterator[ForeignStore]:
    """The store in a parcel, unpacked for as long as the block lasts.

    Raises:
        UsageError: it is not what `pack` made, or what it holds is refused.
    """
    try:
        parcel = msgspec.msgpack.decode(data, type=_Parcel)
    except msgspec.MsgspecError as error:
        raise UsageError(f"a parcel that this program did not pack: {error}") from error
    with tempfile.TemporaryDirectory(prefix="triage-parcel-") as folder:
        (Path(folder) / DATABASE).write_bytes(parcel.database)
        with open_foreign(Path(folder), parcel.artifacts.get) as source:
            yield source
