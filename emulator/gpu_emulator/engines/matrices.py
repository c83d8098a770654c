"""Swizzles of shared memory: which 16 bytes of a row of 128 bytes lie where.

PTX ISA 5.5.7 ("Swizzling modes" of tensor maps) and 9.7.15.5.1 ("Swizzling modes" of matrix
descriptors): the same function of the shared address for both, so that a tile that a tensor map
writes is what a descriptor reads. An address is changed by the exclusive or of a field of its bits
with the number of its row of 128 bytes.

Which element of a matrix each lane of a warp holds: fragments of `mma.sync` and `ldmatrix`.

Source: PTX ISA 9.7.14.5, the figures of "Matrix Fragments for mma.m16n8k16" and its siblings;
all follow one rule. Lane l is g = l / 4, t = l % 4. A register holds e = 32 / width elements.
    A: register r holds row g + 8 * (r % h) and columns 4e * (r / h) + e * t + part,
       where h = rows / 8 (2 for m16, 1 for m8);
    B: register r holds column g and rows 4e * r + e * t + part;
    C, D: two neighbouring columns 2t and 2t + 1, rows g and then g + 8.
f64 has one element to a register (e = 1).

`ldmatrix`, `stmatrix` and `movmatrix`: 8 x 8 matrices between rows of shared memory and lanes.
Source: PTX ISA 9.7.14.5.15 to 9.7.14.5.17; for the transposed bytes of sm_100 the layouts that
CUTLASS states for its copy atoms (`copy_traits_sm100.hpp`), as bit positions. The machine reads or
writes the rows: lane 8i + j has the address of row j of matrix i (m16n16: lane 16i + j).

Operands of wgmma and tcgen05.mma in shared memory, found through matrix descriptors. Sources: PTX
ISA 9.7.15.5.1.2 ("Matrix Descriptor" of wgmma, "Strides", "Canonical layouts") and 9.7.16.4
("Shared memory descriptor" of tcgen05). A matrix is read in pieces of 16 bytes, which is what the
canonical layouts count in. In the tables below q is the span of the swizzle in pieces:

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
from numpy.typing import NDArray

from gpu_emulator.numbers.formats import Bits

Addresses = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Swizzle:
    """`bits` address bits from `low` up are changed by those that lie `shift` higher.

    `span` is the bytes of a row that are permuted among themselves.
    """

    span: int
    bits: int
    low: int = 4
    shift: int = 3

    def __call__(self, address: Addresses, base_offset: int | Addresses = 0) -> Addresses:
        """Shared addresses in bytes, any shape, as the hardware permutes them.

        `base_offset` (0 - 7) is the row of 128 bytes at which the pattern starts, where that is not
        a multiple of 8 rows.
        """
        if not self.bits:
            return address
        row = (address >> (self.low + self.shift)) - base_offset
        field = row & ((1 << self.bits) - 1)
        return address ^ (field << self.low)


SWIZZLES = {
    "none": Swizzle(16, 0),
    "32B": Swizzle(32, 1),
    "64B": Swizzle(64, 2),
    "128B": Swizzle(128, 3),
    # 32 bytes stay together.
    "128B_32B": Swizzle(128, 2, 5, 2),
}
"""By the name of the swizzle, with the size of its atom where that is not 16 bytes."""


LANES = 32
Index = NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Where the elements of a rows x columns matrix are: one (row, column) for each (lane, slot).

    A slot is one element of a lane, in order of registers and, in each, from the least
    significant part up. `row` and `column` have shape (lanes, slots). `source` is the inverse:
    for each element, in row order, its place in the flattened (lanes, slots).
    """

    shape: tuple[int, int]
    row: Index
    column: Index
    source: Index

    @classmethod
    def of(cls, shape: tuple[int, int], row: Index, column: Index) -> Layout:
        """A layout with its inverse.

        Raises `ValueError`: an element is held by no lane, or by more than one.
        """
        row, column = np.broadcast_arrays(row, column)
        flat = (row * shape[1] + column).ravel()
        if not np.array_equal(np.sort(flat), np.arange(shape[0] * shape[1])):
            raise ValueError(f"not every element of {shape} is held exactly once")
        return cls(shape, row, column, np.argsort(flat))

    def gather(self, parts: NDArray[np.generic]) -> Bits:
        """(..., lanes, slots) elements as a matrix (..., rows, columns)."""
        flat = parts.reshape(*parts.shape[:-2], -1)
        taken: Bits = np.take(flat, self.source, axis=-1)
        return taken.reshape(*parts.shape[:-2], *self.shape)

    def scatter(self, matrix: NDArray[np.generic]) -> Bits:
        """A matrix (..., rows, columns) as (..., lanes, slots) elements."""
        return matrix[..., self.row, self.column]


def _lanes(slots: int) -> tuple[Index, Index, Index]:
    """Group g and thread t of each lane, as columns, and the slots, as a row."""
    lane = np.arange(LANES)[:, None]
    return lane // 4, lane % 4, np.arange(slots)[None, :]


@cache
def operand_a(rows: int, k: int, width: int) -> Layout:
    """A of `mma.sync`: rows (8 or 16) x k elements of `width` bits."""
    part = max(1, 32 // width)
    halves = rows // 8
    g, t, slot = _lanes(rows * k // LANES)
    register, within = slot // part, slot % part
    row = g + 8 * (register % halves)
    column = 4 * part * (register // halves) + part * t + within
    return Layout.of((rows, k), row, column)


@cache
def operand_b(k: int, width: int) -> Layout:
    """B of `mma.sync`: k x 8 elements of `width` bits."""
    part = max(1, 32 // width)
    g, t, slot = _lanes(k * 8 // LANES)
    row = 4 * part * (slot // part) + part * t + slot % part
    return Layout.of((k, 8), row, g)


@cache
def accumulator(rows: int) -> Layout:
    """C and D of `mma.sync`: rows (8 or 16) x 8, of any width."""
    g, t, slot = _lanes(rows * 8 // LANES)
    return Layout.of((rows, 8), g + 8 * (slot // 2), 2 * t + slot % 2)


def elements(words: Bits, width: int) -> Bits:
    """Split registers (..., n) into elements (..., n * parts), the least significant first.

    `words`: uint32 registers (uint64 for a width of 64). `width`: bits of an element: 1, 2, 4, 8,
    16, 32 or 64. Returns uint8, uint16, uint32 or uint64.
    """
    if width == 64:
        return words.astype(np.uint64, copy=False)
    words = np.ascontiguousarray(words.astype(np.uint32, copy=False))
    if width >= 8:
        return words.view(np.dtype(f"u{width // 8}"))
    shifts = np.arange(0, 8, width, dtype=np.uint8)
    small: Bits = (words.view(np.uint8)[..., None] >> shifts) & np.uint8((1 << width) - 1)
    return small.reshape(*words.shape[:-1], -1)


def registers(parts: Bits, width: int) -> Bits:
    """The inverse of `elements`: (..., n * parts) elements as (..., n) registers."""
    if width == 64:
        return parts.astype(np.uint64, copy=False)
    if width >= 8:
        whole = np.ascontiguousarray(parts.astype(np.dtype(f"u{width // 8}"), copy=False))
        return whole.view(np.uint32)
    per_byte = 8 // width
    grouped = parts.astype(np.uint8).reshape(*parts.shape[:-1], -1, per_byte)
    shifts = np.arange(0, 8, width, dtype=np.uint8)
    small: Bits = np.bitwise_or.reduce(grouped << shifts, axis=-1)
    return np.ascontiguousarray(small).view(np.uint32)


@cache
def _pairs(*, transposed: bool) -> Layout:
    """8 x 8 elements of 16 bits: lane l holds row l / 4, columns 2 (l % 4) and the next."""
    layout = accumulator(8)
    return Layout.of((8, 8), layout.column, layout.row) if transposed else layout


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


def load_matrices(rows: Bits, *, transposed: bool) -> Bits:
    """`ldmatrix.m8n8.x1|x2|x4{.trans}.b16`.

    `rows`: uint8 (..., 8 n, 16): the 16 bytes at the address of each of the first 8 n lanes.
    `transposed`: `.trans`. Returns uint32 (..., 32, n) registers.
    """
    count = rows.shape[-2] // 8
    matrices = np.ascontiguousarray(rows).view(np.uint16).reshape(*rows.shape[:-2], count, 8, 8)
    words = registers(_pairs(transposed=transposed).scatter(matrices), 16)
    return np.moveaxis(words[..., 0], -2, -1)


def store_matrices(words: Bits, *, transposed: bool) -> Bits:
    """`stmatrix.m8n8.x1|x2|x4{.trans}.b16`: the inverse of `load_matrices`.

    `words`: uint32 (..., 32, n) registers. `transposed`: `.trans`. Returns uint8 (..., 8 n, 16):
    what goes to the address of each of the first 8 n lanes.
    """
    parts = elements(np.moveaxis(words, -1, -2)[..., None], 16)
    matrices = np.ascontiguousarray(_pairs(transposed=transposed).gather(parts))
    data: Bits = matrices.view(np.uint8)
    return data.reshape(*words.shape[:-2], -1, 16)


def move_matrix(words: Bits) -> Bits:
    """`movmatrix.m8n8.trans.b16`: uint32 (..., 32) registers, the matrix of the warp transposed."""
    matrix = _pairs(transposed=False).gather(elements(words[..., None], 16))
    return registers(_pairs(transposed=True).scatter(matrix), 16)[..., 0]


def load_bytes(rows: Bits) -> Bits:
    """`ldmatrix.m16n16.x1|x2.trans.b8`.

    `rows`: uint8 (..., 16 n, 16). Returns uint32 (..., 32, 2 n) registers.
    """
    count = rows.shape[-2] // 16
    matrices = rows.reshape(*rows.shape[:-2], count, 16, 16)
    words = registers(_quads().scatter(matrices), 8)
    return np.moveaxis(words, -3, -2).reshape(*rows.shape[:-2], LANES, 2 * count)


def store_bytes(words: Bits) -> Bits:
    """`stmatrix.m16n8.x1|x2|x4.trans.b8`: the columns of 16 x 8 matrices become rows.

    `words`: uint32 (..., 32, n) registers. Returns uint8 (..., 8 n, 16): what goes to the address
    of each of the first 8 n lanes.
    """
    parts = elements(np.moveaxis(words, -1, -2)[..., None], 8)
    matrices: Bits = np.swapaxes(accumulator(16).gather(parts), -1, -2)
    return matrices.reshape(*words.shape[:-2], -1, 16)


def unpack_row(rows: Bits, width: int) -> Bits:
    """16 packed elements of 4 or 6 bits as 16 bytes (`.b8x16.b4x16_p64`, `.b8x16.b6x16_p32`).

    The packed elements fill the first 8 or 12 of 16 bytes; each goes to the low bits of its byte.

    `rows`: uint8 (..., 16). `width`: 4 or 6.
    """
    bits = np.unpackbits(rows[..., : 2 * width], axis=-1, bitorder="little")
    grouped = bits.reshape(*rows.shape[:-1], 16, width)
    weights = (1 << np.arange(width)).astype(np.uint8)
    return (grouped * weights).sum(axis=-1, dtype=np.uint8)


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
        start=_field(value, 0, 14) << 4, leading=_field(value, 16, 14) << 4,
        stride=_field(value, 32, 14) << 4, base_offset=_field(value, 49, 3),
        swizzle=_WGMMA_SWIZZLES[_field(value, 62, 2)],
    )  # fmt: skip


def tcgen05_descriptor(value: int) -> MatrixDescriptor:
    """Take apart the 64 bits of a shared memory descriptor of tcgen05.

    The PTX ISA fixes bits 46 - 48 at 0b001. Triton 3.5 leaves them at zero, and its kernels run on
    GPUs, so the bits are not looked at.

    Raises `ValueError`: the swizzle does not exist, or the leading dimension is an absolute address
    (only K = 96 on sm_103a has that).
    """
    if _field(value, 52, 1):
        raise ValueError(f"matrix descriptor {value:#018x} has an absolute leading dimension")
    swizzle = _TCGEN05_SWIZZLES.get(_field(value, 61, 3))
    if swizzle is None:
        raise ValueError(f"matrix descriptor {value:#018x} has an unknown swizzle")
    return MatrixDescriptor(
        start=_field(value, 0, 14) << 4, leading=_field(value, 16, 14) << 4,
        stride=_field(value, 32, 14) << 4, base_offset=_field(value, 49, 3), swizzle=swizzle,
    )  # fmt: skip


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

    `descriptor`: where it lies. `rows`: M or N. `k_bytes`: K elements in bytes, packed: 32 for
    every dense instruction. `width`: bits of an element. `mn_major`: the rows, not K, are
    contiguous. Returns (rows, k_bytes / 16), or (K, rows * width / 128) where `mn_major`.
    """
    offsets = _relative(
        descriptor.leading, descriptor.stride, descriptor.swizzle, rows=rows, k_bytes=k_bytes,
        width=width, mn_major=mn_major,
    )  # fmt: skip
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

    `shared`: uint8 (..., bytes), bytes a multiple of 16, starting at shared address 0.
    `descriptor`: as `pieces`, as are the other arguments. `rows`: M or N. `k_bytes`: K elements in
    bytes. `width`: bits of an element: 8, 16 or 32. Narrower ones come as bytes, to be split.
    `mn_major`: the rows are contiguous. Returns (..., rows, K) codes, unsigned. Raises
    `IndexError`: a piece lies outside of shared memory.
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
