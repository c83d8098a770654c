"""`triage workaround --run`: what is right where a config computes the wrong thing."""

from __future__ import annotations

import json

import pytest
from conftest import HERE, Triage

pytestmark = pytest.mark.tools

REACHING = ["--kernel", str(HERE / "kernels" / "reaching.py"), "--sm", "80", "--triton", "3.6.0"]


@pytest.mark.long
def test_a_config_that_stays_within_its_buffers_is_found(triage: Triage) -> None:
    words = ["--config", "BLOCK=64,num_warps=1", "--run", "--change", "config", "--json"]
    done = triage("workaround", *REACHING, *words, "--most", "2")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["baseline"]["verdict"] == "memory_fault"
    assert found["patch"] is None
    best = found["candidates"][0]
    [step] = best["change"]
    assert (step["name"], step["before"], step["after"]) == ("BLOCK", 64, 32)
    assert (best["verdict"], best["ptxas"]) == ("right", "emulator")
    evidence = best["evidence"]
    assert (evidence["numerics"], evidence["proved"]) == (
        "emulated",
        "compiled again from nothing, and executed",
    )
    assert evidence["numerics_reason"].startswith("right on these inputs: agrees with")


@pytest.mark.parametrize(
    "words", [["--ptxas", "12.9.86"], ["--change", "flags"], ["--patch", "p.diff"]]
)
def test_what_only_ptxas_sees_is_refused(triage: Triage, words: list[str]) -> None:
    done = triage("workaround", *REACHING, *words, "--run")
    assert done.returncode == 2
    [line] = done.stderr.strip().splitlines()
    assert f"{words[0]}" in line
    assert "does not apply to --run" in line


@pytest.mark.long
def test_two_products_are_right_with_one_stage_or_two_warps(triage: Triage) -> None:
    words = ["--kernel", "two_dots", "--sm", "100a", "--triton", "3.8.0", "--change", "config"]
    done = triage("workaround", *words, "--run", "--json")
    assert done.returncode == 0, done.stderr
    changes = [each["evidence"]["change"] for each in json.loads(done.stdout)["candidates"]]
    assert "num_stages 2 -> 1" in changes
    assert "num_warps none -> 2" in changes
