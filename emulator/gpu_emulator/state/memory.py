"""Bytes of one state space, for all CTAs of a batch: bounds, alignment, what was written.

Global memory is one array of all allocations with guard zones between them. Shared memory has a
row for each CTA, local memory one for each thread.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np

from gpu_emulator.regions import Region
from gpu_emulator.types import Array
from gpu_emulator.values import Place

# Where global memory begins.
GLOBAL_BASE = 0x7F00_0000_0000
# An address of shared memory of another CTA of the cluster has its rank, plus one, up here.
CLUSTER_SHIFT = 24
_GUARD = 4096
_SIZES = {1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}
_ALL_WRITTEN = {size: int.from_bytes(b"\1" * size, "little") for size in (1, 2, 4, 8)}


class Trouble(Exception):  # noqa: N818 - what the program did, not what went wrong here
    """A fault of the program that runs; the machine adds where it happened, if it is not known."""

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(what)
        self.kind = kind
        self.what = what
        self.place: Place | None = None


class Memory:
    """A state space. Addresses begin at `base`; a row has `stride` bytes, 0 if it is one."""

    def __init__(
        self, name: str, data: Array, base: int, stride: int, regions: Sequence[Region]
    ) -> None:
        self.name = name
        self.base = base
        self.stride = stride
        self.regions = sorted(regions, key=lambda one: one.start)
        self.data = data
        self.views = {size: data.view(kind) for size, kind in _SIZES.items()}
        self.written: Array | None = None
        self._first_bytes = [one.start for one in self.regions]
        self._starts = np.array([one.start for one in self.regions], dtype=np.int64)
        self._ends = np.array([one.end for one in self.regions], dtype=np.int64)

    def track(self, written: Array) -> None:
        """Remember from now on which bytes were written."""
        self.written = written

    def check(self, offset: Array, size: int, what: str) -> None:
        """Trouble unless every offset into a row is aligned and `size` bytes lie in one region."""
        if size > 1 and (np.bitwise_or.reduce(offset, axis=None) & (size - 1)):
            bad = offset[(offset & (size - 1)) != 0].flat[0]
            raise Trouble(
                "memory_fault",
                f"{what} of {size} bytes at {self.where(int(bad))}, no multiple of {size}",
            )
        low, high = int(offset.min()), int(offset.max())
        at = self.region_of(low)
        if at >= 0 and high + size <= self.regions[at].end:
            return
        if not self.regions:
            raise Trouble(
                "memory_fault", f"{what} of {size} bytes at {self.where(low)}: it has none"
            )
        places = np.searchsorted(self._starts, offset, side="right") - 1
        # Not `offset + size`, which wraps at the end of the address space.
        outside = (places < 0) | (offset > self._ends[places] - size)
        if outside.any():
            bad = int(offset[outside].flat[0])
            count = int(outside.sum())
            raise Trouble(
                "memory_fault",
                f"{what} of {size} bytes at {self.where(bad)} is out of bounds ({count} threads)",
            )

    def region_of(self, offset: int) -> int:
        """The number of the last region that begins no later than at an offset; -1: none does."""
        return bisect_right(self._first_bytes, offset) - 1

    def where(self, offset: int) -> str:
        """An offset in words: which region it is in or next to."""
        at = self.region_of(offset)
        address = f"{self.name} address {hex((offset + self.base) % (1 << 64))}"
        if at < 0:
            return address
        one = self.regions[at]
        if offset < one.end or offset - one.end < _GUARD:
            size = one.end - one.start
            return f"{address} (byte {offset - one.start} of {one.name}, which has {size})"
        return address

    def load(self, index: Array, size: int) -> Array:
        """Elements of a size (1 to 16) at offsets into the data; checked before."""
        return self.views[size].take(index >> (size.bit_length() - 1))

    def store(self, index: Array, values: Array, size: int) -> None:
        """Write elements; where an offset occurs twice, the last one stays."""
        place = index >> (size.bit_length() - 1)
        self.views[size][place] = values
        if self.written is not None:
            self.written.view(_SIZES[size])[place] = _ONES[size]

    def unwritten(self, index: Array, size: int) -> Array | None:
        """Which of the elements have a byte that nothing wrote; None: not known, or none."""
        if self.written is None:
            return None
        flags = self.written.view(_SIZES[size]).take(index >> (size.bit_length() - 1))
        if size == 16:
            pair = np.ascontiguousarray(flags)[..., None].view("u8")
            missing = (pair != _ALL_WRITTEN[8]).any(axis=-1)
        else:
            missing = flags != _ALL_WRITTEN[size]
        return missing if missing.any() else None


_ONES = {size: np.frombuffer(b"\1" * size, dtype=kind)[0] for size, kind in _SIZES.items()}
