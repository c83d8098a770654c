"""Twelve programs that ptxas folds wrongly, as an H200 executed them: results were recorded there.

`tests/data/gpu/h200.json` holds what each cubin left, by its sha256; the fake runner replays it. So
all but the GPU is real: PTX, ptxas, the pack, the emulator, the verdict.
"""

from __future__ import annotations

import fnmatch
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import Triage

pytestmark = pytest.mark.tools

HERE = Path(__file__).parents[1]
RECORDED = HERE / "data" / "gpu" / "h200.json"
RUNNER = shlex.join([sys.executable, str(HERE / "fakes" / "gpu_runner")])
FOLDS = sorted(path.parent.name for path in (HERE.parent / "repros").glob("fold_*/repro.yaml"))


def replaying(triage: Triage) -> Triage:
    log = str(triage.folder / "trips")
    variables = {"FAKE_RUNNER": f"replay={RECORDED}", "FAKE_RUNNER_LOG": log}
    return replace(triage, env={**triage.env, **variables})


@pytest.mark.long
@pytest.mark.parametrize(("pattern", "folds"), [("fold_s*", 4), ("fold_*", 12)])
def test_wrong_on_13_0_at_o3_and_right_without_optimisation_and_on_13_5(
    triage: Triage, pattern: str, folds: int
) -> None:
    words = ["--kernel", pattern, "--ptxas", "13.0.88", "--ptxas", "13.5.37", "-O", "0,3"]
    done = replaying(triage)("run", *words, "--runner", RUNNER, "--json", timeout=900)
    assert done.returncode == 1, done.stderr[-3000:]
    document: dict[str, Any] = msgspec.json.decode(done.stdout)
    assert document["summary"]["device"] == "NVIDIA H200"
    # One batch for all of them.
    assert (triage.folder / "trips").read_text().count("\n") == 1
    found: dict[str, dict[str, str]] = {}
    for row in document["runs"]:
        tool = row["cell"].rpartition("ptxas-")[2]
        found.setdefault(row["kernel"], {})[tool] = row["run"]
    assert sorted(found) == fnmatch.filter(FOLDS, pattern)
    assert len(found) == folds
    expected = {
        "13.0.88,-O0": "right",
        "13.0.88,-O3": "wrong_result",
        "13.5.37,-O0": "right",
        "13.5.37,-O3": "right",
    }
    assert found == dict.fromkeys(found, expected)
    for row in document["runs"]:
        if row["run"] == "wrong_result":
            assert "agrees with the emulator" in row["run_reason"]
            assert row["reference"] == "the emulator"


@pytest.mark.long
@pytest.mark.parametrize("name", FOLDS)
def test_bisect_names_the_ptxas_that_fixed_it(triage: Triage, name: str) -> None:
    words = ["--kernel", name, "--run", "--runner", RUNNER, "--axis", "ptxas", "--bad", "13.0.88"]
    done = replaying(triage)("bisect", *words, "--json", timeout=1800)
    assert done.returncode == 0, done.stderr[-3000:]
    document: dict[str, Any] = msgspec.json.decode(done.stdout)
    assert document["first_fixed"] == "13.4.59"
    assert document["blame"] == "ptxas"
    # Many candidates in one batch: far fewer trips than versions.
    trips = (triage.folder / "trips").read_text().count("\n")
    assert trips < len(document["segments"]) + 12


@pytest.mark.long
def test_bisect_brackets_with_the_versions_that_are_at_hand(triage: Triage) -> None:
    words = ["--kernel", "fold_sat_undone", "--run", "--runner", RUNNER, "--repeat", "2"]
    more = ["--bad", "13.0.88", "--good", "13.5.37", "--max-tries", "2"]
    done = replaying(triage)("bisect", *words, *more, "--json", timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    document: dict[str, Any] = msgspec.json.decode(done.stdout)
    # Of versions that were not recorded nothing is known: they are not a boundary.
    verdicts = {each["verdict"] for each in document["segments"]}
    assert {"wrong_result", "right"} <= verdicts <= {"wrong_result", "right", "not_run"}
    assert document["ptx_identical"] is True


def test_blame_names_ptxas_by_one_ptx_that_it_makes_two_things_of(triage: Triage) -> None:
    words = ["--kernel", "fold_sat_undone", "--ptxas", "13.0.88", "--ptxas", "13.5.37"]
    done = replaying(triage)("blame", *words, "--runner", RUNNER, "--json", timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    document: dict[str, Any] = msgspec.json.decode(done.stdout)
    assert (document["blame"], document["ground"]) == ("ptxas", "split")
    assert document["reasons"][0].startswith("Measured on NVIDIA H200")
    assert {each["ptxas"]: each["verdict"] for each in document["grid"]} == {
        "13.0.88": "wrong_result",
        "13.5.37": "right",
    }
    levels = {each["probe"]: each["verdict"] for each in document["probes"]}
    # The two between were not recorded there.
    assert levels == {"-O0": "right", "-O1": "not_run", "-O2": "not_run", "-O3": "wrong_result"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--axis", "triton"], "--on gpu follows versions of ptxas"),
        (["--script", "true"], "--script does not apply to --run"),
    ],
)
def test_what_does_not_go_together(triage: Triage, words: list[str], said: str) -> None:
    done = triage("bisect", "--kernel", "fold_sat_undone", "--on", "gpu", *words)
    assert done.returncode == 2
    assert said in done.stderr


def test_without_a_gpu_bisect_names_the_ways_to_one(triage: Triage) -> None:
    words = ["--kernel", "fold_sat_undone", "--on", "gpu", "--bad", "13.0.88"]
    done = triage("bisect", *words)
    if "no NVIDIA driver" not in done.stderr:
        pytest.skip("this machine has an NVIDIA driver")
    assert done.returncode == 4
    assert "--runner CMD" in done.stderr
