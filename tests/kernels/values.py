"""Launch code that reads values before a launch: those it makes itself, and what kernels leave."""

import torch
import triton
import triton.language as tl


@triton.jit
def sum_of_each(x, starts, chosen, out, BLOCK: tl.constexpr):
    number = tl.load(chosen + tl.program_id(0))
    start = tl.load(starts + number)
    bound = starts + 1
    at = start + tl.arange(0, BLOCK)
    inside = at < tl.load(bound + number)
    tl.store(out + number, tl.sum(tl.load(x + at, inside, 0.0)))


@triton.jit
def twice(x):
    return 2 * x


@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, twice(tl.load(x + at, at < n)), at < n)


tuned = triton.autotune([triton.Config({"BLOCK": size}) for size in (32, 64)], key=["n"])(double)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = torch.empty_like(x)
        double[(1,)](x, out, x.numel(), BLOCK=128)
        return out

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad


def launch_lengths():
    torch.manual_seed(0)
    lengths = torch.randint(5, 60, (4,), device="cuda")
    starts = torch.cat([torch.zeros(1, dtype=torch.int64, device="cuda"), lengths.cumsum(0)])
    x = torch.randn(int(starts[-1]), device="cuda")
    out = torch.empty(4, device="cuda")
    for most in (64, 32):
        # The second time, a kernel has had `starts`, which it only reads.
        chosen = (starts.diff() <= most).nonzero().flatten()
        assert len(chosen) == sum(length <= most for length in lengths.tolist())
        block = triton.next_power_of_2(int(starts.diff()[chosen].max()))
        sum_of_each[(len(chosen),)](x, starts, chosen, out, BLOCK=block)


def launch_beside_large():
    # A quarter of a terabyte, beside labels that a kernel only reads.
    logits = torch.randn(1 << 18, 1 << 18, device="cuda")
    labels = torch.randint(0, 100, (4096,), device="cuda")
    labels.view(2, -1)[1][torch.randperm(2048)[:96]] = -100
    kept = labels.masked_select(labels != -100)
    with torch.inference_mode():
        count = torch.zeros(1, dtype=torch.int64, device="cuda")
        torch.sum(labels != -100, 0, keepdim=True, out=count)
    double[(1,)](logits, logits, count.item(), BLOCK=64)
    assert kept.shape == (4000,)
    if logits.max() > 0:
        double[(1,)](logits, logits, 1, BLOCK=32)


def launch_results():
    x = torch.ones(50, device="cuda")
    y = torch.empty_like(x)
    tuned[(2,)](x, y, 50)
    torch.testing.assert_close(y, 2 * x)
    n = int(y.sum())
    assert n == 100
    double[(1,)](x, torch.empty(n, device="cuda"), n, BLOCK=triton.next_power_of_2(n))


def launch_mask():
    x = torch.ones(50, device="cuda")
    y = torch.zeros_like(x)
    double[(1,)](x, y, 50, BLOCK=64)
    double[(1,)](y[y > 1], y, 50, BLOCK=32)


def launch_index():
    # A tensor that is too large for its values to be kept without the others.
    n = int(torch.ones(50, 10_000, device="cuda")[:, 0].sum())
    y = torch.full((n,), 1000, device="cuda")
    double[(1,)](torch.arange(n, device="cuda"), y, 20, BLOCK=32)
    picked = torch.ones(50, device="cuda")[y[:20]]
    double[(1,)](picked, picked, 20, BLOCK=64)


def launch_default():
    class Graph(torch.cuda.CUDAGraph):
        pass

    torch.set_default_device("cuda")
    x = torch.zeros(4)
    x[0] += x[1:].tolist()[0]
    double[(1,)](x, x, 4, BLOCK=16)


def launch_plain():
    x = torch.ones(50, device="cuda")
    double[(1,)](x, torch.empty_like(x), 50, BLOCK=128)


def launch_gradient():
    x = torch.ones(int(torch.ones(50, device="cuda").sum()), device="cuda", requires_grad=True)
    Doubled.apply(x).mul(3).sum().backward()
    if x.grad.max() > 5:
        double[(1,)](x, x, 50, BLOCK=64)


def launch_large():
    x = torch.zeros(int(torch.ones(1, device="cuda").sum()) * 5000, device="cuda")
    double[(5000,)](x, x, 5000, BLOCK=1)
    if x.sum() == 0:
        double[(1,)](x, x, 50, BLOCK=64)


def launch_wrong():
    x = torch.ones(int(torch.ones(50, device="cuda").sum()), device="cuda")
    double[(1,)](x, torch.empty_like(x), 50, BLOCK=64)
    raise KeyError("no such thing")


def launch_endless():
    x = torch.ones(50, device="cuda")
    double[(1,)](x, torch.empty_like(x), 50, BLOCK=64)
    while x.sum() == 50:
        pass


if __name__ == "__main__":
    launch_results()
