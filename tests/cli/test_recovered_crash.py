"""An assertion that MLIR recovers from, with the real Triton."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import Triage

# triton-lang/triton#10909: a negative hint sends the analysis of contiguity astray.
KERNEL = """\
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(out, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    offsets = tl.max_contiguous(offsets, -7)
    tl.store(out + offsets, offsets)


def launch():
    kernel[(1,)](torch.empty(1024, dtype=torch.int32, device="cuda"), BLOCK=1024{more})
"""


def test_the_assertion_is_what_is_told(triage: Triage) -> None:
    (triage.folder / "kernel.py").write_text(KERNEL.format(more=""))
    words = ["--kernel", "kernel.py", "--sm", "90", "--triton", "installed", "--jobs", "1"]
    (row,) = triage.compile(*words, code=1)["cells"]
    assert (row["verdict"], row["stage"]) == ("pass_failure", "ttgir")
    assert row["reason"].startswith("pass TritonGPUCoalesce crashed: SparseAnalysis.h: Assertion `")
    assert "expected `join` to be monotonic" in row["reason"]


def test_a_keyword_that_nobody_knows_is_the_launch_s_mistake(triage: Triage) -> None:
    (triage.folder / "kernel.py").write_text(KERNEL.format(more=", foo=3"))
    words = ["--kernel", "kernel.py", "--sm", "90", "--triton", "installed", "--jobs", "1"]
    (row,) = triage.compile(*words, code=1)["cells"]
    assert row["verdict"] == "rejected"
    assert "the launch passes foo=, which neither the kernel nor Triton knows" in row["reason"]
