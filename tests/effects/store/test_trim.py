"""The store can be measured and made smaller, beside those that use it."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from store_cases import BUSY_WRITER, DAY, python, raw, record, run_rows

from harness.store import trim
from harness.store.store import Store
from harness.store.trim import store_stats, trim_store

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

pytest_plugins = ("store_fixtures",)


def age(store: Store, sha256: str, when: float) -> None:
    os.utime(store.artifacts.root / sha256[:2] / f"{sha256[2:]}.z", (when, when))


def test_stats(store: Store) -> None:
    assert store_stats(store).evidence == {}
    named, orphan = store.artifacts.put(b"named" * 50), store.artifacts.put(os.urandom(500))
    store.put_evidence("lower", "1", b"12345", {"ptx": named, "copy": named})
    store.put_evidence("lower", "2", b"123", {"ptx": named})
    store.put_evidence("inspect", "1", b"", {})
    store.put_result(store.begin_run("c"), record(row=b"1234567"))
    stats = store_stats(store)
    assert {kind: (of.rows, of.bytes) for kind, of in stats.evidence.items()} == {
        "lower": (2, 8),
        "inspect": (1, 0),
    }
    assert (stats.results.rows, stats.results.bytes, stats.runs) == (1, 7, 1)
    named_size, orphan_size = store.artifacts.size(named), store.artifacts.size(orphan)
    assert named_size
    assert orphan_size
    assert (stats.artifacts, stats.artifact_bytes) == (2, named_size + orphan_size)
    assert (stats.orphans, stats.orphan_bytes) == (1, orphan_size)
    assert stats.database_bytes > 4096


def test_trim_drops_the_least_recently_used_first(home: Path) -> None:
    now = [time.time()]
    with Store.open(home, clock=lambda: now[0]) as store:
        names = []
        for number in range(10):
            now[0] += 1
            names.append(store.artifacts.put(os.urandom(10_000)))
            store.put_evidence("lower", str(number), b"x" * 100, {"ptx": names[-1]})
        run = store.begin_run("c")
        store.put_result(run, record())
        now[0] += 2 * DAY
        assert store.get_evidence("lower", "0")  # the oldest is used again
        report = trim_store(store, max_bytes=45_000)
        left = [n for n in range(10) if store.get_evidence("lower", str(n))]
        assert left == [0, 7, 8, 9]
        assert [n for n in range(10) if store.artifacts.has(names[n])] == left
        assert (report.evidence, report.artifacts) == (6, 6)
        assert 6 * 10_100 <= report.bytes < 6 * 10_300
        assert trim_store(store, max_bytes=45_000).evidence == 0
        assert len(run_rows(store, run)) == 1


def test_trim_by_age(home: Path) -> None:
    now = [time.time()]
    with Store.open(home, clock=lambda: now[0]) as store:
        store.put_evidence("lower", "old", b"{}", {})
        now[0] += 100.0
        store.put_evidence("lower", "young", b"{}", {})
        now[0] += 100.0
        assert trim_store(store, older_than=150.0).evidence == 1
        assert store.get_evidence("lower", "old") is None
        assert store.get_evidence("lower", "young") is not None


def test_trim_never_removes_what_is_still_named(store: Store) -> None:
    shared = store.artifacts.put(b"shared" * 1000)
    store.put_evidence("lower", "old", b"{}", {"ptx": shared, "log": store.artifacts.put(b"log")})
    store.put_evidence("assemble", "young", b"{}", {"input": shared})
    age(store, shared, 1000.0)
    with raw(store.home) as db:
        db.execute("UPDATE evidence SET used = 1000.0 WHERE key = 'old'")
    report = trim_store(store, older_than=DAY)
    assert (report.evidence, report.artifacts) == (1, 1)
    assert store.artifacts.get(shared) == b"shared" * 1000
    assert store.get_evidence("assemble", "young") is not None
    assert trim_store(store, max_bytes=0).evidence == 1
    assert not list(store.artifacts.all())


def test_trim_spares_what_a_writer_is_about_to_name(store: Store) -> None:
    orphan = store.artifacts.put(b"killed writer")
    age(store, orphan, time.time() - 3700)
    young = store.artifacts.put(b"in flight")
    dropped = store.artifacts.put(b"dropped")
    again = store.artifacts.put(b"dropped, and put again")
    store.put_evidence("lower", "key", b"{}", {"ptx": dropped, "log": again})
    # By the kernel's clock, which ticks every few milliseconds.
    age(store, again, time.time() + 1)
    report = trim_store(store, max_bytes=0)
    assert (report.evidence, report.artifacts) == (1, 2)
    assert {sha256 for sha256, _, _ in store.artifacts.all()} == {young, again}
    store.put_evidence("lower", "new", b"{}", {"ptx": young, "log": again})
    assert store.get_evidence("lower", "new") is not None


def test_evidence_named_between_mark_and_sweep_is_kept(
    store: Store, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = store.artifacts.put(b"old, unnamed")
    age(store, old, 1000.0)
    drop = trim._drop_unused

    def drop_then_race(*arguments: object) -> object:
        result = drop(*arguments)  # type: ignore[arg-type]
        with Store.open(home) as other:
            other.put_evidence("lower", "key", b"{}", {"ptx": old})
        return result

    monkeypatch.setattr(trim, "_drop_unused", drop_then_race)
    assert trim_store(store).artifacts == 0
    assert store.get_evidence("lower", "key") is not None


def test_trim_beside_a_writer(home: Path) -> None:
    """Whatever the trim takes, the store never serves evidence without its artifacts."""
    writer = python(BUSY_WRITER, home, "writer", 300)
    with writer, Store.open(home) as store:
        while writer.poll() is None:
            trim_store(store, max_bytes=2000)
        assert writer.returncode == 0
        keys = [f"writer{number}" for number in range(300)]
        for key, found in store.get_many("lower", keys).items():
            content = store.artifacts.get(found.artifacts["ptx"])
            assert content == f"writer {key.removeprefix('writer')}".encode() * 200
        assert len(run_rows(store, 1)) == 300
        store.put_evidence("lower", "last", b"{}", {"ptx": store.artifacts.put(b"x")})
        assert store.get_evidence("lower", "last") is not None


def test_trim_gives_disk_space_back(store: Store) -> None:
    for number in range(200):
        store.put_evidence("lower", str(number), os.urandom(10_000), {})
    before = store_stats(store).database_bytes
    trim_store(store, max_bytes=0)
    assert store_stats(store).database_bytes < before / 10
