"""The tables of `triage.db`, as the ordered steps that make them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from harness import __version__
from harness.store.sqlite.connection import transaction
from harness.values.errors import StorageError

if TYPE_CHECKING:
    import sqlite3


_MIGRATIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "0001-evidence-and-history",
        (
            """CREATE TABLE evidence (
                kind TEXT NOT NULL,
                key TEXT NOT NULL,
                body BLOB NOT NULL,
                created REAL NOT NULL,
                used REAL NOT NULL,
                checksum INTEGER NOT NULL,
                PRIMARY KEY (kind, key)
            )""",
            """CREATE TABLE evidence_artifacts (
                kind TEXT NOT NULL,
                key TEXT NOT NULL,
                role TEXT NOT NULL,
                sha256 TEXT NOT NULL,
                PRIMARY KEY (kind, key, role),
                FOREIGN KEY (kind, key) REFERENCES evidence (kind, key) ON DELETE CASCADE
            ) WITHOUT ROWID""",
            "CREATE INDEX evidence_artifacts_sha256 ON evidence_artifacts (sha256)",
            """CREATE TABLE runs (
                id INTEGER PRIMARY KEY,
                uid TEXT NOT NULL UNIQUE,
                started REAL NOT NULL,
                finished REAL,
                command TEXT NOT NULL,
                harness_version TEXT NOT NULL
            )""",
            """CREATE TABLE results (
                id INTEGER PRIMARY KEY,
                run_id INTEGER NOT NULL REFERENCES runs (id),
                cell TEXT NOT NULL,
                short TEXT NOT NULL,
                kernel TEXT NOT NULL,
                launch TEXT NOT NULL,
                config TEXT NOT NULL,
                target TEXT NOT NULL,
                triton TEXT NOT NULL,
                ptxas TEXT NOT NULL,
                verdict TEXT NOT NULL,
                signature_key TEXT,
                row BLOB NOT NULL,
                evidence TEXT NOT NULL,
                created REAL NOT NULL,
                checksum INTEGER NOT NULL,
                UNIQUE (run_id, cell)
            )""",
            "CREATE INDEX results_cell ON results (cell, created)",
            "CREATE INDEX results_short ON results (short, cell)",
            "CREATE INDEX results_kernel ON results (kernel, created)",
            "CREATE INDEX results_config ON results (kernel, config, created)",
        ),
    ),
    (
        "0002-bugs-and-shards",
        (
            """CREATE TABLE signatures (
                key TEXT PRIMARY KEY,
                rule INTEGER NOT NULL,
                stage TEXT NOT NULL,
                kind TEXT NOT NULL,
                failing_pass TEXT,
                code TEXT,
                template TEXT NOT NULL
            )""",
            """CREATE TABLE bugs (
                number INTEGER PRIMARY KEY,
                key TEXT NOT NULL,
                state TEXT NOT NULL DEFAULT 'untriaged',
                url TEXT,
                duplicate_of INTEGER REFERENCES bugs (number),
                note TEXT NOT NULL DEFAULT '',
                created REAL NOT NULL,
                changed REAL
            )""",
            """CREATE TABLE bug_keys (
                key TEXT PRIMARY KEY,
                number INTEGER NOT NULL REFERENCES bugs (number)
            )""",
            """CREATE TABLE shards (
                run_id INTEGER NOT NULL REFERENCES runs (id),
                number INTEGER NOT NULL,
                of INTEGER NOT NULL,
                started REAL NOT NULL,
                finished REAL,
                PRIMARY KEY (run_id, number, of)
            )""",
            """CREATE INDEX results_signature ON results (signature_key, verdict, created)
            WHERE signature_key IS NOT NULL""",
        ),
    ),
    (
        "0003-workarounds",
        (
            """CREATE TABLE workarounds (
                cell TEXT PRIMARY KEY,
                created REAL NOT NULL,
                body BLOB NOT NULL,
                checksum INTEGER NOT NULL
            )""",
        ),
    ),
    (
        "0004-executions",
        (
            """CREATE TABLE executions (
                id INTEGER PRIMARY KEY,
                run_id INTEGER NOT NULL REFERENCES runs (id),
                cell TEXT NOT NULL,
                verdict TEXT NOT NULL,
                signature_key TEXT,
                created REAL NOT NULL,
                body BLOB NOT NULL,
                checksum INTEGER NOT NULL
            )""",
            "CREATE INDEX executions_cell ON executions (cell, created)",
        ),
    ),
)
"""Ordered, append only. `checksum` columns guard what SQLite cannot: a changed byte inside a row,
which it would serve as if nothing had happened (it checks the structure of pages only)."""


def migrate(db: sqlite3.Connection, path: Path) -> None:
    """Bring the database at `path` up to date: all that is missing and its record, or nothing.

    Raises:
        StorageError: a newer program made it.
        sqlite3.Error: anything else.
    """
    if len(applied(db, path)) == len(_MIGRATIONS):
        return
    with transaction(db):
        # Another process may have been faster.
        done = applied(db, path)
        db.execute(
            "CREATE TABLE IF NOT EXISTS migrations"
            " (name TEXT PRIMARY KEY, applied_at REAL NOT NULL)"
        )
        for name, statements in _MIGRATIONS:
            if name not in done:
                for statement in statements:
                    # SQLite keeps the text: without the indentation all tables fit on one page, and
                    # no other page can take them along when it is damaged.
                    db.execute(" ".join(statement.split()))
                db.execute("INSERT INTO migrations VALUES (?, ?)", (name, time.time()))


def applied(db: sqlite3.Connection, path: Path) -> set[str]:
    """Return the names of the steps that the database at `path` has behind it.

    Raises:
        StorageError: a newer program made it.
        sqlite3.Error: it cannot be read.
    """
    if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'migrations'").fetchone():
        return set()
    names = {name for (name,) in db.execute("SELECT name FROM migrations")}
    if unknown := sorted(names - {name for name, _ in _MIGRATIONS}):
        raise StorageError(
            f"{path} was written by a newer triage than {__version__} ({unknown[-1]}): upgrade"
            " kernel-triage or use another folder"
        )
    return names
