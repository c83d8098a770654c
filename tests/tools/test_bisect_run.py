"""`triage bisect --run`: what comes out of the PTX is followed, on the same inputs for all."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from conftest import HERE, Triage

pytestmark = pytest.mark.tools

REACHING = ["--kernel", str(HERE / "kernels" / "reaching.py"), "--sm", "80", "--triton", "3.6.0"]


def bisect(triage: Triage, *words: str, code: int = 0) -> Any:
    done = triage("bisect", *words, "--run", "--json")
    assert done.returncode == code, done.stderr + done.stdout[-2000:]
    return msgspec.json.decode(done.stdout)


def test_what_carries_a_memory_fault_is_named(module_triage: Triage) -> None:
    found = bisect(module_triage, *REACHING, "--axis", "config")
    verdicts = {each["first"]: each["verdict"] for each in found["segments"]}
    assert set(verdicts.values()) == {"memory_fault", "as_interpreted"}
    assert all(("BLOCK=64" in name) == (v == "memory_fault") for name, v in verdicts.items())
    carriers = {each["name"]: each["carries"] for each in found["carriers"]}
    # With one value of it nothing is known.
    assert carriers == {"BLOCK": True, "num_warps": False, "num_stages": None}
    [bug] = msgspec.json.decode(module_triage("bugs", "--json").stdout)["bugs"]
    assert (bug["kind"], bug["signature"]) == ("memory_fault", found["signature"])


@pytest.mark.long
def test_the_interpreter_of_an_old_triton_convicts_no_version(triage: Triage) -> None:
    assert triage("toolchain", "install", "triton-3.9.0").returncode == 0
    kernel = ["--kernel", str(HERE / "kernels" / "high_half.py"), "--sm", "90"]
    # Below 3.9 the interpreter multiplies as signed numbers, and compiled code never did.
    words = ["--triton", "3.3.1", "--axis", "triton", "--good", "3.9.0", "--max-tries", "2"]
    found = bisect(triage, *kernel, *words, code=1)
    assert {each["verdict"] for each in found["segments"]} == {"as_interpreted"}
    assert all("interpreter of Triton 3.9.0" in s["reasons"][0] for s in found["segments"])


@pytest.mark.parametrize("axis", ["ptxas", "flag"])
def test_what_only_ptxas_sees_is_refused(triage: Triage, axis: str) -> None:
    done = triage("bisect", *REACHING, "--run", "--axis", axis)
    assert done.returncode == 2
    [line] = done.stderr.strip().splitlines()
    assert f"--axis {axis} does not apply to --run" in line


@pytest.mark.long
def test_two_products_are_wrong_until_triton_mends_them(triage: Triage) -> None:
    words = ["--kernel", "two_dots", "--sm", "100a", "--triton", "3.8.0", "--repeat", "1"]
    found = bisect(triage, *words)
    assert (found["first_fixed"], found["blame"]) == ("3.9.0", "triton")
    assert found["stages"]["first"] == "ttgir"
    [wrong] = [each for each in found["segments"] if each["verdict"] == "wrong_result"]
    assert wrong["last"] == "3.8.0"


@pytest.mark.long
def test_builds_between_two_releases_narrow_the_bounds(triage: Triage) -> None:
    """Of a distribution that is imported by another name."""
    older, newer = (f"tokenspeed-triton==3.8.10.post{day}" for day in ("20260721", "20260906"))
    words = ["--kernel", "two_dots", "--sm", "100a", "--triton", newer, "--triton", "3.8.0"]
    found = bisect(triage, *words, "--bad", older, "--repeat", "1")
    [wrong] = [each for each in found["segments"] if each["verdict"] == "wrong_result"]
    assert (wrong["first"], wrong["last"]) == ("3.8.0", "3.8.10.post20260721+tokenspeed.triton")
    assert found["first_fixed"] == "3.8.10.post20260906+tokenspeed.triton"
    assert found["stages"]["first"] == "ttgir"
    assert all("of out differ" in reason for reason in wrong["reasons"])
