"""Which element of a matrix each lane of a warp holds: fragments of `mma.sync` and `ldmatrix`.

Source: PTX ISA 9.7.14.5, the figures of "Matrix Fragments for mma.m16n8k16" and its siblings;
all follow one rule. Lane l is g = l / 4, t = l % 4. A register holds e = 32 / width elements.
    A: register r holds row g + 8 * (r % h) and columns 4e * (r / h) + e * t + part,
       where h = rows / 8 (2 for m16, 1 for m8);
    B: register r holds column g and rows 4e * r + e * t + part;
    C, D: two neighbouring columns 2t and 2t + 1, rows g and then g + 8.
f64 has one element to a register (e = 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from gpu_emulator.numbers.formats import Bits

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

        Raises:
            ValueError: an element is held by no lane, or by more than one.
        """
        row, column = np.broadcast_arrays(row, column)
        flat = (row * shape[1] + column).ravel()
        if not np.array_equal(np.sort(flat), np.arange(shape[0] * shape[1])):
            raise ValueError(f"not every element of {shape} is held exactly once")
        return cls(shape, row, column, np.argsort(flat))

    def gather(self, held: NDArray[np.generic]) -> Bits:
        """(..., lanes, slots) elements as a matrix (..., rows, columns)."""
        flat = held.reshape(*held.shape[:-2], -1)
        taken: Bits = np.take(flat, self.source, axis=-1)
        return taken.reshape(*held.shape[:-2], *self.shape)

    def scatter(self, matrix: NDArray[np.generic]) -> Bits:
        """A matrix (..., rows, columns) as (..., lanes, slots) elements."""
        held: Bits = matrix[..., self.row, self.column]
        return held


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


def elements(held: Bits, width: int) -> Bits:
    """Split registers (..., n) into elements (..., n * parts), the least significant first.

    Args:
        held: uint32 registers (uint64 for a width of 64).
        width: bits of an element: 1, 2, 4, 8, 16, 32 or 64.

    Returns:
        uint8, uint16, uint32 or uint64.
    """
    if width == 64:
        return held.astype(np.uint64, copy=False)
    words = np.ascontiguousarray(held.astype(np.uint32, copy=False))
    if width >= 8:
        parts: Bits = words.view(np.dtype(f"u{width // 8}"))
        return parts
    shifts = np.arange(0, 8, width, dtype=np.uint8)
    small: Bits = (words.view(np.uint8)[..., None] >> shifts) & np.uint8((1 << width) - 1)
    return small.reshape(*held.shape[:-1], -1)


def registers(parts: Bits, width: int) -> Bits:
    """The inverse of `elements`: (..., n * parts) elements as (..., n) registers."""
    if width == 64:
        return parts.astype(np.uint64, copy=False)
    if width >= 8:
        whole = np.ascontiguousarray(parts.astype(np.dtype(f"u{width // 8}"), copy=False))
        words: Bits = whole.view(np.uint32)
        return words
    per_byte = 8 // width
    grouped = parts.astype(np.uint8).reshape(*parts.shape[:-1], -1, per_byte)
    shifts = np.arange(0, 8, width, dtype=np.uint8)
    small: Bits = np.bitwise_or.reduce(grouped << shifts, axis=-1)
    packed: Bits = np.ascontiguousarray(small).view(np.uint32)
    return packed
