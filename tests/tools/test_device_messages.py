"""What a Triton kernel's threads say: `tl.device_assert` and `tl.device_print`, emulated."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from conftest import Triage

pytestmark = pytest.mark.tools

CHECKED = """
import torch
import triton
import triton.language as tl


@triton.jit(debug=True)
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    tl.device_assert(x < n, "x is not below n")
    tl.store(out_ptr + at, x)


def launch(n=100):
    x = torch.arange(64, dtype=torch.int32, device="cuda")
    kernel[(1,)](x, torch.empty_like(x), n, BLOCK=64)
"""
SAID = """
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    tl.device_print("x is", x)
    tl.store(out_ptr + at, x)


def launch():
    x = torch.arange(32, dtype=torch.float32, device="cuda") / 2
    kernel[(1,)](x, torch.empty_like(x), BLOCK=32)
"""


def run(triage: Triage, source: str, *words: str) -> tuple[int, dict[str, Any], str]:
    (triage.folder / "said.py").write_text(source)
    given = ("run", "--kernel", "said.py::kernel", "--sm", "80", *words)
    text = triage(*given).stdout
    done = triage(*given, "--json")
    [row] = msgspec.json.decode(done.stdout)["runs"]
    return done.returncode, row, text


def test_an_assertion_that_fails_is_a_failure_with_its_words_and_line(triage: Triage) -> None:
    code, row, text = run(triage, CHECKED, "--set", "n=50")
    assert (code, row["run"]) == (1, "launch_failed")
    line = 1 + CHECKED.split("\n").index('    tl.device_assert(x < n, "x is not below n")')
    said = "the assertion 'x is not below n' fails"
    for words in (said, f"said.py:{line}", "thread 50 of CTA (0, 0, 0)"):
        assert words in row["run_reason"]
    assert said in text


def test_an_assertion_that_holds_changes_nothing(triage: Triage) -> None:
    code, row, _ = run(triage, CHECKED)
    assert (code, row["run"]) == (0, "as_interpreted"), row


def test_what_threads_print_is_in_the_row_and_in_the_table(triage: Triage) -> None:
    code, row, text = run(triage, SAID)
    assert code == 0, row
    assert sum("x is" in each for each in row["printed"]) >= 32
    assert any("15.5" in each for each in row["printed"])
    assert "printed: pid (0, 0, 0)" in text
