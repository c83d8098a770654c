"""What reports/c7907-newest says of its inputs, with the ptxas that it names."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Triage

from harness.minimize.ptx.reduce import count_unwritten

pytestmark = pytest.mark.tools

INPUTS = Path(__file__).parent.parent.parent / "reports" / "c7907-newest" / "ablation"
GOOD, BROKEN, FIXED, NEWEST = VERSIONS = "13.0.88", "13.1.115", "13.3.33", "13.5.37"
FAILS = {
    "mamba": {BROKEN},
    "mamba-per-thread": {BROKEN, FIXED, NEWEST},
    "smallest": {BROKEN, FIXED, NEWEST},
    "barrier_in_loop": {BROKEN, FIXED, NEWEST},
    "undefined": {BROKEN, FIXED, NEWEST},
}


def test_the_table_lists_every_input() -> None:
    assert {path.stem for path in INPUTS.iterdir()} == set(FAILS)


@pytest.mark.parametrize("name", FAILS)
def test_an_input_fails_on_the_versions_of_the_table_only(triage: Triage, name: str) -> None:
    words = [word for version in VERSIONS for word in ("--ptxas", version)]
    file = INPUTS / f"{name}.ptx"
    rows = triage.compile("--kernel", str(file), "--sm", "100a", *words, code=1)["cells"]
    assert {row["ptxas"] for row in rows} == set(VERSIONS)
    found = {row["ptxas"]: row["code"] for row in rows if row["verdict"] == "ptxas_ice"}
    assert found == dict.fromkeys(FAILS[name], "C7907")
    works = [row["verdict"] for row in rows if row["ptxas"] not in found]
    assert set(works) <= {"ok", "sick"}


def test_one_instruction_separates_what_was_fixed_from_what_was_not() -> None:
    fixed, left = ((INPUTS / f"{n}.ptx").read_text() for n in ("mamba", "mamba-per-thread"))
    assert fixed.replace("mov.b32 r1, v0;", "mov.u32 r1, %tid.x;") == left


@pytest.mark.parametrize("name", ["smallest", "barrier_in_loop"])
def test_every_register_is_written_before_it_is_read(name: str) -> None:
    assert count_unwritten((INPUTS / f"{name}.ptx").read_text()) == 0
    assert count_unwritten((INPUTS / "undefined.ptx").read_text()) == 1
