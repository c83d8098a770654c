"""A tile goes through memory that nothing wrote before: stored in bulk, then loaded in bulk."""

import torch
import triton
import triton.language as tl


@triton.jit
def passed_on(x, kept, out, N: tl.constexpr):
    x_desc = tl.make_tensor_descriptor(x, [N, N], [N, 1], [N, N])
    kept_desc = tl.make_tensor_descriptor(kept, [N, N], [N, 1], [N, N])
    out_desc = tl.make_tensor_descriptor(out, [N, N], [N, 1], [N, N])
    kept_desc.store([0, 0], x_desc.load([0, 0]) + 1)
    out_desc.store([0, 0], kept_desc.load([0, 0]) * 2)


def launch(n: int = 32):
    triton.set_allocator(lambda size, *_: torch.empty(size, device="cuda", dtype=torch.int8))
    x = torch.randn(n, n, device="cuda", dtype=torch.float16)
    kept, out = torch.empty_like(x), torch.empty_like(x)
    passed_on[(1,)](x, kept, out, N=n)
    return out
