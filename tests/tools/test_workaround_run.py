"""`triage workaround --run` and `--on sass`: what is right where a config, or its cubin, is not."""

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


FOLD = ["--kernel", "fold_sat_undone", "--ptxas", "13.0.88", "--on", "sass", "--max-time", "30m"]


def test_a_cubin_that_is_wrong_has_a_cure_among_ptxas_own_options(triage: Triage) -> None:
    """At -O0 an H200 gives what the PTX says, at -O3 it does not (`test_folds_gpu.py`)."""
    done = triage("workaround", *FOLD, "--change", "flags", "--json", timeout=900)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["baseline"]["verdict"], found["patch"]) == ("wrong_result", None)
    [cure] = found["candidates"]
    assert (cure["verdict"], cure["evidence"]["change"]) == ("right", "ptxas flags none -> -O0")
    assert "/sass:ptxas-13.0.88" in cure["cell"]
    assert cure["evidence"]["numerics"] == "emulated"
    assert cure["evidence"]["measured"] is None


@pytest.mark.long
def test_a_newer_ptxas_cures_it_and_another_name_of_the_entry_does_not(triage: Triage) -> None:
    done = triage("workaround", *FOLD, "--change", "ptx", "--change", "ptxas", timeout=900)
    assert done.returncode == 0, done.stderr
    assert "ptxas 13.0.88 -> 13.5.37" in done.stdout
    assert "How long it takes says `--on gpu`" in done.stdout
    assert "cutlass in the entry's name: wrong_result" in done.stderr


PACKED = [
    *("--kernel", str(HERE / "kernels" / "packed.py"), "--sm", "90a", "--triton", "3.9.0"),
    *("--ptxas", "12.9.86", "--on", "sass", "--max-time", "30m"),
]


@pytest.mark.long
def test_triton_writes_ptx_that_an_older_ptxas_knows(triage: Triage) -> None:
    """The ptxas of Triton 3.9.0 is 13.4; that of triton #11581 is right since 13.1.115."""
    done = triage("workaround", *PACKED, "--change", "ptxas", timeout=900)
    assert done.returncode == 0, done.stderr
    assert "ptxas 12.9.86 -> 13.3.73: right" in done.stderr
    assert "ptxas 12.9.86 -> 12.8.93: wrong_result" in done.stderr


@pytest.mark.long
def test_triton_passes_the_cure_on(triage: Triage) -> None:
    change = ["--change", "flags", "--change", "config"]
    done = triage("workaround", *PACKED, *change, "--json", timeout=900)
    assert done.returncode == 0, done.stderr
    [cure] = json.loads(done.stdout)["candidates"]
    assert cure["evidence"]["change"] == "ptxas flags none -> -O0"
    assert cure["evidence"]["paste"][0].startswith('export PTXAS_OPTIONS="-O0"')


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--patch", "p.diff"], "--patch does not apply to --on sass"),
        (["--runner", "ssh gpu"], "leave out --on sass"),
        (["--pack", "p.pack"], "leave out --on sass"),
        (["--run"], "--on does not apply to --run"),
    ],
)
def test_what_needs_a_gpu_or_another_executor_is_refused_beside_sass(
    triage: Triage, words: list[str], said: str
) -> None:
    done = triage("workaround", *FOLD, *words)
    assert done.returncode == 2
    [line] = done.stderr.strip().splitlines()
    assert said in line


@pytest.mark.long
def test_two_products_are_right_with_one_stage_or_two_warps(triage: Triage) -> None:
    words = ["--kernel", "two_dots", "--sm", "100a", "--triton", "3.8.0", "--change", "config"]
    done = triage("workaround", *words, "--run", "--json")
    assert done.returncode == 0, done.stderr
    changes = [each["evidence"]["change"] for each in json.loads(done.stdout)["candidates"]]
    assert "num_stages 2 -> 1" in changes
    assert "num_warps none -> 2" in changes
