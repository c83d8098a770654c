"""`triage run` on launch code that checks its own values, and fails after its last launch."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from conftest import HERE, Triage

pytestmark = pytest.mark.tools

ASSERTING = HERE / "kernels" / "asserting.py"


def run(triage: Triage, *, code: int, **overrides: object) -> tuple[dict[str, Any], str]:
    """The rows by kernel, and what was said on stderr."""
    given = [word for name, value in overrides.items() for word in ("--set", f"{name}={value}")]
    words = ["--kernel", str(ASSERTING), "--sm", "80", "--triton", "installed", *given, "--json"]
    done = triage("run", *words)
    assert done.returncode == code, done.stderr + done.stdout[-2000:]
    rows = msgspec.json.decode(done.stdout)["runs"]
    return {row["kernel"].rpartition("::")[2]: row for row in rows}, done.stderr


def _line(text: str) -> int:
    lines = ASSERTING.read_text().splitlines()
    return next(n for n, line in enumerate(lines, 1) if text in line)


@pytest.mark.parametrize(
    ("style", "where", "said"),
    [
        ("close", "assert_close(out,", "Tensor-likes are not close! Mismatched elements: 96 / 96"),
        pytest.param(
            "helper", "assert torch.allclose", "not what was asked for", marks=pytest.mark.long
        ),
        pytest.param("item", "assert error <", "assert error < 1e-4", marks=pytest.mark.long),
    ],
)
def test_an_assertion_of_the_file_that_fails_is_a_wrong_result(
    module_triage: Triage, style: str, where: str, said: str
) -> None:
    rows, _ = run(module_triage, style=style, code=1)
    assert rows["combine"]["run"] == "wrong_result"
    place = f"asserting.py:{_line(where)}"
    start = f"emulated PTX: the file's own assertion fails: {place}: {said}"
    assert rows["combine"]["run_reason"].startswith(start)
    assert rows["combine"]["reference"] == f"the file's own assertion ({place})"
    # The same file with the kernel that it asks for: the assertion is what it agrees with.
    rows, _ = run(module_triage, style=style, sign=1, code=0)
    if style == "item":
        # The number is read at another line than that of the assertion.
        return
    accepts = f"emulated PTX: agrees with what the file's own assertion accepts ({place})"
    assert rows["combine"]["run_reason"].startswith(accepts)


@pytest.mark.long
def test_what_launch_code_copied_to_the_cpu_stays_as_it_was(module_triage: Triage) -> None:
    rows, _ = run(module_triage, style="host", code=0)
    assert "the file's own assertion accepts" in rows["double"]["run_reason"]


@pytest.mark.long
def test_an_assertion_on_what_two_kernels_leave_does_not_say_which_is_wrong(
    module_triage: Triage,
) -> None:
    rows, _ = run(module_triage, style="chain", code=1)
    assert {name: row["run"] for name, row in rows.items()} == {
        "combine": "wrong_result",
        "double": "wrong_result",
    }
    for row in rows.values():
        assert "; which of combine and double is wrong it does not say" in row["run_reason"]
    rows, _ = run(module_triage, style="chain", sign=1, code=0)
    # It sees what the second kernel left; of the first it knows nothing by itself.
    assert "the file's own assertion accepts" in rows["double"]["run_reason"]
    assert rows["combine"]["run_reason"].startswith("emulated PTX: agrees with the interp")


def test_an_assertion_that_fails_by_rounding_accuses_no_kernel(module_triage: Triage) -> None:
    rows, said = run(module_triage, style="rounding", sign=1, code=0)
    assert rows["exponential"]["run"] == "as_interpreted"
    assert "by what rounding explains" in rows["exponential"]["run_reason"]
    assert "AssertionError: Tensor-likes are not equal!, after the launches" in said


@pytest.mark.parametrize(
    ("style", "said"),
    [
        pytest.param(
            "import",
            "ModuleNotFoundError: No module named 'plots_that_are_not_installed'; a package of "
            "that name: pip install plots-that-are-not-installed, beside triage",
            marks=pytest.mark.long,
        ),
        # It has read values before, elsewhere; what it asserts is another thing.
        ("device", "AssertionError: this GPU is not known"),
    ],
)
def test_what_else_fails_after_the_last_launch_is_a_note(
    module_triage: Triage, style: str, said: str
) -> None:
    rows, notes = run(module_triage, style=style, code=0)
    # No assertion came before: what it agrees with is the interpreter.
    assert rows["combine"]["run"] == "as_interpreted"
    assert f"the launch raised {said}, after the launches that are executed" in notes


def test_the_tests_of_a_file_are_the_oracle_of_what_they_launch(triage: Triage) -> None:
    more = """

@pytest.mark.parametrize("n", [200, 300])
def test_wrong(n, device):
    x, y = torch.rand(2, n, device=device)
    out = torch.empty_like(x)
    add[(triton.cdiv(n, 512),)](x, y, out, n, BLOCK=512)
    torch.testing.assert_close(out, x + y if n < 300 else x - y)
"""
    file = triage.folder / "test_sums.py"
    file.write_text((HERE / "kernels" / "scripts" / "pytest_file.py").read_text() + more)
    done = triage("run", file.name, "--sm", "80", "--triton", "installed", "--json")
    assert done.returncode == 1, done.stderr
    rows = msgspec.json.decode(done.stdout)["runs"]
    reasons = {row["config"]["BLOCK"]: row["run_reason"] for row in rows}
    where = [n for n, line in enumerate(file.read_text().splitlines(), 1) if "assert_close" in line]
    accepts = f"what the file's own assertion accepts (test_sums.py:{where[0]})"
    assert reasons[256] == f"emulated PTX: agrees with {accepts}"
    # Both compile to the same code: the launch that a test refuses counts.
    fails = (
        f"emulated PTX: the file's own assertion fails: test_sums.py:{where[1]}: Tensor-likes are"
    )
    assert reasons[512].startswith(fails)
    counts = "test_sums.py: tests: 6 to the end, 1 skipped (needs Blackwell), 1 until AssertionErr"
    assert f"with values: {counts}" in done.stderr
    assert (
        "with values: test_wrong[300]: AssertionError: Tensor-likes are not close!" in done.stderr
    )


@pytest.mark.long
def test_of_very_many_launches_those_that_differ_and_those_that_fail_are_executed(
    triage: Triage,
) -> None:
    (triage.folder / "test_many.py").write_text("""
import pytest
import torch
import triton
import triton.language as tl


@triton.jit
def add_constant(x, N: tl.constexpr):
    at = x + tl.arange(0, 16)
    tl.store(at, tl.load(at) + N)


@pytest.mark.parametrize("n", range(2, 42))
def test_sum(n):
    x = torch.zeros(16, device="cuda")
    add_constant[(1,)](x, n)
    torch.testing.assert_close(x, torch.full_like(x, n if n != 40 else 1))
""")
    words = ("test_many.py", "--sm", "80", "--triton", "installed", "--json")
    done = triage("run", *words)
    assert done.returncode == 1, done.stderr
    results = {row["config"]["N"]: row["run"] for row in msgspec.json.decode(done.stdout)["runs"]}
    assert (len(results), results.pop(40)) == (33, "wrong_result")
    assert set(results.values()) == {"right"}
    [sample] = msgspec.json.decode(done.stdout)["summary"]["not_tried"]
    assert (sample["tried"], sample["of"], sample["command"]) == (
        33,
        40,
        "triage run --kernel test_many.py::add_constant --sm 80 --triton installed",
    )


def test_addresses_in_a_buffer_are_interpreted_and_no_fault(triage: Triage) -> None:
    (triage.folder / "tables.py").write_text("""
import torch
import triton
import triton.language as tl


@triton.jit
def follow(table, out, BLOCK: tl.constexpr):
    row = tl.load(table + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    at = tl.arange(0, BLOCK)
    tl.store(out + tl.program_id(0) * BLOCK + at, tl.load(row + at))


def launch():
    rows = [torch.rand(64, device="cuda") for _ in range(3)]
    table = torch.tensor([row.data_ptr() for row in rows], device="cuda")
    out = torch.empty(3, 64, device="cuda")
    follow[(3,)](table, out, BLOCK=64)
    torch.testing.assert_close(out, torch.stack(rows))
""")
    done = triage("run", "tables.py", "--sm", "80", "--triton", "installed", "--json")
    [row] = msgspec.json.decode(done.stdout)["runs"]
    assert row["run"] == "not_run", row
    assert row["run_reason"].startswith("table holds addresses of tensors (data_ptr)")
    assert "AssertionError" not in done.stderr


def test_a_file_of_tests_that_cannot_be_imported_says_why(triage: Triage) -> None:
    (triage.folder / "test_x.py").write_text("import not_installed\n\ndef test_it():\n    pass\n")
    done = triage("run", "test_x.py", "--sm", "80", "--triton", "installed")
    assert done.returncode == 2
    assert "test_x.py:1: the launch raised ModuleNotFoundError" in done.stderr
    assert "No module named 'not_installed'; a package of that name: pip" in done.stderr


def test_memory_that_a_refused_launch_would_fill_is_not_called_unwritten(triage: Triage) -> None:
    (triage.folder / "chain.py").write_text("""
import torch
import triton
import triton.language as tl


@triton.jit
def fill(x, FAR: tl.constexpr):
    at = tl.arange(0, 256)
    tl.store(x + at, 1.0)
    tl.store(x + FAR + at, 1.0)


@triton.jit
def double(x, out):
    at = tl.arange(0, 256)
    tl.store(out + at, 2 * tl.load(x + at))


def launch(*, far=1 << 20):
    x, out = (torch.empty(256, device="cuda") for _ in range(2))
    fill[(1,)](x, FAR=far)
    double[(1,)](x, out)
""")
    done = triage("run", "chain.py", "--sm", "80", "--triton", "installed", "--json")
    rows = {row["kernel"]: row["run"] for row in msgspec.json.decode(done.stdout)["runs"]}
    assert "fill was not executed whole (as they were" in done.stderr
    assert rows == {"chain.py::fill": "memory_fault", "chain.py::double": "as_interpreted"}
