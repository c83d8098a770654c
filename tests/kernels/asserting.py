"""Launch code that checks what its kernels computed, and code after a launch that fails."""

import torch
import triton
import triton.language as tl


@triton.jit
def combine(x, y, out, n, SIGN: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    left = tl.load(x + offsets, mask)
    tl.store(out + offsets, left + SIGN * tl.load(y + offsets, mask), mask)


@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, 2 * tl.load(x + offsets, offsets < n), offsets < n)


@triton.jit
def exponential(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.exp(tl.load(x + offsets, offsets < n)), offsets < n)


def check(got, expected):
    assert torch.allclose(got, expected, atol=1e-4), "not what was asked for"


def launch(sign=-1, style="close", n=96):
    x, y = torch.randn(n, device="cuda"), torch.randn(n, device="cuda")
    out, twice, powers = torch.empty_like(x), torch.empty_like(x), torch.empty_like(x)
    grid = (triton.cdiv(n, 64),)
    combine[grid](x, y, out, n, SIGN=sign, BLOCK=64)
    if style == "close":
        torch.testing.assert_close(out, x + y)
    elif style == "helper":
        check(out.float(), x + y)
    elif style == "item":
        error = (out - (x + y)).abs().max().item()
        assert error < 1e-4
    elif style == "chain":
        double[grid](out, twice, n, BLOCK=64)
        torch.testing.assert_close(twice, 2 * (x + y))
    elif style == "rounding":
        exponential[grid](x, powers, n, BLOCK=64)
        torch.testing.assert_close(powers, x.double().exp().float(), rtol=0, atol=0)
    elif style == "host":
        before = x.cpu()
        double[grid](x, x, n, BLOCK=64)
        # What was copied to the CPU is there, and stays as it was.
        assert not before.is_cuda
        torch.testing.assert_close(x.cpu(), 2 * before)
    elif style == "import":
        import plots_that_are_not_installed  # noqa: F401
    elif style == "device":
        print(out.sum().item())
        check_device()


def check_device():
    assert torch.cuda.get_device_name() == "another GPU", "this GPU is not known"
