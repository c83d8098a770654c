"""Blame with the real ptxas and Triton; figures from the project's facts."""

from __future__ import annotations

import shlex
from typing import Any

import msgspec
import pytest
from conftest import HERE, Triage

pytestmark = pytest.mark.tools

KERNEL = ["--kernel", "mamba3_siso_bwd_dqkv", "--sm", "100a"]
ICE = [*KERNEL, "--set", "chunk_size=32", "--config", "num_warps=8,num_stages=1,maxnreg=none"]
STUB = [*KERNEL, "--config", "num_warps=4,num_stages=1,maxnreg=none"]
# No launch code, and nothing that any ptxas minds.
PLAIN = """.version 8.7
.target sm_90a
.address_size 64

.visible .entry plain(
\t.param .u64 plain_param_0
)
{
\t.reg .b32 %r<4>;
\t.reg .b64 %rd<3>;
\tld.param.u64 %rd1, [plain_param_0];
\tcvta.to.global.u64 %rd2, %rd1;
\tld.global.u32 %r1, [%rd2];
\tadd.s32 %r2, %r1, 1;
\tst.global.u32 [%rd2], %r2;
\tret;
}
"""
# ptxas computes it itself, in 64 bits that the quotient does not fit into.
DIVISION = "add.s32 %r2, %r1, ((-9223372036854775807 - 1) / -1);"
# A pass fails in every Triton so far, and says nothing.
SILENT = """import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x, y):
    x_d = tl.make_tensor_descriptor(x, [64, 64], [64, 1], [64, 64])
    y_d = tl.make_tensor_descriptor(y, [64, 64], [64, 1], [64, 64])
    for step in tl.range(0, 2, warp_specialize=True):
        a = x_d.load([0, 0])
        x_d.store([0, 0], a)
        y_d.store([0, 0], tl.dot(a, a))


def launch():
    x = torch.empty(64, 64, dtype=torch.bfloat16, device="cuda")
    kernel[(1,)](x, torch.empty(64, 64, device="cuda"))
"""
AROUND = ["--ptxas", "13.1.115", "--ptxas", "13.0.88", "--ptxas", "13.3.33"]


def blamed(triage: Triage, *words: str, code: int = 0) -> dict[str, Any]:
    done = triage("blame", *words, "--json", timeout=1800)
    assert done.returncode == code, done.stderr[-3000:]
    document: dict[str, Any] = msgspec.json.decode(done.stdout)
    return document


def outcomes(found: dict[str, Any], triton: str | None) -> dict[str, str]:
    return {
        entry["ptxas"]: entry["outcome"] for entry in found["grid"] if entry["triton"] == triton
    }


def programs(found: dict[str, Any], triton: str) -> set[str]:
    return {entry["ptx_body_sha256"] for entry in found["grid"] if entry["triton"] == triton}


@pytest.mark.long
def test_an_internal_error_over_one_ptx_is_ptxas(module_triage: Triage) -> None:
    words = [*ICE, "--triton", "3.6.0", "--triton", "3.7.1", *AROUND]
    found = blamed(module_triage, *words)
    assert found["blame"] == "ptxas"
    assert outcomes(found, "3.6.0") == {
        "12.9.86": "ok",
        "13.0.88": "ok",
        "13.1.115": "same",
        "13.3.33": "ok",
    }
    assert len(programs(found, "3.6.0")) == 1
    assert "PTX identical on both sides" in found["reasons"][0]
    probes = {probe["probe"]: probe for probe in found["probes"] if probe["before"] == "same"}
    assert not probes["with the entry renamed"]["changed"]
    assert not probes["without line information"]["changed"]
    assert (probes["-O0"]["outcome"], probes["-O3"]["outcome"]) == ("ok", "same")
    done = module_triage("blame", *words)
    assert "ptxas is to blame." in done.stdout
    assert "13.1.115" in done.stdout


@pytest.mark.long
def test_a_trap_stub_is_tritons(module_triage: Triage) -> None:
    words = [*STUB, "--triton", "3.6.0", "--triton", "3.8.0", "--ptxas", "bundled"]
    found = blamed(module_triage, *words, "--ptxas", "13.3.33")
    assert (found["blame"], found["verdict"]) == ("triton", "trap_stub")
    assert set(outcomes(found, "3.6.0").values()) == {"same"}
    assert set(outcomes(found, "3.8.0").values()) <= {"ok", "untestable"}
    assert outcomes(found, "3.8.0")["13.3.33"] == "ok"
    assert programs(found, "3.6.0") != programs(found, "3.8.0")
    assert found["probes"] == []


def test_what_every_triton_refuses_is_the_kernels(module_triage: Triage) -> None:
    words = ["--kernel", "verdict_rejected", "--triton", "3.6.0", "--triton", "3.8.0"]
    found = blamed(module_triage, *words)
    assert (found["blame"], found["ground"]) == ("kernel", "rejected")
    assert {entry["ptxas"] for entry in found["grid"]} == {None}


@pytest.mark.long
def test_a_limit_of_the_target_is_the_kernels(module_triage: Triage) -> None:
    words = ["--kernel", "verdict_out_of_resources_shared_memory"]
    words += ["--triton", "3.6.0", "--triton", "3.8.0", "--ptxas", "13.1.115", "--ptxas", "13.3.33"]
    found = blamed(module_triage, *words)
    assert (found["blame"], found["ground"]) == ("kernel", "limit")


def test_ptx_that_is_newer_than_its_ptxas_is_a_pairing(triage: Triage) -> None:
    new = PLAIN.replace(".version 8.7", ".version 9.4")
    (triage.folder / "new.ptx").write_text(new)
    words = ["--kernel", "new.ptx", "--sm", "90a", "--ptxas", "12.9.86", "--ptxas", "13.5.37"]
    found = blamed(triage, *words)
    assert (found["blame"], found["ground"]) == ("pairing", "unsupported")
    assert outcomes(found, None) == {"12.9.86": "same", "13.5.37": "ok"}


@pytest.mark.long
def test_a_triton_that_does_not_know_the_ptxas_is_a_pairing(module_triage: Triage) -> None:
    words = ["--kernel", "verdict_ok", "--triton", "3.4.0", "--triton", "3.6.0"]
    found = blamed(module_triage, *words, "--ptxas", "13.0.88")
    assert (found["blame"], found["verdict"]) == ("pairing", "unsupported")


def test_raw_ptx_that_takes_ptxas_down(triage: Triage) -> None:
    (triage.folder / "crash.ptx").write_text(PLAIN.replace("ret;", f"{DIVISION}\n\tret;"))
    words = ["--kernel", "crash.ptx", "--sm", "90a", "--ptxas", "13.1.115", "--ptxas", "13.5.37"]
    found = blamed(triage, *words)
    assert (found["blame"], found["verdict"]) == ("ptxas", "compiler_crash")


def test_what_ptxas_refuses_everywhere_in_raw_ptx_cannot_be_told(triage: Triage) -> None:
    (triage.folder / "bad.ptx").write_text(PLAIN.replace("ret;", "add.s32 %r1, %r2, %nowhere;"))
    words = ["--kernel", "bad.ptx", "--sm", "90a", "--ptxas", "13.1.115", "--ptxas", "13.5.37"]
    found = blamed(triage, *words)
    assert (found["blame"], found["ground"]) == ("cannot_tell", "raw_ptx")
    assert found["would_tell"]


def test_a_pass_that_crashes_is_the_compiler_s_fault(module_triage: Triage) -> None:
    words = ["--kernel", "verdict_pass_failure", "--triton", "3.6.0", "--triton", "3.7.1"]
    found = blamed(module_triage, *words)
    assert (found["blame"], found["ground"]) == ("triton", "triton_crash")
    assert any("no kernel may do that to a compiler" in reason for reason in found["reasons"])


def test_what_would_tell_can_be_run_as_it_is(module_triage: Triage) -> None:
    (module_triage.folder / "silent.py").write_text(SILENT)
    words = ["--kernel", "silent.py", "--sm", "90a", "--triton", "3.6.0", "--triton", "3.7.1"]
    found = blamed(module_triage, *words)
    assert (found["blame"], found["ground"]) == ("cannot_tell", "no_triton")
    wider, log = (shlex.split(line) for line in found["would_tell"])
    assert wider[:2] == ["triage", "blame"]
    assert wider[-4:] == ["--triton", "3.6.0", "--signature", found["signature"]]
    done = module_triage(*log[1:])
    assert done.returncode == 0
    assert "NVGPUWarpSpecialization" in done.stdout


def test_nothing_fails(triage: Triage) -> None:
    (triage.folder / "fine.ptx").write_text(PLAIN)
    words = ["--kernel", "fine.ptx", "--sm", "90a", "--ptxas", "13.5.37"]
    found = blamed(triage, *words, code=1)
    assert (found["blame"], found["grid"]) == (None, [])
    done = triage("blame", *words)
    assert "Nothing that was tried shows a failure." in done.stdout


def test_launches_and_targets_that_are_many(triage: Triage) -> None:
    done = triage("blame", *KERNEL, "--sm", "90a")
    assert done.returncode == 2
    assert "--sm: 2 are meant; blame follows one" in done.stderr


@pytest.mark.long
def test_where_to_begin_alone_is_enough(module_triage: Triage) -> None:
    found = blamed(module_triage, *ICE, "--triton", "3.6.0", "--ptxas", "13.1.115")
    told = outcomes(found, "3.6.0")
    assert found["blame"] == "ptxas"
    assert {told["13.1.115"], told["12.9.86"]} == {"same", "ok"}
    assert {entry["triton"] for entry in found["grid"]} > {"3.6.0", "3.7.1", "3.8.0"}
    tried = {(e["ptx_body_sha256"], e["ptxas"]) for e in found["grid"] if e["ptxas"]}
    assert len(tried) <= 60


@pytest.mark.long
def test_the_option_of_ptxas_that_lifts_the_spills_is_named(module_triage: Triage) -> None:
    file = HERE / "kernels" / "workable.py"
    words = ["--kernel", f"{file}::tiled", "--sm", "90a", "--triton", "3.6.0", "--max-tries", "2"]
    reasons = blamed(module_triage, *words)["reasons"]
    [lift] = [reason for reason in reasons if "ptxas --minnctapersm 1" in reason]
    assert lift.startswith("With ptxas --minnctapersm 1, 64 -> 255 registers, ")
    assert lift.endswith("B of spill stores (same PTX, byte for byte).")


@pytest.mark.long
def test_the_pass_of_llvm_that_changes_the_spills_is_named(triage: Triage) -> None:
    words = ["--kernel", f"{HERE / 'kernels' / 'workable.py'}::mixing", "--sm", "90a"]
    words += ["--config", "BLOCK=2048,num_warps=1", "--triton", "3.9.0", "--ptxas", "13.5.37"]
    compiled = triage("compile", *words, "--json")
    [row] = msgspec.json.decode(compiled.stdout)["cells"]
    # Without LLVM's passes it spills more.
    condition = f"spill_stores <= {row['spill_stores']}"
    found = blamed(triage, *words, "--max-tries", "2", "--while", condition)
    begin = "it works with the first "
    [label] = [each["probe"] for each in found["probes"] if each["probe"].startswith(begin)]
    assert label.endswith(" on function (mixing)")
