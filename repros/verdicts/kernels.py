"""The kernels of `launch.py`, which says what each is launched for. None is of use by itself."""

import triton
import triton.language as tl

__all__ = ["accumulate", "assembly", "convert", "double", "matmul", "softmax", "trust", "unroll"]


@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    """Twice each element."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out + offsets, 2 * tl.load(x + offsets, mask=mask), mask=mask)


@triton.jit
def trust(x, out, n: tl.constexpr, LEAST: tl.constexpr):
    """Twice each of the `n` elements, which LLVM may take to be at least LEAST."""
    tl.assume(n >= LEAST)
    offsets = tl.arange(0, n)
    tl.store(out + offsets, 2 * tl.load(x + offsets))


@triton.jit
def softmax(x, out, n, BLOCK: tl.constexpr):
    """The softmax of a row, all of which lives in registers: BLOCK / threads values a thread."""
    x += tl.program_id(0) * n
    out += tl.program_id(0) * n
    offsets = tl.arange(0, BLOCK)
    mask = offsets < n
    values = tl.load(x + offsets, mask=mask, other=float("-inf"))
    values = tl.exp(values - tl.max(values, 0))
    tl.store(out + offsets, values / tl.sum(values, 0), mask=mask)


@triton.jit
def matmul(a, b, out, k, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr):
    """A tile of `a @ b`; the pipelined loop keeps tiles of both for its stages in shared memory."""
    rows, inner = tl.arange(0, BLOCK), tl.arange(0, BLOCK_K)
    dtype: tl.constexpr = out.dtype.element_ty
    a += rows[:, None] * k + inner[None, :]
    b += inner[:, None] * BLOCK + rows[None, :]
    total = tl.zeros((BLOCK, BLOCK), dtype)
    for _ in range(0, k, BLOCK_K):
        total = tl.dot(tl.load(a), tl.load(b), total, out_dtype=dtype)
        a += BLOCK_K
        b += BLOCK_K * BLOCK
    tl.store(out + rows[:, None] * BLOCK + rows[None, :], total)


@triton.jit
def accumulate(a, b, out, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """Three products at a time: on sm_100a each sum takes BLOCK_N columns of tensor memory."""
    rows, columns, inner = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_K)
    a += rows[:, None] * k + inner[None, :]
    b += inner[:, None] * BLOCK_N + columns[None, :]
    first = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    second = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    third = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for _ in range(0, k, BLOCK_K):
        left, right = tl.load(a), tl.load(b)
        first = tl.dot(left, right, first)
        second = tl.dot(left + 1, right, second)
        third = tl.dot(left + 2, right, third)
        a += BLOCK_K
        b += BLOCK_K * BLOCK_N
    places = rows[:, None] * BLOCK_N + columns[None, :]
    tl.store(out + places, first * second + third)


@triton.jit
def assembly(x, out, ASM: tl.constexpr, CONSTRAINTS: tl.constexpr, BLOCK: tl.constexpr):
    """Inline assembly, applied to each element."""
    offsets = tl.arange(0, BLOCK)
    values = tl.load(x + offsets)
    values = tl.inline_asm_elementwise(ASM, CONSTRAINTS, [values], tl.int32, is_pure=True, pack=1)
    tl.store(out + offsets, values)


@triton.jit
def convert(x, out, ROUNDING: tl.constexpr, BLOCK: tl.constexpr):
    """Each element in the type of `out`, rounded as asked."""
    offsets = tl.arange(0, BLOCK)
    values = tl.load(x + offsets).to(out.dtype.element_ty, fp_downcast_rounding=ROUNDING)
    tl.store(out + offsets, values)


@triton.jit
def unroll(x, out, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    """STEPS copies of one step, each with a sine and a sum."""
    offsets = tl.arange(0, BLOCK)
    values = tl.load(x + offsets)
    for step in tl.static_range(STEPS):
        values = tl.sin(values + step) + tl.sum(values, 0)
    tl.store(out + offsets, values)
