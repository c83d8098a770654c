"""Numbers from memory say where to store; they are loaded ahead, and used in a branch."""

import torch
import triton
import triton.language as tl


@triton.jit
def late_use(places, out, n, wanted, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    for start in tl.range(0, n, BLOCK, num_stages=STAGES):
        place = tl.load(places + start + lanes)
        if start < wanted:
            tl.store(out + place, start + lanes)


def launch(n: int = 512, block: int = 128, stages: int = 2, warps: int = 4):
    places = torch.randperm(n, device="cuda", dtype=torch.int32)
    out = torch.zeros(n, device="cuda", dtype=torch.int32)
    late_use[(1,)](places, out, n, n, BLOCK=block, STAGES=stages, num_warps=warps)
    return out
