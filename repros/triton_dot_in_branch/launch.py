"""A product in a branch of a warp-specialised loop."""

import torch
import triton
import triton.language as tl


@triton.jit
def dot_in_branch(x, out, n, limit):
    tiles = tl.make_tensor_descriptor(x, [n * 64, 64], [64, 1], [64, 64])
    lines = tl.arange(0, 64)
    total = tl.zeros([64, 64], tl.float32)
    for step in tl.range(0, n, warp_specialize=True):
        tile = tiles.load([step * 64, 0])
        if step < limit:
            total = tl.dot(tile, tile, total)
    tl.store(out + lines[:, None] * 64 + lines[None, :], total)


def launch(n: int = 4):
    triton.set_allocator(lambda size, *_: torch.empty(size, device="cuda", dtype=torch.int8))
    x = torch.randn(n * 64, 64, device="cuda", dtype=torch.bfloat16)
    out = torch.empty(64, 64, device="cuda")
    dot_in_branch[(1,)](x, out, n, 2)
    return out
