"""`wgmma.mma_async`: the product of a warpgroup, 64 rows in registers (PTX ISA 9.7.15)."""

from __future__ import annotations

from functools import cache

import numpy as np

from gpu_emulator.engines.accumulation import Accumulation
from gpu_emulator.engines.fragments import LANES, Layout, elements, operand_a, registers
from gpu_emulator.engines.products import (
    INTEGERS,
    Order,
    binary_product,
    decode,
    integer_product,
    product,
)
from gpu_emulator.engines.shared_matrices import MatrixDescriptor, read_matrix
from gpu_emulator.numbers.formats import Bits

ROWS = 64
THREADS = 128
K_BYTES = 32
"""K of every dense shape: k8 of tf32, k16 of 16 bits, k32 of 8 bits, k256 of single bits."""
_WIDTHS = {"tf32": 32, "f16": 16, "bf16": 16, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "b1": 1}


@cache
def accumulator(n: int) -> Layout:
    """D of m64nNk*: 64 x n over 128 threads, n / 2 elements each.

    Warp w has rows 16 w + l / 4 and 8 more; each block of 8 columns gives 4 elements, as in
    `mma.sync`.
    """
    thread = np.arange(THREADS)[:, None]
    slot = np.arange(n // 2)[None, :]
    lane = thread % LANES
    row = 16 * (thread // LANES) + lane // 4 + 8 * (slot // 2 % 2)
    return Layout.of((ROWS, n), row, 8 * (slot // 4) + 2 * (lane % 4) + slot % 2)


def register_operand(held: Bits, name: str) -> Bits:
    """A from registers: uint32 (..., 128, 4) as codes (..., 64, K)."""
    width = _WIDTHS[name]
    layout = operand_a(16, K_BYTES * 8 // width, width)
    warps = held.reshape(*held.shape[:-2], THREADS // LANES, LANES, held.shape[-1])
    matrix = layout.gather(elements(warps, width))
    return matrix.reshape(*held.shape[:-2], ROWS, -1)


def shared_operand(
    shared: Bits, descriptor: MatrixDescriptor, name: str, *, rows: int, mn_major: bool = False
) -> Bits:
    """A or B from shared memory as codes (..., rows, K); B as n rows.

    Args:
        shared: uint8 (..., bytes).
        descriptor: where the matrix lies.
        name: type of the elements.
        rows: 64 for A, n for B.
        mn_major: `tnspA` or `tnspB` (16-bit types only): K is not the contiguous dimension.
    """
    width = _WIDTHS[name]
    codes = read_matrix(
        shared, descriptor, rows=rows, k_bytes=K_BYTES, width=max(width, 8), mn_major=mn_major
    )
    return codes if width >= 8 else np.unpackbits(codes, axis=-1, bitorder="little")


def wgmma(
    a: Bits,
    b: Bits,
    d: Bits,
    *,
    a_type: str,
    b_type: str,
    d_type: str,
    accumulate: Bits,
    negate_a: bool = False,
    negate_b: bool = False,
    saturate: bool = False,
    operation: str = "and",
    order: Order | Accumulation | None = None,
) -> Bits:
    """D = A x B, or A x B + D.

    Args:
        a: codes (..., 64, K), from `register_operand` or `shared_operand`.
        b: codes (..., n, K).
        d: registers of D, uint32 (..., 128, n / 2), or n / 4 for f16.
        a_type: tf32, f16, bf16, e4m3, e5m2, s8, u8 or b1.
        b_type: likewise.
        d_type: f32, f16 or s32.
        accumulate: bool (...): `scale-d`.
        negate_a: `imm-scale-a` is -1.
        negate_b: `imm-scale-b` is -1.
        saturate: `.satfinite`.
        operation: of b1: `and`.
        order: see `products.product`.

    Returns:
        The new registers of D.
    """
    layout = accumulator(b.shape[-2])
    width = 16 if d_type == "f16" else 32
    old = layout.gather(elements(d, width))
    start = np.where(accumulate[..., None, None], old, old.dtype.type(0))
    if a_type == "b1":
        result = binary_product(a, np.swapaxes(b, -1, -2), start, operation)
        return registers(layout.scatter(result), width)
    left, right = decode(a, a_type), np.swapaxes(decode(b, b_type), -1, -2)
    if a_type in INTEGERS:
        result = integer_product(left, right, start, saturate=saturate)
        return registers(layout.scatter(result), width)
    if negate_a != negate_b:
        left = -left
    result = product(left, right, start, c_type=d_type, d_type=d_type, order=order)
    return registers(layout.scatter(result), width)
