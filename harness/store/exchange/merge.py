"""Taking over the history of other stores: idempotent, and in whatever order they come.

Runs are the same where their uids are; their results are united. Of two results of one cell in one
run the later stays. What people say of a bug is taken where it was said later. Numbers of bugs that
are given here stay; one that is given elsewhere is kept where it is free here.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.store.exchange.merge_evidence import Taken, take_evidence, take_workarounds
from harness.store.history.bugs import join, put_signatures, read_numbers
from harness.store.history.shards import settle
from harness.store.sqlite.connection import transaction
from harness.store.sqlite.records import RESULT_COLUMNS, to_row
from harness.values.bug import BugRecord, HumanState

if TYPE_CHECKING:
    import sqlite3

    from harness.store.exchange.foreign import ForeignRun, ForeignStore
    from harness.store.files.artifacts import ArtifactStore
    from harness.store.sqlite.database import Database


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
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
                for uid in _in_order(sources):
                    _take_run(db, uid, sources)
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


def _in_order(sources: Iterable[ForeignStore]) -> list[str]:
    """The uids of all runs, oldest first, so that they get the same numbers in any order."""
    started: dict[str, float] = {}
    for source in sources:
        for run in source.runs:
            started[run.uid] = min(run.started, started.get(run.uid, run.started))
    return sorted(started, key=lambda uid: (started[uid], uid))


def _take_run(db: sqlite3.Connection, uid: str, sources: Sequence[ForeignStore]) -> None:
    found: list[tuple[ForeignStore, ForeignRun]] = [
        (source, run) for source in sources for run in source.runs if run.uid == uid
    ]
    for _, run in found:
        db.execute(_PUT_RUN, (uid, run.started, run.finished, run.command, run.harness_version))
    (number,) = db.execute("SELECT id FROM runs WHERE uid = ?", (uid,)).fetchone()
    for _, run in found:
        db.executemany(_PUT_SHARD, [(number, *part) for part in run.parts])
    streams = [source.results(run.id) for source, run in found]
    together = heapq.merge(*streams, key=lambda record: record.cell)
    db.executemany(_PUT_RESULT, (to_row(number, record, 0.0) for record in together))
    settle(db, number)


# --- bugs -------------------------------------------------------------------------------------


def _take_bugs(db: sqlite3.Connection, sources: Sequence[ForeignStore]) -> int:
    """Number the bugs of other stores here, and take what was said later of each."""
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
    """Whether what they say of the bug is later than what is said here; then it is taken."""
    number = numbers[record.key]
    state, original = record.state, None
    if state is HumanState.DUPLICATE:
        theirs = next((each for each in source.bugs if each.number == record.duplicate_of), None)
        original = numbers.get(theirs.key) if theirs else None
        if original in (None, number):
            return 0
    return db.execute(
        "UPDATE bugs SET state = ?, url = ?, duplicate_of = ?, note = ?, changed = ?"
        " WHERE number = ? AND (changed IS NULL OR changed < ?)",
        (state.value, record.url, original, record.note, record.changed, number, record.changed),
    ).rowcount
