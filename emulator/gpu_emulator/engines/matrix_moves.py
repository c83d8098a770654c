"""`ldmatrix`, `stmatrix` and `movmatrix`: 8 x 8 matrices between rows of shared memory and lanes.

Source: PTX ISA 9.7.14.5.15 to 9.7.14.5.17; for the transposed bytes of sm_100 the layouts that
CUTLASS states for its copy atoms (`copy_traits_sm100.hpp`), as bit positions. The machine reads or
writes the rows: lane 8i + j has the address of row j of matrix i (m16n16: lane 16i + j).
"""

from __future__ import annotations

from functools import cache

import numpy as np

from gpu_emulator.engines.fragments import LANES, Layout, elements, registers
from gpu_emulator.numbers.formats import Bits


@cache
def _pairs(*, transposed: bool) -> Layout:
    """8 x 8 elements of 16 bits: lane l holds row l / 4, columns 2 (l % 4) and the next."""
    lane = np.arange(LANES)[:, None]
    row, column = lane // 4, 2 * (lane % 4) + np.arange(2)[None, :]
    return Layout.of((8, 8), column, row) if transposed else Layout.of((8, 8), row, column)


@cache
def _quads() -> Layout:
    """16 rows of 16 bytes, transposed on load.

    Register r, byte p of lane l holds row 4 (l % 4) + 2 r + p % 2, column l / 4 + 8 (p / 2).
    """
    lane = np.arange(LANES)[:, None]
    slot = np.arange(8)[None, :]
    byte = slot % 4
    row = 4 * (lane % 4) + 2 * (slot // 4) + byte % 2
    return Layout.of((16, 16), row, lane // 4 + 8 * (byte // 2))


@cache
def _bytes_of_16x8() -> Layout:
    """16 x 8 bytes as an accumulator holds them: rows l / 4, then + 8; columns 2 (l % 4) + 0, 1."""
    lane = np.arange(LANES)[:, None]
    byte = np.arange(4)[None, :]
    return Layout.of((16, 8), lane // 4 + 8 * (byte // 2), 2 * (lane % 4) + byte % 2)


def load_matrices(rows: Bits, *, transposed: bool) -> Bits:
    """`ldmatrix.m8n8.x1|x2|x4{.trans}.b16`.

    Args:
        rows: uint8 (..., 8 n, 16): the 16 bytes at the address of each of the first 8 n lanes.
        transposed: `.trans`.

    Returns:
        uint32 (..., 32, n) registers.
    """
    count = rows.shape[-2] // 8
    matrices = np.ascontiguousarray(rows).view(np.uint16).reshape(*rows.shape[:-2], count, 8, 8)
    held = registers(_pairs(transposed=transposed).scatter(matrices), 16)
    return np.moveaxis(held[..., 0], -2, -1)


def store_matrices(held: Bits, *, transposed: bool) -> Bits:
    """`stmatrix.m8n8.x1|x2|x4{.trans}.b16`: the inverse of `load_matrices`.

    Args:
        held: uint32 (..., 32, n) registers.
        transposed: `.trans`.

    Returns:
        uint8 (..., 8 n, 16): what goes to the address of each of the first 8 n lanes.
    """
    parts = elements(np.moveaxis(held, -1, -2)[..., None], 16)
    matrices = np.ascontiguousarray(_pairs(transposed=transposed).gather(parts))
    data: Bits = matrices.view(np.uint8)
    return data.reshape(*held.shape[:-2], -1, 16)


def move_matrix(held: Bits) -> Bits:
    """`movmatrix.m8n8.trans.b16`: uint32 (..., 32) registers, the matrix of the warp transposed."""
    matrix = _pairs(transposed=False).gather(elements(held[..., None], 16))
    return registers(_pairs(transposed=True).scatter(matrix), 16)[..., 0]


def load_bytes(rows: Bits) -> Bits:
    """`ldmatrix.m16n16.x1|x2.trans.b8`.

    Args:
        rows: uint8 (..., 16 n, 16).

    Returns:
        uint32 (..., 32, 2 n) registers.
    """
    count = rows.shape[-2] // 16
    matrices = rows.reshape(*rows.shape[:-2], count, 16, 16)
    held = registers(_quads().scatter(matrices), 8)
    return np.moveaxis(held, -3, -2).reshape(*rows.shape[:-2], LANES, 2 * count)


def store_bytes(held: Bits) -> Bits:
    """`stmatrix.m16n8.x1|x2|x4.trans.b8`: the columns of 16 x 8 matrices become rows.

    Args:
        held: uint32 (..., 32, n) registers.

    Returns:
        uint8 (..., 8 n, 16): what goes to the address of each of the first 8 n lanes.
    """
    parts = elements(np.moveaxis(held, -1, -2)[..., None], 8)
    matrices: Bits = np.swapaxes(_bytes_of_16x8().gather(parts), -1, -2)
    return matrices.reshape(*held.shape[:-2], -1, 16)


def unpack_row(rows: Bits, width: int) -> Bits:
    """16 packed elements of 4 or 6 bits as 16 bytes (`.b8x16.b4x16_p64`, `.b8x16.b6x16_p32`).

    The packed elements fill the first 8 or 12 of 16 bytes; each goes to the low bits of its byte.

    Args:
        rows: uint8 (..., 16).
        width: 4 or 6.
    """
    bits = np.unpackbits(rows[..., : 2 * width], axis=-1, bitorder="little")
    grouped = bits.reshape(*rows.shape[:-1], 16, width)
    weights = (1 << np.arange(width)).astype(np.uint8)
    spread: Bits = (grouped * weights).sum(axis=-1, dtype=np.uint8)
    return spread
