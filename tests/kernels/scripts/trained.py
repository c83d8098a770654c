"""A function with its derivative in two kernels, a step of training, and what depends on values."""

import numpy as np
import torch
import triton
import triton.language as tl


@triton.jit
def square(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, at < n)
    tl.store(out + at, value * value, at < n)


@triton.jit
def square_backward(x, grad, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at, at < n) * tl.load(grad + at, at < n), at < n)


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        out = torch.empty_like(x)
        square[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
        return out

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        out = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), 256),)
        square_backward[grid](x, grad.contiguous(), out, x.numel(), BLOCK=256)
        return out


if __name__ == "__main__":
    weight = torch.nn.Parameter(torch.randn(1000, device="cuda"))
    optimizer = torch.optim.Adam([weight], lr=0.1)
    loss = Square.apply(weight).sum()
    loss.backward()
    torch.nn.utils.clip_grad_norm_([weight], 1.0)
    optimizer.step()
    print("loss", loss.item(), "gradient", weight.grad[:3].tolist())
    copy = weight.detach().cpu()
    assert not copy.is_cuda and (copy + 1).device.type == "cpu" and copy.cuda().is_cuda
    assert torch.allclose(copy - torch.zeros(1000), copy)
    np.testing.assert_allclose(weight.grad.cpu().numpy(), 2 * copy.numpy())
    Square.apply(weight.half())
