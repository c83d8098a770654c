"""`triage run` with every Triton: what its launcher passes differs by version."""

from __future__ import annotations

import msgspec
import pytest
from conftest import HERE, Triage

pytestmark = [pytest.mark.tools, pytest.mark.long]

RUNNABLE = HERE / "kernels" / "runnable.py"
DESCRIPTORS = HERE / "kernels" / "described.py"


def run(triage: Triage, *words: str) -> set[tuple[str, str]]:
    done = triage("run", *words, "--json")
    rows = msgspec.json.decode(done.stdout)["runs"]
    assert rows, done.stderr
    return {(row["run"], row["run_reason"] if row["run"] == "not_run" else "") for row in rows}


@pytest.mark.parametrize(
    "version", ["3.2.0", "3.3.0", "3.4.0", "3.5.1", "3.6.0", "3.7.1", "3.8.0", "3.9.0"]
)
def test_arguments_are_passed_as_every_triton_does(triage: Triage, version: str) -> None:
    words = ["--kernel", str(RUNNABLE), "--sm", "80", "--triton", version]
    assert run(triage, *words, "--config", "num_stages=none|1") == {("right", "")}


@pytest.mark.parametrize("version", ["3.4.0", "3.6.0", "3.7.1", "3.9.0"])
@pytest.mark.parametrize("sm", ["80", "90a"])
def test_descriptors_are_passed_in_pieces_and_as_tensor_maps(
    triage: Triage, version: str, sm: str
) -> None:
    words = ["--kernel", str(DESCRIPTORS), "--sm", sm, "--triton", version]
    assert run(triage, *words) == {("right", "")}
