"""The store: what was put is found again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from store_cases import DAY, one_line, raw, record, run_rows

from harness.store import store as results
from harness.store.artifacts import DamagedArtifactError
from harness.store.store import Store
from harness.store.trim import store_stats
from harness.values.errors import StorageError

if TYPE_CHECKING:
    from pathlib import Path

pytest_plugins = ("store_fixtures",)


# --- evidence -------------------------------------------------------------------------------------


@given(
    body=st.binary(max_size=2000),
    key=st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1),
    payloads=st.dictionaries(st.sampled_from(["ptx", "log", "cubin", "é"]), st.binary()),
)
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60
)
def test_evidence_round_trip(
    store: Store, body: bytes, key: str, payloads: dict[str, bytes]
) -> None:
    names = {role: store.artifacts.put(data) for role, data in payloads.items()}
    store.put_evidence("lower", key, body, names)
    found = store.get_evidence("lower", key)
    assert found == (body, names)
    assert found is not None
    assert {role: store.artifacts.get(name) for role, name in found.artifacts.items()} == payloads
    assert store.get_evidence("assemble", key) is None


def test_evidence_is_replaced_whole_and_survives_reopening(store: Store, home: Path) -> None:
    first, second = store.artifacts.put(b"1"), store.artifacts.put(b"2")
    store.put_evidence("lower", "key", b"old", {"ptx": first, "log": first})
    store.put_evidence("lower", "key", b"new", {"cubin": second})
    store.close()
    with Store.open(home) as again:
        assert again.get_evidence("lower", "key") == (b"new", {"cubin": second})
        assert again.notice is None


def test_evidence_without_its_artifact_is_to_be_made_again(store: Store) -> None:
    name = store.artifacts.put(b"ptx")
    store.put_evidence("lower", "key", b"{}", {"ptx": name, "log": store.artifacts.put(b"log")})
    store.artifacts.remove(name)
    assert store.get_evidence("lower", "key") is None
    store.artifacts.put(b"ptx")
    assert store.get_evidence("lower", "key") is not None


def test_a_damaged_artifact_leads_to_made_again(store: Store) -> None:
    name = store.artifacts.put(b"ptx" * 100)
    store.put_evidence("lower", "key", b"{}", {"ptx": name})
    (file,) = (store.home / "artifacts" / name[:2]).iterdir()
    file.write_bytes(file.read_bytes()[:-3])
    assert store.get_evidence("lower", "key") is not None  # looked for, not read
    with pytest.raises(DamagedArtifactError):
        store.artifacts.get(name)
    assert store.get_evidence("lower", "key") is None


def test_get_many(store: Store) -> None:
    for number in range(1500):
        store.put_evidence("inspect", f"key{number}", str(number).encode(), {})
    store.put_evidence("inspect", "lost", b"", {"sass": "0" * 64})
    found = store.get_many("inspect", [f"key{number}" for number in range(1, 2000)] + ["lost"])
    assert {key: body for key, (body, _) in found.items()} == {
        f"key{number}": str(number).encode() for number in range(1, 1500)
    }
    assert store.get_many("inspect", []) == {}


def test_last_use_is_written_once_a_day(home: Path) -> None:
    now = [1000.0]
    with Store.open(home, clock=lambda: now[0]) as store, raw(home) as db:

        def used() -> float:
            value: float = db.execute("SELECT used FROM evidence").fetchone()[0]
            return value

        def version() -> int:
            value: int = db.execute("PRAGMA data_version").fetchone()[0]
            return value

        store.put_evidence("lower", "key", b"{}", {})
        before = version()
        now[0] += DAY - 1
        assert store.get_evidence("lower", "key")
        assert used() == 1000.0
        assert version() == before, "reading wrote to the database"
        now[0] += 2
        assert store.get_evidence("lower", "key")
        assert used() == 1000.0 + DAY + 1
        assert version() != before


def test_a_changed_byte_in_evidence_is_noticed(store: Store, home: Path) -> None:
    store.put_evidence("lower", "body", b'{"n_regs": 32}', {})
    store.put_evidence("lower", "role", b"{}", {"ptx": store.artifacts.put(b"x")})
    with raw(home) as db:
        db.execute("UPDATE evidence SET body = ? WHERE key = 'body'", (b'{"n_regs": 33}',))
        db.execute("DELETE FROM evidence_artifacts WHERE key = 'role'")
    assert store.get_evidence("lower", "body") is None
    assert store.get_evidence("lower", "role") is None
    assert store_stats(store).evidence == {}


# --- history --------------------------------------------------------------------------------------


def test_runs(home: Path) -> None:
    now = [100.0]
    with Store.open(home, clock=lambda: now[0]) as store:
        assert store.runs() == []
        first = store.begin_run("triage compile --kernel k")
        now[0] = 160.0
        second = store.begin_run("triage matrix run")
        store.finish_run(first)
        latest, earlier = store.runs()
        assert (latest.id, latest.command, latest.started) == (second, "triage matrix run", 160.0)
        assert latest.finished is None
        assert (earlier.id, earlier.finished) == (first, 160.0)
        assert latest.uid != earlier.uid
        assert store.runs(1) == [latest]


def test_results_round_trip(home: Path) -> None:
    with Store.open(home, clock=lambda: 500.0) as store:
        run = store.begin_run("c")
        given_record = record(signature_key="assemble/C7907", row=b"\x00\xff not even JSON")
        store.put_result(run, given_record)
        assert run_rows(store, run) == [replace(given_record, run=run, created=500.0)]
        store.put_result(run, replace(given_record, verdict="sick", created=7.0))
        assert run_rows(store, run) == [replace(given_record, run=run, verdict="sick", created=7.0)]


def test_result_of_an_unknown_run_is_refused(store: Store) -> None:
    with pytest.raises(StorageError, match="run 99 is not in") as error:
        store.put_result(99, record())
    one_line(error)
    assert run_rows(store, 99) == []


def test_a_batch_of_results_is_kept_whole_or_not_at_all(store: Store) -> None:
    run = store.begin_run("c")
    broken = record("b", verdict=None)
    with pytest.raises(StorageError):
        store.put_results(run, [record("a"), broken])
    assert run_rows(store, run) == []
    store.put_results(run, [record("a"), record("b")])
    assert len(run_rows(store, run)) == 2


def test_pages_join_without_loss_or_doubles(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "_PAGE", 7)
    run, other = store.begin_run("c"), store.begin_run("other")
    cells = [f"cell{number:03}" for number in range(50)]
    store.put_results(run, [record(cell, row=cell.encode()) for cell in reversed(cells)])
    store.put_results(other, [record(cell) for cell in cells[:20]])
    assert [body.row.decode() for body in store.run_bodies(run)] == cells
    assert {cell: found.run for cell, found in store.latest_of(cells).items()} == {
        cell: other if cell in cells[:20] else run for cell in cells
    }


def test_find_cells(store: Store) -> None:
    first, second = store.begin_run("1"), store.begin_run("2")
    for run, created in ((second, 2.0), (first, 1.0)):  # the latest by time, not by insertion
        store.put_results(
            run,
            [
                record("ab", short="c0ffee", created=created),
                record("kernel/ab", short="c0ba17", created=created),
                record("100%_odd", short="ab0000", created=created),
            ],
        )

    def found(text: str) -> list[tuple[str, int | None]]:
        return [(row.cell, row.run) for row in store.find_cells(text)]

    assert found("ab") == [("ab", second)]
    assert found("c0ff") == [("ab", second)]
    assert sorted(found("c0")) == [("ab", second), ("kernel/ab", second)]
    assert found("ernel/") == [("kernel/ab", second)]
    assert found("0%_o") == [("100%_odd", second)]
    assert found("%") == [("100%_odd", second)]
    assert found("ab0") == [("100%_odd", second)]
    assert found("*") == found("nothing") == found("") == []
    store.put_results(first, [record(f"many{n:02}", short=f"f{n:02}") for n in range(30)])
    assert len(found("many")) == len(found("f")) == 20
