"""Stores, records and writers that the tests of the store share."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import textwrap
from contextlib import closing
from typing import TYPE_CHECKING

from msgspec.structs import replace

from harness.store.schema import ResultRecord, from_row
from harness.store.store import SELECT_RESULTS, Store

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from harness.values.errors import StorageError

DAY = 86400.0


def record(cell: str = "k/l/num_warps=4@sm_90a", **changes: object) -> ResultRecord:
    base = ResultRecord(
        cell=cell,
        short=cell.encode().hex()[:12],
        kernel="k",
        launch="l",
        config={"num_warps": 4, "maxnreg": None},
        target="sm_90a",
        triton="3.6.0",
        ptxas="12.8.93",
        verdict="ok",
        row=b'{"cell": "..."}',
        evidence={"lower": "aa", "assemble": "bb"},
    )
    return replace(base, **changes)


def raw(home: Path) -> closing[sqlite3.Connection]:
    return closing(sqlite3.connect(home / "triage.db", isolation_level=None))


def run_rows(store: Store, run: int) -> list[ResultRecord]:
    """The results of one run, by cell."""
    sql = f"{SELECT_RESULTS} WHERE run_id = ? ORDER BY cell"
    return store.database.run(lambda db: [from_row(row) for row in db.execute(sql, (run,))])


def drop_evidence(home: Path, key: str) -> None:
    """What a trim leaves of one step's evidence."""
    with raw(home) as db:
        db.execute("DELETE FROM evidence WHERE key = ?", (key,))


def one_line(error: pytest.ExceptionInfo[StorageError]) -> str:
    text = str(error.value)
    assert text
    assert "\n" not in text
    return text


def filled(home: Path) -> int:
    """Make a store of some 100 pages; return its run."""
    with Store.open(home) as store:
        run = store.begin_run("triage compile")
        name = store.artifacts.put(b"ptx")
        for number in range(300):
            store.put_evidence("lower", f"key{number:03}", bytes([number % 256]) * 700, {"p": name})
            store.put_result(run, record(f"cell{number:03}", row=b'{"n": 1}' * 40))
        store.finish_run(run)
    assert not (home / "triage.db-wal").exists()
    return run


def python(script: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
    )


BUSY_WRITER = """
    import sys
    from pathlib import Path
    from harness.store.store import ResultRecord, Store
    home, name, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    with Store.open(home) as store:
        run = store.begin_run(name)
        print(run, flush=True)
        for number in range(count):
            artifact = store.artifacts.put(f"{name} {number}".encode() * 200)
            store.put_evidence("lower", f"{name}{number}", name.encode(), {"ptx": artifact})
            store.put_evidence("lower", f"both{number}", b"same", {})
            store.put_result(run, ResultRecord(
                cell=f"cell{number:05}", short="", kernel="k", launch="l", config={}, target="t",
                triton="3", ptxas="12", verdict="ok", row=b"{}", evidence={"lower": name}))
        store.finish_run(run)
"""
