"""Taking over the history of other stores: idempotent, and in whatever order they come.

Another store's database is data from elsewhere: it is opened read-only, checked whole (structure,
checksums, rows that decode, sizes) before anything is taken from it, and refused in one line where
it is not what a triage wrote.

Runs are the same where their uids are; their results are united. Of two results of one cell in one
run the later stays. What people say of a bug is taken where it was said later. Numbers of bugs that
are given here stay; one that is given elsewhere is kept where it is free here.
"""

from __future__ import annotations

import heapq
import json
import math
import shutil
import sqlite3
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import msgspec
from msgspec import structs

from harness.io.files.writing import Scratch, scratch_disk
from harness.store.artifacts import DATABASE, ArtifactStore, DamagedArtifactError
from harness.store.bugs import (
    join,
    new_number,
    put_signatures,
    read_bugs,
    read_numbers,
    read_signatures,
)
from harness.store.schema import (
    NAME_CELLS,
    RECORD_KINDS,
    RESULT_COLUMNS,
    RUN_COLUMNS,
    SELECT_EVIDENCE,
    SELECT_RECORDS,
    EvidenceRow,
    ResultRecord,
    RunRecord,
    from_row,
    has_tables,
    put_record,
    put_row,
    read_row,
    to_row,
)
from harness.store.store import Store, settle
from harness.values.bug import BugRecord, HumanState, KeptWorkaround
from harness.values.errors import StorageError, UsageError
from harness.values.execution import RunRow
from harness.values.row import Row
from harness.values.verdict import Signature, VerdictKind

_LARGEST = 8 << 30
_LARGEST_ROW = 1 << 20
_LARGEST_WORKAROUND = 4 << 20
_LARGEST_RECORD = 256 << 20
_LONGEST_WORD = 10_000

T = TypeVar("T")

_decode_row = msgspec.json.Decoder(Row).decode


class ForeignStore(msgspec.Struct, frozen=True, kw_only=True):
    """Open and checked. Of runs and bugs the numbers are those there, `duplicate_of` is one too.

    `shards` are the parts of runs, by the number: number, of, started, finished.
    `packed` gives the file of an artifact by its sha256, None where there is none; that it is what
    its name says is not checked.
    """

    path: Path
    db: sqlite3.Connection
    packed: Callable[[str], bytes | None]
    runs: tuple[RunRecord, ...]
    shards: Mapping[int, Sequence[tuple[int, int, float, float | None]]]
    signatures: tuple[Signature, ...]
    bugs: tuple[BugRecord, ...]
    workarounds: tuple[KeptWorkaround, ...]

    def results(self, run: int) -> Iterator[ResultRecord]:
        """The results of a run, by its number there, in the order of their cells."""
        for row in self.db.execute(f"{_SELECT} WHERE run_id = ? ORDER BY cell", (run,)):
            yield from_row(row)

    def executions(self, run: int) -> Iterator[tuple[Any, ...]]:
        """What came out of cells in a run: its `_EXECUTION`; what was changed is left out."""
        query = f"SELECT {', '.join(_EXECUTION)} FROM executions WHERE run_id = ? ORDER BY id"  # noqa: S608
        for values in self.db.execute(query, (run,)):
            *_, created, body, checksum = values
            if isinstance(body, bytes) and zlib.crc32(body) == checksum:
                _time(created)
                row = msgspec.json.decode(body, type=RunRow)
                if (row.cell, row.run.value, row.run_signature) == values[:3]:
                    yield values


_EXECUTION = ("cell", "verdict", "signature_key", "created", "body", "checksum")

# All that is put into the text of a statement is a constant.
_SELECT = f"SELECT {', '.join(RESULT_COLUMNS)} FROM results"  # noqa: S608


@contextmanager
def open_foreign(
    place: Path, packed: Callable[[str], bytes | None] | None = None
) -> Iterator[ForeignStore]:
    """Open the database at `place`, or in that folder; its artifacts lie beside it, or in `packed`.

    Raises:
        UsageError: it is not there, damaged, a stranger's, or made by another version of triage.
    """
    path = place / DATABASE if place.is_dir() else place
    if not path.is_file():
        raise UsageError(f"{place}: there is no {DATABASE}")
    if path.stat().st_size > _LARGEST:
        raise UsageError(f"{path} is over {_LARGEST >> 30} GiB, the largest that is merged")
    with Scratch() as folder:
        try:
            db = _connect(path, folder)
        except (sqlite3.Error, OSError) as error:
            raise UsageError(f"{path} cannot be read: {error}") from error
        try:
            lying = ArtifactStore(path.parent / "artifacts", writable=False)
            store = _checked(path, db, packed or lying.packed)
        except sqlite3.Error as error:
            raise UsageError(f"{path} is damaged, or no database of triage: {error}") from error
        except (msgspec.MsgspecError, ValueError, TypeError, OverflowError) as error:
            complaint = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
            raise UsageError(f"{path} holds what no triage wrote: {complaint}") from error
        except StorageError as error:
            raise UsageError(str(error)) from error
        else:
            yield store
        finally:
            db.close()


def _connect(path: Path, folder: Path) -> sqlite3.Connection:
    log = path.with_name(f"{path.name}-wal")
    if log.is_file() and log.stat().st_size:
        # A killed run leaves a log. Reading it in place would write beside it: read a copy.
        for file in (path, log):
            shutil.copyfile(file, folder / file.name)
        path = folder / path.name
        mode = "mode=rw"
    else:
        mode = "mode=ro&immutable=1"
    db = sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True, isolation_level=None)
    try:
        for setting in ("query_only = ON", "trusted_schema = OFF", "cell_size_check = ON"):
            db.execute(f"PRAGMA {setting}")
    except BaseException:
        db.close()
        raise
    return db


def _checked(
    path: Path, db: sqlite3.Connection, packed: Callable[[str], bytes | None]
) -> ForeignStore:
    (damage,) = db.execute("PRAGMA integrity_check(1)").fetchone()
    if damage != "ok":
        raise sqlite3.DatabaseError(str(damage).splitlines()[0])
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not {"runs", "results"} <= tables:
        raise UsageError(f"{path} is not a database of triage")
    has_tables(db, path)
    signatures = read_signatures(db)
    if any(signature.key != key for key, signature in signatures.items()):
        raise ValueError("a signature under another's key")
    foreign = ForeignStore(
        path=path,
        db=db,
        packed=packed,
        runs=tuple(
            _sound(dict(zip(RUN_COLUMNS, row, strict=True)), RunRecord)
            for row in db.execute(f"SELECT {', '.join(RUN_COLUMNS)} FROM runs")  # noqa: S608
        ),
        shards=_shards(db),
        signatures=tuple(_sound(structs.asdict(each), Signature) for each in signatures.values()),
        bugs=tuple(_sound(structs.asdict(bug), BugRecord) for bug in read_bugs(db)),
        workarounds=_workarounds(db),
    )
    runs = {run.id for run in foreign.runs}
    largest = db.execute("SELECT max(length(row)) FROM results").fetchone()[0] or 0
    if largest > _LARGEST_ROW:
        raise ValueError(f"a row of {largest} bytes")
    for row in db.execute(_SELECT):
        record = from_row(row)
        if record.run not in runs:
            raise ValueError("a result of no run")
        if not isinstance(record.row, bytes) or not isinstance(record.evidence, dict):
            raise TypeError("a result that cannot be read")
        decoded = _decode_row(record.row)
        VerdictKind(record.verdict)
        _time(record.created)
        coordinates = (decoded.cell, decoded.verdict, decoded.signature, decoded.kernel)
        if coordinates != (record.cell, record.verdict, record.signature_key, record.kernel):
            raise ValueError(f"a result that contradicts itself: {str(record.cell)[:100]!r}")
    return foreign


def _sound(values: Mapping[str, object], kind: type[T]) -> T:
    """What a row holds, as long as it can be, with times that are numbers."""
    for value in values.values():
        if isinstance(value, str) and len(value) > _LONGEST_WORD:
            raise ValueError("a text that is too long")
        if isinstance(value, float):
            _time(value)
    return msgspec.convert(values, kind)


def _shards(db: sqlite3.Connection) -> dict[int, list[tuple[int, int, float, float | None]]]:
    shards: dict[int, list[tuple[int, int, float, float | None]]] = {}
    for run, number, of, started, finished in db.execute(
        "SELECT run_id, number, of, started, finished FROM shards ORDER BY run_id, number, of"
    ):
        if not 1 <= number <= of:
            raise ValueError("a shard that is not a part")
        ended = None if finished is None else _time(finished)
        shards.setdefault(run, []).append((int(number), int(of), _time(started), ended))
    return shards


def _workarounds(db: sqlite3.Connection) -> tuple[KeptWorkaround, ...]:
    workarounds = []
    for cell, body, checksum in db.execute("SELECT cell, body, checksum FROM workarounds"):
        if not isinstance(body, bytes) or len(body) > _LARGEST_WORKAROUND:
            raise ValueError("not a workaround")
        if zlib.crc32(body) != checksum:
            continue
        workaround = msgspec.json.decode(body, type=KeptWorkaround)
        if workaround.baseline.cell != cell:
            raise ValueError("a workaround under another's cell")
        _time(workaround.created)
        workarounds.append(workaround)
    return tuple(workarounds)


def _time(value: object) -> float:
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError("a time that is none")
    return float(value)


# What merged results were judged from, with its artifacts; captures, kept workarounds, and records.
# Without it a merged cell can be listed, and neither shown nor judged again. It is taken before the
# results, a page at a time; what was taken when the merge is interrupted does no harm, because
# evidence says what it is of by its key. What is here already stays.

_PAGE = 500
_PUT_WORKAROUND = """
    INSERT INTO workarounds VALUES (?, ?, ?, ?)
    ON CONFLICT (cell) DO UPDATE
    SET created = excluded.created, body = excluded.body, checksum = excluded.checksum
    WHERE excluded.created > created
"""


class Merged(msgspec.Struct, frozen=True, kw_only=True):
    """How many runs, results, decisions on bugs, workarounds and pieces of evidence are new here.

    `records` are hunts, least inputs of bugs, packs and what searches learned. `artifacts` are the
    files of evidence and records; `lacking` is how many of these had lost theirs: what they are of
    can be listed, and not shown.
    `merged` are the folders that were read, `refused` one line for each that was not. `unfinished`
    are the merged runs that still lack a shard, or were stopped: nothing is compared with them.
    """

    runs: int = 0
    results: int = 0
    bugs: int = 0
    workarounds: int = 0
    evidence: int = 0
    records: int = 0
    artifacts: int = 0
    lacking: int = 0
    merged: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    unfinished: tuple[int, ...] = ()


def take_evidence(store: Store, sources: Sequence[ForeignStore]) -> Merged:
    """Take what the results of other stores were judged from, and all of their records.

    Raises:
        StorageError: it cannot be kept here.
    """
    new = copied = lacking = records = 0
    database, artifacts, now = store.database, store.artifacts, store.clock()
    for source in sources:
        for kind in sorted(RECORD_KINDS):
            for values in source.db.execute(SELECT_RECORDS, (kind, None)):
                row = read_row(values)
                is_sound = (
                    row
                    and len(row.key) <= _LONGEST_WORD
                    and len(row.evidence.body) <= _LARGEST_RECORD
                    and math.isfinite(row.created)
                )
                count = _copy(row, source, artifacts) if row and is_sound else None
                if row is None or count is None:
                    lacking += 1
                else:
                    copied += count
                    records += database.write(partial(_put_newer, kind, row))
        named = _named(source)
        while page := list(islice(named, _PAGE)):
            keys: defaultdict[str, list[str]] = defaultdict(list)
            for kind, key in page:
                keys[kind].append(key)
            rows: list[tuple[str, EvidenceRow]] = []
            for kind, names in keys.items():
                for values in source.db.execute(SELECT_EVIDENCE, (kind, json.dumps(names))):
                    row = read_row(values)
                    count = _copy(row, source, artifacts) if row else None
                    if row is None or count is None:
                        lacking += 1
                    else:
                        rows.append((kind, row))
                        copied += count
            new += database.write(partial(_put_page, rows, now))
    return Merged(evidence=new, records=records, artifacts=copied, lacking=lacking)


def _put_newer(kind: str, row: EvidenceRow, db: sqlite3.Connection) -> bool:
    select = "SELECT 1 FROM records WHERE kind = ? AND key = ? AND created >= ?"
    if db.execute(select, (kind, row.key, row.created)).fetchone():
        return False
    put_record(db, kind, row.key, row.evidence, created=row.created)
    return True


def _named(source: ForeignStore) -> Iterator[tuple[str, str]]:
    """Kind and key of each piece of evidence that a result names, and of each capture.

    A capture has the cells that the next night looks for; what it came to is in no result.
    """
    named: set[tuple[str, str]] = set()
    for (key,) in source.db.execute("SELECT key FROM evidence WHERE kind = 'capture'"):
        if isinstance(key, str):
            yield "capture", key
    for run in source.runs:
        for record in source.results(run.id):
            for pair in record.evidence.items():
                if pair not in named:
                    named.add(pair)
                    yield pair


def _copy(row: EvidenceRow, source: ForeignStore, ours: ArtifactStore) -> int | None:
    """How many artifacts were copied; None where one is missing, so that it is of no use."""
    copied = 0
    for sha256 in set(row.evidence.artifacts.values()):
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


def _put_page(rows: list[tuple[str, EvidenceRow]], now: float, db: sqlite3.Connection) -> int:
    new = 0
    for kind, row in rows:
        select = "SELECT 1 FROM evidence WHERE kind = ? AND key = ?"
        if not db.execute(select, (kind, row.key)).fetchone():
            # Made when it was: a result older than its evidence is not judged again.
            put_row(db, kind, row.key, row.evidence, created=row.created, used=now)
            new += 1
    return new


def take_workarounds(db: sqlite3.Connection, source: ForeignStore) -> int:
    """Take the workarounds that are newer than those here, or for other cells; how many.

    Only of repros, by name: one for a file would have a night run what lies under that name here.
    """
    taken = 0
    for workaround in source.workarounds:
        if not any(sign in workaround.baseline.kernel for sign in "/."):
            body = msgspec.json.encode(workaround)
            values = (workaround.baseline.cell, workaround.created, body, zlib.crc32(body))
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
_PUT_EXECUTION = f"""
    INSERT INTO executions (run_id, {", ".join(_EXECUTION)})
    SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7 WHERE NOT EXISTS (
        SELECT 1 FROM executions
        WHERE cell = ?2 AND created = ?5 AND run_id = ?1 AND checksum = ?7
    )
"""  # noqa: S608
_PUT_SHARD = """
    INSERT INTO shards VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (run_id, number, of) DO UPDATE SET
        started = min(started, excluded.started),
        finished = coalesce(max(finished, excluded.finished), finished, excluded.finished)
"""


def take_over(store: Store, sources: Sequence[ForeignStore]) -> Merged:
    """Take over everything of these stores; if it is interrupted, evidence at the most."""
    taken = take_evidence(store, sources)

    def work(db: sqlite3.Connection) -> Merged:
        sizes = "SELECT (SELECT count(*) FROM runs), (SELECT count(*) FROM results)"
        before = db.execute(sizes).fetchone()
        put_signatures(db, {signature for source in sources for signature in source.signatures})
        runs: defaultdict[str, list[tuple[ForeignStore, RunRecord]]] = defaultdict(list)
        for source in sources:
            for run in source.runs:
                runs[run.uid].append((source, run))
        # The oldest first, so that they get the same numbers in any order.
        for uid, same in sorted(
            runs.items(), key=lambda item: (min(run.started for _, run in item[1]), item[0])
        ):
            for _, run in same:
                db.execute(
                    _PUT_RUN, (uid, run.started, run.finished, run.command, run.harness_version)
                )
            (number,) = db.execute("SELECT id FROM runs WHERE uid = ?", (uid,)).fetchone()
            for source, run in same:
                parts = source.shards.get(run.id, ())
                db.executemany(_PUT_SHARD, [(number, *part) for part in parts])
            streams = [source.results(run.id) for source, run in same]
            together = heapq.merge(*streams, key=lambda record: record.cell)
            db.executemany(_PUT_RESULT, (to_row(number, record, 0.0) for record in together))
            db.execute(f"{NAME_CELLS} WHERE run_id = ?", (number,))
            for source, run in same:
                values = ((number, *row) for row in source.executions(run.id))
                db.executemany(_PUT_EXECUTION, values)
            settle(db, number)
        bugs = _take_bugs(db, sources)
        workarounds = sum(take_workarounds(db, source) for source in sources)
        after = db.execute(sizes).fetchone()
        return structs.replace(
            taken,
            runs=after[0] - before[0],
            results=after[1] - before[1],
            bugs=bugs,
            workarounds=workarounds,
        )

    return store.database.write(work)


def merge_stores(store: Store, folders: Iterable[Path]) -> Merged:
    """Take over all runs, results and bugs of other stores: their folders, or their databases.

    A folder that is refused keeps none of the others out, and nothing of it is taken.

    Raises:
        StorageError: this store cannot be written.
    """
    refused: list[str] = []
    sources: list[ForeignStore] = []
    with ExitStack() as opened:
        for folder in folders:
            try:
                sources.append(opened.enter_context(open_foreign(folder)))
            except UsageError as error:
                refused.append(str(error))
        merged = take_over(store, sources)
        uids = {run.uid for source in sources for run in source.runs}
    return structs.replace(
        merged,
        merged=tuple(str(source.path) for source in sources),
        refused=tuple(refused),
        unfinished=tuple(
            run.id for run in store.all_runs() if run.finished is None and run.uid in uids
        ),
    )


def take_evidence_of(store: Store, source: ForeignStore) -> set[str]:
    """Take over the evidence of a store, and no result; the keys of all that it has."""
    take_evidence(store, [source])
    return {key for (key,) in source.db.execute("SELECT key FROM evidence") if key}


def _take_bugs(db: sqlite3.Connection, sources: Sequence[ForeignStore]) -> int:
    numbers = read_numbers(db)
    every = [(record, source) for source in sources for record in source.bugs]
    for record, _ in sorted(every, key=lambda pair: (pair[0].created, pair[0].key)):
        given_numbers = sorted({numbers[key] for key in _keys(record) if key in numbers})
        number = (
            given_numbers[0]
            if given_numbers
            else new_number(db, record.key, record.created, record.number)
        )
        for key in _keys(record):
            if key not in numbers:
                numbers[key] = number
                db.execute("INSERT INTO bug_keys VALUES (?, ?)", (key, number))
        if len(given_numbers) > 1:
            join(db, given_numbers, "another store has joined them")
            numbers = read_numbers(db)
    taken = 0
    decided = [
        ((record.changed, record.state.value, record.url or "", record.note), record, source)
        for record, source in every
        if record.changed is not None
    ]
    for _, record, source in sorted(decided, key=itemgetter(0)):
        taken += _take_words(db, numbers, record, source)
    return taken


def _keys(record: BugRecord) -> tuple[str, ...]:
    return tuple(dict.fromkeys((record.key, *record.other_keys)))


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


_Parcel: TypeAlias = tuple[bytes, dict[str, bytes]]
"""The database, and the files of artifacts by their sha256, compressed as they lie there."""


def pack(home: Path) -> bytes:
    """The results in a folder whose store is closed."""
    artifacts = ArtifactStore(home / "artifacts", writable=False)
    packed = {name: artifacts.packed(name) or b"" for name, _, _ in artifacts.all()}
    return msgspec.msgpack.encode(((home / DATABASE).read_bytes(), packed))


@contextmanager
def open_parcel(data: bytes) -> Iterator[ForeignStore]:
    """The store in a parcel, unpacked for as long as the block lasts.

    Raises:
        UsageError: it is not what `pack` made, or what it holds is refused.
    """
    try:
        database, artifacts = msgspec.msgpack.decode(data, type=_Parcel)
    except msgspec.MsgspecError as error:
        raise UsageError(f"a parcel that this program did not pack: {error}") from error
    with Scratch() as folder:
        with scratch_disk():
            (folder / DATABASE).write_bytes(database)
        with open_foreign(folder, artifacts.get) as source:
            yield source
