"""Products of one block, for tests that execute their PTX: plain, transposed, with block scales."""

import triton
import triton.language as tl


@triton.jit
def dot(
    a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, TA: tl.constexpr, TB: tl.constexpr
):
    m = tl.arange(0, M)
    n = tl.arange(0, N)
    k = tl.arange(0, K)
    if TA:
        x = tl.trans(tl.load(a + k[:, None] * M + m[None, :]))
    else:
        x = tl.load(a + m[:, None] * K + k[None, :])
    if TB:
        y = tl.trans(tl.load(b + n[:, None] * K + k[None, :]))
    else:
        y = tl.load(b + k[:, None] * N + n[None, :])
    z = tl.dot(x, y)
    tl.store(c + m[:, None] * N + n[None, :], z)


@triton.jit
def scaled(
    a,
    sa,
    b,
    sb,
    c,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    FA: tl.constexpr,
    FB: tl.constexpr,
    PA: tl.constexpr,
    PB: tl.constexpr,
):
    m = tl.arange(0, M)
    n = tl.arange(0, N)
    ka = tl.arange(0, K // PA)
    kb = tl.arange(0, K // PB)
    s = tl.arange(0, K // 32)
    x = tl.load(a + m[:, None] * (K // PA) + ka[None, :])
    y = tl.load(b + kb[:, None] * N + n[None, :])
    u = tl.load(sa + m[:, None] * (K // 32) + s[None, :])
    v = tl.load(sb + n[:, None] * (K // 32) + s[None, :])
    z = tl.dot_scaled(x, u, FA, y, v, FB)
    tl.store(c + m[:, None] * N + n[None, :], z)
