"""Which bytes `cp.async.bulk.tensor` moves: elements of global memory and of shared memory.

PTX ISA 5.5.3 to 5.5.7 (tiled mode, out-of-bounds accesses, swizzling modes) and 9.7.9.25
(`cp.async.bulk.tensor`, `cp.reduce.async.bulk.tensor`, `.tile::gather4`, `.tile::scatter4`).
A tile is n elements in the order of shared memory, innermost dimension first. Leading dimensions
are instructions, each with coordinates of its own.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from gpu_emulator.engines.swizzle import SWIZZLES, Addresses
from gpu_emulator.engines.tensor_maps import TileMap
from gpu_emulator.numbers import arithmetic
from gpu_emulator.numbers.conversion import convert
from gpu_emulator.numbers.formats import Bits

_FILL = b"\xf7\x7f"
"""Two bytes that make a NaN of every floating-point type, repeated."""
_ROW_UNIT = 16


@cache
def _grid(box: tuple[int, ...], steps: tuple[int, ...]) -> tuple[Addresses, ...]:
    """For each dimension, the coordinate of each element of a box relative to its corner."""
    # The innermost dimension has no step without interleave.
    counts = [box[0], *(-(-b // s) for b, s in zip(box[1:], steps[1:], strict=True))]
    taken = [np.arange(counts[0], dtype=np.int64)]
    taken += [np.arange(c, dtype=np.int64) * s for c, s in zip(counts[1:], steps[1:], strict=True)]
    whole = np.meshgrid(*reversed(taken), indexing="ij")
    return tuple(axis.ravel() for axis in reversed(whole))


def tile_elements(
    tile: TileMap, coordinates: Addresses, *, writes: bool = False
) -> tuple[Addresses, NDArray[np.bool_]]:
    """Global addresses of the elements of tiles, and which of them are in bounds.

    Args:
        tile: the tensor map.
        coordinates: int64 (..., rank): the corner of each tile, innermost first; may be negative.
        writes: for a store or a reduction. An H200 writes whole units of 16 bytes: where a row of
            the tensor ends inside of one, up to 15 bytes of the padding behind it are written.

    Returns:
        Byte addresses (..., n) and bool (..., n). An address out of bounds is not to be accessed.
    """
    strides = (tile.element_bytes, *tile.strides)
    width = tile.sizes[0]
    if writes:
        width = -(-width * tile.element_bytes // _ROW_UNIT) * _ROW_UNIT // tile.element_bytes
    grid = _grid(tile.box, tile.element_strides)
    address = np.full((*coordinates.shape[:-1], grid[0].size), tile.address, dtype=np.int64)
    inside = np.ones(address.shape, dtype=np.bool_)
    for dimension, (relative, size, stride) in enumerate(
        zip(grid, (width, *tile.sizes[1:]), strides, strict=True)
    ):
        place = coordinates[..., dimension, None] + relative
        address += place * stride
        inside &= (place >= 0) & (place < size)
    return address, inside


def gathered(
    tile: TileMap, column: Addresses, rows: Addresses
) -> tuple[Addresses, NDArray[np.bool_]]:
    """`.tile::gather4` and `.tile::scatter4`: four rows of a tensor of two dimensions.

    Args:
        tile: a map whose box has one row.
        column: int64 (...), the first element of each row.
        rows: int64 (..., 4).

    Returns:
        As `tile_elements`: the rows one after the other.

    Raises:
        ValueError: the map has another shape.
    """
    if tile.rank != 2 or tile.box[1] != 1:
        raise ValueError(
            "gather4 and scatter4 take a tensor of two dimensions and a box of one row"
        )
    corner = np.stack(np.broadcast_arrays(column[..., None], rows), axis=-1)
    address, inside = tile_elements(tile, corner)
    return (address.reshape(*rows.shape[:-1], -1), inside.reshape(*rows.shape[:-1], -1))


def misaligned(tile: TileMap, coordinates: Addresses) -> NDArray[np.bool_]:
    """Which tiles (...) do not start at a multiple of 16 bytes of their innermost dimension.

    The PTX ISA does not say so, but an H200 takes that for an illegal instruction.
    """
    start: Addresses = coordinates[..., 0] * tile.element_bytes
    wrong: NDArray[np.bool_] = start % _ROW_UNIT != 0
    return wrong


def tile_bytes(tile: TileMap, *, rows: int = 1) -> int:
    """Bytes that one instruction moves, also for what is out of bounds: what an mbarrier counts.

    `rows` is 4 for gather4 and scatter4.
    """
    return _grid(tile.box, tile.element_strides)[0].size * tile.element_bytes * rows


def shared_addresses(tile: TileMap, start: int, *, rows: int = 1) -> Addresses:
    """Shared addresses (n,) of the elements of a tile that starts at `start`.

    Elements follow each other without gaps; the swizzle permutes the addresses. A row of the box
    that is shorter than the swizzle still takes as many bytes as the swizzle (so does an H200).
    """
    row = tile.box[0]
    count = tile_bytes(tile, rows=rows) // (row * tile.element_bytes)
    pitch = max(row * tile.element_bytes, tile.swizzle)
    line = np.arange(count, dtype=np.int64)[:, None] * pitch
    within = np.arange(row, dtype=np.int64)[None, :] * tile.element_bytes
    plain = (start + line + within).ravel()
    if not tile.swizzle:
        return plain
    name = f"{tile.swizzle}B" if tile.atom == "16B" else f"{tile.swizzle}B_{tile.atom}"
    return SWIZZLES[name](plain)


def _format(tile: TileMap) -> str:
    return tile.element.removesuffix("_ftz")


def fill_bits(tile: TileMap) -> int:
    """The bits of an element out of bounds: zero, or the NaN that an H200 fills in."""
    if not tile.nan_fill or tile.element[0] in "us":
        return 0
    return int.from_bytes(_FILL * (tile.element_bytes // len(_FILL)), "little")


def loaded(tile: TileMap, elements: Bits, inside: NDArray[np.bool_]) -> Bits:
    """What a load writes to shared memory.

    Args:
        tile: the tensor map.
        elements: (..., n) elements as unsigned integers; anything where `inside` is False.
        inside: from `tile_elements`.

    Returns:
        The elements with the fill value out of bounds, and tf32 rounded to nearest even. A type
        with `_ftz` flushes nothing here, only in reductions (so does an H200).
    """
    if _format(tile) == "tf32":
        elements = convert(elements, "tf32", "f32", rounding="rn")
    if inside.all():
        return elements
    return np.where(inside, elements, elements.dtype.type(fill_bits(tile)))


def reduced(tile: TileMap, operation: str, old: Bits, new: Bits) -> Bits:
    """`cp.reduce.async.bulk.tensor`: the new elements of global memory.

    Args:
        tile: the tensor map; its element type decides the arithmetic.
        operation: add, min, max, inc, dec, and, or, xor.
        old: elements of global memory, unsigned.
        new: elements of shared memory.

    Returns:
        Elements. f16 and bf16 are rounded to nearest even and keep subnormal numbers.

    Raises:
        ValueError: there is no such operation on this type.
    """
    name = _format(tile)
    kind = old.dtype
    if operation in ("and", "or", "xor"):
        return {"and": old & new, "or": old | new, "xor": old ^ new}[operation]
    if name[0] in "us":
        signed = np.dtype(f"i{kind.itemsize}") if name[0] == "s" else kind
        a, b = old.view(signed), new.view(signed)
        if operation == "add":
            total: Bits = (a + b).view(kind)
            return total
        if operation in ("min", "max"):
            extreme: Bits = np.minimum(a, b) if operation == "min" else np.maximum(a, b)
            return extreme.astype(signed, copy=False).view(kind)
        if operation == "inc":
            return np.where(old >= new, kind.type(0), old + kind.type(1))
        if operation == "dec":
            return np.where((old == 0) | (old > new), new, old - kind.type(1))
    elif operation == "add":
        return arithmetic.add(name, old, new, ftz=tile.element.endswith("_ftz"))
    elif operation in ("min", "max"):
        return arithmetic.extremum(name, old, new, largest=operation == "max")
    raise ValueError(f"there is no tensor reduction {operation} on {tile.element}")
