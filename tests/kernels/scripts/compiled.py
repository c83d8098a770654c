"""A kernel beside a reference that torch compiles, and a function that launches the kernel."""

import torch
import triton
import triton.language as tl


@triton.jit
def add_one(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, at < n) + 1, at < n)


@torch.compile
def reference(x):
    return x + 1


@torch.compile(fullgraph=True)
def launched(x, graph: torch.cuda.CUDAGraph | None = None):
    out = torch.empty_like(x)
    add_one[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
    return out


if __name__ == "__main__":
    x = torch.randn(1000, device="cuda")
    torch.testing.assert_close(launched(x), reference(x))
    torch.cuda.memory.reset_peak_memory_stats()
    times = triton.testing.do_bench(lambda: launched(x), return_mode="all")
    print(len(times), torch.cuda.memory.max_memory_reserved())
