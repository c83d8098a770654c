"""The command of a bundle is a stranger's program: it runs under limits and leaves nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs
from report_cases import IN_PTXAS

import harness
from harness.io.processes.hub import ResourceLimits
from harness.report.filing import attach, run_script, script_defects
from harness.store.store import Store

pytest_plugins = ("store_fixtures",)

LIMITS = ResourceLimits(timeout=60.0, memory=128 << 20, file_size=1 << 20)


def run(folder: Path, script: str) -> tuple[bool, str]:
    inside = folder / "bundle"
    inside.mkdir()
    (inside / "repro.sh").write_text(f"#!/bin/sh\n{script}\n")
    done = run_script(inside, LIMITS)
    defects = script_defects(done)
    return done.end.over_memory, defects[0].words if defects else ""


def test_a_script_that_shows_it_has_no_defect(tmp_path: Path) -> None:
    assert run(tmp_path, "echo fine") == (False, "")


def test_memory_is_limited(tmp_path: Path) -> None:
    greedy = "import time; x = bytearray(1 << 30); time.sleep(60)"
    over, words = run(tmp_path, f"exec python3 -c '{greedy}'")
    assert over
    assert "does not show it: killed at" in words


def test_the_size_of_a_file_is_limited(tmp_path: Path) -> None:
    _, words = run(tmp_path, 'head -c 9000000 /dev/zero > "$TMPDIR/large"')
    assert words
    assert (tmp_path / "large").stat().st_size <= 1 << 20


def test_secrets_stay_here_and_nothing_stays_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "s3cr3t")
    mark = tmp_path / "mark"
    daemon = f'setsid sh -c "echo \\$\\$ > {mark}.new; mv {mark}.new {mark}; exec sleep 1000" &'
    script = f'{daemon} until [ -e {mark} ]; do sleep 0.01; done; [ -z "$MY_TOKEN" ]'
    assert run(tmp_path, script) == (False, "")
    assert not Path(f"/proc/{int(mark.read_text())}").exists()


def test_the_ptx_that_is_attached_is_the_one_of_the_history(store: Store) -> None:
    """For another ptxas Triton writes another `.version`, which the last good one refuses."""
    history = IN_PTXAS.along_ptxas
    assert history
    tried, other = (store.artifacts.put(f".version {v}\n".encode()) for v in ("8.8", "9.1"))
    failing = str(IN_PTXAS.case.ptxas)
    rows = {**history.rows, failing: structs.replace(history.rows[failing], ptx_sha256=tried)}
    dossier = replace(
        IN_PTXAS,
        case=structs.replace(IN_PTXAS.case, ptx_sha256=other),
        along_ptxas=replace(history, rows=rows),
        attachments=(),
    )
    found = {file.name: file.data for file in attach(dossier, store, {}, b"").attachments}
    assert found["original.ptx"].strip() == b".version 8.8"
    alone = replace(dossier, along_ptxas=None)
    found = {file.name: file.data for file in attach(alone, store, {}, b"").attachments}
    assert found["original.ptx"].strip() == b".version 9.1"
    given = {file.name: file.data for file in attach(dossier, store, {}, b"mine").attachments}
    assert given["original.ptx"] == b"mine"


def test_the_trial_of_what_is_executed_finds_this_very_program(tmp_path: Path) -> None:
    inside = tmp_path / "report"
    inside.mkdir()
    (inside / "repro.sh").write_text("triage --version\n")
    found = run_script(inside, LIMITS, has_triage=True)
    assert found.end.ok, found.stderr
    assert harness.__version__ in found.stdout
