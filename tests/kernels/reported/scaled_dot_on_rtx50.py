"""triton-lang/triton#7549: Triton 3.3 puts scaled dots into tensor memory, which sm_120 does not have."""

import torch
import triton
import triton.language as tl


@triton.jit
def scaled(a, b, sa, sb, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, inner = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    groups = tl.arange(0, K // 32)
    left = tl.load(a + m[:, None] * K + inner[None, :])
    right = tl.load(b + inner[:, None] * N + n[None, :])
    left_scale = tl.load(sa + m[:, None] * (K // 32) + groups[None, :])
    right_scale = tl.load(sb + n[:, None] * (K // 32) + groups[None, :])
    total = tl.dot_scaled(left, left_scale, "e4m3", right, right_scale, "e4m3")
    tl.store(out + m[:, None] * N + n[None, :], total)


def launch(m=128, n=128, k=128):
    a = torch.empty(m, k, device="cuda", dtype=torch.float8_e4m3fn)
    b = torch.empty(k, n, device="cuda", dtype=torch.float8_e4m3fn)
    scale = torch.empty(m, k // 32, device="cuda", dtype=torch.uint8)
    out = torch.empty(m, n, device="cuda")
    scaled[(1,)](a, b, scale, scale, out, M=m, N=n, K=k)
