"""`triage blame --run`: whose fault it is that executed PTX computes the wrong thing."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from conftest import HERE, Triage

pytestmark = pytest.mark.tools

REACHING = ["--kernel", str(HERE / "kernels" / "reaching.py"), "--sm", "80"]


def blame(triage: Triage, *words: str, code: int = 0) -> Any:
    done = triage("blame", *words, "--run", "--json")
    assert done.returncode == code, done.stderr + done.stdout[-2000:]
    return msgspec.json.decode(done.stdout)


@pytest.mark.long
def test_a_fault_with_every_triton_is_the_kernels(module_triage: Triage) -> None:
    words = [*REACHING, "--triton", "3.6.0", "--triton", "3.8.0", "--config", "BLOCK=64"]
    found = blame(module_triage, *words, "--config", "num_warps=1")
    assert (found["blame"], found["ground"]) == ("kernel", "every_toolchain")
    assert found["verdict"] == "memory_fault"
    grid = {(each["triton"], each["ptxas"], each["verdict"]) for each in found["grid"]}
    assert grid == {(v, "emulator", "memory_fault") for v in ("3.6.0", "3.8.0")}
    targets = {each["probe"] for each in found["probes"] if each["probe"].startswith("sm_")}
    assert {"sm_90a", "sm_100a"} <= targets
    assert all(each["verdict"] == "memory_fault" for each in found["probes"])
    done = module_triage("blame", *words, "--run")
    assert "The kernel is to blame." in done.stdout
    assert "ptxas is not involved" in done.stdout


def test_what_is_right_has_nobody_to_blame(module_triage: Triage) -> None:
    words = [*REACHING, "--triton", "3.6.0", "--config", "BLOCK=32,num_warps=1"]
    assert blame(module_triage, *words, code=1)["ground"] == "nothing_fails"


@pytest.mark.parametrize("words", [["--ptxas", "12.9.86"], ["--while", "n_regs > 32"]])
def test_what_only_ptxas_sees_is_refused(triage: Triage, words: list[str]) -> None:
    done = triage("blame", *REACHING, *words, "--run")
    assert done.returncode == 2
    [line] = done.stderr.strip().splitlines()
    assert "does not apply to --run" in line


@pytest.mark.long
def test_two_products_are_lost_in_the_passes_over_ttgir(triage: Triage) -> None:
    words = ["--kernel", "two_dots", "--sm", "100a", "--set", "stages=2"]
    found = blame(triage, *words, "--triton", "3.6.0", "--triton", "3.9.0")
    assert (found["blame"], found["ground"]) == ("triton", "another_triton")
    probes = {each["probe"]: each["verdict"] for each in found["probes"]}
    assert (probes["num_stages=1"], probes["num_stages=3"]) == ("right", "wrong_result")
    assert probes["the TTGIR of Triton 3.9.0, lowered by Triton 3.6.0"] == "right"
    assert (
        "So it comes about between TTIR and TTGIR, in the passes of Triton 3.6.0."
        in (found["reasons"])
    )
