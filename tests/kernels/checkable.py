"""Tuned kernels whose configs agree, differ, or cannot be told in the interpreter."""

import torch
import triton
import triton.language as tl

BLOCKS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (16, 32, 64)]


@triton.autotune(BLOCKS, key=[])
@triton.jit
def partly(x, out, n, BLOCK: tl.constexpr):
    """Right only where one block covers a row."""
    offsets = tl.arange(0, BLOCK)
    row = tl.load(x + tl.program_id(0) * n + offsets, mask=offsets < n, other=0.0)
    tl.store(out + tl.program_id(0), tl.sum(row))


@triton.autotune(BLOCKS, key=[])
@triton.jit
def looping(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        total += tl.load(
            x + tl.program_id(0) * n + start + offsets, mask=start + offsets < n, other=0.0
        )
    tl.store(out + tl.program_id(0), tl.sum(total))


@triton.autotune(BLOCKS, key=[])
@triton.jit
def partial_sums(x, out, n, BLOCK: tl.constexpr):
    """What it writes depends on the block; its sum does not."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + tl.program_id(0), tl.sum(tl.load(x + offsets, mask=offsets < n, other=0.0)))


@triton.autotune(BLOCKS, key=[], reset_to_zero=["out"])
@triton.jit
def adding(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out, tl.sum(tl.load(x + offsets, mask=offsets < n, other=0.0)))


@triton.autotune(BLOCKS, key=[])
@triton.jit
def assembling(x, out, n, BLOCK: tl.constexpr):
    """Inline assembly: nothing for an interpreter."""
    offsets = tl.arange(0, BLOCK)
    value = tl.load(x + offsets, mask=offsets < n, other=0.0)
    value = tl.inline_asm_elementwise(
        "tanh.approx.f32 $0, $1;", "=f,f", [value], dtype=tl.float32, is_pure=True, pack=1
    )
    tl.store(out + offsets, value, mask=offsets < n)


@triton.autotune(BLOCKS, key=[])
@triton.jit
def astray(x, out, n, BLOCK: tl.constexpr):
    """Its largest block reads far outside."""
    far = (BLOCK // 64) * 1_000_000_000_000
    tl.store(out, tl.load(x + far))


@triton.autotune([triton.Config({}, num_warps=warps) for warps in (1, 2)], key=[])
@triton.jit
def same_source(x, out, n):
    tl.store(out, tl.load(x))


@triton.jit
def alone(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets, mask=offsets < n), mask=offsets < n)


def launch(n=64, assembly=False, stray=False):
    x = torch.randn(4, n, device="cuda")
    assert x.is_cuda
    rows, more, total = (torch.zeros(n, device="cuda") for _ in range(3))
    partly[(4,)](x, rows, n)
    looping[(4,)](x, more, n)
    adding[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, total, n)
    same_source[(1,)](x, total, n)
    alone[(1,)](x, more, n, BLOCK=64)
    if assembly:
        assembling[(1,)](x, total, n)
    if stray:
        astray[(1,)](x, total, n)
    parts = torch.zeros(triton.cdiv(n, 16), device="cuda")
    partial_sums[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, parts, n)
    # `parts` are laid out as the chosen block would have it.
    return rows, more, total, parts.sum()
