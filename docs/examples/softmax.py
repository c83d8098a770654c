"""Softmax of rows, as a script: it is compiled as it stands, with what it checks passed over."""

import torch
import triton
import triton.language as tl


@triton.autotune([triton.Config({}, num_warps=warps) for warps in (2, 4, 8, 16)], key=["columns"])
@triton.jit
def softmax(x, out, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    start = tl.program_id(0) * columns
    row = tl.load(x + start + at, mask=at < columns, other=-float("inf")).to(tl.float32)
    row = tl.exp(row - tl.max(row, axis=0))
    tl.store(out + start + at, row / tl.sum(row, axis=0), mask=at < columns)


if __name__ == "__main__":
    for columns, dtype in ((781, torch.float32), (32768, torch.float16)):
        x = torch.randn(1000, columns, dtype=dtype, device="cuda")
        out = torch.empty_like(x)
        softmax[(1000,)](x, out, columns, BLOCK=triton.next_power_of_2(columns))
        torch.testing.assert_close(out, torch.softmax(x, -1))
