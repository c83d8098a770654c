"""Swizzles of shared memory: which 16 bytes of a row of 128 bytes lie where.

PTX ISA 5.5.7 ("Swizzling modes" of tensor maps) and 9.7.15.5.1 ("Swizzling modes" of matrix
descriptors): the same function of the shared address for both, so that a tile that a tensor map
writes is what a descriptor reads. An address is changed by the exclusive or of a field of its bits
with the number of its row of 128 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
