"""A matrix from the command line, with the real Triton and the real ptxas."""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from conftest import HERE, Triage

from harness.cli.main import cli
from harness.io.processes.hub import Hub
from harness.store.store import Store

pytestmark = pytest.mark.tools

MATRIX = """\
version: 1
toolchains:
  triton: {spec: "3.6.0"}
  ptxas: {spec: [bundled, "13.1.115"]}
targets: [sm_80, sm_90a]
kernels: [own_scale, "nobody_*"]
exclude:
  - {target: sm_80, config: "BLOCK=512", reason: "too wide for me"}
  - {ptxas: "==12.8", reason: "matches nothing"}
overrides: [{target: sm_80, timeout: 200}]
"""
PTXAS = 2
EXCLUDED = 3 * PTXAS
CONFIGS = 6
CELLS_OF_90A = CONFIGS * PTXAS
CELLS = 2 * CELLS_OF_90A - EXCLUDED

REPRO = "kernel: scale\nsummary: small\n"


def fill(folder: Path, matrix: str = MATRIX) -> None:
    repro = folder / "repros" / "own_scale"
    repro.mkdir(parents=True)
    text = (HERE / "kernels" / "many.py").read_text()
    (repro / "launch.py").write_text(text.replace("(64, 128, 256, 512)", "(64, 512)"))
    (repro / "repro.yaml").write_text(REPRO)
    (folder / "matrix.yaml").write_text(matrix)


@pytest.fixture
def own(triage: Triage) -> Triage:
    fill(triage.folder)
    return triage


@pytest.fixture(scope="module")
def done(module_triage: Triage) -> Triage:
    """A folder in which the matrix has been run once."""
    fill(module_triage.folder)
    ran = module_triage("matrix", "run", "--jobs", "2")
    assert ran.returncode == 0, ran.stderr
    return module_triage


def run(triage: Triage, *words: str, code: int = 0) -> dict[str, Any]:
    ran = triage("matrix", "run", "--jobs", "2", "--json", *words)
    assert ran.returncode == code, ran.stderr
    document: dict[str, Any] = msgspec.json.decode(ran.stdout)
    return document


def results(home: Path) -> dict[str, dict[str, Any]]:
    """All that is known of each cell at last, but for how long it took, and in which run."""
    found = {}
    with Store.open(home) as store:
        for record in store.latest_results("own_scale"):
            row = msgspec.json.decode(record.row)
            for name in ("seconds", "cached"):
                del row[name]
            found[record.cell] = {**row, "evidence": record.evidence}
    return found


def home_of(triage: Triage) -> Path:
    return Path(triage.env["TRIAGE_HOME"])


@pytest.mark.long
def test_the_list_has_every_cell_or_says_why_not(done: Triage) -> None:
    listed = done("matrix", "run", "--list")
    assert listed.returncode == 0, listed.stderr
    lines = listed.stdout.splitlines()
    left_out = [line for line in lines if line.startswith("excluded ")]
    assert len(lines) - len(left_out) == CELLS
    assert len(left_out) == EXCLUDED
    assert all("BLOCK=512" in line and line.endswith(": too wide for me") for line in left_out)
    assert "matrix.yaml:6: kernels[1]: 'nobody_*' matches no kernel" in listed.stderr
    assert "matrix.yaml:9: exclude[1] matches no cell; ptxas ==12.8 is one version" in listed.stderr
    assert "==12.8.* takes 12.8.93" in listed.stderr
    assert "overrides" not in listed.stderr


@pytest.fixture
def childless(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Runs the matrix of a folder in this process, where no child can be started."""

    def refuse(*words: object, **named: object) -> None:
        raise AssertionError("a child was started")

    def run(triage: Triage, *words: str) -> dict[str, Any]:
        monkeypatch.chdir(triage.folder)
        for name, value in triage.env.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "argv", ["triage", "matrix", "run", "--jobs", "2", *words])
        monkeypatch.setattr(Hub, "spawn", refuse)
        monkeypatch.setattr(Hub, "execute", refuse)
        monkeypatch.setattr(subprocess, "Popen", refuse)
        monkeypatch.setattr(asyncio, "create_subprocess_exec", refuse)
        arguments = ["matrix", "run", "--jobs", "2", "--json", *words]
        ran = CliRunner().invoke(cli, arguments, standalone_mode=False)
        assert ran.stdout, ran.exception
        document: dict[str, Any] = msgspec.json.decode(ran.stdout)
        return document

    return run


def test_what_is_not_captured_is_counted_by_its_repro(
    own: Triage, childless: Callable[..., dict[str, Any]]
) -> None:
    at = [f"own_scale/launch/*@{sm}/triton-3.6.0/*" for sm in ("sm_80", "sm_90a")]
    listed = childless(own, "--list")
    assert listed["cells"] == []
    assert listed["uncaptured"] == [{"cells": cells, "configs": None} for cells in at]
    estimate = childless(own, "--dry-run")["estimate"]
    assert (estimate["cells"], estimate["uncaptured"], estimate["uncounted"]) == (0, 2, 2)
    assert estimate["seconds"] is None
    (own.folder / "repros" / "own_scale" / "repro.yaml").write_text(f"{REPRO}configs: {CONFIGS}\n")
    listed = childless(own, "--list")
    assert listed["uncaptured"] == [{"cells": cells, "configs": CONFIGS} for cells in at]
    estimate = childless(own, "--dry-run")["estimate"]
    cells = 2 * CELLS_OF_90A
    assert (estimate["cells"], estimate["about"], estimate["uncounted"]) == (cells, cells, 0)
    # Every ptxas gets the same PTX.
    assert (estimate["lowerings"], estimate["assemblies"]) == (2 * CONFIGS, cells)


def test_a_rerun_needs_no_work_and_starts_no_child(
    done: Triage, childless: Callable[..., dict[str, Any]]
) -> None:
    before = results(home_of(done))
    document = childless(done)
    assert document["carried"] == CELLS
    assert document["cells"] == {"ok": CELLS}
    assert not any(document["changes"].values())
    assert document["diff"]["counts"]["same-ok"] == CELLS
    assert results(home_of(done)) == before


def test_a_dry_run_of_what_is_stored_has_nothing_to_do(done: Triage) -> None:
    estimate = run(done, "--dry-run")["estimate"]
    assert estimate == {
        "cells": CELLS,
        "carried": CELLS,
        "excluded": EXCLUDED,
        "lowerings": 0,
        "lowerings_stored": 0,
        "assemblies": 0,
        "seconds": 0.0,
        "has_history": True,
        "about": 0,
        "uncaptured": 0,
        "uncounted": 0,
    }
    fresh = run(done, "--dry-run", "--no-cache")["estimate"]
    # One lowering serves every ptxas.
    assert (fresh["lowerings"], fresh["assemblies"]) == (CELLS // PTXAS, CELLS)


@pytest.mark.long
def test_an_a_a_night_without_the_store_reports_no_change(done: Triage) -> None:
    only = ["own_scale", "--sm", "90a", "--config", "BLOCK=64"]
    run(done, *only)
    again = run(done, *only, "--no-cache")
    assert again["carried"] == 0
    assert again["cells"] == {"ok": 3 * PTXAS}
    assert not any(again["changes"].values())


@pytest.mark.long
def test_a_changed_input_is_looked_at_again(own: Triage) -> None:
    only = ["--sm", "90a", "--config", "BLOCK=64,num_warps=1"]
    assert run(own, *only)["carried"] == 0
    assert run(own, *only)["carried"] == PTXAS
    launch = own.folder / "repros" / "own_scale" / "launch.py"
    launch.write_text(launch.read_text().replace("* factor", "+ factor"))
    changed = run(own, *only)
    assert changed["carried"] == 0
    assert changed["cells"] == {"ok": PTXAS}
    own.env["MLIR_ENABLE_TIMING"] = "0"
    assert run(own, *only)["carried"] == 0


def elsewhere(triage: Triage, home: Path) -> Triage:
    """The same folder (debug information has its name) with other results."""
    return replace(triage, env={**triage.env, "TRIAGE_HOME": str(home)})


@pytest.mark.long
def test_two_shards_are_the_whole(done: Triage, tmp_path: Path) -> None:
    found: dict[str, dict[str, Any]] = {}
    cells = 0
    for number in (1, 2):
        part = elsewhere(done, tmp_path / f"home{number}")
        cells += sum(run(part, "--shard", f"{number}/2")["cells"].values())
        found |= results(home_of(part))
    assert cells == CELLS
    assert found == results(home_of(done))


@pytest.mark.long
def test_when_time_is_up_nothing_new_is_begun(triage: Triage) -> None:
    own = triage
    fill(own.folder, MATRIX.replace("targets: [sm_80, sm_90a]", "targets: [sm_90a]"))
    first = run(own, "--max-time", "1s", code=4)
    assert not first["complete"]
    assert first["left"]["captures"] + first["left"]["cells"] > 0
    assert first["changes"] is None
    later = run(own)
    assert later["cells"] == {"ok": CELLS_OF_90A}
    assert later["carried"] == sum(first["cells"].values())


def test_nothing_selected(own: Triage) -> None:
    for only in (["nope"], ["--triton", "<2"]):
        ran = own("matrix", "run", *only)
        assert ran.returncode == 3
        assert "nothing in the matrix matches" in ran.stderr


def test_a_failure_that_is_not_expected_and_one_that_is(own: Triage) -> None:
    launch = own.folder / "repros" / "own_scale" / "launch.py"
    text = launch.read_text()
    launch.write_text(
        text.replace("    offsets =", "    tl.static_assert(BLOCK < 512)\n    offsets =", 1)
    )
    only = ["own_scale", "--sm", "90a", "--config", "num_warps=1"]
    failed = run(own, *only, code=1)
    assert failed["cells"] == {"ok": PTXAS, "rejected": PTXAS}
    assert failed["unexpected"] == PTXAS
    with (own.folder / "matrix.yaml").open("a") as file:
        file.write("expect: [{kernel: own_scale, when: {config: BLOCK=512}, verdict: rejected}]\n")
    assert run(own, *only)["unexpected"] == 0
    launch.write_text(text)
    fixed = run(own, *only)
    assert [len(found) for kind, found in fixed["changes"].items() if found] == [PTXAS]
    assert fixed["changes"]["fixed"]
    assert own("matrix", "run", *only, "--strict-fixed").returncode in (0, 5)


@pytest.mark.long
def test_killed_fifty_times_it_ends_as_if_never(done: Triage, tmp_path: Path) -> None:
    own = elsewhere(done, tmp_path / "home")
    dice = random.Random(4)
    killed = 0
    while killed < 50:
        process = subprocess.Popen(
            [sys.executable, "-m", "harness", "matrix", "run", "--jobs", "2"],
            cwd=own.folder,
            env=own.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            process.wait(timeout=dice.uniform(0.3, 5.0))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            killed += 1
        else:
            assert process.returncode == 0
            # It got to the end before it was killed: there has to be work again.
            shutil.rmtree(home_of(own))
    final = run(own)
    assert final["cells"] == {"ok": CELLS}
    assert results(home_of(own)) == results(home_of(done))


def test_compilers_that_are_not_installed_yet_are_no_failure(
    triage: Triage, tmp_path: Path
) -> None:
    kernels = ["cutedsl_ok", "cutile_ok", "tilelang_ok"]
    (triage.folder / "matrix.yaml").write_text(
        f"version: 1\ntargets: [sm_90a]\nkernels: {kernels}\n"
    )
    triage.env["TRIAGE_CACHE_DIR"] = str(tmp_path / "nothing")
    estimate = run(triage, "--dry-run")["estimate"]
    assert (estimate["cells"], estimate["uncaptured"]) == (len(kernels), len(kernels))
    assert not (tmp_path / "nothing" / "toolchains").exists()
