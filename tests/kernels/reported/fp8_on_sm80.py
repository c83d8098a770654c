"""woct0rdho/triton-windows#176: every Triton multiplies fp8 as if it were an integer: `llvm.fmul` of i8."""

import torch
import triton
import triton.language as tl


@triton.jit
def squares(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    value = tl.load(x + offsets, mask, other=0.0)
    tl.store(out + offsets, value * value + value, mask)


def launch(n=4096, block=256):
    x = torch.empty(n, device="cuda", dtype=torch.float8_e5m2)
    squares[(triton.cdiv(n, block),)](x, torch.empty(n, device="cuda"), n, BLOCK=block)
