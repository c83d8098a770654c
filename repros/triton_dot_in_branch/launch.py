"""Two products into one accumulator, one of them in a branch of a warp-specialised loop."""

import torch
import triton
import triton.language as tl


@triton.jit
def dot_in_branch(x, y, out, n, limit):
    tiles = tl.make_tensor_descriptor(x, [n * 64, 64], [64, 1], [64, 64])
    lines = tl.arange(0, 64)
    at = lines[:, None] * 64 + lines[None, :]
    total = tl.zeros([64, 64], tl.float32)
    for step in tl.range(0, n, warp_specialize=True):
        tile = tiles.load([step * 64, 0])
        other = tl.load(y + step * 4096 + at)
        if step < limit:
            total = total * 0.5 + tl.dot(other, tile)
        total += tl.dot(other, tile)
    tl.store(out + at, total)


def launch(n: int = 4):
    triton.set_allocator(lambda size, *_: torch.empty(size, device="cuda", dtype=torch.int8))
    x, y = (torch.randn(n * 64, 64, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty(64, 64, device="cuda")
    dot_in_branch[(1,)](x, y, out, n, 2)
    return out
