"""Which processes descend from one: by the kernel's lists of children, or from all processes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from harness.io.children.jobs import Families

# 10 has a thread 11, which started 30; 20 started 40. 50 is somebody else's.
CHILDREN = {(10, 10): "20 ", (10, 11): "30 ", (20, 20): "40 ", (50, 50): "60 "}
PARENTS = {10: 1, 20: 10, 30: 10, 40: 20, 50: 1, 60: 50}


def test_only_the_lists_of_the_family_are_read(tmp_path: Path) -> None:
    for pid in PARENTS:
        (tmp_path / f"{pid}/task/{pid}").mkdir(parents=True)
        (tmp_path / f"{pid}/task/{pid}/children").write_text(CHILDREN.get((pid, pid), ""))
    (tmp_path / "10/task/11").mkdir()
    (tmp_path / "10/task/11/children").write_text(CHILDREN[10, 11])
    look = Families(str(tmp_path))
    assert sorted(look.descendants(10)) == [20, 30, 40]
    assert look.descendants(40) == []
    # Never any other process: they have no `stat` here, and no list of all was made.
    assert look._table is None


def test_without_such_lists_all_processes_are_looked_at(tmp_path: Path) -> None:
    for pid, parent in PARENTS.items():
        (tmp_path / f"{pid}/task/{pid}").mkdir(parents=True)
        (tmp_path / f"{pid}/stat").write_text(f"{pid} (a (b) c) S {parent} {pid} 0 0")
    (tmp_path / "70").mkdir()
    look = Families(str(tmp_path))
    assert sorted(look.descendants(10)) == [20, 30, 40]
    assert look.children(50) == [60]


def test_this_machine_lists_a_child() -> None:
    with subprocess.Popen(["sleep", "100"]) as child:
        try:
            assert child.pid in Families().children(os.getpid())
            assert Families().children(child.pid) == []
        finally:
            child.kill()
    assert child.pid not in Families().descendants(os.getpid())
