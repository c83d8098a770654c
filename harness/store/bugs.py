"""What is kept of bugs: their numbers, what people say of them, and their signatures.

A part of the store. A number is given once and never again to another bug; all that follows from
results is derived from them. A bug answers to the keys of `harness.store.bug_identity`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from harness.store.bug_identity import identities, is_wordless, same_program
from harness.store.schema import transaction
from harness.values.bug import BugRecord, HumanState
from harness.values.cell import program_of
from harness.values.verdict import Signature, VerdictKind

if TYPE_CHECKING:
    import sqlite3

    from harness.store.database import Database


_BUG_COLUMNS = ("number", "key", "state", "url", "duplicate_of", "note", "created", "changed")
_SIGNATURE_COLUMNS = ("key", "stage", "kind", "failing_pass", "code", "template")

# Below, all that is put into the text of a statement is a constant.
_SELECT_BUGS = f"SELECT {', '.join(_BUG_COLUMNS)} FROM bugs ORDER BY number"  # noqa: S608
_SELECT_SIGNATURES = f"SELECT {', '.join(_SIGNATURE_COLUMNS)} FROM signatures"  # noqa: S608
_PUT_SIGNATURE = "INSERT OR IGNORE INTO signatures VALUES (?, ?, ?, ?, ?, ?)"
_NO_FAILURES = ", ".join(f"'{kind.value}'" for kind in VerdictKind if not kind.is_failure)
_SELECT_UNNUMBERED = f"""
    SELECT signature_key, min(created) FROM results
    WHERE signature_key IS NOT NULL
        AND verdict NOT IN ({_NO_FAILURES})
        AND signature_key NOT IN (SELECT key FROM bug_keys)
        AND signature_key NOT IN (SELECT value FROM json_each(?))
    GROUP BY signature_key
"""  # noqa: S608
_SELECT_PROGRAMS = f"""
    SELECT signature_key, kernel, triton, json_extract(CAST(row AS TEXT), '$.ptx_body_sha256'),
        min(created), CASE WHEN triton = ''
            THEN coalesce(json_extract(CAST(row AS TEXT), '$.probe_of'), cell) END,
        json_extract(CAST(row AS TEXT), '$.file')
    FROM results
    WHERE signature_key IN (SELECT value FROM json_each(?))
        AND verdict NOT IN ({_NO_FAILURES})
    GROUP BY 1, 2, triton = '', 4, 6, 7
"""  # noqa: S608


def kept_bugs(database: Database) -> list[BugRecord]:
    """All bugs by number; each failure with a signature gets one now, if it has none.

    Numbers are given in the order in which the failures were first seen.
    """

    def work(db: sqlite3.Connection) -> list[BugRecord]:
        if _claims(db):
            with transaction(db):
                number_bugs(db)
        return read_bugs(db)

    return database.run(work)


def put_bug(database: Database, record: BugRecord) -> None:
    """Keep what people say of a bug; its number, key and time of creation stay."""
    values = (record.state.value, record.url, record.duplicate_of, record.note, time.time())
    database.run(
        lambda db: db.execute(
            "UPDATE bugs SET state = ?, url = ?, duplicate_of = ?, note = ?, changed = ?"
            " WHERE number = ?",
            (*values, record.number),
        )
    )


def join_two(database: Database, keeper: int, other: int, why: str) -> None:
    """Let the results of one bug count as those of another, from now on; `why` is kept."""

    def work(db: sqlite3.Connection) -> None:
        records = {record.number: record for record in read_bugs(db)}
        _make_duplicate(db, records[other], keeper, why)

    database.write(work)


def read_signatures(db: sqlite3.Connection) -> dict[str, Signature]:
    """The parts of every signature that was kept, by key."""
    names = _SIGNATURE_COLUMNS[1:]
    rows = db.execute(_SELECT_SIGNATURES).fetchall()
    return {key: Signature(**dict(zip(names, parts, strict=True))) for key, *parts in rows}


def put_signatures(db: sqlite3.Connection, signatures: Iterable[Signature]) -> None:
    """Keep the parts of signatures, within the caller's transaction."""
    values = attrgetter(*_SIGNATURE_COLUMNS)
    db.executemany(_PUT_SIGNATURE, {values(signature) for signature in signatures})


def _make_duplicate(db: sqlite3.Connection, record: BugRecord, of: int, why: str) -> None:
    """What people said of it (its URL, its note, and the state in words) stays readable."""
    was = record.state not in (HumanState.UNTRIAGED, HumanState.DUPLICATE)
    notes = (
        record.note,
        f"was {record.state.value}" if was else "",
        f"joined with bug {of}: {why}",
    )
    note = "; ".join(filter(None, notes))
    db.execute(
        "UPDATE bugs SET state = ?, duplicate_of = ?, note = ?, changed = ? WHERE number = ?",
        (HumanState.DUPLICATE.value, of, note, time.time(), record.number),
    )
    db.execute("UPDATE bug_keys SET number = ? WHERE number = ?", (of, record.number))


def _claims(db: sqlite3.Connection) -> list[tuple[float, tuple[str, ...]]]:
    """Failures that are one bug for all of their keys, some of which no bug answers to yet.

    Each with when it was first seen, the oldest first.
    """
    wordless = {
        key: signature for key, signature in read_signatures(db).items() if is_wordless(signature)
    }
    listed = json.dumps(list(wordless))
    claims: list[tuple[float, tuple[str, ...]]] = [
        (created, (key,)) for key, created in db.execute(_SELECT_UNNUMBERED, (listed,))
    ]
    numbers = read_numbers(db)
    for key, kernel, triton, ptx, created, cell, file in db.execute(_SELECT_PROGRAMS, (listed,)):
        keys = identities(
            wordless[key],
            kernel=kernel,
            triton=triton or None,
            ptx=ptx,
            program=program_of(cell or ""),
            file=file,
        )
        if len({numbers.get(signature) for signature in keys}) > 1 or keys[0] not in numbers:
            claims.append((created, keys))
    return sorted(claims)


def number_bugs(db: sqlite3.Connection) -> None:
    """Give each failure the number of its bug, within the caller's transaction."""
    claims, numbers = _claims(db), read_numbers(db)
    for created, keys in claims:
        given_numbers = sorted({numbers[key] for key in keys if key in numbers})
        if not given_numbers:
            given_numbers = [new_number(db, keys[0], created)]
        for key in keys:
            if key not in numbers:
                db.execute("INSERT INTO bug_keys VALUES (?, ?)", (key, given_numbers[0]))
                numbers[key] = given_numbers[0]
        if len(given_numbers) > 1:
            join(db, given_numbers, same_program(keys[-1]))
            numbers = read_numbers(db)


def new_number(db: sqlite3.Connection, key: str, created: float, wish: int | None = None) -> int:
    """The number of a bug that is new here: the one that is wished for, where that is free."""
    is_taken = db.execute("SELECT 1 FROM bugs WHERE number = ?", (wish,)).fetchone()
    row = (None if is_taken else wish, key, created)
    insert = "INSERT INTO bugs (number, key, created) VALUES (?, ?, ?)"
    number = db.execute(insert, row).lastrowid
    assert number is not None
    return number


def read_numbers(db: sqlite3.Connection) -> dict[str, int]:
    """The number of the bug for each key that one answers to."""
    return dict(db.execute("SELECT key, number FROM bug_keys").fetchall())


def join(db: sqlite3.Connection, numbers: Sequence[int], why: str) -> None:
    """Let one of these bugs stay, and its results hold those of the others; `why` is kept."""
    records = [record for record in read_bugs(db) if record.number in numbers]
    standing = {HumanState.UNTRIAGED: 1, HumanState.DUPLICATE: 2}
    keeper, *others = sorted(records, key=lambda one: (standing.get(one.state, 0), one.number))
    for other in others:
        _make_duplicate(db, other, keeper.number, why)


def read_bugs(db: sqlite3.Connection) -> list[BugRecord]:
    """What is kept of each bug that has a number, in their order."""
    keys: dict[int, list[str]] = {}
    for key, number in db.execute("SELECT key, number FROM bug_keys ORDER BY key"):
        keys.setdefault(number, []).append(key)
    records = []
    for row in db.execute(_SELECT_BUGS):
        values = dict(zip(_BUG_COLUMNS, row, strict=True))
        values["state"] = HumanState(values["state"])
        others = (key for key in keys.get(values["number"], ()) if key != values["key"])
        records.append(BugRecord(**values, other_keys=tuple(others)))
    return records
