"""Another store's database, read as what it is: data from elsewhere.

It is opened read-only, checked whole (structure, checksums, rows that decode, sizes) before
anything is taken from it, and refused in one line where it is not what a triage wrote.
"""

from __future__ import annotations

import math
import shutil
import sqlite3
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from harness.store.files.artifacts import ArtifactStore
from harness.store.history.bugs import BUG_COLUMNS, SIGNATURE_COLUMNS
from harness.store.sqlite.migrations import applied
from harness.store.sqlite.records import RESULT_COLUMNS, RUN_COLUMNS, ResultRecord, from_row
from harness.values.bug import BugRecord, HumanState, KeptWorkaround
from harness.values.errors import StorageError, UsageError
from harness.values.row import Row
from harness.values.verdict import Signature, VerdictKind

_NAME = "triage.db"
_LARGEST = 8 << 30
_LARGEST_ROW = 1 << 20
_LARGEST_WORKAROUND = 4 << 20
_LONGEST_WORD = 10_000
_UID = 64

_decode_row = msgspec.json.Decoder(Row).decode


class ForeignRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run with its number there; `parts` are its shards: number, of, started, finished."""

    id: int
    uid: str
    started: float
    finished: float | None
    command: str
    harness_version: str
    parts: tuple[tuple[int, int, float, float | None], ...] = ()


class ForeignStore(msgspec.Struct, frozen=True, kw_only=True):
    """Open and checked. Bugs come with all their keys, `duplicate_of` is a number of its own.

    `packed` gives the file of an artifact by its sha256, None where there is none; that it is what
    its name says is not checked.
    """

    path: Path
    db: sqlite3.Connection
    packed: Callable[[str], bytes | None]
    runs: tuple[ForeignRun, ...]
    signatures: tuple[Signature, ...]
    bugs: tuple[BugRecord, ...]
    has_evidence: bool
    workarounds: tuple[KeptWorkaround, ...]

    def results(self, run: int) -> Iterator[ResultRecord]:
        """The results of a run, by its number there, in the order of their cells."""
        for row in self.db.execute(f"{_SELECT} WHERE run_id = ? ORDER BY cell", (run,)):
            yield from_row(row)


# All that is put into the text of a statement is a constant.
_SELECT = f"SELECT {', '.join(RESULT_COLUMNS)} FROM results"  # noqa: S608


@contextmanager
def open_foreign(
    place: Path, packed: Callable[[str], bytes | None] | None = None
) -> Iterator[ForeignStore]:
    """Open the database at `place`, or in that folder; its artifacts lie beside it, or in `packed`.

    Raises:
        UsageError: it is not there, damaged, a stranger's, or made by a newer triage.
    """
    path = place / _NAME if place.is_dir() else place
    if not path.is_file():
        raise UsageError(f"{place}: there is no {_NAME}")
    if path.stat().st_size > _LARGEST:
        raise UsageError(f"{path} is over {_LARGEST >> 30} GiB, the largest that is merged")
    with tempfile.TemporaryDirectory(prefix="triage-merge-") as folder:
        try:
            db = _connect(path, Path(folder))
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
        db.execute("PRAGMA query_only = ON")
        db.execute("PRAGMA trusted_schema = OFF")
        db.execute("PRAGMA cell_size_check = ON")
    except BaseException:
        db.close()
        raise
    return db


def _checked(
    path: Path, db: sqlite3.Connection, packed: Callable[[str], bytes | None]
) -> ForeignStore:
    (said,) = db.execute("PRAGMA integrity_check(1)").fetchone()
    if said != "ok":
        raise sqlite3.DatabaseError(str(said).splitlines()[0])
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not {"migrations", "runs", "results"} <= tables:
        raise UsageError(f"{path} is not a database of triage")
    applied(db, path)
    found = ForeignStore(
        path=path,
        db=db,
        packed=packed,
        runs=_runs(db, shards="shards" in tables),
        signatures=_signatures(db) if "signatures" in tables else (),
        bugs=_bugs(db) if {"bugs", "bug_keys"} <= tables else (),
        has_evidence={"evidence", "evidence_artifacts"} <= tables,
        workarounds=_workarounds(db) if "workarounds" in tables else (),
    )
    runs = {run.id for run in found.runs}
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
        said = (decoded.cell, decoded.verdict, decoded.signature, decoded.kernel)
        if said != (record.cell, record.verdict, record.signature_key, record.kernel):
            raise ValueError(f"a result that contradicts itself: {str(record.cell)[:100]!r}")
    return found


def _runs(db: sqlite3.Connection, *, shards: bool) -> tuple[ForeignRun, ...]:
    parts: dict[int, list[tuple[int, int, float, float | None]]] = {}
    if shards:
        for run, number, of, started, finished in db.execute(
            "SELECT run_id, number, of, started, finished FROM shards ORDER BY run_id, number, of"
        ):
            if not 1 <= number <= of:
                raise ValueError("a shard that is not a part")
            part = (int(number), int(of), _time(started), _maybe_time(finished))
            parts.setdefault(run, []).append(part)
    found = []
    for row in db.execute(f"SELECT {', '.join(RUN_COLUMNS)} FROM runs"):  # noqa: S608
        values: dict[str, Any] = dict(zip(RUN_COLUMNS, row, strict=True))
        values["uid"] = _word(values["uid"], _UID)
        values["command"] = _word(values["command"])
        values["harness_version"] = _word(values["harness_version"], 200)
        values["started"], values["finished"] = (
            _time(values["started"]),
            _maybe_time(values["finished"]),
        )
        found.append(ForeignRun(**values, parts=tuple(parts.get(values["id"], ()))))
    return tuple(found)


def _signatures(db: sqlite3.Connection) -> tuple[Signature, ...]:
    found = []
    for key, *parts in db.execute(
        f"SELECT {', '.join(SIGNATURE_COLUMNS)} FROM signatures"  # noqa: S608
    ):
        values: dict[str, Any] = dict(zip(SIGNATURE_COLUMNS[1:], parts, strict=True))
        signature = msgspec.convert(values, Signature)
        if signature.key != key:
            raise ValueError("a signature under another's key")
        found.append(signature)
    return tuple(found)


def _bugs(db: sqlite3.Connection) -> tuple[BugRecord, ...]:
    keys: dict[int, list[str]] = {}
    for key, number in db.execute("SELECT key, number FROM bug_keys ORDER BY key"):
        keys.setdefault(number, []).append(_word(key, 100))
    found = []
    for row in db.execute(f"SELECT {', '.join(BUG_COLUMNS)} FROM bugs ORDER BY number"):  # noqa: S608
        values: dict[str, Any] = dict(zip(BUG_COLUMNS, row, strict=True))
        values["state"] = HumanState(values["state"])
        values["note"] = _word(values["note"])
        values["url"] = None if values["url"] is None else _word(values["url"])
        values["created"], values["changed"] = (
            _time(values["created"]),
            _maybe_time(values["changed"]),
        )
        found.append(BugRecord(**values, other_keys=tuple(keys.get(values["number"], ()))))
    return tuple(found)


def _workarounds(db: sqlite3.Connection) -> tuple[KeptWorkaround, ...]:
    found = []
    for cell, body, checksum in db.execute("SELECT cell, body, checksum FROM workarounds"):
        if not isinstance(body, bytes) or len(body) > _LARGEST_WORKAROUND:
            raise ValueError("not a workaround")
        if zlib.crc32(body) != checksum:
            continue
        kept = msgspec.json.decode(body, type=KeptWorkaround)
        if kept.baseline.cell != cell:
            raise ValueError("a workaround under another's cell")
        _time(kept.created)
        found.append(kept)
    return tuple(found)


def _word(value: object, longest: int = _LONGEST_WORD) -> str:
    if not isinstance(value, str) or len(value) > longest:
        raise ValueError("not a string")
    return value


def _time(value: object) -> float:
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError("a time that is none")
    return float(value)


def _maybe_time(value: object) -> float | None:
    return None if value is None else _time(value)
