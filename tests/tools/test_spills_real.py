"""A regression of spills between real Tritons: bisected, blamed and reported, in three commands."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import HERE, Triage

pytestmark = [pytest.mark.tools, pytest.mark.long]

CASE = ["--kernel", "spilling.py", "--sm", "90a"]


@pytest.fixture
def spilling(module_triage: Triage) -> Triage:
    shutil.copy(HERE / "kernels" / "spilling.py", module_triage.folder)
    return module_triage


def document(triage: Triage, *words: str, codes: tuple[int, ...] = (0,)) -> dict[str, Any]:
    done = triage(*words, "--json", timeout=1800)
    assert done.returncode in codes, done.stderr[-3000:]
    found: dict[str, Any] = msgspec.json.decode(done.stdout)
    return found


def test_it_is_bisected_by_its_numbers(spilling: Triage) -> None:
    words = ["bisect", *CASE, "--axis", "triton", "--triton", "3.6.0", "--repeat", "1"]
    found = document(spilling, *words)
    assert (found["last_good"], found["first_bad"], found["first_fixed"]) == (
        "3.4.0",
        "3.5.0",
        "3.8.0",
    )
    assert found["came_back"]  # 3.3 has it, and 3.4 has not
    assert found["blame"] == "triton"
    assert found["followed"].startswith("spill_stores >= ")
    again = spilling("bisect", "--replay", found["log"])
    assert "64 registers" in again.stdout
    assert "255 registers" in again.stdout


def test_it_is_blamed_on_triton_with_its_numbers(spilling: Triage) -> None:
    words = ["--triton", "3.4.0", "--triton", "3.6.0", "--ptxas", "12.8.93", "--ptxas", "13.5.37"]
    found = document(spilling, "blame", *CASE, *words)
    assert (found["blame"], found["ground"]) == ("triton", "follows_ptx")
    assert found["followed"].startswith("spill_stores >= ")
    reasons = " ".join(found["reasons"])
    assert "64 registers" in reasons
    assert "255 registers" in reasons


def test_it_is_reported_with_its_numbers(spilling: Triage) -> None:
    words = ["--triton", "3.6.0", "--for", "triton", "--quick", "--out", "report"]
    found = document(spilling, "report", *CASE, *words, codes=(0, 1))
    issue = (spilling.folder / Path(found["path"]) / "issue.md").read_text()
    assert "at 64 registers" in issue
