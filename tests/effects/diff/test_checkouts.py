"""The checkout of base: whose it is with several commands at work, and what git runs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness.matrix.pull_request import Side, base_of, comments_alone


def git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=A", "-c", "user.email=a@b.example")
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Side:
    """A clone whose file says in which of three commits it is."""
    monkeypatch.setenv("TRIAGE_CACHE_DIR", str(tmp_path / "cache"))
    folder = tmp_path / "clone"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    for version in (1, 2, 3):
        (folder / "kernel.py").write_text(f"V = {version}\n")
        git(folder, "add", ".")
        git(folder, "commit", "-qm", str(version))
    return Side(name="head", folder=folder)


def test_two_commands_of_one_clone_have_checkouts_of_their_own(clone: Side) -> None:
    with base_of("HEAD~2", clone) as first, base_of("HEAD~1", clone) as second:
        assert (first.folder / "kernel.py").read_text() == "V = 1\n"
        assert (second.folder / "kernel.py").read_text() == "V = 2\n"
    # One after the other they share it, and what was captured there.
    with base_of("HEAD~1", clone) as third:
        assert third.folder == first.folder
        assert (third.folder / "kernel.py").read_text() == "V = 2\n"


def test_a_git_that_was_killed_does_not_stand_in_the_way(clone: Side) -> None:
    with base_of("HEAD~2", clone) as base:
        place = base.folder
    place.with_suffix(".index.lock").touch()
    with base_of("HEAD~1", clone) as base:
        assert (base.folder / "kernel.py").read_text() == "V = 2\n"


def test_a_clone_names_no_program_that_watches_files(clone: Side, tmp_path: Path) -> None:
    monitor = tmp_path / "monitor"
    monitor.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    monitor.chmod(0o755)
    git(clone.folder, "config", "core.fsmonitor", str(monitor))
    with base_of("HEAD~1", clone) as base:
        assert comments_alone(base, clone) is None
        assert not (tmp_path / "ran").exists()
