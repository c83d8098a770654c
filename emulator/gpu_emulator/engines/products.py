"""Matrix products with the accumulator of tensor cores: shared by mma.sync, wgmma and tcgen05.

The PTX ISA leaves order and precision of the accumulation open (9.7.14.5.14, "Semantics"). Here
products are exact, they are summed in float64 with the accumulator, and the sum is rounded once:
the best that any hardware may return (f64 is a chain of `fma`). With `order` the sum runs in
float32 in that order, rounded at each step: two orders show how much of a difference is noise.
`accumulation` has the sums of one architecture, bit for bit.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpu_emulator.engines.accumulation import Accumulation
from gpu_emulator.numbers import arithmetic
from gpu_emulator.numbers.formats import Bits, Float64, from_float64, to_float64

Order = NDArray[np.intp]
INTEGERS = {"s8": 8, "u8": 8, "s4": 4, "u4": 4}
"""Bits of the integer types."""


def decode(codes: Bits, name: str) -> Float64:
    """Values of elements as float64, integers too."""
    if name not in INTEGERS:
        return to_float64(codes, name)
    width = INTEGERS[name]
    values = codes.astype(np.int64) & ((1 << width) - 1)
    if name[0] == "s":
        values -= (values >> (width - 1)) << width
    return values.astype(np.float64)


def product(
    a: Float64,
    b: Float64,
    c: Bits | None,
    *,
    c_type: str,
    d_type: str,
    order: Order | Accumulation | None = None,
) -> Bits:
    """A @ B + C, rounded to nearest even.

    Args:
        a: (..., m, k) values.
        b: (..., k, n) values.
        c: (..., m, n) bits of `c_type`, or None for zero.
        c_type: f16, f32 or f64.
        d_type: f16, f32 or f64.
        order: a permutation of range(k): sum in float32 in this order; or the way of adding of
            an architecture. f64 stays as it is.

    Returns:
        (..., m, n) bits of `d_type`.
    """
    with np.errstate(all="ignore"):
        start = None if c is None else to_float64(c, c_type)
        if d_type == "f64":
            return _chain(a, b, c)
        if isinstance(order, Accumulation):
            return order.add(a, b, c, d_type)
        if order is None:
            total = np.matmul(a, b)
            return from_float64(total if start is None else total + start, d_type)
        shape = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        running = np.zeros((*shape, a.shape[-2], b.shape[-1]), dtype=np.float32)
        if start is not None:
            running = running + start.astype(np.float32)
        for k in order:
            running = (running + a[..., :, k, None] * b[..., None, k, :]).astype(np.float32)
        return from_float64(running.astype(np.float64), d_type)


def _chain(a: Float64, b: Float64, c: Bits | None) -> Bits:
    """f64: a chain of fused multiplications and additions, as `mma.sync` has it."""
    shape = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    running: Bits = np.zeros((*shape, a.shape[-2], b.shape[-1]), dtype=np.uint64)
    if c is not None:
        running = running + c
    left, right = (np.ascontiguousarray(x).view(np.uint64) for x in (a, b))
    for k in range(a.shape[-1]):
        running = arithmetic.fma("f64", left[..., :, k, None], right[..., None, k, :], running)
    return running


def integer_product(a: Float64, b: Float64, c: Bits | None, *, saturate: bool) -> Bits:
    """A @ B + C in 32-bit integers: wrapping, or clamped with `.satfinite`.

    Args:
        a: (..., m, k) integral values of 8 bits or fewer: their products are exact in float64.
        b: (..., k, n).
        c: (..., m, n) int32 as uint32 bits, or None for zero.
        saturate: clamp to the range of s32.
    """
    total = np.matmul(a, b).astype(np.int64)
    if c is not None:
        total = total + c.astype(np.uint32).view(np.int32)
    if saturate:
        limits = np.iinfo(np.int32)
        total = np.clip(total, limits.min, limits.max)
    wrapped: Bits = (total & 0xFFFF_FFFF).astype(np.uint32)
    return wrapped


def binary_product(a: Bits, b: Bits, c: Bits, operation: str) -> Bits:
    """b1: for each (row, column) the number of ones in a xor b, or in a and b, added to C.

    Args:
        a: (..., m, k) bits as 0 and 1.
        b: (..., k, n).
        c: (..., m, n) uint32.
        operation: `xor` or `and`.
    """
    left, right = a.astype(np.float64), b.astype(np.float64)
    common = np.matmul(left, right)
    if operation == "xor":
        ones = left.sum(axis=-1)[..., :, None] + right.sum(axis=-2)[..., None, :] - 2 * common
    else:
        ones = common
    total: Bits = (ones.astype(np.int64) + c.astype(np.int64)) & 0xFFFF_FFFF
    return total.astype(np.uint32)
