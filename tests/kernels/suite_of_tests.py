"""A file of tests that ask for a GPU; one of them launches what does not compile."""

import pytest
import torch
import triton
import triton.language as tl

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, 2 * tl.load(x + offsets, offsets < n), offsets < n)


@triton.jit
def fill(out, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK < 64, "too large")
    tl.store(out + tl.arange(0, BLOCK), 1.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_double(dtype):
    x = torch.randn(100, device="cuda", dtype=dtype)
    out = torch.empty_like(x)
    double[(1,)](x, out, 100, BLOCK=128)
    torch.testing.assert_close(out, 2 * x)


def test_fill():
    out = torch.empty(64, device="cuda")
    fill[(1,)](out, BLOCK=64)
    assert out.sum() == 64


def test_skipped():
    pytest.skip("not here")
