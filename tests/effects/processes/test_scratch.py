"""Scratch folders: those of killed runs go, and nothing else does."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from harness.processes.scratch import Scratch, sweep_scratch

MAKE = """
import os, signal, sys
from harness.processes.scratch import Scratch
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
