"""`triage matrix run --run`: a night that executes what it compiles."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from dataclasses import replace
from typing import Any

import pytest
from conftest import HERE, Triage

pytestmark = pytest.mark.tools

MATRIX = """\
version: 1
toolchains: {triton: {spec: "3.6.0"}, ptxas: {spec: bundled}}
targets: [sm_80]
kernels: [reaching]
exclude: [{config: "num_warps=2", reason: "one is enough"}]
"""


def night(triage: Triage, *, code: int) -> Any:
    done = triage("matrix", "run", "--run", "--json")
    assert done.returncode == code, done.stderr + done.stdout[-2000:]
    return json.loads(done.stdout)


@pytest.mark.long
def test_a_night_says_what_is_compiled_and_what_is_computed(triage: Triage) -> None:
    repro = triage.folder / "repros" / "reaching"
    repro.mkdir(parents=True)
    shutil.copy(HERE / "kernels" / "reaching.py", repro / "launch.py")
    (repro / "repro.yaml").write_text("kernel: reaching\nsummary: small\n")
    (triage.folder / "matrix.yaml").write_text(MATRIX)
    first = night(triage, code=1)
    # Both compile; the larger tile reaches beyond its buffers.
    assert first["cells"] == {"ok": 2, "as_interpreted": 1, "memory_fault": 1}
    assert first["unexpected"] == 1
    [bug] = json.loads(triage("bugs", "--json").stdout)["bugs"]
    assert (bug["kind"], bug["kernels"]) == ("memory_fault", {"reaching": 1})
    known = "{kernel: reaching, when: {config: BLOCK=64}, verdict: memory_fault}"
    (triage.folder / "matrix.yaml").write_text(f"{MATRIX}expect: [{known}]\n")
    second = night(triage, code=0)
    assert second["cells"] == first["cells"]
    assert second["unexpected"] == 0


def test_a_night_launches_cubins_on_a_gpu(triage: Triage) -> None:
    (triage.folder / "matrix.yaml").write_text(FOLDS)
    runner = shlex.join([sys.executable, str(HERE / "fakes" / "gpu_runner")])
    env = {**triage.env, "FAKE_RUNNER": "folds=13.0.88(?!,-O0)=>sub.sat.s32=>sub.s32"}
    words = ["matrix", "run", "--run", "--runner", runner, "--json"]
    done = replace(triage, env=env)(*words, timeout=600)
    assert done.returncode == 1, done.stderr + done.stdout[-2000:]
    found = json.loads(done.stdout)
    assert found["cells"] == {"ok": 2, "right": 1, "wrong_result": 1}
    [bug] = json.loads(triage("bugs", "--json").stdout)["bugs"]
    assert (bug["kind"], bug["kernels"]) == ("wrong_result", {"fold_sat_undone": 1})


FOLDS = """\
version: 1
toolchains: {triton: {spec: "3.6.0"}, ptxas: {spec: ["13.0.88", "13.5.37"]}}
targets: [sm_90a]
kernels: [fold_sat_undone]
"""
