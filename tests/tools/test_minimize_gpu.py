"""`triage minimize --run --on gpu`: real ptxas and emulator; a runner folds PTX wrongly.

The runner executes what a pack holds on the emulator, and of the accused ptxas other PTX.
"""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import Triage

from harness.minimize.ptx.reduce import count_instructions, count_unwritten

pytestmark = pytest.mark.tools

RUNNER = shlex.join([sys.executable, str(Path(__file__).parents[1] / "fakes" / "gpu_runner")])
FOLDS = "folds=13.0.88,-O3=>sub.sat.s32=>sub.s32"
PTX = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 x)
{
    .reg .b32 %r<9>;
    .reg .b64 %d<4>;
    ld.param.u64 %d1, [out];
    ld.param.u64 %d2, [x];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %d3, %r0, 4;
    add.s64 %d1, %d1, %d3;
    add.s64 %d2, %d2, %d3;
    ld.global.u32 %r1, [%d2];
    mov.u32 %r2, 7;
    xor.b32 %r2, %r2, 1;
    sub.sat.s32 %r3, %r1, 0x7fffffff;
    st.global.u32 [%d1], %r3;
    ret;
}
"""
INPUTS = ["--buffer", "out=u32[32]:0xdeadbeef", "--buffer", "x=u32[32]:random", "--block", "32"]


def minimized(triage: Triage, *words: str, does: str = FOLDS) -> dict[str, Any]:
    (triage.folder / "case.ptx").write_text(PTX)
    log = str(triage.folder / "trips")
    triage = replace(triage, env={**triage.env, "FAKE_RUNNER": does, "FAKE_RUNNER_LOG": log})
    argv = ["minimize", "case.ptx", *INPUTS, "--sm", "90a", "--ptxas", "13.0.88", *words]
    done = triage(*argv, "--runner", RUNNER, "--out", "min", "--json", timeout=1200)
    assert done.returncode in (0, 1), done.stderr[-3000:]
    document: dict[str, Any] = json.loads(done.stdout)
    return {**document, "code": done.returncode}


@pytest.mark.long
def test_what_is_left_is_sound_and_goes_wrong_in_the_same_way(triage: Triage) -> None:
    found = minimized(triage, "--max-tries", "10", "--jobs", "10")
    assert found["instructions"] < 12
    text = (triage.folder / "min" / "min.ptx").read_text()
    assert "sub.sat.s32" in text
    assert count_unwritten(text) == 0
    assert found["fingerprint"]["fails"] == ["gpu:ptxas-13.0.88,-O3"]
    # Several candidates travel together.
    assert (triage.folder / "trips").read_text().count("\n") < found["tests"]
    readme = (triage.folder / "min" / "README.md").read_text()
    assert "launches its cubins on a GPU" in readme
    assert found["run_command"].endswith("--ptxas 13.0.88 -O 0,3 --on gpu")
    words = [*shlex.split(found["run_command"])[1:-2], "--runner", RUNNER, "--json"]
    env = {**triage.env, "FAKE_RUNNER": FOLDS}
    shown = replace(triage, folder=triage.folder / "min", env=env)(*words)
    rows = json.loads(shown.stdout)["runs"]
    assert sorted(row["run"] for row in rows) == ["right", "wrong_result"]
    assert [row["run_signature"] for row in rows if row["run"] != "right"] == [found["signature"]]


@pytest.mark.long
def test_no_instruction_of_what_is_left_can_go(triage: Triage) -> None:
    found = minimized(triage, "--ptxas", "13.5.37", "--jobs", "8")
    assert found["is_minimal"] is True
    assert count_instructions((triage.folder / "min" / "min.ptx").read_text()) <= 10
    assert "ptxas-13.5.37,-O3: right" in found["notes"][0]


def test_where_the_cubin_is_right_there_is_nothing_to_reduce(triage: Triage) -> None:
    found = minimized(triage, does="")
    assert found["code"] == 1
    assert found["instructions"] is None
    assert "agrees with the emulator" in found["reason"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--on", "gpu"], "name the ptxas that gets it wrong"),
        (["--on", "emulator", "-O", "3"], "are for a GPU"),
        (["--on", "emulator", "--runner", "x"], "--runner is for a GPU"),
        (["--on", "gpu", "--ptxas", "13.0.88", "--level", "source"], "on a GPU, PTX is reduced"),
    ],
)
def test_what_does_not_go_together(triage: Triage, words: list[str], said: str) -> None:
    done = triage("minimize", "--kernel", "fold_sat_undone", *words)
    assert done.returncode == 2
    assert said in done.stderr
