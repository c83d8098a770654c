"""Two commands at once in one results folder: both end, and nothing of either is lost."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from fake_toolchains import FakeCache

from harness.hunt.plan import kept_hunts
from harness.store.store import Store

PTX = """.version 7.0
.target sm_80
.address_size 64
.visible .entry kernel()
{{
.reg .b32 %r<9>;
mov.u32 %r1, {number};
ret;
}}
"""


@pytest.fixture
def place(tmp_path: Path) -> FakeCache:
    fake = FakeCache(tmp_path)
    fake.ptxas("13.0.88")
    return fake


def run_at_once(place: FakeCache, *commands: tuple[str, ...]) -> None:
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "harness", *words, "--jobs", "1"],
            cwd=place.folder,
            env=place.triage.env,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        for words in commands
    ]
    for one in running:
        _, said = one.communicate(timeout=300)
        assert one.returncode == 0, said
    with sqlite3.connect(place.folder / "results" / "triage.db") as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_two_compile(place: FakeCache) -> None:
    names = ["one.ptx", "two.ptx"]
    for number, name in enumerate(names):
        (place.folder / name).write_text(PTX.format(number=number))
    run_at_once(place, *(("compile", name, "--sm", "80", "--ptxas", "13.0.88") for name in names))
    with Store.open(place.folder / "results") as store:
        assert store.kernels() == names
        assert [len(list(store.latest_results(name))) for name in names] == [1, 1]
        assert [bool(run.finished) for run in store.runs()] == [True, True]


def test_two_hunts(place: FakeCache) -> None:
    what = ("hunt", "ptxas", "--sm", "80", "--ptxas", "13.0.88", "--on", "emulator")
    words = (*what, "--for", "60s", "--max-tries", "128")
    run_at_once(place, (*words, "--seed", "1"), (*words, "--seed", "2"))
    with Store.open(place.folder / "results") as store:
        hunts = kept_hunts(store)
    assert [hunt.title.rpartition(" ")[2] for hunt in hunts] == ["1", "2"]
    assert all(hunt.state.tried >= 128 for hunt in hunts)
