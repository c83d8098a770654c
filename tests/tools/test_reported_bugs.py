"""Bugs of Triton that its users reported: what is left of each is the same bug on every version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import HERE, Triage

pytestmark = [pytest.mark.tools, pytest.mark.long]

KERNELS = HERE / "kernels" / "reported"
# Kernel, target, a Triton that fails, and how.
REPORTED = [
    ("atomic_of_bf16", "90", "3.3.1", "rejected"),
    ("bf16_on_turing", "75", "3.2.0", "ptxas_error"),
    ("dot_of_batches", "80", "3.2.0", "compiler_crash"),
    ("dot_of_bf16_on_turing", "75", "3.2.0", "pass_failure"),
    ("dot_of_bytes", "90", "3.6.0", "rejected"),
    ("dot_of_bytes_on_turing", "75", "3.4.0", "pass_failure"),
    ("dot_on_b300", "103", "3.5.0", "compiler_crash"),
    ("dot_on_turing", "75", "3.3.1", "pass_failure"),
    ("fp8_to_fp8", "90", "3.2.0", "compiler_crash"),
    ("scaled_dot_on_rtx50", "120", "3.3.1", "ptxas_error"),
    ("small_dot", "90", "3.4.0", "rejected"),
    ("too_much_tensor_memory", "100a", "3.6.0", "trap_stub"),
]


def pattern(triage: Triage, file: Path, sm: str, signature: str) -> dict[str, str]:
    """What each Triton makes of a file: it works, fails with this signature, or in another way."""
    words = ["--kernel", str(file), "--sm", sm, "--triton", ">=3.2"]
    rows = triage.compile(*words, code=1, timeout=1500)["cells"]
    works = {row["triton"] for row in rows if row["verdict"] in ("ok", "sick")}
    same = {row["triton"] for row in rows if row["signature"] == signature}
    names = ((works, "works"), (same, "fails this way"))
    return {
        row["triton"]: next((name for group, name in names if row["triton"] in group), "other")
        for row in rows
    }


@pytest.mark.parametrize(("kernel", "sm", "triton", "kind"), REPORTED)
def test_the_result_fails_and_works_where_the_original_does(
    triage: Triage, kernel: str, sm: str, triton: str, kind: str
) -> None:
    file = KERNELS / f"{kernel}.py"
    words = ["--kernel", str(file), "--sm", sm, "--triton", triton, "--level", "source"]
    done = triage("minimize", *words, "--jobs", "2", "--json", timeout=1500)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = msgspec.json.decode(done.stdout)
    assert (found["verdict"], found["ending"], found["drift"]) == (kind, "finished", [])
    assert found["bytes"] < found["original"]["bytes"]
    original = pattern(triage, file, sm, found["signature"])
    result = triage.folder / found["path"] / "min.py"
    assert original[triton] == "fails this way"
    assert pattern(triage, result, sm, found["signature"]) == original
    assert {each["triton"] for each in found["versions"]} == set(original)
