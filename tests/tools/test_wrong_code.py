"""Silent wrong code of a real Triton, found by executing its PTX (docs/measured/wrong-code.md)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import Triage

pytestmark = pytest.mark.tools


def run(triage: Triage, *words: str, code: int) -> list[dict[str, Any]]:
    done = triage("run", "--kernel", "two_dots", "--sm", "100a", "--json", *words)
    assert done.returncode == code, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)["runs"]
    return rows


@pytest.mark.long
@pytest.mark.skipif(sys.version_info < (3, 11), reason="Triton 3.9 has no wheel for Python 3.10")
def test_two_products_into_one_accumulator(module_triage: Triage) -> None:
    """Wrong on tensor memory with two stages, as triton-lang/triton#10821 has it: up to 3.8."""
    versions = ("--triton", "3.6.0", "--triton", "3.9.0")
    wrong, newest = run(module_triage, *versions, "--set", "stages=2", code=1)
    assert wrong["run"] == "wrong_result"
    [out] = [each for each in wrong["outputs"] if each["differing"]]
    assert out["name"] == "out"
    # Whole products are lost: far beyond what rounding explains.
    assert out["max_abs"] > 10
    assert wrong["reference"] == "the repro's reference (torch, float64)"
    assert newest["run"] == "right"
    [plain] = run(module_triage, "--triton", "3.6.0", "--set", "stages=1", code=0)
    assert plain["run"] == "right"


@pytest.mark.long
def test_a_running_state_beside_an_output_is_wrong_in_the_newest(triage: Triage) -> None:
    """Open: the accumulator is lost with two stages on tensor memory, up to Triton 3.9."""
    words = ["run", "--kernel", "scaled_values", "--sm", "100a", "--triton", "3.9.0", "--json"]
    for stages, code, verdict in ((2, 1, "wrong_result"), (1, 0, "right")):
        done = triage(*words, "--set", f"stages={stages}")
        assert done.returncode == code, done.stderr
        [row] = json.loads(done.stdout)["runs"]
        assert row["run"] == verdict


@pytest.mark.long
def test_a_load_that_only_a_later_branch_uses(triage: Triage) -> None:
    """As triton-lang/triton#8139 has it: the next copy is issued before the last one was read."""
    words = ["run", "--kernel", "late_use", "--sm", "80", "--triton", "3.5.0", "--triton", "3.6.0"]
    done = triage(*words, "--json")
    assert done.returncode == 1, done.stderr
    wrong, right = sorted(json.loads(done.stdout)["runs"], key=lambda row: row["triton"])
    assert (wrong["run"], right["run"]) == ("wrong_result", "right")
    # Only a copy that is done at once overtakes the read, and both are named.
    assert wrong["schedule"] == "first/early, last/early"
    assert "write-read" in {race["kind"] for race in wrong["races"] if not race["formal"]}
    assert not any(not race["formal"] for race in right["races"])


@pytest.mark.long
def test_a_bulk_load_of_what_a_bulk_store_has_not_yet_written(triage: Triage) -> None:
    """As state-spaces/mamba#997 has it; what it reads is memory that nothing wrote before."""
    words = ["--kernel", "passed_on", "--sm", "90a", "--triton", "3.7.1"]
    done = triage("run", *words, "--triton", "3.8.0", "--json")
    assert done.returncode == 1, done.stderr
    wrong, right = sorted(json.loads(done.stdout)["runs"], key=lambda row: row["triton"])
    assert (wrong["run"], right["run"]) == ("wrong_result", "right")
    assert wrong["schedule"] == "first/late, last/late"
    # Garbage comes out, and the same file beside it is free of any: that is not a reason not to.
    done = triage("minimize", *words, "--run", "--max-tries", "1", "--out", "least")
    assert done.returncode == 0, done.stderr
    assert (triage.folder / "least" / "kernel.py").exists()


@pytest.mark.long
@pytest.mark.skipif(sys.version_info < (3, 11), reason="Triton 3.9 has no wheel for Python 3.10")
def test_lanes_of_a_warp_store_unequal_partial_results(triage: Triage) -> None:
    """As triton-lang/triton#11614 has it: one lane stores up to 3.7.1, all of them since 3.8.0.

    Rounding is all that comes of it: a note, and a verdict where it is asked for.
    """
    place = ["--kernel", "one_pass_variance", "--sm", "90a"]
    versions = [word for each in ("3.7.1", "3.8.0", "3.9.0") for word in ("--triton", each)]
    done = triage("run", *place, *versions, "--json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["runs"]
    assert [row["run"] for row in rows] == ["right"] * 3
    noted = "whichever stays, values differ by rounding at most"
    assert [noted in row["run_reason"] for row in rows] == [bool(row["races"]) for row in rows]
    done = triage("run", *place, *versions, "--formal", "--json")
    assert done.returncode == 1, done.stderr
    rows = sorted(json.loads(done.stdout)["runs"], key=lambda row: row["triton"])
    assert [row["run"] for row in rows] == ["right", "race", "race"]
    assert rows[1]["run_signature"] == rows[2]["run_signature"]
    for row in rows[1:]:
        assert {race["kind"] for race in row["races"]} == {"lanes"}
    place += ["--triton", "3.8.0", "--formal"]
    done = triage("bisect", *place, "--axis", "triton", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["last_good"], found["first_bad"]) == ("3.7.1", "3.8.0")
    assert found["first_fixed"] is None
    done = triage("minimize", *place, "--max-time", "60s", "--out", "least")
    assert done.returncode == 0, done.stderr
    assert "tl.reduce(" in (triage.folder / "least" / "kernel.py").read_text()
    words = ["--for", "triton", "--minimized", "least", "--out", "report"]
    done = triage("report", *place, *words, timeout=1500)
    assert (
        "in one instruction, and either may stay there"
        in (triage.folder / "report" / "issue.md").read_text()
    )


@pytest.mark.long
@pytest.mark.skipif(sys.version_info < (3, 11), reason="Triton 3.9 has no wheel for Python 3.10")
@pytest.mark.parametrize(
    ("kernel", "race"),
    [
        ("product_in_branch", "write-read shared: cp.async and wgmma.mma_async"),
        ("two_products", "read-write shared: wgmma.mma_async and cp.async"),
    ],
)
def test_what_hunts_found_that_an_h100_shows(triage: Triage, kernel: str, race: str) -> None:
    """Both are wrong on an H100, the second while others use it (tests/gpu/hunted_on_gpu.py)."""
    file = str(Path(__file__).parents[1] / "kernels" / "hunted" / f"{kernel}.py")
    done = triage("run", file, "--sm", "90a", "--triton", "3.9.0", "--json")
    assert done.returncode == 1, done.stderr
    [row] = json.loads(done.stdout)["runs"]
    assert row["run"] == "wrong_result"
    assert {each["words"] for each in row["races"] if not each["formal"]} == {race}
