"""Runs that are killed, stopped or doubled, results that are damaged; with the real tools."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import msgspec
import pytest
from conftest import HERE, Triage

pytestmark = pytest.mark.tools

MANY = ["--kernel", str(HERE / "kernels" / "many.py"), "--sm", "90a", "--triton", "installed"]

MARK = "TRIAGE_TEST_MARK"


def start(triage: Triage, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "harness", "compile", "--json", *MANY, *words],
        cwd=triage.folder,
        env={**triage.env, MARK: str(triage.folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def stored(triage: Triage) -> int:
    """Cells that are safely stored so far."""
    database = Path(triage.env["TRIAGE_HOME"]) / "triage.db"
    if not database.exists():
        return 0
    try:
        with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
            return int(connection.execute("SELECT count(*) FROM results").fetchone()[0])
    except sqlite3.OperationalError:
        return 0


def wait_for(triage: Triage, cells: int, process: subprocess.Popen[str]) -> None:
    while stored(triage) < cells and process.poll() is None:
        time.sleep(0.02)


def processes_of(triage: Triage) -> list[int]:
    """Everything that a run of this folder started, by the mark in its environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if f"{MARK}={triage.folder}".encode() in words:
            found.append(int(path.parent.name))
    return found


def wait_until_gone(triage: Triage) -> None:
    deadline = time.monotonic() + 10
    while processes_of(triage) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not processes_of(triage)


def test_kill_9_loses_at_most_the_cells_in_flight(triage: Triage) -> None:
    process = start(triage, "--jobs", "1")
    wait_for(triage, 4, process)
    # Between two jobs nobody but triage and the child of Triton is there.
    assert len(processes_of(triage)) >= 2
    process.kill()
    process.communicate()
    wait_until_gone(triage)
    before = stored(triage)
    assert 4 <= before < 12
    document = triage.compile(*MANY, code=0)
    rows = document["cells"]
    assert len(rows) == 12
    assert {row["verdict"] for row in rows} == {"ok"}
    assert sum(row["cached"] for row in rows) >= before


def test_ctrl_c_keeps_what_is_finished_and_leaves_nobody(triage: Triage) -> None:
    process = start(triage, "--jobs", "1")
    wait_for(triage, 3, process)
    # Between two jobs nobody but triage and the child of Triton is there.
    assert len(processes_of(triage)) >= 2
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "Traceback" not in stderr
    assert "interrupted" in stderr
    assert stored(triage) >= 3
    wait_until_gone(triage)


@pytest.mark.long
def test_two_at_once_agree(triage: Triage) -> None:
    both = [start(triage, "--config", "num_warps=1") for _ in range(2)]
    documents = []
    for process in both:
        stdout, stderr = process.communicate(timeout=300)
        assert process.returncode == 0, stderr
        documents.append(msgspec.json.decode(stdout))
    first, second = (
        {row["cell"]: (row["verdict"], row["cubin_sha256"]) for row in document["cells"]}
        for document in documents
    )
    assert first == second
    assert len(first) == 4


@pytest.mark.long
def test_a_damaged_artifact_is_made_again(triage: Triage) -> None:
    words = [*MANY, "--config", "BLOCK=64,num_warps=1"]
    [row] = triage.compile(*words, code=0)["cells"]
    sha = row["ptx_sha256"]
    [path] = (Path(triage.env["TRIAGE_HOME"]) / "artifacts").glob(f"{sha[:2]}/*{sha[2:]}*")
    path.write_bytes(b"rubbish")
    shown = triage("show", row["short"], "--stage", "ptx")
    assert shown.returncode == 4
    assert "damaged" in shown.stderr
    [again] = triage.compile(*words, code=0)["cells"]
    assert again["ptx_sha256"] == sha
    assert triage("show", row["short"], "--stage", "ptx").stdout.startswith("//")


@pytest.mark.long
def test_a_corrupt_database_is_put_aside(triage: Triage) -> None:
    words = [*MANY, "--config", "BLOCK=64,num_warps=1"]
    triage.compile(*words, code=0)
    home = Path(triage.env["TRIAGE_HOME"])
    for name in ("triage.db-wal", "triage.db-shm"):
        (home / name).unlink(missing_ok=True)
    (home / "triage.db").write_bytes(b"this is not a database" * 1000)
    done = triage("compile", "--json", *words)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert "corrupt" in done.stderr
    assert list(home.glob("triage.db.corrupt-*"))


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_full_disk_is_one_line(triage: Triage) -> None:
    home = Path(triage.env["TRIAGE_HOME"])
    home.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(home)], check=False
    )
    if mount.returncode:
        pytest.skip("mounting is not permitted here")
    try:
        done = triage("compile", "--json", *MANY)
        assert done.returncode == 4, done.stderr
        assert "Traceback" not in done.stderr
        assert "full" in done.stderr.splitlines()[-1]
    finally:
        subprocess.run(["umount", str(home)], check=True)


def test_saved_files_are_all_there(triage: Triage) -> None:
    triage.compile(*MANY, "--config", "BLOCK=64,num_warps=1", "--out", "out", code=0)
    [cell] = (triage.folder / "out").iterdir()
    names = {path.name for path in cell.iterdir()}
    assert {"row.json", "kernel.ttir", "kernel.ptx", "kernel.cubin", "kernel.sass"} <= names


def test_an_installed_wheel_works_outside_a_checkout(triage: Triage) -> None:
    built = subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "-q",
            "--no-deps",
            "-w",
            str(triage.folder / "w"),
            ".",
        ],
        cwd=HERE.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    [wheel] = (triage.folder / "w").glob("*.whl")
    site = triage.folder / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    triage.env["PYTHONPATH"] = str(site)
    where = subprocess.run(
        [sys.executable, "-c", "import harness; print(harness.__file__)"],
        cwd=triage.folder,
        env=triage.env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert where.stdout.startswith(str(site))
    assert "mamba3_siso_bwd_dqkv" in triage("kernels").stdout
    document = triage.compile(*MANY, "--config", "BLOCK=64", code=0)
    assert len(document["cells"]) == 3
