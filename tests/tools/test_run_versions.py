"""`triage run` with every Triton: what its launcher passes differs by version."""

from __future__ import annotations

from pathlib import Path

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
    found = run(triage, *words, "--config", "num_stages=none|1")
    # The interpreter of 3.2.0 does not take all of them.
    others = {("consistent", "")} if version == "3.2.0" else set()
    assert found == {("as_interpreted", ""), *others}


@pytest.mark.parametrize("version", ["3.4.0", "3.6.0", "3.7.1", "3.9.0"])
@pytest.mark.parametrize("sm", ["80", "90a"])
def test_descriptors_are_passed_in_pieces_and_as_tensor_maps(
    triage: Triage, version: str, sm: str
) -> None:
    words = ["--kernel", str(DESCRIPTORS), "--sm", sm, "--triton", version]
    assert run(triage, *words) == {("as_interpreted", "")}


def test_what_all_configs_of_one_triton_get_wrong_is_held_to_the_interpreter(
    triage: Triage, tmp_path: Path
) -> None:
    """Without its reference: each config of Triton 3.5.0 overtakes its loads in the same way."""
    launch = tmp_path / "late.py"
    launch.write_text((HERE.parent / "repros" / "late_use" / "launch.py").read_text())
    words = ["--kernel", str(launch), "--sm", "80", "--schedules", "first/early", "--json"]
    versions = [word for version in ("3.5.0", "3.6.0", "3.9.0") for word in ("--triton", version)]
    found = msgspec.json.decode(triage("run", *words, *versions).stdout)["runs"]
    rows = {row["triton"]: row for row in found}
    assert [rows[version]["run"] for version in rows] == [
        "wrong_result",
        "as_interpreted",
        "as_interpreted",
    ]
    # Their loop is pipelined with num_stages=1, too: such a config is no reference.
    assert {row["reference"] for row in found} == {"the interpreter of Triton 3.5.0"}


def test_what_a_wrong_value_is_made_of_is_found_beside_another_triton(triage: Triage) -> None:
    place = ["--kernel", "late_use", "--sm", "80", "--triton", "3.5.0"]
    words = ["--schedules", "first/early", "--trace", "out[0]", "--beside", "triton=3.9.0"]
    found = triage("run", *place, *words, "--json")
    trace = msgspec.json.decode(found.stdout)["runs"][0]["trace"]
    assert trace["reason"] == "", found.stderr
    assert trace["runs"] == ["first/early", "triton=3.9.0"]
    assert trace["values"][0] != trace["values"][1]
    # The load that came too early is one beyond the end: it fills with zeros, and reads nothing.
    assert trace["begins"].startswith("only with triton=3.9.0 it is made of places [")
    assert "st.global" in trace["steps"][-1]["instruction"]
