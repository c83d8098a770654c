"""What launch code does with tensors and devices before it launches."""

import torch
import triton
import triton.language as tl

IS_HOPPER = tl.constexpr(torch.cuda.get_device_capability()[0] == 9)


@triton.jit
def fill(x, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = 9.0 if IS_HOPPER else 7.0
    tl.store(x + offsets, value.to(x.dtype.element_ty) if False else value, mask=offsets < n)


def start(x):
    fill[(1,)](x, x.numel(), BLOCK=32)


def launch():
    start(torch.empty(32, device="cuda"))


def launch_views():
    x = torch.empty(64, 32, device="cuda", dtype=torch.float16)
    assert x.is_cuda
    assert x.device.type == "cuda"
    assert x.get_device() == 0
    start(x[1])  # 64 bytes on: aligned
    start(x.view(-1)[1:33])  # 2 bytes on: not
    start(x.t()[3])  # 6 bytes on: not, and no new code
    start(x.chunk(2, dim=0)[1][0])
    start(x.float().reshape(-1)[:32].contiguous())


def launch_types():
    for dtype in (torch.float16, torch.float32):
        fill.warmup(dtype, 32, BLOCK=32, grid=(1,))
    # Bytes that are read as another type: as often as there are sizes, the same code.
    for size in (32, 48):
        bits = torch.empty(size, device="cuda", dtype=torch.int8)
        fill[(1,)](triton.reinterpret(bits, tl.float8e5), 32, BLOCK=32)


def launch_devices():
    torch.manual_seed(0)
    torch.cuda.manual_seed(0)
    generator = torch.Generator(device="cuda")
    generator.manual_seed(1)
    x = torch.randn(32, device="cuda", generator=generator)
    y = torch.tensor([1.0] * 32).to(0) + torch.ones(32).cuda() + torch.arange(32).to("cuda:0")
    with torch.device("cuda"):
        z = torch.zeros(32)
    torch.set_default_device("cuda")
    w = torch.ones(32)
    torch.set_default_device("cpu")
    linear = torch.nn.Linear(32, 32).cuda().to(torch.bfloat16)
    with torch.cuda.device(x.device.index), torch.autocast("cuda", dtype=torch.bfloat16):
        out = linear(torch.randn(4, 32, device=x.device))
    assert torch.cuda.get_device_properties(device=0).multi_processor_count > 0
    assert torch.cuda.get_device_name(device=0)
    for each in (x, y, z, w, out[0], torch.empty_like(x)):
        assert each.is_cuda
        start(each)
    print(x)
    torch.cuda.synchronize()


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        start(x)
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        assert grad.is_cuda
        out = torch.empty(x.shape, device=x.device, dtype=torch.float64)
        start(out)
        return out.to(x.dtype)


def launch_backward():
    x = torch.randn(32, device="cuda", requires_grad=True)
    Doubled.apply(x).sum().backward()
    assert x.grad.shape == (32,)


def launch_item():
    x = torch.zeros(32, device="cuda")
    start(x)
    if x.sum().item() > 0:
        start(x)


def launch_nonzero():
    x = torch.zeros(32, device="cuda")
    start(x[x > 0])


def launch_bool():
    if torch.zeros(1, device="cuda"):
        return


def launch_raises():
    start(torch.zeros(32, device="cuda"))
    raise KeyError("no such\nthing")


if __name__ == "__main__":
    launch()
    print("done")
