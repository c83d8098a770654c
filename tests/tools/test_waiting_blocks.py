"""Kernels whose blocks wait for others: proved to hang, or not, with as many as fit at once."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from conftest import Triage

pytestmark = pytest.mark.tools

KERNEL = """
import torch, triton
import triton.language as tl


@triton.jit
def kernel(flags, out, blocks):
    block = tl.program_id(0)
    if block > 0:
        while tl.atomic_add(flags + block - 1, 0, sem="acquire") == 0:
            pass
    tl.store(out + block, block)
    tl.atomic_xchg(flags + block, 1, sem="release")


def launch(*, blocks=20, warps=1):
    flags = torch.zeros(blocks, dtype=torch.int32, device="cuda")
    out = torch.zeros(blocks, dtype=torch.int32, device="cuda")
    kernel[(blocks,)](flags, out, blocks, num_warps=warps)


if __name__ == "__main__":
    launch()
"""


@pytest.mark.parametrize(
    ("sizes", "verdict", "words"),
    [
        (
            {},
            "as_interpreted",
            "a grid hangs that does not fit as a whole: with 19 of 20 blocks at once, the last",
        ),
        # Two blocks of 32 warps fit on each of 132 SMs.
        pytest.param(
            {"blocks": 280, "warps": 32},
            "hang",
            "with 264 of 280 blocks at once, the last ones first, 264 blocks wait without end",
            marks=pytest.mark.long,
        ),
    ],
)
def test_each_block_waits_for_the_one_before_it(
    triage: Triage, tmp_path: Path, sizes: dict[str, int], verdict: str, words: str
) -> None:
    path = tmp_path / "waits.py"
    path.write_text(KERNEL)
    asked = [word for name, size in sizes.items() for word in ("--set", f"{name}={size}")]
    done = triage("run", str(path), "--sm", "90a", "--triton", "3.6.0", *asked, "--json")
    [row] = msgspec.json.decode(done.stdout)["runs"]
    assert row["run"] == verdict, row["run_reason"]
    assert words in row["run_reason"]
    assert "waits.py:10" in row["run_reason"]
