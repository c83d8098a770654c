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
from harness.frontends.triton.child.interpreting import round_as_gpus_do

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
round_as_gpus_do()
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


ASSEMBLY = """
import torch, triton, triton.language as tl
from harness.frontends.triton.child.interpreting import take_inline_assembly

@triton.jit
def kernel(x, out, ASM: tl.constexpr):
    i = tl.arange(0, 16)
    value = tl.load(x + i)
    result = tl.inline_asm_elementwise(
        ASM, "=f,f", [value], dtype=tl.float32, is_pure=True, pack=1
    )
    tl.store(out + i, result)

take_inline_assembly()
x, out = torch.rand(16) + 0.5, torch.empty(16)
known = {"cos": x.cos(), "ex2": x.exp2(), "rsqrt": x.rsqrt(), "tanh": x.tanh()}
for name, expected in known.items():
    kernel[(1,)](x, out, f"{name}.approx.f32 $0, $1;")
    assert torch.allclose(out, expected), name
    kernel[(1,)](x, out, f"  {name}.approx.ftz.f32  $0 , $1 ;\\n")
    assert torch.allclose(out, expected), name
for asm in ("{ .reg .f32 t; cos.approx.f32 t, $1; mov.f32 $0, t; }", "frob.approx.f32 $0, $1;"):
    try:
        kernel[(1,)](x, out, asm)
    except Exception as error:
        while error.__cause__ is not None:
            error = error.__cause__
        assert isinstance(error, NotImplementedError), repr(error)
    else:
        raise AssertionError(asm)
"""
ROUNDING = """
import torch, triton, triton.language as tl
from harness.frontends.triton.child.interpreting import round_as_gpus_do

@triton.jit
def kernel(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.load(x + i).to(tl.bfloat16))

N = 4096
round_as_gpus_do(7)
# A quarter of the way from one bfloat16 to the next.
step = 2.0 ** -7
x = torch.full((N,), 1.0 + step / 4)
out = torch.empty(N, dtype=torch.bfloat16)
kernel[(1,)](x, out, N=N)
assert set(out.float().tolist()) == {1.0, 1.0 + step}
assert 0.2 < float((out > 1.0).float().mean()) < 0.3
kernel[(1,)](-x, out, N=N)
assert set(out.float().tolist()) == {-1.0, -1.0 - step}
# What is exact stays, and so does what is not a number.
exact = torch.tensor([0.0, 1.0, -2.5, float("inf"), float("-inf"), float("nan")] + [3.0] * 10)
out = torch.empty(16, dtype=torch.bfloat16)
kernel[(1,)](exact, out, N=16)
assert torch.equal(out.float().nan_to_num(9), exact.nan_to_num(9))
"""


@pytest.mark.tools
@pytest.mark.parametrize("code", [ASSEMBLY, ROUNDING], ids=["assembly", "rounding"])
def test_what_else_is_mended(tmp_path: Path, code: str) -> None:
    (tmp_path / "mended.py").write_text(code)
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(HERE.parent)}
    done = subprocess.run(
        [sys.executable, tmp_path / "mended.py"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
