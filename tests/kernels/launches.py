"""Kernels that are launched four times each: two types, two sizes."""

import torch
import triton
import triton.language as tl

NEW = tl.constexpr(tuple(map(int, triton.__version__.split(".")[:2])) >= (3, 9))


def some(configs, args, **_):
    """Of the first launch, this release does not try the first config."""
    is_first = args["x"].dtype == torch.float32 and args["n"] == 64
    return configs[1:] if is_first and NEW.value else configs


@triton.autotune([triton.Config({"T": t}, num_warps=1, num_stages=1) for t in (1, 2)], key=["n"])
@triton.jit
def tuned(x, y, n, BLOCK: tl.constexpr, T: tl.constexpr):
    if BLOCK == 128 and x.dtype.element_ty == tl.float16:
        tl.static_assert(not NEW or T != 1, "the last launch, with its first config")
    o = tl.arange(0, BLOCK)
    for _ in tl.static_range(T):
        tl.store(y + o, tl.load(x + o, o < n), o < n)


@triton.autotune(
    [triton.Config({"T": t}, num_warps=1, num_stages=1) for t in (1, 2)],
    key=["n"],
    prune_configs_by={"early_config_prune": some},
)
@triton.jit
def pruned(x, y, n, BLOCK: tl.constexpr, T: tl.constexpr):
    tl.store(y, tl.load(x) * T + BLOCK)


@triton.jit
def plain(x, y, n, BLOCK: tl.constexpr):
    if BLOCK == 128 and x.dtype.element_ty == tl.float16:
        tl.static_assert(not NEW, "the last launch")
    o = tl.arange(0, BLOCK)
    tl.store(y + o, tl.load(x + o, o < n), o < n)


@triton.jit
def swept(x, y, n, BLOCK: tl.constexpr):
    tl.store(y, tl.load(x) + BLOCK)


def launch():
    for dtype in (torch.float32, torch.float16):
        for n in (64, 128):
            x = torch.ones(n, device="cuda", dtype=dtype)
            y = torch.empty_like(x)
            tuned[(1,)](x, y, n, BLOCK=n)
            pruned[(1,)](x, y, n, BLOCK=n)
            plain[(1,)](x, y, n, BLOCK=n, num_warps=1)
            for block in (16, 32):
                for warps in (1, 2):
                    swept[(1,)](x, y, n, BLOCK=block, num_warps=warps)


if __name__ == "__main__":
    launch()
