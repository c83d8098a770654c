"""A kernel whose larger tile reaches beyond its buffers: every compiler takes it, and none is wrong."""

import torch
import triton
import triton.language as tl


@triton.autotune(
    [triton.Config({"BLOCK": block}, num_warps=warps) for block in (32, 64) for warps in (1, 2)],
    key=[],
)
@triton.jit
def reaching(x, out, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets) * 2.0)


def launch(n=96):
    x = torch.randn(n, device="cuda")
    out = torch.empty_like(x)
    reaching[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out)
    return out
