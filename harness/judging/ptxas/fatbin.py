"""Read fatbins: the containers in which nvcc ships machine code and PTX for several targets.

The format is not documented. What is used here was read off libraries made by CUDA 11.8 to 13.2
and agrees with what cuobjdump 13.5.37 extracts of them:

- A section `.nv_fatbin` (or `__nv_relfatbin`: what is linked on the device before it runs) holds
  fatbins one behind another, with padding between. Each is a magic number, a version and the size
  of its header (16 bits each), and the size of its entries (64 bits).
- An entry has a header of 64 bytes or more: kind (1 PTX, 2 a cubin) and version, its header's size,
  its payload's size with padding, the payload's own size if compressed, ... the architecture at 28,
  flags at 40, and at 56 the size that it unpacks to.
- Flag 0x2000: an LZ4 block. 0x8000: a Zstandard frame.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Protocol

import msgspec

MAGIC = b"\x50\xed\x55\xba"
PTX, CUBIN = 1, 2
_HEADER = struct.Struct("<IHHQ")
_ENTRY = struct.Struct("<HHIQIIHHIIIQQQ")
_LZ4, _ZSTD = 0x2000, 0x8000


class FatbinError(ValueError):
    """The bytes are not whole fatbins; the message says what is wrong with them."""


class Readable(Protocol):
    """Bytes, or a file that is mapped into memory."""

    def find(self, sub: bytes, start: int, end: int, /) -> int:
        """Where they are found; negative for nowhere."""
        ...

    def __getitem__(self, part: slice, /) -> bytes: ...


class FatbinEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One payload; `size` is what it unpacks to, in bytes."""

    kind: int
    flags: int
    payload: bytes
    size: int

    def unpacked(self, most: int) -> bytes:
        """The payload as it was before it was compressed.

        Raises:
            FatbinError: it is damaged, has more than `most` bytes, or cannot be unpacked here.
        """
        if self.size > most:
            raise FatbinError(f"an entry of {self.size:,} bytes: more than is unpacked")
        name = "zstandard" if self.flags & _ZSTD else "lz4"
        try:
            data = self._unpacked()
        except ImportError as error:
            raise FatbinError(f"an entry is compressed: install the package {name}") from error
        except Exception as error:
            raise FatbinError(f"a damaged entry: {name} says: {error}") from error
        if len(data) != self.size:
            raise FatbinError(f"a damaged entry: {len(data):,} bytes, not {self.size:,}")
        return data

    def _unpacked(self) -> bytes:
        if self.flags & _ZSTD:
            import zstandard  # noqa: PLC0415 - few files need it

            # The library allocates what the frame claims, whatever the limit.
            if zstandard.frame_content_size(self.payload) not in (-1, self.size):
                raise ValueError("another size in the frame")
            whole = zstandard.ZstdDecompressor()
            return bytes(whole.decompress(self.payload, max_output_size=self.size))
        if self.flags & _LZ4:
            import lz4.block  # noqa: PLC0415 - as above

            return bytes(lz4.block.decompress(self.payload, uncompressed_size=self.size))
        return self.payload


def read_fatbins(data: Readable, start: int, stop: int) -> Iterator[FatbinEntry]:
    """The entries of the fatbins that lie between two places, in order.

    Raises:
        FatbinError: one is cut off or damaged; those before it were given.
    """
    at = start
    while (at := data.find(MAGIC, at, stop)) >= 0:
        if at + _HEADER.size > stop:
            raise FatbinError(f"a fatbin is cut off at {at:,}")
        _, _, header, size = _HEADER.unpack(data[at : at + _HEADER.size])
        at, end = at + header, at + header + size
        if header < _HEADER.size or end > stop:
            raise FatbinError(f"a fatbin is cut off: it ends at {end:,} of {stop:,}")
        while at + _ENTRY.size <= end:
            kind, _, header, padded, own, *_, flags, _, size = _ENTRY.unpack(
                data[at : at + _ENTRY.size]
            )
            body, at = at + header, at + header + padded
            if header < _ENTRY.size or at > end or own > padded:
                raise FatbinError(f"a damaged entry: it ends at {at:,} of {end:,}")
            is_packed = flags & (_LZ4 | _ZSTD)
            payload = data[body : body + own if is_packed else at]
            yield FatbinEntry(
                kind=kind, flags=flags, payload=payload, size=size if is_packed else padded
            )
        at = end
