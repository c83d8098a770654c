from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace
from store_cases import raw, record

from harness.store.store import Store

if TYPE_CHECKING:
    from pathlib import Path

    from harness.store.schema import ResultRecord

pytest_plugins = ["store_fixtures"]


def run_of(store: Store, *records: ResultRecord) -> int:
    run = store.begin_run("triage compile")
    store.put_results(run, records)
    store.finish_run(run)
    return run


def test_kernels_are_named_once_and_in_order(store: Store) -> None:
    assert store.kernels() == []
    run_of(store, *(record(f"c{n}", kernel=f"k{n % 3}") for n in range(9)))
    assert store.kernels() == ["k0", "k1", "k2"]


def test_the_latest_result_of_each_cell_of_a_kernel(store: Store) -> None:
    run_of(store, record("b", created=1.0), record("a", created=1.0))
    newer = run_of(store, record("b", verdict="sick", created=2.0), record("x", kernel="other"))
    found = [(each.cell, each.verdict, each.run) for each in store.latest_results("k")]
    assert found == [("a", "ok", newer - 1), ("b", "sick", newer)]


def test_the_last_result_that_told_something_before_a_time(store: Store) -> None:
    first = run_of(store, record("a", created=1.0))
    run_of(store, record("a", verdict="infra", created=2.0))
    last = run_of(store, record("a", verdict="sick", created=3.0))

    def found(before: float, besides: int = -1) -> list[int | None]:
        results = store.last_results(["a", "z"], before=before, besides=besides, not_in=["infra"])
        return [each.run for each in results]

    assert found(3.0) == [first]
    assert found(3.5) == [last]
    assert found(3.5, besides=last) == [first]
    assert found(1.0) == []


def test_bodies_are_the_rows_of_a_run_in_the_order_of_its_cells(store: Store) -> None:
    cells = [f"cell{number:04}" for number in range(2500)]
    run = run_of(store, *(record(cell, row=cell.encode(), created=5.0) for cell in reversed(cells)))
    run_of(store, replace(record("cell0000"), row=b"{}"))
    found = list(store.run_bodies(run))
    assert [each.row.decode() for each in found] == cells
    assert {(each.run, each.created) for each in found} == {(run, 5.0)}
    assert list(store.run_bodies(99)) == []


def test_what_differs_between_two_runs_is_found_in_the_database(store: Store) -> None:
    row = {name: record(name) for name in ("same", "gone", "bad", "named", "changed")}
    row |= {"bad": record("bad", verdict="rejected"), "named": record("named", kernel="other")}
    older = run_of(store, *row.values())
    row |= {"changed": replace(record("changed"), row=b"{}"), "new": record("new")}
    newer = run_of(store, *(record for cell, record in row.items() if cell != "gone"))
    cells = store.changed_cells(older, newer, but=["ok"], kernels=["other"])
    assert {*cells} == {"bad", "named", "changed", "gone", "new"}
    assert {*store.changed_cells(older, newer, but=["ok", "rejected"], kernels=[])} == {
        *("changed", "gone", "new")
    }
    assert store.verdicts(newer) == {"ok": 4, "rejected": 1}
    bodies = store.run_bodies(newer, ["b", "n"])
    assert [body.row for body in bodies] == [row[name].row for name in ("bad", "named", "new")]


def test_a_changed_row_is_never_served(home: Path) -> None:
    with Store.open(home) as store:
        run = run_of(store, record("a"), record("b"))
    with raw(home) as db:
        db.execute("UPDATE results SET row = ? WHERE cell = 'a'", (b'{"cell": "???"}',))
    with Store.open(home) as store:
        assert [each.row for each in store.run_bodies(run)] == [record("b").row]
        assert store.notice


@pytest.mark.parametrize("change", ["row = x'7b7d'", "created = created + 1", "run_id = 1"])
def test_a_copy_is_guarded_as_a_whole(home: Path, change: str) -> None:
    with Store.open(home) as store:
        first = run_of(store, record("a"))
        second = store.begin_run("triage matrix run")
        store.put_again(second, store.latest_of(["a"]).values())
        copy = store.latest_of(["a"])["a"]
        assert (copy.run, copy.row) == (second, record().row)
        assert copy == replace(record("a"), run=second, created=copy.created)
    with raw(home) as db:
        db.execute("DELETE FROM results WHERE run_id = ?", (first,))
        db.execute(f"UPDATE results SET {change} WHERE cell = 'a'")
    with Store.open(home) as store:
        assert store.latest_of(["a"]) == {}
        assert store.notice
