"""Autotuning, pruning and heuristics."""

import torch
import triton
import triton.language as tl


def keep_small(configs, named_args, **kwargs):
    assert torch.cuda.get_device_capability() >= (8, 0)
    return [config for config in configs if config.kwargs["BLOCK"] < named_args["n"]]


CONFIGS = [
    triton.Config({"BLOCK": block}, num_warps=warps)
    for block in (64, 256, 4096)
    for warps in (2, 4)
]


@triton.autotune(CONFIGS, key=["n"], prune_configs_by={"early_config_prune": keep_small})
@triton.jit
def pruned(x, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + offsets, 1.0, mask=offsets < n)


@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def guessed(x, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(x + offsets, 1.0)
    else:
        tl.store(x + offsets, 2.0, mask=offsets < n)


@triton.autotune([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 96 + 32})], key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def both(x, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(x + offsets, 1.0)
    else:
        tl.store(x + offsets, 2.0, mask=offsets < n)


def grid(meta):
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)


def launch(n: int = 1000):
    x = torch.empty(n, device="cuda")
    pruned[grid](x, n)
    assert pruned.best_config.kwargs["BLOCK"] in (64, 256)


def launch_one_left(n: int = 100):
    """A second call whose pruning leaves two configs, all of which were seen already."""
    for size in (1000, n):
        pruned[grid](torch.empty(size, device="cuda"), size)


def launch_heuristics(n: int = 192):
    guessed[grid](torch.empty(n, device="cuda"), n, BLOCK=64)
    guessed[grid](torch.empty(n, device="cuda"), n, BLOCK=128)


def launch_both(n: int = 192):
    both[grid](torch.empty(n, device="cuda"), n)
