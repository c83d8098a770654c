"""`triage report --run --on gpu`: real ptxas and emulator; a runner folds PTX wrongly."""

from __future__ import annotations

import json
import shlex
import sys
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import Triage

pytestmark = pytest.mark.tools

RUNNER = shlex.join([sys.executable, str(Path(__file__).parents[1] / "fakes" / "gpu_runner")])
# At every level but -O0, by this ptxas alone.
FOLDS = "folds=13.0.88(?!,-O0)=>sub.sat.s32=>sub.s32"
WORDS = ["--kernel", "fold_sat_undone", "--ptxas", "13.0.88", "--run", "--runner", RUNNER]


def reported(triage: Triage, *words: str, upstream: str = "nvidia") -> tuple[int, str, str]:
    env = {**triage.env, "FAKE_RUNNER": FOLDS}
    argv = ["report", *WORDS, "--for", upstream, "--out", "case", *words]
    done = replace(triage, env=env)(*argv, timeout=1800)
    return done.returncode, done.stdout, done.stderr


def test_values_and_device_are_in_it_and_what_is_missing_keeps_it_back(triage: Triage) -> None:
    code, out, said = reported(triage, "--quick", "--json")
    assert code == 1, said
    document: dict[str, Any] = json.loads(out)
    assert document["title"].startswith("Wrong code: fold_sat_undone (sm_90a, ptxas 13.0.88)")
    assert "Measured: its cubins were launched on Emulated GPU." in document["body"]
    assert "| `out` (u32) | 28 of 128 |" in document["body"]
    assert "| 2663305082 (0x9ebecf7a) | 2571558424 (0x9946de18) |" in document["body"]
    kinds = {each["kind"] for each in document["defects"]}
    # Each statement was checked by launching it again; only pieces are missing.
    assert "claim" not in kinds
    assert "missing" in kinds
    assert document["statements_checked"] == document["statements"]
    again = " ".join(each["command"] for each in document["missing"])
    assert "--run --on gpu" in again


def test_only_nvidia_hears_of_cubins_that_disagree(triage: Triage) -> None:
    code, _, said = reported(triage, "--quick", upstream="project")
    assert code == 2
    assert "report it with --for nvidia" in said


def test_without_a_gpu_the_sass_is_emulated_and_the_issue_says_so(triage: Triage) -> None:
    words = ("--kernel", "fold_slct_constants", "--ptxas", "13.0.88", "--run", "--on", "sass")
    done = triage("report", *words, "--for", "nvidia", "--out", "case", "--quick", "--json")
    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    assert "Emulated: the SASS of its cubins was executed without a GPU." in document["body"]
    assert "launched" not in document["title"] + document["body"]
    assert "this needs nothing else (for this report it was run on none)" in document["body"]
    assert "GPU: none; the SASS of its cubins is executed on an emulator" in document["body"]
    assert "claim" not in {each["kind"] for each in document["defects"]}
    assert document["statements_checked"] == document["statements"]


@pytest.mark.long
def test_the_whole_report_passes_its_gate(triage: Triage) -> None:
    code, out, said = reported(triage)
    assert code == 0, out + said
    assert "all of these are true" in out
    with tarfile.open(triage.folder / "case" / "bundle.tar.gz") as bundle:
        names = {Path(each.name).name for each in bundle}
    assert {"min.ptx", "launch.json", "repro.py", "repro.sh"} <= names
