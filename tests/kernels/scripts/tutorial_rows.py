"""What Triton's tutorials 01, 02, 04, 05 and 07 do, in kernels of our own: rows and elements."""

import os
from pathlib import Path

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.runtime import driver

DEVICE = triton.runtime.driver.active.get_active_torch_device()


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


def added(x, y):
    out = torch.empty_like(x)
    assert x.device == DEVICE and y.device == DEVICE and out.device == DEVICE
    n = out.numel()
    add[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n, BLOCK=1024)
    return out


@triton.jit
def softmax(out, x, x_stride, out_stride, height, width, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    step = tl.num_programs(0)
    for row in tl.range(tl.program_id(0), height, step, num_stages=STAGES):
        columns = tl.arange(0, BLOCK)
        values = tl.load(x + row * x_stride + columns, mask=columns < width, other=-float("inf"))
        shifted = tl.exp(values - tl.max(values, axis=0))
        scaled = shifted / tl.sum(shifted, axis=0)
        tl.store(out + row * out_stride + columns, scaled, mask=columns < width)


PROPERTIES = driver.active.utils.get_device_properties(DEVICE.index)
TARGET = triton.runtime.driver.active.get_current_target()


def softmaxed(x):
    """As many programs as fit on the GPU: asks a compiled kernel for what it takes."""
    height, width = x.shape
    block = triton.next_power_of_2(width)
    warps = 8
    stages = 4 if PROPERTIES["max_shared_mem"] > 200_000 else 2
    out = torch.empty_like(x)
    kernel = softmax.warmup(
        out,
        x,
        x.stride(0),
        out.stride(0),
        height,
        width,
        BLOCK=block,
        STAGES=stages,
        num_warps=warps,
        grid=(1,),
    )
    kernel._init_handles()
    by_registers = PROPERTIES["max_num_regs"] // (kernel.n_regs * TARGET.warp_size * warps)
    by_memory = PROPERTIES["max_shared_mem"] // max(kernel.metadata.shared, 1)
    programs = min(
        PROPERTIES["multiprocessor_count"] * max(min(by_registers, by_memory), 1), height
    )
    kernel[(programs, 1, 1)](out, x, x.stride(0), out.stride(0), height, width, block, stages)
    return out


@triton.jit
def dropout(x, keep, out, n, p, BLOCK: tl.constexpr):
    at = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    kept = tl.load(keep + at, mask=at < n)
    value = tl.load(x + at, mask=at < n)
    tl.store(out + at, tl.where(kept, value / (1 - p), 0.0), mask=at < n)


@triton.jit
def seeded_dropout(x, out, n, p, seed, BLOCK: tl.constexpr):
    at = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.store(out + at, tl.where(tl.rand(seed, at) > p, value / (1 - p), 0.0), mask=at < n)


@triton.jit
def norm_forward(x, y, w, b, mean, rstd, stride, width, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    y += row * stride
    x += row * stride
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, width, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        total += tl.load(x + columns, mask=columns < width, other=0.0).to(tl.float32)
    centre = tl.sum(total, axis=0) / width
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, width, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        value = tl.load(x + columns, mask=columns < width, other=0.0).to(tl.float32)
        value = tl.where(columns < width, value - centre, 0.0)
        squares += value * value
    scale = 1 / tl.sqrt(tl.sum(squares, axis=0) / width + eps)
    tl.store(mean + row, centre)
    tl.store(rstd + row, scale)
    for start in range(0, width, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        inside = columns < width
        value = (tl.load(x + columns, mask=inside, other=0.0).to(tl.float32) - centre) * scale
        weight, bias = tl.load(w + columns, mask=inside), tl.load(b + columns, mask=inside)
        tl.store(y + columns, value * weight + bias, mask=inside)


@triton.jit
def norm_backward(
    dx, dy, dw, db, x, w, mean, rstd, locks, stride, width, GROUP: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    value = tl.load(x + row * stride + columns, mask=inside, other=0).to(tl.float32)
    slope = tl.load(dy + row * stride + columns, mask=inside, other=0).to(tl.float32)
    weight = tl.load(w + columns, mask=inside).to(tl.float32)
    scale = tl.load(rstd + row)
    normal = tl.where(inside, (value - tl.load(mean + row)) * scale, 0.0)
    weighted = tl.where(inside, weight * slope, 0.0)
    first = tl.sum(normal * weighted, axis=0) / width
    second = tl.sum(weighted, axis=0) / width
    tl.store(
        dx + row * stride + columns, (weighted - (normal * first + second)) * scale, mask=inside
    )
    group = row % GROUP
    locks += group
    counts = locks + GROUP
    dw = dw + group * width + columns
    db = db + group * width + columns
    part_w, part_b = (slope * normal).to(weight.dtype), slope.to(weight.dtype)
    while tl.atomic_cas(locks, 0, 1) == 1:
        pass
    if tl.load(counts) == 0:
        tl.atomic_xchg(counts, 1)
    else:
        part_w += tl.load(dw, mask=inside)
        part_b += tl.load(db, mask=inside)
    tl.store(dw, part_w, mask=inside)
    tl.store(db, part_b, mask=inside)
    tl.debug_barrier()
    tl.atomic_xchg(locks, 0)


@triton.jit
def norm_sums(dw, db, final_dw, final_db, height, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    sums_w = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    sums_b = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for start in range(0, height, ROWS):
        rows = start + tl.arange(0, ROWS)
        inside = (rows[:, None] < height) & (columns[None, :] < width)
        at = rows[:, None] * width + columns[None, :]
        sums_w += tl.load(dw + at, mask=inside, other=0.0)
        sums_b += tl.load(db + at, mask=inside, other=0.0)
    tl.store(final_dw + columns, tl.sum(sums_w, axis=0), mask=columns < width)
    tl.store(final_db + columns, tl.sum(sums_b, axis=0), mask=columns < width)


class LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shape, weight, bias, eps):
        y = torch.empty_like(x)
        rows = x.reshape(-1, x.shape[-1])
        height, width = rows.shape
        mean = torch.empty((height,), dtype=torch.float32, device=x.device)
        rstd = torch.empty((height,), dtype=torch.float32, device=x.device)
        block = min(65536 // x.element_size(), triton.next_power_of_2(width))
        if width > block:
            raise RuntimeError("too wide")
        warps = min(max(block // 256, 1), 8)
        norm_forward[(height,)](
            rows,
            y,
            weight,
            bias,
            mean,
            rstd,
            rows.stride(0),
            width,
            eps,
            BLOCK=block,
            num_warps=warps,
            num_ctas=1,
        )
        ctx.save_for_backward(x, weight, bias, mean, rstd)
        ctx.block, ctx.warps = block, warps
        return y

    @staticmethod
    def backward(ctx, dy):
        x, w, b, mean, rstd = ctx.saved_tensors
        width = w.shape[0]
        group = 64 if width > 8192 else 96 if width > 4096 else 128 if width > 1024 else 256
        locks = torch.zeros(2 * group, dtype=torch.int32, device=w.device)
        part_w = torch.zeros((group, width), dtype=x.dtype, device=w.device)
        part_b = torch.zeros((group, width), dtype=x.dtype, device=w.device)
        dw, db, dx = torch.empty_like(w), torch.empty_like(w), torch.empty_like(dy)
        rows = x.reshape(-1, x.shape[-1])
        height, width = rows.shape
        norm_backward[(height,)](
            dx,
            dy,
            part_w,
            part_b,
            rows,
            w,
            mean,
            rstd,
            locks,
            rows.stride(0),
            width,
            BLOCK=ctx.block,
            GROUP=group,
            num_warps=ctx.warps,
        )
        norm_sums[lambda meta: (triton.cdiv(width, meta["COLUMNS"]),)](
            part_w, part_b, dw, db, min(group, height), width, ROWS=32, COLUMNS=128, num_ctas=1
        )
        return dx, None, dw, db, None


layer_norm = LayerNorm.apply


@triton.jit
def arcsine(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, libdevice.asin(tl.load(x + at, mask=at < n)), mask=at < n)


@triton.testing.perf_report(
    triton.testing.Benchmark(
        x_names=["width"],
        x_vals=[512 * i for i in (2, 9, 17)],
        line_arg="provider",
        line_vals=["triton", "torch"],
        line_names=["Triton", "Torch"],
        ylabel="GB/s",
        plot_name="layer-norm",
        args={"height": 4096, "dtype": torch.float16, "mode": "backward"},
    )
)
def measure(height, width, dtype, provider, mode="backward", eps=1e-5, device=DEVICE):
    shape = (height, width)
    weight = torch.rand(shape[-1:], dtype=dtype, device=device, requires_grad=True)
    bias = torch.rand(shape[-1:], dtype=dtype, device=device, requires_grad=True)
    x = (-2.3 + 0.5 * torch.randn(shape, dtype=dtype, device=device)).requires_grad_(True)
    dy = 0.1 * torch.randn_like(x)
    norm = layer_norm if provider == "triton" else torch.nn.functional.layer_norm
    y = norm(x, shape[-1:], weight, bias, eps)
    milliseconds, *_ = triton.testing.do_bench(
        lambda: y.backward(dy, retain_graph=True), quantiles=[0.5, 0.2, 0.8], grad_to_none=[x]
    )
    return 3 * x.numel() * x.element_size() * 1e-9 / (milliseconds * 1e-3)


if __name__ == "__main__":
    torch.manual_seed(0)
    x, y = torch.rand(98432, device=DEVICE), torch.rand(98432, device=DEVICE)
    print(f"largest difference {torch.max(torch.abs(x + y - added(x, y)))}")
    for shape in ((1823, 781), (4096, 256), (4096, 12544)):
        x = torch.randn(*shape, device=DEVICE)
        assert torch.allclose(softmaxed(x), torch.softmax(x, axis=1)), "they differ"
    x = torch.randn(size=(10,), device=DEVICE)
    keep = (torch.rand(size=(10,), device=DEVICE) > 0.5).to(torch.int32)
    out = torch.empty_like(x)
    dropout[(1,)](x, keep, out, x.numel(), 0.5, BLOCK=1024)
    for seed in (123, 123, 512):
        seeded_dropout[(1,)](x, out, x.numel(), 0.5, seed, BLOCK=1024)
    print(out.tolist())
    measure.run(save_path=".", print_data=True)
    x = torch.rand(98432, device=DEVICE)
    out = torch.zeros(98432, device=DEVICE)
    arcsine[(97,)](x, out, x.numel(), BLOCK=1024)
    libraries = {
        name: os.fspath(path)
        for name, path in {
            "libdevice": Path(triton.__file__).parent / "backends/nvidia/lib/libdevice.10.bc"
        }.items()
    }
    arcsine[(97,)](x, out, x.numel(), BLOCK=1024, extern_libs=libraries)
