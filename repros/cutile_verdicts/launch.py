"""Launches of kernels in cuTile, one for each verdict."""

import cuda.tile as ct
import torch
from kernels import added_kernel, in_place_kernel, product_kernel, wrong_kernel


def ok(n=4096, size=128):
    """A sum of two vectors."""
    left, right = (torch.randn(n, device="cuda") for _ in range(2))
    result = torch.empty_like(left)
    given = (left, right, result, size)
    ct.launch(torch.cuda.current_stream(), (n // size,), added_kernel, given)


def product(n=1024, size=256, depth=64, dtype="float16"):
    """A matrix product; the tiles are the larger, the more they take."""
    dtype = getattr(torch, dtype)
    left, right = (torch.randn(n, n, device="cuda").to(dtype) for _ in range(2))
    result = torch.empty(n, n, device="cuda")
    grid = (n // size, n // size)
    given = (left, right, result, size, depth)
    ct.launch(torch.cuda.current_stream(), grid, product_kernel, given)


def wrong(what="name"):
    """A name that nothing defines; `shape` is one that is no power of two."""
    source = torch.randn(128, device="cuda")
    given = (source, {"name": 0, "shape": 1}[what])
    ct.launch(torch.cuda.current_stream(), (1,), wrong_kernel, given)


def unsupported():
    """A type of newer targets."""
    source = torch.randn(128, device="cuda")
    ct.launch(torch.cuda.current_stream(), (1,), wrong_kernel, (source, 2))


def in_place(rows=4):
    """What is loaded by an index is stored by it, after a sum."""
    source = torch.randn(1, rows, 32, device="cuda")
    ct.launch(torch.cuda.current_stream(), (1,), in_place_kernel, (source,))
