"""A tuned kernel with twelve configs, each quick to compile."""

import torch
import triton
import triton.language as tl


@triton.autotune(
    configs=[
        triton.Config({"BLOCK": block}, num_warps=warps, num_stages=1)
        for block in (64, 128, 256, 512)
        for warps in (1, 2, 4)
    ],
    key=["n"],
)
@triton.jit
def scale(x, out, n, factor, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask) * factor, mask)


def launch(n=4096):
    x = torch.empty(n, device="cuda")
    scale[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, torch.empty_like(x), n, 2.0)
