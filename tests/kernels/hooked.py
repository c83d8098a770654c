"""Tuners whose hooks prepare a launch for each config: they write to arguments that all share."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


def set_blocks(nargs):
    m, n, k = nargs["BLOCK_M"], nargs["BLOCK_N"], nargs["BLOCK_K"]
    nargs["a_desc"].block_shape = [m, k]
    nargs["b_desc"].block_shape = [k, n]
    # In place: the list itself belongs to all configs.
    nargs["c_desc"].block_shape[:] = [m, n]


BLOCKS = [(64, 64, 32, 4), (64, 32, 64, 4), (32, 64, 64, 2), (64, 16, 32, 4)]


@triton.autotune(
    [
        triton.Config(
            {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}, num_warps=warps, pre_hook=set_blocks
        )
        for m, n, k, warps in BLOCKS
    ],
    key=["K"],
)
@triton.jit
def product(
    a_desc, b_desc, c_desc, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    row, column = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        total = tl.dot(a_desc.load([row, start]), b_desc.load([start, column]), total)
    c_desc.store([row, column], total.to(tl.float16))


def set_sizes(nargs):
    nargs["sizes"][0] = 2 * nargs["BLOCK"]
    nargs["total"].zero_()


@triton.autotune(
    [triton.Config({"BLOCK": block}, pre_hook=set_sizes) for block in (32, 64)], key=[]
)
@triton.jit
def add_up(x, total, sizes, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    limit = tl.load(sizes)
    tl.atomic_add(total, tl.sum(tl.load(x + offsets, mask=offsets < limit, other=0.0)))


@triton.jit
def move(source, target, BLOCK: tl.constexpr):
    target.store([0, 0], source.load([0, 0]))


def launch(m=64, n=64, k=128):
    a = torch.randn(m, k, device="cuda").to(torch.float16)
    b = torch.randn(k, n, device="cuda").to(torch.float16)
    c = torch.empty(m, n, device="cuda", dtype=torch.float16)
    # What from_tensor() is given is a placeholder: every config sets its own.
    descriptors = [TensorDescriptor.from_tensor(x, [1, 1]) for x in (a, b, c)]
    product[lambda meta: (triton.cdiv(m, meta["BLOCK_M"]), triton.cdiv(n, meta["BLOCK_N"]))](
        *descriptors, k
    )
    x = torch.ones(3 * m + 8, device="cuda")
    total = torch.zeros(1, device="cuda")
    sizes = torch.zeros(1, device="cuda", dtype=torch.int32)
    add_up[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, total, sizes)
    # Without a tuner: one descriptor for several launches.
    for block in (64, 32):
        for each in descriptors[1:]:
            each.block_shape[:] = [block, block]
        move[(1,)](*descriptors[1:], BLOCK=block)
    return c, total
