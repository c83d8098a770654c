"""`triage run` on kernels that a real Triton compiles."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from conftest import HERE, Triage

pytestmark = pytest.mark.tools

RUNNABLE = HERE / "kernels" / "runnable.py"
FAULTY = HERE / "kernels" / "faulty.py"
ON = ["--triton", "3.6.0", "--sm", "80"]


def run(triage: Triage, *words: str, code: int) -> list[dict[str, Any]]:
    done = triage("run", *words, "--json")
    assert done.returncode == code, done.stderr + done.stdout[-2000:]
    runs: list[dict[str, Any]] = msgspec.json.decode(done.stdout)["runs"]
    return runs


def test_kernels_of_every_shape_are_right(module_triage: Triage) -> None:
    rows = run(module_triage, "--kernel", str(RUNNABLE), *ON, code=0)
    assert {row["run"] for row in rows} == {"right"}
    found: dict[tuple[str, str], set[tuple[Any, ...]]] = {}
    for row in rows:
        name = row["kernel"].rpartition("::")[2]
        for output in row["outputs"]:
            found.setdefault((name, row["launch"]), set()).add(
                (output["name"], output["dtype"], output["elements"], output["differing"])
            )
    assert found == {
        ("scale_and_add", "launch"): {("out", "float32", 96, 0)},
        # One storage behind two arguments: both see what was written.
        ("scale_and_add", "launch#2"): {("x", "float32", 192, 0), ("y", "float32", 96, 0)},
        ("row_sum", "launch"): {("out", "float32", 4, 0)},
        ("matmul", "launch"): {("c", "float16", 1024, 0)},
    }
    products = [row for row in rows if row["kernel"].endswith("::matmul")]
    assert len(products) == 4
    # Every config has come to the same bits.
    assert len({row["outputs"][0]["sha256"] for row in products}) == 1
    for row in products:
        assert row["reference"].startswith("num_")
        by = f"Triton {row['triton']}"
        assert row["reference"].endswith(f"num_stages=1 on sm_80 with {by}, emulated")
        assert len(row["ptx_sha256"]) == 64
        assert row["ctas_run"] == row["ctas"] == 1
    # Without a loop one stage is the cell's own PTX: another number of warps is asked instead.
    by_name = {row["kernel"].rpartition("::")[2]: row for row in rows}
    for name in ("scale_and_add", "row_sum"):
        by = f"Triton {by_name[name]['triton']}"
        says = f"num_stages=1, num_warps=2 on sm_80 with {by}, emulated"
        assert by_name[name]["reference"] == says


def test_what_is_launched_on_one_target_alone_gets_inputs_there(module_triage: Triage) -> None:
    kernel = str(HERE / "kernels" / "by_device.py")
    words = ["--kernel", kernel, "--triton", "3.6.0", "--sm", "80", "--sm", "90a"]
    rows = run(module_triage, *words, code=0)
    assert [(row["target"], row["run"], row["ctas"]) for row in rows] == [
        ("sm_80", "right", 3),
        ("sm_90a", "right", 2),
    ]


def test_a_second_run_reads_what_is_stored(module_triage: Triage) -> None:
    words = ["--kernel", f"{RUNNABLE}::row_sum", *ON]
    first = run(module_triage, *words, code=0)
    assert run(module_triage, *words, code=0) == first


def test_out_of_bounds_and_endless_kernels_are_found(module_triage: Triage) -> None:
    rows = run(
        module_triage,
        "--kernel",
        str(FAULTY),
        *ON,
        "--budget",
        "1000000",
        "--timeout",
        "20",
        code=1,
    )
    [beyond, endless] = rows
    assert beyond["run"] == "memory_fault"
    assert "ld.global" in beyond["run_reason"]
    assert "faulty.py:" in beyond["run_reason"]
    assert endless["run"] == "hang"


def test_what_does_not_compile_is_not_run(module_triage: Triage) -> None:
    rows = run(module_triage, "--kernel", "verdict_rejected", "--sm", "80", code=4)
    assert [row["run"] for row in rows] == ["not_run"]
    assert "does not compile: rejected" in rows[0]["run_reason"]
