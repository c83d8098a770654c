"""Two products a step of loaded tiles: one is in flight while a copy overwrites its tile."""

import torch
import triton
import triton.language as tl


@triton.jit
def two_products(x, y, first, second, NUMBER: tl.constexpr):
    r32 = tl.arange(0, 32)
    r128 = tl.arange(0, 128)
    ours = tl.zeros([32, 32], tl.float32)
    theirs = tl.zeros([128, 32], tl.float32)
    for step in range(0, NUMBER):
        columns = step * 32 + r32
        small = tl.load(
            x + r32[:, None] * (32 * NUMBER) + columns[None, :], mask=r32[:, None] < 25, other=0.0
        )
        ours += tl.dot(small, tl.trans(small))
        large = tl.load(
            y + r128[:, None] * (32 * NUMBER) + columns[None, :], mask=r128[:, None] < 71, other=0.0
        )
        theirs += tl.dot(large, small)
    tl.store(first + r32[:, None] * 32 + r32[None, :], ours)
    tl.store(second + r128[:, None] * 32 + r32[None, :], theirs)


def launch():
    draw = torch.Generator().manual_seed(0)
    x, y = (
        torch.randint(-2, 3, (rows, 160), generator=draw).to(torch.float16).to("cuda")
        for rows in (32, 128)
    )
    first, second = torch.zeros(1024, device="cuda"), torch.zeros(4096, device="cuda")
    two_products[(1,)](x, y, first, second, 5, num_warps=4, num_stages=3)
    return torch.cat([first, second])
