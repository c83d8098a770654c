"""`triage run` on a GPU, from PTX to rows: real ptxas, and a runner that needs no GPU."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import Triage

pytestmark = pytest.mark.tools

RUNNER = Path(__file__).parents[1] / "fakes" / "gpu_runner"
PTX = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 x, .param .u32 n)
{
  .reg .pred %p<2>;
  .reg .b32 %r<9>;
  .reg .b64 %d<6>;
  ld.param.u64 %d1, [out];
  ld.param.u64 %d2, [x];
  ld.param.u32 %r1, [n];
  mov.u32 %r2, %tid.x;
  setp.ge.u32 %p1, %r2, %r1;
  @%p1 bra $done;
  mul.wide.u32 %d3, %r2, 4;
  add.s64 %d4, %d1, %d3;
  add.s64 %d5, %d2, %d3;
  ld.global.u32 %r3, [%d5];
  LINES
  st.global.u32 [%d4], %r4;
$done:
  ret;
}
"""
ADDS = PTX.replace("LINES", "add.s32 %r4, %r3, 5;")
INPUTS = ["--buffer", "out=u32[64]", "--buffer", "x=u32[64]:random", "--scalar", "n=48"]
TOOLS = ["--block", "64", "--ptxas", "13.0.88", "--sm", "90a"]
CASE = ["run", "case.ptx", *INPUTS, *TOOLS]


def with_variables(triage: Triage, **variables: str) -> Triage:
    return replace(triage, env={**triage.env, **variables})


@pytest.fixture
def ask(triage: Triage) -> Any:
    """The document of `triage run` with the runner, which does as it is told."""

    def run(*words: str, does: str = "", code: int = 0, ptx: str = ADDS) -> dict[str, Any]:
        (triage.folder / "case.ptx").write_text(ptx)
        runner = shlex.join([sys.executable, str(RUNNER)])
        argv = [*CASE, "--runner", runner, *words, "--json"]
        log = str(triage.folder / "trips")
        done = with_variables(triage, FAKE_RUNNER=does, FAKE_RUNNER_LOG=log)(*argv)
        assert done.returncode == code, done.stderr + done.stdout[-2000:]
        if not done.stdout:
            return {"said": done.stderr}
        document: dict[str, Any] = msgspec.json.decode(done.stdout)
        return {**document, "said": done.stderr}

    return run


def verdicts(document: dict[str, Any]) -> dict[str, str]:
    """By ptxas and flags."""
    return {
        row["cell"].rpartition("ptxas-")[2].replace(",", " "): row["run"]
        for row in document["runs"]
    }


def test_cubins_side_by_side_in_one_trip(ask: Any, triage: Triage) -> None:
    found = ask("-O", "0..3", "--ptxas", "13.5.37")
    assert verdicts(found) == {
        f"{version} -O{level}": "right" for version in ("13.0.88", "13.5.37") for level in range(4)
    }
    assert (triage.folder / "trips").read_text().count("\n") == 1
    row = found["runs"][0]
    assert (row["on"], row["device"]) == ("gpu", "Emulated GPU")
    assert row["cell"].startswith("case.ptx/ptx:inputs=")
    assert re.search(r"@sm_90a/ptx-[0-9a-f]{8}/gpu:ptxas-13\.0\.88,-O0$", row["cell"])
    assert row["reference"] == "the emulator"
    assert row["verdict"] == "ok"
    assert len(row["cubin_sha256"]) == 64
    assert row["ptxas_flags"][-1] == "-O0"


def test_the_cubin_that_computes_something_else_is_accused(ask: Any, triage: Triage) -> None:
    found = ask(does="wrong=,-O3", code=1)
    assert verdicts(found) == {"13.0.88 -O0": "right", "13.0.88 -O3": "wrong_result"}
    [row] = [row for row in found["runs"] if row["run"] == "wrong_result"]
    assert "1 of 64 elements of out differ from the emulator's" in row["run_reason"]
    assert "ptxas 13.0.88 -O0 agrees with the emulator" in row["run_reason"]
    # It is kept as any failure: a bug with a signature, and a row in the cell's history.
    bugs = triage("bugs", "--json")
    assert row["run_signature"] in bugs.stdout, bugs.stdout + bugs.stderr
    history = triage("history", "--kernel", "case.ptx", "--json")
    assert "wrong_result" in history.stdout, history.stdout + history.stderr


def test_all_wrong_alike_accuses_nobody(ask: Any) -> None:
    found = ask(does="wrong=ptxas", code=4)
    assert set(verdicts(found).values()) == {"not_run"}


def test_sanitizers_give_four_answers(ask: Any) -> None:
    found = ask("-O", "3", "--sanitize", does="finds=racecheck", code=1)
    [row] = found["runs"]
    assert row["run"] == "right"
    assert {each["tool"]: (each["errors"], each["words"]) for each in row["sanitizers"]} == {
        "memcheck": (0, ""),
        "racecheck": (2, "a race at k+0x70"),
        "initcheck": (0, ""),
        "synccheck": (0, ""),
    }


def test_one_level_has_a_witness_that_is_not_shown(ask: Any) -> None:
    found = ask("-O", "3", does="wrong=,-O3", code=1)
    assert verdicts(found) == {"13.0.88 -O3": "wrong_result"}


def test_faults_hangs_and_runs_that_disagree(ask: Any) -> None:
    found = ask("-O", "0..3", does="fault=-O1|hang=-O2|flip=-O3", code=1)
    assert verdicts(found) == {
        "13.0.88 -O0": "right",
        "13.0.88 -O1": "memory_fault",
        "13.0.88 -O2": "hang",
        "13.0.88 -O3": "nondeterministic",
    }


def test_a_kernel_is_launched_on_the_inputs_that_were_recorded(triage: Triage) -> None:
    kernel = Path(__file__).parents[1] / "kernels" / "runnable.py"
    runner = shlex.join([sys.executable, str(RUNNER)])
    words = ["run", "--kernel", f"{kernel}::row_sum", "--sm", "90a", "--runner", runner, "--json"]
    done = with_variables(triage, FAKE_RUNNER="")(*words)
    assert done.returncode == 0, done.stderr
    [row] = msgspec.json.decode(done.stdout)["runs"]
    assert (row["run"], row["on"], row["reference"]) == ("right", "gpu", "the emulator")
    assert row["config"]["BLOCK"] == 128
    assert row["triton"]
    assert "/gpu:ptxas-" in row["cell"]
    assert [each["name"] for each in row["outputs"]] == ["out"]
    # A fault of the cubin is none of the PTX's.
    faulty = with_variables(triage, FAKE_RUNNER="fault=bundled")(*words)
    assert faulty.returncode == 1, faulty.stderr
    [row] = msgspec.json.decode(faulty.stdout)["runs"]
    assert row["run"] == "memory_fault"


def test_registers_that_nothing_wrote_accuse_nobody(ask: Any) -> None:
    ptx = PTX.replace("LINES", "add.s32 %r4, %r3, %r7;")
    found = ask(does="wrong=-O3", code=1, ptx=ptx)
    assert set(verdicts(found).values()) == {"uninitialised"}


def test_a_run_that_dies_half_way_keeps_what_it_had(ask: Any) -> None:
    found = ask("-O", "0..3", does="cut", code=4)
    assert list(verdicts(found).values()) == ["right", "not_run", "not_run", "not_run"]
    assert "1 of 4 cubins were launched" in found["said"]


@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("silent", "gave no results: exit code 1: no route to the GPU"),
        ("lie", "holds what was never given"),
        ("other", "the results are of another pack"),
    ],
)
def test_a_runner_that_lies_is_one_line(ask: Any, does: str, said: str) -> None:
    found = ask(does=does, code=4)
    lines = found["said"].strip().splitlines()
    assert said in lines[-1]
    assert lines[-1].startswith("triage: ")


def test_results_may_come_on_stdout(ask: Any) -> None:
    assert set(verdicts(ask(does="stdout")).values()) == {"right"}


def test_a_pack_goes_elsewhere_and_its_results_are_judged_here(triage: Triage) -> None:
    (triage.folder / "case.ptx").write_text(ADDS)
    packed = triage(*CASE, "--pack", "case.pack", "--repeat", "3")
    assert packed.returncode == 0, packed.stderr
    assert "python3 case.pack --out" in packed.stdout
    shown = triage("run", "--inspect", "case.pack")
    assert shown.returncode == 0
    assert "program: that of this triage" in shown.stdout
    assert "3 runs each" in shown.stdout
    assert "13.0.88,-O3" in shown.stdout
    elsewhere = triage.folder / "elsewhere"
    elsewhere.mkdir()
    shutil.copy(triage.folder / "case.pack", elsewhere)
    words = [sys.executable, str(RUNNER), "case.pack", "--out", "results.jsonl"]
    env = {**triage.env, "FAKE_RUNNER": "wrong=,-O3"}
    subprocess.run(words, cwd=elsewhere, env=env, check=True)
    results = str(elsewhere / "results.jsonl")
    done = triage("run", "--import", results, "--json")
    assert done.returncode == 1, done.stderr
    assert verdicts(msgspec.json.decode(done.stdout)) == {
        "13.0.88 -O0": "right",
        "13.0.88 -O3": "wrong_result",
    }
    # In another store nothing is known of the pack.
    other = with_variables(triage, TRIAGE_HOME="other")("run", "--import", results)
    assert other.returncode == 2
    assert "import them where `--pack` was given" in other.stderr


def test_a_changed_pack_says_so(triage: Triage) -> None:
    (triage.folder / "case.ptx").write_text(ADDS)
    assert triage(*CASE, "--pack", "case.pack").returncode == 0
    data = (triage.folder / "case.pack").read_bytes()
    with zipfile.ZipFile(triage.folder / "case.pack", "a") as archive:
        archive.writestr("harness/run/gpu/device/more.py", "import os")
    shown = triage("run", "--inspect", "case.pack")
    assert shown.returncode == 1
    assert "read it before you execute it" in shown.stdout
    (triage.folder / "case.pack").write_bytes(data[: len(data) // 2])
    cut = triage("run", "--inspect", "case.pack")
    assert cut.returncode == 2
    assert "not a pack" in cut.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["-O", "4"], 2, "write levels from 0 to 3"),
        (["-O", "3..1"], 2, "3 is more than 1"),
        (["--on", "emulator", "-O", "3"], 2, "-O is for a GPU"),
        (["--on", "emulator", "-O", "3", "--measure"], 2, "-O and --measure are for a GPU"),
        (["--runner", "x", "--pack", "p"], 2, "which one is meant"),
        (["--runner", "'"], 2, "--runner"),
        (["--runner", "/no/such/runner"], 4, "cannot start /no/such/runner"),
        (["--import", "case.ptx"], 2, "name nothing else"),
    ],
)
def test_what_makes_no_sense_is_one_line(
    triage: Triage, words: list[str], code: int, said: str
) -> None:
    (triage.folder / "case.ptx").write_text(ADDS)
    done = triage(*CASE, *words)
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_without_a_gpu_the_ways_to_one_are_named(triage: Triage) -> None:
    (triage.folder / "case.ptx").write_text(ADDS)
    done = triage(*CASE, "--on", "gpu")
    if done.returncode != 4:
        pytest.skip("this machine has an NVIDIA driver")
    assert "--pack FILE" in done.stderr
    assert "--runner CMD" in done.stderr
    assert done.stderr.count("\n") == 1
