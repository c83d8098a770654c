"""Operators of torch.library that launch a kernel, each with a fake implementation that does not."""

import torch
import triton
import triton.language as tl


@triton.jit
def add_one(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, at < n) + 1, at < n)


def launch(x, block):
    # On the device that is named, not on that of an argument.
    out = torch.empty(x.shape, device="cuda")
    add_one[(triton.cdiv(x.numel(), block),)](x, out, x.numel(), BLOCK=block)
    return out


@torch.library.custom_op("operators::custom", mutates_args=(), device_types="cuda")
def custom(x: torch.Tensor) -> torch.Tensor:
    return launch(x, 16)


@custom.register_fake
def _(x):
    return torch.empty_like(x)


@torch.library.custom_op("operators::derived", mutates_args=())
def derived(x: torch.Tensor) -> torch.Tensor:
    return launch(x, 32)


derived.register_fake(torch.empty_like)
derived.register_autograd(lambda _, grad: launch(grad.contiguous(), 64))


@torch.library.triton_op("operators::wrapped", mutates_args=())
def wrapped(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty(x.shape, device="cuda")
    torch.library.wrap_triton(add_one)[(1,)](x, out, x.numel(), BLOCK=128)
    return out


library = torch.library.Library("operators", "FRAGMENT")
library.define("plain(Tensor x) -> Tensor")
of_gpu = torch.library.Library("operators", "IMPL", "CUDA")
of_gpu.impl("plain", lambda x: launch(x, 256))
library.impl("plain", lambda x: x + 1, "CPU")
library._register_fake("plain", torch.empty_like)


if __name__ == "__main__":
    x = torch.zeros(100, device="cuda", requires_grad=True)
    custom(x.detach())
    derived(x).sum().backward()
    wrapped(x.detach())
    torch.ops.operators.plain(x.detach())
    # On the CPU nothing is launched.
    torch.ops.operators.plain(torch.zeros(100))
