"""What we mend in Triton's interpreter, against torch, in a process that is told to interpret."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import HERE

CODE = """
import sys
import torch, triton, triton.language as tl
from harness.child.bfloat16 import mend_bfloat16

@triton.jit
def kernel(a, b, out, flags, scale, K: tl.constexpr):
    i = tl.arange(0, 16)
    k = tl.arange(0, K)
    x = tl.load(a + i[:, None] * K + k[None, :])
    y = tl.load(b + k[:, None] * 16 + i[None, :])
    product = tl.dot(x, y).to(tl.bfloat16)
    whole = (product * 2).to(tl.int32)
    mixed = tl.where(product > 1.0, -product, product + whole.to(tl.bfloat16))
    at = i[:, None] * 16 + i[None, :]
    tl.store(out + at, mixed)
    tl.store(flags + at, (product > 1.0).to(tl.int32))

torch.manual_seed(0)
mend_bfloat16()
bf16 = torch.bfloat16
a, b = torch.randn(16, 32).to(bf16), torch.randn(32, 16).to(bf16)
a[0, 0] = float("nan")
out, flags = torch.empty(16, 16, dtype=bf16), torch.empty(16, 16, dtype=torch.int32)
kernel[(1,)](a, b, out, flags, 1.0, K=32)
product = (a.float() @ b.float()).to(bf16)
whole = (product * 2).to(torch.int32)
expected = torch.where(product > 1.0, -product, product + whole.to(bf16))
assert expected[0].isnan().all() and out[0].isnan().all()
torch.testing.assert_close(out[1:], expected[1:], rtol=1e-2, atol=1e-2)
assert torch.equal(flags[1:], (product > 1.0).to(torch.int32)[1:])
print("agrees")
"""


@pytest.mark.tools
def test_bfloat16_is_computed_with(tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    file.write_text(CODE)
    done = subprocess.run(
        [sys.executable, str(file)],
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(HERE.parent)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout == "agrees\n", done.stderr[-2000:]
