"""A product with all that a tuner takes: hooks, pruning, a model of its speed, and heuristics."""

import torch
import triton
import triton.language as tl

BLOCKS = [(32, 2), (64, 2), (64, 4), (128, 4), (256, 8)]


def not_too_large(configs, named, **_):
    return [config for config in configs if config.kwargs["BLOCK"] <= named["n"]]


def expected_time(BLOCK, num_warps, **_):
    return BLOCK / num_warps


@triton.autotune(
    [triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in BLOCKS],
    key=["n"],
    reset_to_zero=["total"],
    restore_value=["x"],
    prune_configs_by={"early_config_prune": not_too_large, "perf_model": expected_time, "top_k": 3},
)
@triton.heuristics({"EVEN": lambda given: given["n"] % given["BLOCK"] == 0})
@triton.jit
def scale(x, total, factor, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    if EVEN:
        inside = at >= 0
    value = tl.load(x + at, inside, other=0.0) * factor
    tl.store(x + at, value, inside)
    tl.atomic_add(total, tl.sum(value))


def scaled(x, factor):
    total = torch.zeros(1, device=x.device)
    scale[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, total, factor, x.numel())
    return total


if __name__ == "__main__":
    for size in (128, 1000):
        x = torch.rand(size, device="cuda")
        expected = 2 * x.sum()
        total = scaled(x, 2.0)
        if torch.allclose(total, expected):
            print("agrees")
        torch.testing.assert_close(total[0], expected)
        assert not any(value.isnan().any() or value.isinf().any() for value in (x, total))
        assert not torch.equal(total, x)
        assert (total[0] - expected).abs().item() < 1e-3 and bool((x >= 0).all())
