"""Operands of wgmma and tcgen05.mma in shared memory, found through matrix descriptors.

Sources: PTX ISA 9.7.15.5.1.2 ("Matrix Descriptor" of wgmma, "Strides", "Canonical layouts") and
9.7.16.4 ("Shared memory descriptor" of tcgen05). A matrix is read in pieces of 16 bytes, which is
what the canonical layouts count in. In the tables below q is the span of the swizzle in pieces:

    K-major, piece c of row r:   (r % 8) * q + (r / 8) * stride + c             (swizzled)
                                 (r % 8) + (r / 8) * stride + c * leading       (not swizzled)
    MN-major, piece m of k:      (k % 8) * q + (k / 8) * stride + m % q + (m / q) * leading
                                 (k % 8) + (k / 8) * leading + m * stride       (not swizzled)

To that the start address is added, and the swizzle permutes the sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from gpu_emulator.engines.swizzle import SWIZZLES, Addresses
from gpu_emulator.numbers.formats import Bits

PIECE = 16
"""Bytes of a piece."""
_WGMMA_SWIZZLES = ("none", "128B", "64B", "32B")
_TCGEN05_SWIZZLES = {0: "none", 1: "128B_32B", 2: "128B", 4: "64B", 6: "32B"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixDescriptor:
    """Where a matrix starts and how it goes on, in bytes of shared memory.

    `swizzle` is a key of `swizzle.SWIZZLES`; `base_offset` counts rows of 128 bytes.
    """

    start: int
    leading: int
    stride: int
    base_offset: int
    swizzle: str


def _field(value: int, low: int, width: int) -> int:
    return (value >> low) & ((1 << width) - 1)


def wgmma_descriptor(value: int) -> MatrixDescriptor:
    """Take apart the 64 bits of a descriptor of wgmma."""
    return MatrixDescriptor(
        start=_field(value, 0, 14) << 4,
        leading=_field(value, 16, 14) << 4,
        stride=_field(value, 32, 14) << 4,
        base_offset=_field(value, 49, 3),
        swizzle=_WGMMA_SWIZZLES[_field(value, 62, 2)],
    )


def tcgen05_descriptor(value: int) -> MatrixDescriptor:
    """Take apart the 64 bits of a shared memory descriptor of tcgen05.

    The PTX ISA fixes bits 46 - 48 at 0b001. Triton 3.5 leaves them at zero, and its kernels run on
    GPUs, so the bits are not looked at.

    Raises:
        ValueError: the swizzle does not exist, or the leading dimension is an absolute address
            (only K = 96 on sm_103a has that).
    """
    if _field(value, 52, 1):
        raise ValueError(f"matrix descriptor {value:#018x} has an absolute leading dimension")
    swizzle = _TCGEN05_SWIZZLES.get(_field(value, 61, 3))
    if swizzle is None:
        raise ValueError(f"matrix descriptor {value:#018x} has an unknown swizzle")
    return MatrixDescriptor(
        start=_field(value, 0, 14) << 4,
        leading=_field(value, 16, 14) << 4,
        stride=_field(value, 32, 14) << 4,
        base_offset=_field(value, 49, 3),
        swizzle=swizzle,
    )


@cache
def _relative(
    leading: int, stride: int, swizzle: str, *, rows: int, k_bytes: int, width: int, mn_major: bool
) -> Addresses:
    """Offsets of pieces from the start: (rows, pieces of K), or (k, pieces of rows)."""
    span = SWIZZLES[swizzle].span // PIECE
    plain = swizzle == "none"
    if not mn_major:
        row = np.arange(rows, dtype=np.int64)[:, None]
        piece = np.arange(k_bytes // PIECE, dtype=np.int64)[None, :]
        across = piece * (leading if plain else PIECE)
        return (row % 8) * span * PIECE + (row // 8) * stride + across
    k = np.arange(k_bytes * 8 // width, dtype=np.int64)[:, None]
    piece = np.arange(rows * width // (8 * PIECE), dtype=np.int64)[None, :]
    if plain:
        return (k % 8) * PIECE + (k // 8) * leading + piece * stride
    atom = 4 if swizzle == "128B_32B" else 8
    down = (k % atom) * span * PIECE + (k // atom) * stride
    return down + (piece % span) * PIECE + (piece // span) * leading


def pieces(
    descriptor: MatrixDescriptor, *, rows: int, k_bytes: int, width: int, mn_major: bool
) -> Addresses:
    """Byte addresses of the pieces of 16 bytes that a matrix is read from.

    Args:
        descriptor: where it lies.
        rows: M or N.
        k_bytes: K elements in bytes, packed: 32 for every dense instruction.
        width: bits of an element.
        mn_major: the rows, not K, are contiguous.

    Returns:
        (rows, k_bytes / 16), or (K, rows * width / 128) where `mn_major`.
    """
    offsets = _relative(
        descriptor.leading,
        descriptor.stride,
        descriptor.swizzle,
        rows=rows,
        k_bytes=k_bytes,
        width=width,
        mn_major=mn_major,
    )
    swizzle = SWIZZLES[descriptor.swizzle]
    return swizzle(descriptor.start + offsets, descriptor.base_offset)


def read_matrix(
    shared: Bits,
    descriptor: MatrixDescriptor,
    *,
    rows: int,
    k_bytes: int,
    width: int,
    mn_major: bool,
) -> Bits:
    """The codes of a matrix of rows x K elements.

    Args:
        shared: uint8 (..., bytes), bytes a multiple of 16, starting at shared address 0.
        descriptor: as `pieces`, as are the other arguments.
        rows: M or N.
        k_bytes: K elements in bytes.
        width: bits of an element: 8, 16 or 32. Narrower ones come as bytes, to be split.
        mn_major: the rows are contiguous.

    Returns:
        (..., rows, K) codes, unsigned.

    Raises:
        IndexError: a piece lies outside of shared memory.
    """
    where = pieces(descriptor, rows=rows, k_bytes=k_bytes, width=width, mn_major=mn_major)
    size = shared.shape[-1]
    if int(where.max()) >= size:
        raise IndexError(f"byte {int(where.max())} of {size} bytes of shared memory")
    whole = np.ascontiguousarray(shared).view(np.dtype(f"V{PIECE}"))
    taken = np.take(whole, where // PIECE, axis=-1)
    kind = np.dtype(f"u{max(1, width // 8)}")
    codes: Bits = taken.view(kind)
    return np.swapaxes(codes, -1, -2) if mn_major else codes
