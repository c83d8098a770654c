"""Tensor descriptors, made on the host and on the device (Triton 3.4 and later)."""

import torch
import triton
import triton.language as tl


@triton.jit
def on_host(x, y, BLOCK: tl.constexpr):
    y.store([0, 0], x.load([0, 0]))


@triton.jit
def on_device(x, rows, columns, BLOCK: tl.constexpr):
    descriptor = tl.make_tensor_descriptor(
        x, shape=[rows, columns], strides=[columns, 1], block_shape=[BLOCK, BLOCK]
    )
    descriptor.store([0, 0], descriptor.load([0, 0]) + 1)


def launch():
    from triton.tools.tensor_descriptor import TensorDescriptor

    x, y = (torch.empty(64, 64, device="cuda", dtype=torch.float16) for _ in range(2))
    block = [32, 32]
    on_host[(1,)](
        TensorDescriptor.from_tensor(x, block), TensorDescriptor.from_tensor(y, block), BLOCK=32
    )


def launch_device():
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, device="cuda"))
    x = torch.empty(64, 64, device="cuda")
    on_device[(1,)](x, 64, 64, BLOCK=32)
