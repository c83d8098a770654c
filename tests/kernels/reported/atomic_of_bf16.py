"""triton-lang/triton#1387: Triton 3.2 and 3.3 refuse `atomic_add` of bf16."""

import torch
import triton
import triton.language as tl


@triton.jit
def bins(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    value = tl.load(x + offsets, mask)
    tl.atomic_add(out + offsets % 16, value * 2, mask)


def launch(n=4096, block=256):
    x = torch.empty(n, device="cuda", dtype=torch.bfloat16)
    bins[(triton.cdiv(n, block),)](x, torch.empty_like(x), n, BLOCK=block)
