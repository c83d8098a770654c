"""Lightning-AI/pytorch-lightning#18070: Triton 3.2 writes bf16 instructions for sm_75, which ptxas refuses."""

import torch
import triton
import triton.language as tl


@triton.jit
def scale(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    value = tl.load(x + offsets, mask, other=0.0)
    shifted = value * 0.5 + tl.program_id(0)
    tl.store(out + offsets, shifted.to(tl.float32) * 3.0, mask)


def launch(n=4096, block=256):
    x = torch.empty(n, device="cuda", dtype=torch.bfloat16)
    scale[(triton.cdiv(n, block),)](x, torch.empty(n, device="cuda"), n, BLOCK=block)
