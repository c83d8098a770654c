"""A tile that is loaded through pointers and used in two products of a warp-specialised loop."""

import torch
import triton
import triton.language as tl


@triton.jit
def load_into_two_dots(x, out, n):
    rows, columns = tl.arange(0, 64), tl.arange(0, 16)
    at = rows[:, None] * 16 + columns[None, :]
    total = tl.zeros([64, 16], tl.float32)
    for step in tl.range(0, n, warp_specialize=True):
        tile = tl.load(x + step * 1024 + at)
        square = tl.dot(tl.trans(tile), tile)
        total += tl.dot(tile, square.to(tl.bfloat16))
    tl.store(out + at, total)


def launch(n: int = 4):
    x = torch.randn(n * 64, 16, device="cuda", dtype=torch.bfloat16)
    out = torch.empty(64, 16, device="cuda")
    load_into_two_dots[(1,)](x, out, n)
    return out
