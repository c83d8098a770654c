"""Bisection with the real ptxas and Triton; figures from the project's facts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from conftest import Triage

pytestmark = pytest.mark.tools

KERNEL = ["--kernel", "mamba3_siso_bwd_dqkv", "--sm", "100a"]
CRASHING = [*KERNEL, "--set", "chunk_size=32"]
ONE = ["--config", "num_warps=8,num_stages=1,maxnreg=none"]


def bisect(triage: Triage, *words: str, code: int = 0) -> dict[str, Any]:
    done = triage("bisect", *words, "--json", timeout=1800)
    assert done.returncode == code, done.stderr[-3000:]
    document: dict[str, Any] = msgspec.json.decode(done.stdout)
    return document


@pytest.mark.long
def test_where_versions_were_not_tried_the_answer_is_a_bracket(module_triage: Triage) -> None:
    words = [*CRASHING, *ONE, "--ptxas", "13.1.115", "--good", "13.0.88", "--max-tries", "2"]
    found = bisect(module_triage, *words, "--repeat", "1")
    assert found["last_good"] == "13.0.88"
    assert found["first_bad"] is None
    assert found["first_bad_candidates"] == ["13.1.80", "13.1.115"]
    assert "13.1.80" in found["not_tried"]
    assert found["ptx_identical"] is True


def test_a_version_that_does_not_exist_and_launches_that_are_many(module_triage: Triage) -> None:
    done = module_triage("bisect", *CRASHING, *ONE, "--bad", "13.1.1")
    assert done.returncode == 2
    assert "--bad 13.1.1: there is no such ptxas" in done.stderr
    done = module_triage("bisect", *KERNEL, "--sm", "90a", *ONE)
    assert done.returncode == 2
    assert "--sm: 2 are meant; a bisection follows one" in done.stderr


@pytest.mark.long
def test_the_internal_compiler_error_along_ptxas(module_triage: Triage) -> None:
    words = [*CRASHING, *ONE, "--ptxas", "13.1.115"]
    found = bisect(module_triage, *words)
    assert (found["last_good"], found["first_bad"]) == ("13.0.88", "13.1.80")
    assert found["first_fixed"] == "13.3.33"
    assert "12.8.93" in found["untestable"]
    assert (found["confidence"], found["ptx_identical"], found["blame"]) == (1.0, True, "ptxas")
    assert not found["came_back"]
    done = module_triage("bisect", *words)
    assert (
        "First bad: ptxas 13.1.80. Last good: 13.0.88. First fixed: 13.3.33. Untestable between: "
        "none. Confidence 1.00 (5/5 against 0/5). PTX identical on both sides: yes, so ptxas."
    ) in done.stdout


@pytest.mark.long
@pytest.mark.parametrize(("stages", "fixed"), [(1, "3.8.0"), (2, None)])
def test_the_trap_stub_along_triton(module_triage: Triage, stages: int, fixed: str | None) -> None:
    config = f"num_warps=4,num_stages={stages},maxnreg=none"
    words = [*KERNEL, "--config", config, "--axis", "triton", "--repeat", "2"]
    found = bisect(module_triage, *words)
    assert found["first_fixed"] == fixed
    verdicts = {part["verdict"] for part in found["segments"] if part["outcome"] == "same"}
    assert verdicts == {"trap_stub"}
    if fixed:
        story = found["stages"]
        assert (story["first"], story["trap_stage"]) == ("llir", "llir")
        assert story["failing_pass"]
        assert story["bundled_ptxas"] == ["13.1.80", "13.3.33"]
        assert story["llvm"][0] != story["llvm"][1]
        assert found["blame"] == "triton"


@pytest.mark.long
def test_what_the_internal_compiler_error_takes(module_triage: Triage) -> None:
    found = bisect(module_triage, *CRASHING, *ONE, "--ptxas", "13.1.115", "--axis", "flag")
    assert {"-O0", "-O1"} <= set(found["works"])
    assert {"-O2", "-O3", "without -lineinfo"} <= set(found["fails"])
    assert found["ptx_identical"] is True
    found = bisect(module_triage, *CRASHING, *ONE, "--ptxas", "13.1.115", "--axis", "config")
    carries = {carrier["name"]: carrier["carries"] for carrier in found["carriers"]}
    assert carries == {"num_warps": True, "num_stages": True, "maxnreg": False}
    found = bisect(module_triage, *CRASHING, *ONE, "--ptxas", "13.1.115", "--axis", "target")
    assert "sm_100a" in found["fails"]
    assert {"sm_90a", "sm_120a"} <= set(found["works"])


def test_the_targets_and_flags_of_raw_ptx(module_triage: Triage) -> None:
    ptx = module_triage.folder / "tanh.ptx"
    ptx.write_text(
        ".version 8.6\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 p) {\n"
        ".reg .b64 %rd<2>; .reg .b32 %r<3>;\nld.param.u64 %rd1, [p];\nld.global.u32 %r1, [%rd1];\n"
        "tanh.approx.bf16x2 %r2, %r1;\nst.global.u32 [%rd1], %r2;\nret;\n}\n"
    )
    case = ["--kernel", str(ptx), "--sm", "80", "--ptxas", "13.1.115"]
    found = bisect(module_triage, *case, "--axis", "target")
    assert {"sm_80", "sm_89"} <= set(found["fails"])
    assert {"sm_90", "sm_100"} <= set(found["works"])
    assert bisect(module_triage, *case, "--axis", "flag")["works"] == []
