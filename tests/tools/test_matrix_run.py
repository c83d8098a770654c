"""`triage matrix run --run`: a night that executes what it compiles."""

from __future__ import annotations

import json
import shutil
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


def test_a_night_says_what_is_compiled_and_what_is_computed(triage: Triage) -> None:
    repro = triage.folder / "repros" / "reaching"
    repro.mkdir(parents=True)
    shutil.copy(HERE / "kernels" / "reaching.py", repro / "launch.py")
    (repro / "repro.yaml").write_text("kernel: reaching\nsummary: small\n")
    (triage.folder / "matrix.yaml").write_text(MATRIX)
    first = night(triage, code=1)
    # Both compile; the larger tile reaches beyond its buffers.
    assert first["cells"] == {"ok": 2, "right": 1, "memory_fault": 1}
    assert first["unexpected"] == 1
    [bug] = json.loads(triage("bugs", "--json").stdout)["bugs"]
    assert (bug["kind"], bug["kernels"]) == ("memory_fault", {"reaching": 1})
    known = "{kernel: reaching, when: {config: BLOCK=64}, verdict: memory_fault}"
    (triage.folder / "matrix.yaml").write_text(f"{MATRIX}expect: [{known}]\n")
    second = night(triage, code=0)
    assert second["cells"] == first["cells"]
    assert second["unexpected"] == 0
