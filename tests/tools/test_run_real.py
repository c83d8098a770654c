"""`triage run` on kernels that a real Triton compiles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import HERE, Triage

from harness.run.schedules import DEFAULT

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
    assert {row["run"] for row in rows} == {"as_interpreted"}
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
        # Other configs agree, too, and say less.
        assert row["reference"] == f"the interpreter of Triton {row['triton']}"
        assert len(row["ptx_sha256"]) == 64
        assert row["ctas_run"] == row["ctas"] == 1


@pytest.mark.long
def test_what_is_launched_on_one_target_alone_gets_inputs_there(module_triage: Triage) -> None:
    kernel = str(HERE / "kernels" / "by_device.py")
    words = ["--kernel", kernel, "--triton", "3.6.0", "--sm", "80", "--sm", "90a"]
    rows = run(module_triage, *words, code=0)
    assert [(row["target"], row["run"], row["ctas"]) for row in rows] == [
        ("sm_80", "as_interpreted", 3),
        ("sm_90a", "as_interpreted", 2),
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
        "--max-instructions",
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


@pytest.mark.parametrize(
    ("file", "words", "verdict"),
    [
        ("repros/triton_two_stores/launch.py", ["--triton", "3.9.0", "--sm", "100a"], "hang"),
        ("tests/kernels/reaching.py", [*ON, "--config", "BLOCK=64"], "memory_fault"),
    ],
)
def test_a_fault_has_one_signature_in_every_file(
    module_triage: Triage, file: str, words: list[str], verdict: str
) -> None:
    kernel, copy = HERE.parent / file, module_triage.folder / "kernel.py"
    copy.write_text("# Another line.\n" + kernel.read_text())
    mine, other = (
        run(module_triage, "--kernel", str(file), *words, code=1) for file in (kernel, copy)
    )
    assert {row["run"] for row in mine + other} == {verdict}
    assert all(f"({kernel.name}:" in row["run_reason"] for row in mine)
    assert all("(kernel.py:" in row["run_reason"] for row in other)
    assert len({row["run_signature"] for row in mine + other}) == 1
    # One order that fails does not keep the others from being tried.
    assert {row["schedule"] for row in mine + other} == {DEFAULT.replace(",", ", ")}


def test_what_does_not_compile_is_not_run(module_triage: Triage) -> None:
    rows = run(module_triage, "--kernel", "verdict_rejected", "--sm", "80", code=4)
    assert [row["run"] for row in rows] == ["not_run"]
    assert "does not compile: rejected" in rows[0]["run_reason"]


def test_a_tensor_of_eight_bit_floats_is_compared(module_triage: Triage) -> None:
    words = ["--kernel", str(HERE / "kernels" / "element_types.py"), "--set", "name=float8_e5m2"]
    [row] = run(module_triage, *words, *ON, code=0)
    assert (row["run"], row["outputs"][0]["dtype"]) == ("as_interpreted", "float8_e5m2")


@pytest.mark.long
def test_what_the_target_would_not_launch_is_not_executed(module_triage: Triage) -> None:
    words = ["--kernel", str(HERE / "kernels" / "too_large.py"), "--sm", "90a"]
    rows = run(module_triage, *words, "--triton", "3.6.0", code=4)
    assert {row["config"]["num_stages"]: row["run"] for row in rows} == {
        2: "as_interpreted",
        6: "not_run",
    }
    refused = next(row for row in rows if row["run"] == "not_run")
    cells = module_triage.compile(*words, "--triton", "3.6.0", code=1)["cells"]
    judged = next(cell for cell in cells if cell["config"]["num_stages"] == 6)
    # As the compile of the same cell says.
    assert judged["verdict"] == "out_of_resources"
    assert refused["run_reason"] == f"out_of_resources: it {judged['reason']}"
    assert refused["instructions_run"] is None


def test_an_empty_grid_launches_nothing_and_a_run_is_found_by_its_name(
    module_triage: Triage,
) -> None:
    kernel = str(HERE / "kernels" / "idle.py")
    done = module_triage("run", "--kernel", f"{kernel}::fill", *ON, "--json")
    assert done.returncode == 0, done.stderr
    [row] = msgspec.json.decode(done.stdout)["runs"]
    says = "the grid (0, 1, 1) has no programs: nothing is launched"
    assert (row["run"], row["run_reason"]) == ("ran", says)
    # Beside it, the cause of what does not compile.
    assert "misshapen is interpreted, for its values: it does not compile: rejected" in done.stderr
    assert "Cannot make_shape_compatible: incompatible dimensions" in done.stderr
    for name in (row["cell"], row["short"]):
        shown = module_triage("show", name)
        assert shown.returncode == 0, shown.stderr
        assert says in shown.stdout


@pytest.mark.long
def test_a_config_whose_registers_no_block_gets_is_not_run(module_triage: Triage) -> None:
    words = ["--kernel", str(HERE / "kernels" / "crowded.py"), "--sm", "80", "--sm", "90a"]
    rows = run(module_triage, *words, code=4)
    compiled = module_triage("compile", *words, "--json")
    cells = msgspec.json.decode(compiled.stdout)["cells"]
    assert [row["run"] for row in rows] == ["not_run"] * 2
    # As `compile` says it: how many registers each thread has is ptxas' to say.
    for row, cell in zip(rows, cells, strict=True):
        assert row["run_reason"] == f"out_of_resources: it {cell['reason']}"
        assert "registers for each of 512 threads" in cell["reason"]


@pytest.mark.long
def test_a_loop_with_stages_of_its_own_is_held_to_the_interpreter_of_its_triton(
    module_triage: Triage,
) -> None:
    """The interpreter of 3.6 is made to be wrong, as that of one version was."""
    words = ["--kernel", str(HERE / "kernels" / "staged.py"), "--sm", "80"]
    both = ["--triton", "3.6.0", "--triton", "installed"]
    rows = run(module_triage, *words, *both, code=0)
    found = {row["triton"]: (row["run"], row["reference"]) for row in rows}
    newest = max(found)
    # num_stages=1 is pipelined all the same, and says nothing; 3.6.0 convicts none, itself neither:
    # where it calls a cell wrong, the newest that is installed is heard, too.
    says = f"the interpreter of Triton {newest}"
    assert found == dict.fromkeys(("3.6.0", newest), ("as_interpreted", says))


def test_launch_code_with_values_runs_in_a_fork_of_the_process_that_captures(
    triage: Triage, tmp_path: Path
) -> None:
    path = tmp_path / "forked.py"
    path.write_text(FORKED)
    done = triage("run", str(path), *ON, "--json")
    document = msgspec.json.decode(done.stdout)
    assert [row["run"] for row in document["runs"]] == ["as_interpreted"], done.stderr
    [note] = document["summary"]["notes"]
    assert "RuntimeError: a fork of harness.frontends.triton.child, after the launches" in note
    # It launches its kernel three times. (What takes long is said again every 15 s, with the time.)
    said = [line for line in done.stderr.splitlines() if line.endswith("for its values")]
    assert len(said) == 1


FORKED = """
import sys

import torch
import triton
import triton.language as tl


@triton.jit
def ones(out):
    tl.store(out + tl.arange(0, 32), 1.0)


def launch():
    for _ in range(3):
        ones[(1,)](torch.empty(32, device="cuda"))
    words = sys.orig_argv
    raise RuntimeError(f"a fork of {words[words.index('-m') + 1]}")
"""


SAMPLED = """
import torch
import triton
import triton.language as tl

@triton.jit
def sums(x, rows, total, N: tl.constexpr):
    at = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    value = tl.sum(tl.load(x + at * N + tl.arange(0, N)))
    tl.store(rows + at, value)
    tl.atomic_add(total, value)

@triton.jit
def last(rows, out, n):
    at = tl.program_id(0)
    tl.store(out + at, tl.load(rows + n - 1 - at))

def launch():
    x, rows = torch.randn(6, 5, 64), torch.empty(30)
    sums[(5, 6)](x, rows, torch.zeros(1), N=64, num_stages=1)
    last[(2,)](rows, torch.empty(2), 30)
"""


def test_of_a_large_grid_the_interpreter_runs_the_same_programs(module_triage: Triage) -> None:
    """Rows that no program of the sample fills stay as they are, with any garbage."""
    (module_triage.folder / "sums.py").write_text(SAMPLED)
    words = ["--kernel", "sums.py", "--triton", "3.9.0", "--sm", "80"]
    row, after = run(module_triage, *words, "--programs", "7", code=0)
    assert row["run"] == "as_interpreted", row["run_reason"]
    assert "7 of 30 programs were run" in row["run_reason"]
    assert {(o["name"], o["differing"]) for o in row["outputs"]} == {("rows", 0), ("total", 0)}
    whole, same = run(module_triage, *words, code=0)
    # What the next launch gets is all that the first one leaves.
    assert after["outputs"] == same["outputs"]
    sampled, every = ({o["name"]: o["sha256"] for o in r["outputs"]} for r in (row, whole))
    assert all(sampled[name] != every[name] for name in sampled)
