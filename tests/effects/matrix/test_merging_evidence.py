"""What merged results were judged from comes with them, warily; so do workarounds of repros."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from msgspec import structs
from nights import record, row

from harness.store.merge import Merged, merge_stores
from harness.store.stages import stage_bytes
from harness.store.store import Store
from harness.values.bug import KeptWorkaround
from harness.values.row import Row

PTX = b".version 8.0\n"
LATER = 2000.0
CELL = row()


def shard(home: Path, cell: Row = CELL, *, now: float = 1000.0) -> str:
    """A store with one result, judged from one piece of evidence with one artifact."""
    home.mkdir(exist_ok=True)
    with Store.open(home, clock=lambda: now) as store:
        sha256 = store.artifacts.put(PTX)
        store.put_evidence("lower", "key", b"{}", {"ptx": sha256})
        run = store.begin_run("triage matrix run")
        store.put_result(run, structs.replace(record(cell), evidence={"lower": "key"}))
        store.finish_run(run)
    return sha256


def merge(home: Path, *folders: Path) -> Merged:
    home.mkdir(exist_ok=True)
    with Store.open(home, clock=lambda: LATER) as store:
        return merge_stores(store, folders)


def shown(home: Path) -> bytes | None:
    with Store.open(home) as store:
        [found] = store.find_cells(CELL.cell)
        return stage_bytes(store, found, "ptx")


def test_a_merged_cell_can_be_shown_and_judged_again(tmp_path: Path) -> None:
    shard(tmp_path / "1")
    report = merge(tmp_path / "all", tmp_path / "1")
    assert (report.results, report.evidence, report.artifacts, report.lacking) == (1, 1, 1, 0)
    assert shown(tmp_path / "all") == PTX
    with Store.open(tmp_path / "all") as store:
        # Not later than the result: the gate of `report` believes it.
        assert store.evidence_times("lower", ["key"]) == {"key": 1000.0}
    again = merge(tmp_path / "all", tmp_path / "1")
    assert (again.evidence, again.artifacts) == (0, 0)


def artifact(home: Path, sha256: str) -> Path:
    return home / "artifacts" / sha256[:2] / f"{sha256[2:]}.z"


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b"not what it was"),
        lambda _path: None,
        os.mkfifo,
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: path.symlink_to(path),
        Path.mkdir,
    ],
    ids=["changed", "gone", "a pipe", "endless", "a loop", "a folder"],
)
def test_evidence_that_lacks_an_artifact_is_left_behind(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    sha256 = shard(tmp_path / "1")
    path = artifact(tmp_path / "1", sha256)
    path.unlink()
    damage(path)
    report = merge(tmp_path / "all", tmp_path / "1")
    assert (report.results, report.evidence, report.artifacts, report.lacking) == (1, 0, 0, 1)
    assert shown(tmp_path / "all") is None


@pytest.mark.parametrize("column", ["body", "created", "used", "checksum"])
def test_evidence_of_another_type_is_left_behind(tmp_path: Path, column: str) -> None:
    shard(tmp_path / "1")
    with closing(sqlite3.connect(tmp_path / "1" / "triage.db")) as db, db:
        db.execute(f"UPDATE evidence SET {column} = 'words'")
    assert merge(tmp_path / "all", tmp_path / "1").lacking == 1
    # Nor is it believed where it is.
    with Store.open(tmp_path / "1") as store:
        assert store.get_evidence("lower", "key") is None


def test_what_is_here_already_stays(tmp_path: Path) -> None:
    shard(tmp_path / "1")
    shard(tmp_path / "all", structs.replace(CELL, cell="another"))
    with Store.open(tmp_path / "all") as store:
        store.put_evidence("lower", "key", b'{"mine": 1}', {})
    merge(tmp_path / "all", tmp_path / "1")
    with Store.open(tmp_path / "all") as store:
        found = store.get_evidence("lower", "key")
    assert found
    assert found.body == b'{"mine": 1}'


def keep(home: Path, kernel: str, *, created: float, change: str = "num_warps 8 -> 4") -> None:
    baseline = row("sick", "s", kernel=kernel)
    with Store.open(home) as store:
        store.put_workaround(
            KeptWorkaround(baseline=baseline, change=change, proof=None, created=created)
        )


def test_workarounds_of_repros_are_taken_the_later_of_two(tmp_path: Path) -> None:
    for name in ("1", "2"):
        shard(tmp_path / name)
    keep(tmp_path / "1", "scan_fwd", created=1.0)
    keep(tmp_path / "2", "scan_fwd", created=3.0, change="later")
    # A night would run what lies under such a name here.
    keep(tmp_path / "2", "/tmp/theirs.py", created=2.0)
    keep(tmp_path / "2", "theirs.py::k", created=2.0)
    report = merge(tmp_path / "all", tmp_path / "2", tmp_path / "1")
    assert report.workarounds == 1
    with Store.open(tmp_path / "all") as store:
        [kept] = store.workarounds()
    assert (kept.baseline.kernel, kept.change) == ("scan_fwd", "later")
