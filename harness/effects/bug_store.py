"""What is kept of bugs: their numbers, what people say of them, and their signatures.

A part of the store. A number is given once and never again to another bug; all that can be told
from results is told from results.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from harness.effects.connection import transaction
from harness.values.bug import BugRecord, HumanState
from harness.values.verdict import Signature

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Mapping

    from harness.effects.database import Database

__all__ = ["BUG_COLUMNS", "SIGNATURE_COLUMNS", "BugRecords", "move_keys", "put_signatures"]

BUG_COLUMNS = ("number", "key", "state", "url", "duplicate_of", "note", "created", "changed")
SIGNATURE_COLUMNS = ("key", "rule", "stage", "kind", "failing_pass", "code", "template")

# Below, all that is put into the text of a statement is a constant.
_SELECT_BUGS = f"SELECT {', '.join(BUG_COLUMNS)} FROM bugs ORDER BY number"  # noqa: S608
_SELECT_SIGNATURES = f"SELECT {', '.join(SIGNATURE_COLUMNS)} FROM signatures"  # noqa: S608
# Under the newest rule that made it: what older rules called so has the same parts.
_PUT_SIGNATURE = """
    INSERT INTO signatures VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (key) DO UPDATE SET rule = excluded.rule WHERE excluded.rule > rule
"""
_SELECT_UNNUMBERED = """
    SELECT signature_key, min(created) FROM results
    WHERE signature_key IS NOT NULL
        AND verdict NOT IN ('ok', 'sick', 'unsupported', 'infra')
        AND signature_key NOT IN (SELECT key FROM bug_keys)
    GROUP BY signature_key ORDER BY 2, 1
"""


class BugRecords:
    """The part of `Store` that knows bugs by their numbers."""

    _database: Database

    def bugs(self) -> list[BugRecord]:
        """Return all bugs by number; each failure with a signature gets one now, if it has none.

        Numbers are given in the order in which the failures were first seen.

        Raises:
            StorageError: the database cannot be read or written.
        """

        def work(db: sqlite3.Connection) -> list[BugRecord]:
            if db.execute(f"{_SELECT_UNNUMBERED} LIMIT 1").fetchone():
                with transaction(db):
                    _number(db)
            return _records(db)

        return self._database.run(work)

    def bug_numbers(self) -> dict[str, int]:
        """Return the number of the bug for each key of a signature, old ones among them.

        Raises:
            StorageError: the database cannot be read.
        """
        sql = "SELECT key, number FROM bug_keys"
        return self._database.run(lambda db: dict(db.execute(sql).fetchall()))

    def put_bug(self, record: BugRecord) -> None:
        """Keep what people say of a bug; its number, key and time of creation stay.

        Raises:
            StorageError: the database cannot be written.
        """
        said = (record.state.value, record.url, record.duplicate_of, record.note, time.time())
        self._database.run(
            lambda db: db.execute(
                "UPDATE bugs SET state = ?, url = ?, duplicate_of = ?, note = ?, changed = ?"
                " WHERE number = ?",
                (*said, record.number),
            )
        )

    def signatures(self) -> dict[str, Signature]:
        """Return the parts of every signature that was kept, by key.

        Raises:
            StorageError: the database cannot be read.
        """
        rows = self._database.run(lambda db: db.execute(_SELECT_SIGNATURES).fetchall())
        names = SIGNATURE_COLUMNS[1:]
        return {key: Signature(**dict(zip(names, parts, strict=True))) for key, *parts in rows}


def put_signatures(db: sqlite3.Connection, signatures: Iterable[Signature]) -> None:
    """Keep the parts of signatures, within the caller's transaction."""
    db.executemany(
        _PUT_SIGNATURE,
        {(each.key, *(getattr(each, name) for name in SIGNATURE_COLUMNS[1:]))
         for each in signatures},
    )  # fmt: skip


def move_keys(db: sqlite3.Connection, moved: Mapping[tuple[str, str], int]) -> tuple[int, int]:
    """Let bugs follow their results to new keys, within the caller's transaction.

    `moved` counts the results by old and new key, those too whose key stays. A bug follows most of
    its results; it keeps its number and what people say, and answers to its old keys too, so that
    results which cannot be judged again stay with it. Of several that come to one key, one stays
    (one that people have spoken of, then the lowest number) and the others become its duplicates.

    Returns how many bugs have another key now, and how many became duplicates.
    """
    numbers = dict(db.execute("SELECT key, number FROM bug_keys").fetchall())
    homes: dict[int, Counter[str]] = {}
    for (old, new), count in moved.items():
        if old in numbers:
            homes.setdefault(numbers[old], Counter())[new] += count
    changed = merged = 0
    claims: dict[str, list[BugRecord]] = {}
    for record in _records(db):
        counts = homes.get(record.number)
        if counts:
            # Of equally many the key that it has, so that nothing moves without need.
            best = max(counts, key=lambda key: (counts[key], key == record.key, key))
            claims.setdefault(best, []).append(record)
    for new, claimants in claims.items():
        keeper, *others = sorted(claimants, key=_standing)
        for other in others:
            merged += 1
            _make_duplicate(db, other, keeper.number)
        changed += keeper.key != new
        db.execute("UPDATE bugs SET key = ? WHERE number = ?", (new, keeper.number))
    for new, claimants in claims.items():
        keeper = min(claimants, key=_standing)
        db.execute("INSERT OR REPLACE INTO bug_keys VALUES (?, ?)", (new, keeper.number))
    return changed, merged


def _standing(record: BugRecord) -> tuple[bool, bool, int]:
    """Which of two bugs stays: not a duplicate, triaged, first."""
    state = record.state
    return state is HumanState.DUPLICATE, state is HumanState.UNTRIAGED, record.number


def _make_duplicate(db: sqlite3.Connection, record: BugRecord, of: int) -> None:
    """What people said of it (its URL, its note, and the state in words) stays readable."""
    note = record.note
    if record.state not in (HumanState.UNTRIAGED, HumanState.DUPLICATE):
        note = "; ".join(filter(None, (note, f"was {record.state.value}")))
    db.execute(
        "UPDATE bugs SET state = ?, duplicate_of = ?, note = ?, changed = ? WHERE number = ?",
        (HumanState.DUPLICATE.value, of, note, time.time(), record.number),
    )
    db.execute("UPDATE bug_keys SET number = ? WHERE number = ?", (of, record.number))


def _number(db: sqlite3.Connection) -> None:
    for key, created in db.execute(_SELECT_UNNUMBERED).fetchall():
        number = db.execute(
            "INSERT INTO bugs (key, created) VALUES (?, ?)", (key, created)
        ).lastrowid
        db.execute("INSERT INTO bug_keys VALUES (?, ?)", (key, number))


def _records(db: sqlite3.Connection) -> list[BugRecord]:
    keys: dict[int, list[str]] = {}
    for key, number in db.execute("SELECT key, number FROM bug_keys ORDER BY key"):
        keys.setdefault(number, []).append(key)
    found = []
    for row in db.execute(_SELECT_BUGS):
        said = dict(zip(BUG_COLUMNS, row, strict=True))
        said["state"] = HumanState(said["state"])
        others = (key for key in keys.get(said["number"], ()) if key != said["key"])
        found.append(BugRecord(**said, other_keys=tuple(others)))
    return found
