"""Reductions with the real ptxas and Triton; figures from the project's facts."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import Triage

from harness.io.toolchains.install import install_ptxas
from harness.judging.ptxas.ptxas_log import parse_ptxas_log

pytestmark = pytest.mark.tools

# ptxas divides the least integer by -1 itself, and dies by SIGFPE: all that were ever released.
CRASH = """\
.version 8.0
.target sm_80
.address_size 64

.visible .entry fold(.param .u64 fold_param_0)
{
    .reg .b32 %r<8>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [fold_param_0];
    cvta.to.global.u64 %rd2, %rd1;
    mov.u32 %r1, %tid.x;
    add.s32 %r2, %r1, 1;
    mul.lo.s32 %r3, %r2, %r1;
    add.s32 %r4, %r3, ((-9223372036854775807 - 1) / -1);
    xor.b32 %r5, %r4, %r2;
    st.global.u32 [%rd2], %r5;
    ret;
}
"""
# An instruction that the target does not have; the rest is fine.
REFUSED = CRASH.replace(
    "add.s32 %r4, %r3, ((-9223372036854775807 - 1) / -1);", "tanh.approx.bf16x2 %r4, %r3;"
)
# Only the form with `.shared::cta` is there for sm_120a, and this ptxas does not say how.
GATHER = """\
.version 8.7
.target sm_120a
.address_size 64

.visible .entry gather(.param .u64 gather_param_0, .param .u64 gather_param_1)
{
    .reg .pred %p<2>;
    .reg .b32 %r<10>;
    .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [gather_param_0];
    ld.param.u64 %rd2, [gather_param_1];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, 1024;
    mov.u32 %r3, 0;
    add.s32 %r4, %r1, 1;
    setp.eq.u32 %p1, %r1, 0;
    @%p1 cp.async.bulk.tensor.2d.tile::gather4.shared::cluster.global.mbarrier::complete_tx::bytes
        [%r2], [%rd2, {%r1, %r3, %r4, %r3, %r4}], [%r3];
    ret;
}
"""
MAIN = ["--kernel", "mamba3_siso_bwd_dqkv", "--sm", "100a", "--triton", "3.6.0"]
CHUNK_32 = [*MAIN, "--set", "chunk_size=32", "--ptxas", "13.1.115"]
CHUNK_32 += ["--config", "num_warps=8,num_stages=1,maxnreg=none"]


def minimize(triage: Triage, *words: str, code: int = 0) -> dict[str, Any]:
    done = triage("minimize", *words, "--json", timeout=1500)
    assert done.returncode == code, done.stderr[-3000:]
    document: dict[str, Any] = msgspec.json.decode(done.stdout)
    return document


def ends(file: Path, version: str, *flags: str) -> subprocess.CompletedProcess[str]:
    """What that ptxas does with the file, without anything of ours in between."""
    words = [str(install_ptxas(version).path), *flags, str(file), "-o", os.devnull]
    return subprocess.run(words, capture_output=True, text=True, check=False)


@pytest.mark.long
def test_a_crash_of_ptxas(triage: Triage) -> None:
    (triage.folder / "crash.ptx").write_text(CRASH)
    found = minimize(triage, "crash.ptx", "--ptxas", "13.1.115")
    folder = triage.folder / found["path"]
    assert (found["instructions"], found["is_minimal"]) == (1, True)
    assert (found["verdict"], found["drift"]) == ("compiler_crash", [])
    assert found["bytes"] < 150
    assert ends(folder / "min.ptx", "13.1.115", "--gpu-name=sm_80").returncode == -signal.SIGFPE
    env = {"PATH": os.environ["PATH"], "PTXAS": str(install_ptxas("13.1.115").path)}
    done = subprocess.run(
        ["sh", folder / "repro.sh"], env=env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, "it shows: ptxas 13.1.115 on sm_80" in done.stdout) == (0, True)
    readme = (folder / "README.md").read_text()
    assert "nvidia-cuda-nvcc==13.1.115" in (folder / "repro.sh").read_text()
    assert "-9223372036854775807" in readme
    assert str(triage.folder) not in readme


@pytest.mark.long
def test_an_error_of_ptxas_keeps_its_own_words(triage: Triage) -> None:
    (triage.folder / "refused.ptx").write_text(REFUSED)
    found = minimize(triage, "refused.ptx", "--ptxas", "13.1.115")
    assert (found["instructions"], found["verdict"]) == (1, "ptxas_error")
    log = ends(Path(triage.folder, found["path"], "min.ptx"), "13.1.115", "--gpu-name=sm_80")
    assert "Feature 'tanh.bf16x2' requires .target sm_90" in log.stderr


def test_what_no_version_accepts_stays_valid_for_another_target(triage: Triage) -> None:
    """No ptxas has it for sm_120a, so only what another target takes says what is valid PTX."""
    (triage.folder / "gather.ptx").write_text(GATHER)
    install_ptxas("13.1.115")
    offline = Triage(triage.folder, {**triage.env, "TRIAGE_OFFLINE": "1"})
    found = minimize(offline, "gather.ptx", "--ptxas", "13.1.115")
    assert (found["instructions"], found["verdict"]) == (1, "ptxas_error")
    least = triage.folder / found["path"] / "min.ptx"
    before = ends(triage.folder / "gather.ptx", "13.1.115", "--gpu-name=sm_120a")
    after = ends(least, "13.1.115", "--gpu-name=sm_120a")
    assert {each.text for each in parse_ptxas_log(after.stderr).errors} == {
        each.text for each in parse_ptxas_log(before.stderr).errors
    }
    asked = found["fingerprint"]
    assert (asked["accepted_by"], asked["accepted_for"] is None) == ([], False)
    least.write_text(least.read_text().replace("sm_120a", asked["accepted_for"]))
    assert ends(least, "13.1.115", f"--gpu-name={asked['accepted_for']}").returncode == 0


def test_numbers_of_a_success(triage: Triage) -> None:
    (triage.folder / "fine.ptx").write_text(REFUSED.replace("tanh.approx.bf16x2", "neg.s32"))
    found = minimize(triage, "fine.ptx", "--ptxas", "13.1.115", "--while", "n_regs>=8")
    assert 0 < found["instructions"] < found["original"]["instructions"]
    log = ends(Path(triage.folder, found["path"], "min.ptx"), "13.1.115", "-v", "--gpu-name=sm_80")
    registers = int(log.stderr.split("Used ")[1].split()[0])
    assert registers >= 8


@pytest.mark.long
def test_what_triton_rejects_is_reduced_as_python(triage: Triage) -> None:
    words = ["--kernel", "verdict_rejected", "--sm", "90a", "--triton", "installed"]
    triage.compile(*words, code=1)
    # Every Triton refuses it: the package index would be walked for one that does not.
    found = minimize(Triage(triage.folder, {**triage.env, "TRIAGE_OFFLINE": "1"}), *words)
    assert (found["level"], found["instructions"]) == ("source", None)
    assert found["lines"] < found["original"]["lines"]
    folder = triage.folder / found["path"]
    document = triage.compile(
        *["--kernel", str(folder / "min.py"), "--sm", "90a", "--triton", "installed"], code=1
    )
    assert document["cells"][0]["signature"] == found["signature"]


def test_ptx_cannot_show_what_ptxas_does_not_see(triage: Triage) -> None:
    words = ["--kernel", "verdict_rejected", "--sm", "90a", "--triton", "installed"]
    found = minimize(triage, *words, "--level", "ptx", code=1)
    assert "it goes wrong before ptxas, in stage ttir" in found["reason"]


STUB = ["--kernel", "verdict_trap_stub", "--sm", "100a", "--triton", "3.6.0"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("level", "name", "smaller"),
    [("source", "min.py", 0.9), ("ttgir", "min.ttgir", 0.3), ("config", "min.sh", 1.0)],
)
def test_a_trap_stub_at_the_levels_above_ptx(
    module_triage: Triage, level: str, name: str, smaller: float
) -> None:
    found = minimize(module_triage, *STUB, "--level", level, "--out", level)
    assert (found["level"], found["ending"], found["is_minimal"]) == (level, "finished", True)
    file = module_triage.folder / level / name
    if level == "config":
        assert "--set k=1" in file.read_text()
        words = file.read_text().split()[2:]
    else:
        assert found["lines"] < smaller * found["original"]["lines"]
        options = [] if level == "source" else ["--set", "num_stages=1"]
        script = (module_triage.folder / level / "repro.sh").read_text()
        assert "triton==3.6.0" in script
        words = ["--kernel", str(file), "--sm", "100a", "--triton", "3.6.0", *options]
    cell = module_triage.compile(*words, code=1)["cells"][0]
    assert (cell["verdict"], cell["signature"]) == ("trap_stub", found["signature"])
    assert cell["tmem_size"] > 512


@pytest.mark.long
@pytest.mark.parametrize(
    ("more", "instructions", "size"), [([], 45, 1500), (["--defined"], 90, None)]
)
def test_the_internal_compiler_error(
    module_triage: Triage, more: list[str], instructions: int, size: int | None
) -> None:
    found = minimize(module_triage, *CHUNK_32, *more, "--out", f"c32{''.join(more)}")
    assert (found["original"]["instructions"], found["ending"]) == (2017, "finished")
    assert found["instructions"] <= instructions
    assert size is None or found["bytes"] <= size
    assert more or found["tests"] <= 1500
    assert (found["code"], found["is_minimal"], found["drift"]) == ("C7907", True, [])
    assert (found["last_good"], found["first_fixed"]) == ("13.0.88", "13.3.33")
    folder = module_triage.folder / found["path"]
    for version, code in (
        ("12.9.41", 0),
        ("13.0.88", 0),
        ("13.1.80", 255),
        ("13.1.115", 255),
        ("13.2.86", 255),
        ("13.3.33", 0),
        ("13.5.37", 0),
    ):
        done = ends(folder / "min.ptx", version, "--gpu-name=sm_100a")
        assert (done.returncode, "C7907" in done.stderr) == (code, code == 255), version
    if more:
        reads = found["undefined_registers"]
        assert reads["minimized"] <= reads["original"]
