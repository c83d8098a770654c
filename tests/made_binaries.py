"""Fatbins, and libraries that hold them, made byte by byte from cubins and PTX."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import lz4.block
import zstandard

CUBINS = Path(__file__).parent / "data" / "cubins"
PTX, CUBIN = 1, 2
PACKED = {"as it is": 0, "lz4": 0x2000, "zstd": 0x8000}


def entry(kind: int, data: bytes, packed: str = "as it is", *, size: int | None = None) -> bytes:
    """An entry; `size` is what it claims to unpack to."""
    body = data
    if packed == "lz4":
        body = lz4.block.compress(data, store_size=False)
    elif packed == "zstd":
        body = zstandard.ZstdCompressor().compress(data)
    own = len(body) if PACKED[packed] else 0
    body += bytes(-len(body) % 8)
    size = (len(data) if PACKED[packed] else 0) if size is None else size
    words = (kind, 0x101, 64, len(body), own, 0, 7, 1, 90, 0, 0, 0x11 | PACKED[packed], 0, size)
    return struct.pack("<HHIQIIHHIIIQQQ", *words) + body


def fatbin(*entries: bytes) -> bytes:
    whole = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(whole)) + whole


def library(sections: Mapping[str, bytes]) -> bytes:
    """An ELF file for x86-64 that has these sections, and is good for nothing else."""
    names = b"\0" + b"".join(f"{name}\0".encode() for name in sections) + b".shstrtab\0"
    parts: Sequence[bytes] = (*sections.values(), names)
    body, headers, named = b"", bytes(64), 1
    for part in parts:
        place = 64 + len(body)
        kind = 3 if part is names else 1
        headers += struct.pack("<IIQQQQIIQQ", named, kind, 0, 0, place, len(part), 0, 0, 8, 0)
        named = names.index(b"\0", named) + 1
        body += part + bytes(-len(part) % 8)
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    head = struct.pack(
        "<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, 64 + len(body), 0, 64, 0, 0, 64, len(parts) + 1,
        len(parts),
    )  # fmt: skip
    return ident + head + body + headers


def cubin(name: str) -> bytes:
    """A real one, as `VERSION/KERNEL-TARGET`."""
    return (CUBINS / f"{name}.cubin").read_bytes()
