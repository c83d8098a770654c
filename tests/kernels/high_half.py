"""The high half of a product in a pipelined loop: the interpreter of old Tritons has its sign."""

import torch
import triton
import triton.language as tl


@triton.jit
def high_half(x, out, size):
    at = tl.arange(0, 128)
    total = tl.zeros((128,), tl.int32)
    for start in tl.range(0, size, 128, num_stages=3):
        total += tl.umulhi(tl.load(x + start + at), 3)
    tl.store(out + at, total)


def launch():
    x = torch.arange(1024, device="cuda", dtype=torch.int32) - 512
    out = torch.empty(128, device="cuda", dtype=torch.int32)
    high_half[(1,)](x, out, 1024, num_warps=1, num_stages=1)
