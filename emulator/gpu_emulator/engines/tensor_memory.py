"""Tensor memory: 128 lanes x 512 columns x 32 bits of each CTA, and how warps reach it.

PTX ISA 9.7.16.1 (tensor memory), 9.7.16.7 (alloc, dealloc), 9.7.16.8 (ld, st), 9.7.16.9 (cp,
shift). An address is lane << 16 | column. In the functions below tensor memory is uint32
(..., 128, 512); indices are arrays that the machine applies itself where it watches accesses.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

import numpy as np
from numpy.typing import NDArray

from gpu_emulator.engines.fragments import LANES
from gpu_emulator.numbers.formats import Bits

ROWS, COLUMNS = 128, 512
_LEAST = 32
_SLAB = 32
"""Lanes that one warp of a warpgroup may reach."""

Index = NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Cells of tensor memory by lane and column, for each (lane of the warp, register).

    Where `packed`, a register holds the lower halves of a cell and of the next column.
    """

    lane: Index
    column: Index
    packed: bool = False


def address_parts(address: int) -> tuple[int, int]:
    """Lane and column of an address."""
    return (address >> 16) & 0xFFFF, address & 0xFFFF


def may_access(lane: int, warp: int, rows: int) -> bool:
    """Whether a warp (its number in the CTA) may reach `rows` lanes from `lane` on."""
    first = _SLAB * (warp % 4)
    return first <= lane and lane + rows <= first + _SLAB


@cache
def warp_cells(shape: str, repeat: int, *, split: int = 0, packed: bool = False) -> Cells:
    """What `tcgen05.ld` and `tcgen05.st` move, relative to their address.

    Args:
        shape: 32x32b, 16x64b, 16x128b, 16x256b or 16x32bx2.
        repeat: the number of `.xN`.
        split: `immHalfSplitoff` of 16x32bx2: columns from the first half to the second.
        packed: `.pack::16b` or `.unpack::16b`: twice as many columns for the same registers.

    Returns:
        Cells with arrays (32, registers).

    Raises:
        ValueError: there is no such shape.
    """
    lane = np.arange(LANES)[:, None]
    count = {"32x32b": 1, "16x64b": 1, "16x128b": 2, "16x256b": 4, "16x32bx2": 1}.get(shape)
    if count is None:
        raise ValueError(f"tensor memory has no shape {shape}")
    register = np.arange(count * repeat)[None, :]
    step = 2 if packed else 1
    if shape == "32x32b":
        row, column = lane, register * step
    elif shape == "16x64b":
        row, column = lane // 4 + 8 * (lane % 2), (lane // 2 % 2 + 2 * register) * step
    elif shape == "16x128b":
        row, column = lane // 4 + 8 * (register % 2), (lane % 4 + 4 * (register // 2)) * step
    elif shape == "16x256b":
        row = lane // 4 + 8 * (register // 2 % 2)
        column = (register % 2 + 2 * (lane % 4) + 8 * (register // 4)) * step
    else:
        row, column = lane % 16, register * step + split * (lane // 16)
    row, column = np.broadcast_arrays(row, column)
    return Cells(row, column, packed)


def load(memory: Bits, cells: Cells, lane: int, column: int) -> Bits:
    """`tcgen05.ld` from (lane, column): registers uint32 (..., 32, n).

    Raises:
        IndexError: a cell lies outside of tensor memory.
    """
    rows, columns = lane + cells.lane, column + cells.column
    values: Bits = memory[..., rows, columns]
    if not cells.packed:
        return values
    upper = memory[..., rows, columns + 1]
    joined: Bits = (values & np.uint32(0xFFFF)) | (upper << np.uint32(16))
    return joined


def store(memory: Bits, cells: Cells, lane: int, column: int, values: Bits) -> None:
    """`tcgen05.st` to (lane, column): writes registers (..., 32, n) into `memory`.

    Raises:
        IndexError: a cell lies outside of tensor memory.
    """
    rows, columns = lane + cells.lane, column + cells.column
    if not cells.packed:
        memory[..., rows, columns] = values
        return
    memory[..., rows, columns] = values & np.uint32(0xFFFF)
    memory[..., rows, columns + 1] = values >> np.uint32(16)


def shift_down(memory: Bits, lane: int, column: int) -> None:
    """`tcgen05.shift.down`: 32 bytes (8 columns) of each row but the last move to the next row.

    Read from the one sentence of the PTX ISA 9.7.16.9.3; the first row keeps what it has.
    """
    block = memory[..., lane:, column : column + 8]
    block[..., 1:, :] = block[..., :-1, :].copy()


@dataclass(slots=True)
class Allocator:
    """The columns of one CTA's tensor memory: who holds which, and whether more may be asked for.

    The first free columns are handed out. `tcgen05.alloc` blocks while there are none.
    """

    held: dict[int, int] = field(default_factory=dict)
    relinquished: bool = False

    def allocate(self, columns: int) -> int | None:
        """The first column of a block, or None where the caller has to wait.

        Raises:
            ValueError: the number of columns is not a power of two from 32 to 512, or the permit
                was given up.
        """
        if columns not in (32, 64, 128, 256, 512):
            raise ValueError(
                f"tcgen05.alloc of {columns} columns: it takes 32, 64, 128, 256 or 512"
            )
        if self.relinquished:
            raise ValueError("tcgen05.alloc after tcgen05.relinquish_alloc_permit")
        for start in range(0, COLUMNS - columns + 1, _LEAST):
            if all(
                start >= first + size or first >= start + columns
                for first, size in self.held.items()
            ):
                self.held[start] = columns
                return start
        return None

    def free(self, column: int, columns: int) -> None:
        """Give a block back.

        Raises:
            ValueError: no block of this size starts there.
        """
        if self.held.get(column) != columns:
            raise ValueError(f"tcgen05.dealloc: no block of {columns} columns starts at {column}")
        del self.held[column]

    def relinquish(self) -> None:
        """`tcgen05.relinquish_alloc_permit`."""
        self.relinquished = True
