"""A product and a sum along the same tile in a warp-specialised loop."""

import torch
import triton
import triton.language as tl


@triton.jit
def dot_and_scan(x, sums, products, n):
    squares = tl.make_tensor_descriptor(products, [n * 64, 64], [64, 1], [64, 64])
    rows, columns = tl.arange(0, 64), tl.arange(0, 16)
    for step in tl.range(0, n, warp_specialize=True):
        at = (step * 64 + rows)[:, None]
        tile = tl.load(x + at * 16 + columns[None, :])
        tl.store(sums + at * 16 + columns[None, :], tl.cumsum(tile, 0))
        squares.store([step * 64, 0], tl.dot(tile, tl.trans(tile)))


def launch(n: int = 4):
    triton.set_allocator(lambda size, *_: torch.empty(size, device="cuda", dtype=torch.int8))
    x = torch.randn(n * 64, 16, device="cuda", dtype=torch.bfloat16)
    sums = torch.empty_like(x)
    products = torch.empty(n * 64, 64, device="cuda")
    dot_and_scan[(1,)](x, sums, products, n)
    return sums, products
