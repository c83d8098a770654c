"""Workarounds are kept, replaced and carried over."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from harness.store.store import Store
from harness.values.bug import KeptWorkaround
from harness.values.row import Row
from harness.values.verdict import VerdictKind

pytest_plugins = ("store_fixtures",)


def kept(cell: str = "k/default/c@sm_90a/triton-3.6.0/ptxas-1", **more: object) -> KeptWorkaround:
    row = Row(
        cell=cell,
        short="01234567",
        kernel="k",
        launch="default",
        config={"num_warps": 2},
        target="sm_90a",
        triton="3.6.0",
        ptxas="12.9.86",
        ptxas_origin="bundled",
        verdict=VerdictKind.SICK,
        reason="spills",
    )
    values = {"change": "maxnreg none -> 256", "proof": row, "created": 1.0, **more}
    return KeptWorkaround(baseline=row, **values)  # type: ignore[arg-type]


def test_a_cell_has_the_workaround_that_was_found_last(store: Store) -> None:
    assert store.workarounds() == []
    store.put_workaround(kept())
    later = kept(change="ptxas 12.9.86 -> 13.5.37", created=3.0, left_out=({"num_warps": 8},))
    store.put_workaround(later)
    other = kept("k/default/d@sm_90a/triton-3.6.0/ptxas-1", created=2.0, signatures=("abc",))
    store.put_workaround(other)
    assert store.workarounds() == [other, later]


def test_one_that_the_disk_has_changed_is_not_believed(store: Store, home: Path) -> None:
    store.put_workaround(kept())
    with sqlite3.connect(home / "triage.db") as db:
        db.execute("UPDATE workarounds SET body = CAST(replace(body, '256', '255') AS BLOB)")
    assert store.workarounds() == []


def test_a_damaged_database_keeps_them(home: Path) -> None:
    with Store.open(home) as store:
        store.put_workaround(kept())
        for number in range(200):
            store.put_evidence("lower", f"key{number}", b"x" * 2000, {})
    database = home / "triage.db"
    with sqlite3.connect(database) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        [(page,)] = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'evidence'")
    data = bytearray(database.read_bytes())
    data[(page - 1) * 4096 : page * 4096] = b"\xff" * 4096
    database.write_bytes(data)
    with Store.open(home) as store:
        store.get_evidence("lower", "key1")
        assert store.notice is not None
        assert store.workarounds() == [kept()]
