"""Scratch folders: those of killed runs go, and nothing else does."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from harness.io.files.writing import Scratch, sweep_scratch, write_output_folder

MAKE = """
import os, signal, sys
from harness.io.files.writing import Scratch
print(Scratch(sys.argv[1]).folder, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def left_by_a_killed_run(parent: Path) -> Path:
    done = subprocess.run(
        [sys.executable, "-c", MAKE, str(parent)], stdout=subprocess.PIPE, text=True
    )
    folder = Path(done.stdout.strip())
    assert folder.is_dir()
    return folder


def test_what_a_killed_run_left_is_swept(tmp_path: Path) -> None:
    left = left_by_a_killed_run(tmp_path)
    (left / "job-1").mkdir()
    (left / "job-1" / "kernel.ptx").write_text("x")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "thesis.txt").write_text("x")
    (left / "link").symlink_to(outside)
    running = Scratch(str(tmp_path))
    assert not left.exists()
    assert (outside / "thesis.txt").read_text() == "x"
    sweep_scratch(str(tmp_path))
    assert running.folder.is_dir()
    running.remove()
    assert [path.name for path in tmp_path.iterdir()] == ["outside"]


def test_nothing_else_is_swept(tmp_path: Path) -> None:
    """Each of these differs in one thing from what a killed run leaves."""
    words = (left_by_a_killed_run(tmp_path) / "owner").read_bytes()

    def make(name: str, content: bytes, mode: int = 0o700) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        folder.chmod(mode)
        (folder / "thesis.txt").write_text("x")
        (folder / "owner").write_bytes(content)
        for path in (folder / "owner", folder):
            os.utime(path, (1, 1))
        return folder

    kept = [
        make("triage-notes", words),
        make("triage-abcdefghi", words),
        make("triage-ABCDEFGH", words),
        make("triage-abcdefgh", b""),
        make("triage-abcdefg1", b"Alice"),
        make("triage-abcdefg2", words + b"and more"),
        make("triage-abcdefg3", words, 0o755),
    ]
    elsewhere = make("elsewhere", words)
    (tmp_path / "triage-abcdefg4").symlink_to(elsewhere)
    owner = make("triage-abcdefg5", b"") / "owner"
    owner.unlink()
    owner.symlink_to(kept[0] / "owner")
    if os.geteuid() == 0:
        kept.append(make("triage-abcdefg6", words))
        os.chown(kept[-1], 65534, 65534)
    sweep_scratch(str(tmp_path))
    for folder in (*kept, elsewhere, owner.parent):
        assert (folder / "thesis.txt").read_text() == "x", folder
        assert os.path.lexists(folder / "owner"), folder


def test_a_folder_whose_run_was_killed_before_it_could_mark_it_is_swept_in_time(
    tmp_path: Path,
) -> None:
    bare, begun, young = (Path(tempfile.mkdtemp(prefix="triage-", dir=tmp_path)) for _ in "abc")
    (begun / "owner").touch()
    for folder in (bare, begun):
        os.utime(folder, (1, 1))
    sweep_scratch(str(tmp_path))
    assert list(tmp_path.iterdir()) == [young]


def test_a_scratch_folder_can_be_made_where_nothing_can_be_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = left_by_a_killed_run(tmp_path)
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
    assert Scratch(str(tmp_path)).folder.parent == tmp_path
    assert left.is_dir()


KILLED = """
import os, signal, sys
from pathlib import Path
from harness.io.files.writing import write_output
from harness.io.files.writing import write_output_folder
def end(path):
    (path / "page" if path.is_dir() else path).write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
out = Path(sys.argv[1])
if sys.argv[2] == "folder":
    write_output_folder(out, end, marker=".ours", option="--out")
else:
    write_output(out, end, option="--out", overwrite=False)
"""


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_a_draft_of_a_killed_run_goes_with_the_next_one(tmp_path: Path, kind: str) -> None:
    out = tmp_path / "site"
    for _ in range(2):
        words = [sys.executable, "-c", KILLED, str(out), kind]
        assert subprocess.run(words).returncode == -9
        [draft] = tmp_path.iterdir()
        assert draft.name.startswith(".draft-")
    write_output_folder(out, lambda path: None, marker=".ours", option="--out")
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


KILLED_MACHINES = """
import asyncio, os, signal, sys, tempfile
from harness.io.processes.cluster import open_machines
tempfile.tempdir = sys.argv[1]
async def run():
    async with open_machines("local:1"):
        print("begun", *sorted(os.listdir(sys.argv[1])), flush=True)
        if sys.argv[2] == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
if __name__ == "__main__":
    asyncio.run(run())
"""


@pytest.mark.long
def test_machines_of_a_killed_run_leave_one_folder_that_the_next_one_sweeps(tmp_path: Path) -> None:
    program, place = tmp_path / "machines.py", tmp_path / "tmp"
    program.write_text(KILLED_MACHINES)
    place.mkdir()
    env = {**os.environ, "TMPDIR": str(place), "PYTHONPATH": str(Path(__file__).parents[4])}
    for how in ("kill", "end"):
        words = [sys.executable, str(program), str(place), how]
        done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=120)
        begun, *there = done.stdout.split()
        assert begun == "begun", done.stderr
        assert [name[:7] for name in there] == ["triage-"]
    assert list(place.iterdir()) == []
