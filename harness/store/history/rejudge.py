"""Writing new judgements over old ones, all at once, and letting the bugs follow.

A part of the store. What a result was judged from never changes here; a result whose evidence is
gone, or is of a later time than the result, is not touched.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from harness.store.history.bug_identity import bug_key
from harness.store.history.bugs import move_keys, put_signatures, read_signatures
from harness.store.history.results import SELECT_RESULTS
from harness.store.sqlite.connection import transaction
from harness.store.sqlite.records import RESULT_COLUMNS, ResultRecord, from_row, to_row
from harness.values.row import Row
from harness.values.verdict import Verdict

if TYPE_CHECKING:
    import sqlite3

    from harness.store.sqlite.database import Database


_PAGE = 1000
# All that is put into the text of a statement is a constant.
_UPDATE = f"""
    UPDATE results SET {", ".join(f"{name} = ?" for name in RESULT_COLUMNS)} WHERE id = ?
"""  # noqa: S608


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """What a re-judging did: results with another verdict or key, and changed bugs."""

    results: int
    bugs: int
    merged: int


class Judgements:
    """The part of `Store` that can judge all of history again."""

    _database: Database

    def every_result(self) -> Iterator[tuple[int, ResultRecord]]:
        """Yield all results with their numbers, a thousand at a time in memory.

        Raises:
            StorageError: the database cannot be read.
        """
        sql = f"{SELECT_RESULTS} WHERE id > ? ORDER BY id LIMIT {_PAGE}"
        last = 0
        while page := self._database.run(
            lambda db, last=last: [  # type: ignore[misc]
                (number, from_row(row)) for *row, number in db.execute(sql, (last,))
            ]
        ):
            yield from page
            last = page[-1][0]

    def evidence_times(self, kind: str, keys: Iterable[str]) -> dict[str, float]:
        """Return when each piece of evidence was made, in seconds since the epoch.

        Raises:
            StorageError: the database cannot be read.
        """
        sql = (
            "SELECT key, created FROM evidence"
            " WHERE kind = ? AND key IN (SELECT value FROM json_each(?))"
        )
        wanted = json.dumps(list(keys))
        return self._database.run(lambda db: dict(db.execute(sql, (kind, wanted)).fetchall()))

    def judge_again(self, verdicts: Mapping[int, Verdict], same: Mapping[str, int]) -> Moved:
        """Give results (by number) new verdicts: all of them, or none if it is interrupted.

        `same` counts by the bug's key the failures that were judged again and keep it: bugs follow
        most of the results that could be judged.

        Raises:
            StorageError: the database cannot be written.
        """

        def work(db: sqlite3.Connection) -> Moved:
            with transaction(db):
                put_signatures(db, {each.signature for each in verdicts.values() if each.signature})
                # Count the results by the old and the new key of their bugs.
                signatures = read_signatures(db)
                moved: Counter[tuple[str, str]] = Counter()
                for number, verdict in verdicts.items():
                    *row, _ = db.execute(f"{SELECT_RESULTS} WHERE id = ?", (number,)).fetchone()
                    record = from_row(row)
                    if record.signature_key and verdict.signature:
                        row = msgspec.json.decode(record.row, type=Row)
                        old = (
                            bug_key(row, signatures.get(record.signature_key))
                            or record.signature_key
                        )
                        moved[old, bug_key(row, verdict.signature) or verdict.signature.key] += 1
                    assert record.run is not None
                    db.execute(
                        _UPDATE, (*to_row(record.run, _judged(record, verdict), 0.0), number)
                    )
                moved.update({(key, key): count for key, count in same.items()})
                bugs, merged = move_keys(db, moved)
            return Moved(results=len(verdicts), bugs=bugs, merged=merged)

        return self._database.run(work)


def _judged(record: ResultRecord, verdict: Verdict) -> ResultRecord:
    key = verdict.signature.key if verdict.signature else None
    row = msgspec.json.decode(record.row)
    row |= {
        "verdict": verdict.kind.value,
        "reason": verdict.reason,
        "stage": verdict.stage.value if verdict.stage else None,
        "code": verdict.code,
        "signature": key,
    }
    return replace(
        record, verdict=verdict.kind.value, signature_key=key, row=msgspec.json.encode(row)
    )
