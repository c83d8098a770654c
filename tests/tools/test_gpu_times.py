"""Times from launch code to rows: real Triton and ptxas, and a driver that needs no GPU."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import Triage

pytestmark = pytest.mark.tools

TESTS = Path(__file__).parents[1]
PTXAS = ("13.0.88", "13.5.37")
KERNEL = f"{TESTS / 'kernels' / 'runnable.py'}::row_sum"


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A command that executes a pack with a driver whose kernels do nothing, in 2 ms."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler on this machine")
    folder = tmp_path_factory.mktemp("driver")
    source, library = TESTS / "fakes" / "libcuda.c", folder / "libcuda.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-w", "-o", library, source], check=True)
    (folder / "libnvidia-ml.so.1").symlink_to(library)
    script = folder / "runner"
    script.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH={folder} exec {sys.executable} "$@"\n')
    script.chmod(0o755)
    return str(script)


def asked(triage: Triage, *words: str) -> dict[str, Any]:
    done = triage(*words, "--json")
    assert done.returncode == 0, done.stderr + done.stdout[-2000:]
    document: dict[str, Any] = msgspec.json.decode(done.stdout)
    return document


def test_a_kernel_is_timed_at_its_own_shape(triage: Triage, runner: str) -> None:
    words = ["run", "--kernel", KERNEL, "--sm", "90a", "--measure"]
    [row] = asked(triage, *words, "--runner", runner)["runs"]
    assert row["time_ms"] == {"median": 2.0, "min": 2.0, "q3": 2.0, "samples": 30, "sm_mhz": 1980}
    assert row["time_samples"] == [2.0] * 30
    assert (row["run"], row["device"]) == ("ran", "Fake GPU")
    # Of the history, too; what was measured elsewhere comes to the same.
    history = asked(triage, "history", "--kernel", row["kernel"], "--sm", "90a")
    assert any(each["time_ms"] == row["time_ms"] for each in history["cells"])
    pack = triage.folder / "times.pack"
    asked(triage, *words, "--pack", str(pack))
    argv = [runner, str(pack), "--out", "there.jsonl"]
    subprocess.run(argv, cwd=triage.folder, check=True, timeout=100)
    [again] = asked(triage, "run", "--import", "there.jsonl")["runs"]
    assert again["time_ms"] == row["time_ms"]


def test_cubins_at_their_own_shape_are_held_to_one_another(triage: Triage, runner: str) -> None:
    tools = [word for version in ("bundled", *PTXAS) for word in ("--ptxas", version)]
    words = ["run", "--kernel", KERNEL, "--sm", "90a", "--measure", *tools]
    asked(triage, *words, "--pack", "alike.pack")
    argv = [runner, "alike.pack", "--out", "there.jsonl"]
    subprocess.run(argv, cwd=triage.folder, check=True, timeout=100)
    rows = asked(triage, "run", "--import", "there.jsonl")["runs"]
    # What leaves its memory as it was says nothing of it.
    assert all(row["run_reason"].endswith("compared with a reference") for row in rows)
    # Another number in what one of them left: each has written it, then.
    results = triage.folder / "there.jsonl"
    first, line, rest = results.read_text().partition('"glimpses"')
    assert line
    results.write_text(first + line + re.sub(r"[0-9a-f]{64}", "0000" + "40" * 30, rest, count=1))
    done = triage("run", "--import", "there.jsonl", "--json")
    rows = sorted(msgspec.json.decode(done.stdout)["runs"], key=lambda row: row["run"])
    assert (done.returncode, [row["run"] for row in rows]) == (1, ["ran", "ran", "wrong_result"])
    said = "numbers that were looked at agree with those of 1 of 2 other cubins of the launch"
    assert all(said in row["run_reason"] for row in rows[:2])
