"""Runs that are worked off in parts: the shards of one night, on one machine or on many.

All shards of a night are one run. Its uid follows from the night's name, so that stores which know
nothing of each other call it the same, and merging them unites it. The run has finished when all
of its shards have.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3


_UID_DIGITS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class NightPart:
    """Shard `number` (from 1) `of` so many, of the night with this name."""

    night: str
    number: int = 1
    of: int = 1

    @property
    def uid(self) -> str:
        """The uid of the run that all parts of the night make up."""
        return hashlib.sha256(f"night {self.night}".encode()).hexdigest()[:_UID_DIGITS]


def begin_part(db: sqlite3.Connection, run: int, part: NightPart, now: float) -> None:
    """Record that a shard begins, or begins again."""
    db.execute(
        "INSERT INTO shards VALUES (?, ?, ?, ?, NULL)"
        " ON CONFLICT (run_id, number, of) DO UPDATE SET finished = NULL",
        (run, part.number, part.of, now),
    )
    settle(db, run)


def finish_part(db: sqlite3.Connection, run: int, part: NightPart, now: float) -> None:
    """Record that a shard has come to its end, and with the last one the run."""
    db.execute(
        "UPDATE shards SET finished = ? WHERE run_id = ? AND number = ? AND of = ?",
        (now, run, part.number, part.of),
    )
    settle(db, run)


def settle(db: sqlite3.Connection, run: int) -> None:
    """A run in parts began with the first of them, and ends with the last of all."""
    parts = db.execute(
        "SELECT number, of, started, finished FROM shards WHERE run_id = ?", (run,)
    ).fetchall()
    if not parts:
        return
    done: dict[int, dict[int, float]] = {}
    for number, of, _, finished in parts:
        if finished is not None:
            done.setdefault(of, {})[number] = finished
    whole = [max(ends.values()) for of, ends in done.items() if len(ends) == of]
    db.execute(
        "UPDATE runs SET started = ?, finished = ? WHERE id = ?",
        (min(started for _, _, started, _ in parts), min(whole, default=None), run),
    )
