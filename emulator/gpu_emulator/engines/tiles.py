"""Tensor maps, and which bytes `cp.async.bulk.tensor` moves.

PTX ISA 5.5 (tensors), 9.7.9.25 (`cp.async.bulk.tensor`, `cp.reduce.async.bulk.tensor`,
`.tile::gather4`, `.tile::scatter4`), 9.7.9.27 (`tensormap.replace`); CUDA driver API,
`cuTensorMapEncodeTiled`, for the limits. A tile is n elements in the order of shared memory,
innermost dimension first. Leading dimensions are instructions, each with coordinates of its own.
NVIDIA does not document the 128 bytes of a map. Fields lie here where ptxas 13.5.37 has
`tensormap.replace` write them, for sm_90a and for sm_100a alike, so that cubins can do that, too;
what else hardware keeps there (how L2 is filled, for instance) is zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from gpu_emulator.engines.matrices import SWIZZLES, Addresses
from gpu_emulator.numbers.arithmetic import combine
from gpu_emulator.numbers.conversion import convert
from gpu_emulator.numbers.formats import Bits

MAP_BYTES = 128
ELEMENTS = (
    "u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f32_ftz", "f64", "bf16", "tf32",
    "tf32_ftz", "b4x16", "b4x16_p64", "b6x16_p32",
)  # fmt: skip
"""Element types in the order of `tensormap.replace.tile.elemtype`."""
_SIZES = {
    "u8": 1, "u16": 2, "u32": 4, "s32": 4, "u64": 8, "s64": 8, "f16": 2, "f32": 4, "f32_ftz": 4,
    "f64": 8, "bf16": 2, "tf32": 4, "tf32_ftz": 4,
}  # fmt: skip
_INTERLEAVES = (0, 16, 32)
_SWIZZLES = (0, 32, 64, 128)
_ATOMS = ("16B", "32B", "32B_flip_8B", "64B")
_DIMENSIONS = 5
_TF32 = 80
"""The bit that makes an f32 (or f32_ftz) of the element type a tf32."""
# Of each field of `replace` the first bit, how many, and how far the next dimension is.
_FIELDS = {
    "global_address": (0, 64, 0), "rank": (68, 3, 0), "elemtype": (71, 4, 0),
    "interleave_layout": (75, 2, 0), "swizzle_mode": (77, 2, 0), "fill_mode": (79, 1, 0),
    "swizzle_atomicity": (83, 2, 0), "global_stride": (96, 32, 32), "global_dim": (256, 32, 32),
    "element_stride": (416, 3, 3), "box_dim": (440, 8, 8),
}  # fmt: skip
_UPPER_STRIDE = 224
"""Where the upper 4 bits of each stride are; strides are in units of 16 bytes."""
_LESS_ONE = ("global_dim", "element_stride", "box_dim")


@dataclass(frozen=True, slots=True, kw_only=True)
class TileMap:
    """A tensor in global memory and the tile that one instruction moves.

    Dimensions are innermost first, one to five. `sizes` and `box` are in elements, `strides` in
    bytes for all dimensions but the innermost. `element_strides`: every how manyth element of the
    box is taken. `swizzle` and `interleave` are in bytes, 0 for none; `atom` names the bytes that a
    swizzle of 128 bytes keeps together. Elements out of bounds read as a NaN with `nan_fill`, else
    as zero.
    """

    address: int
    element: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    interleave: int = 0
    swizzle: int = 0
    atom: str = "16B"
    nan_fill: bool = False

    @property
    def rank(self) -> int:
        return len(self.sizes)

    @property
    def element_bytes(self) -> int:
        """Size of an element.

        Raises `ValueError`: elements are packed below a byte, which is not known here.
        """
        if self.element not in _SIZES:
            raise ValueError(f"tensor maps of {self.element} are not known")
        return _SIZES[self.element]

    def problem(self) -> str | None:
        """What the driver would refuse, as a sentence, or None.

        From `cuTensorMapEncodeTiled`: addresses and strides are multiples of 16 bytes, a box has 1
        to 256 elements a dimension and its rows are multiples of 16 bytes, no longer than the
        swizzle.
        """
        if self.element not in _SIZES:
            return f"tensor maps of {self.element} are not known"
        if self.interleave:
            return "interleaved tensor maps are not known"
        if self.atom != "16B" and (self.swizzle != 128 or self.atom != "32B"):
            return f"a swizzle of {self.swizzle} bytes with atoms of {self.atom} is not known"
        row = self.box[0] * self.element_bytes
        complaints = (
            (self.address % 16, f"its address {self.address:#x} is not a multiple of 16"),
            (any(s % 16 for s in self.strides), f"strides {self.strides}: not multiples of 16"),
            (not all(1 <= b <= 256 for b in self.box), f"its box {self.box} is not of 1 - 256"),
            (not all(self.sizes), f"a dimension of {self.sizes} has no elements"),
            (
                not all(1 <= e <= 8 for e in self.element_strides),
                f"element strides {self.element_strides} are not of 1 - 8",
            ),
            (row % 16, f"a row of the box has {row} bytes, not a multiple of 16"),
            (
                self.swizzle and row > self.swizzle,
                f"a row of the box has {row} bytes, more than its swizzle of {self.swizzle}",
            ),
        )
        return next((text for wrong, text in complaints if wrong), None)

    def encode(self) -> bytes:
        single = {
            "global_address": self.address, "rank": self.rank - 1,
            "elemtype": ELEMENTS.index(self.element),
            "interleave_layout": _INTERLEAVES.index(self.interleave),
            "swizzle_mode": _SWIZZLES.index(self.swizzle), "fill_mode": int(self.nan_fill),
            "swizzle_atomicity": _ATOMS.index(self.atom),
        }  # fmt: skip
        raw = bytes(MAP_BYTES)
        for field, value in single.items():
            raw = replace(raw, field, value)
        several = {
            "global_dim": self.sizes, "global_stride": self.strides, "box_dim": self.box,
            "element_stride": self.element_strides,
        }  # fmt: skip
        for field, values in several.items():
            for ordinal, value in enumerate(values):
                raw = replace(raw, field, value, ordinal)
        return raw

    @classmethod
    def decode(cls, raw: bytes) -> TileMap:
        """Read the 128 bytes.

        Raises `ValueError`: a field has a value that does not exist: this is not a tensor map.
        """
        bits = int.from_bytes(raw[:MAP_BYTES], "little")

        def read(field: str, ordinal: int = 0) -> int:
            start, width, step = _FIELDS[field]
            value = bits >> start + step * ordinal & (1 << width) - 1
            return value + (field in _LESS_ONE)

        def several(field: str, count: int) -> tuple[int, ...]:
            return tuple(read(field, ordinal) for ordinal in range(count))

        count, element = read("rank") + 1, read("elemtype")
        if bits >> _TF32 & 1:
            element += 4
        elif element > 10:
            element += 2
        interleave = read("interleave_layout")
        if count > _DIMENSIONS or interleave >= len(_INTERLEAVES) or element >= len(ELEMENTS):
            raise ValueError("these 128 bytes are no tensor map")
        upper = (bits >> _UPPER_STRIDE + 4 * ordinal & 15 for ordinal in range(count - 1))
        strides = (
            16 * (low | high << 32)
            for low, high in zip(several("global_stride", count - 1), upper, strict=True)
        )
        return cls(
            address=read("global_address"), element=ELEMENTS[element],
            sizes=several("global_dim", count), strides=tuple(strides),
            box=several("box_dim", count), element_strides=several("element_stride", count),
            interleave=_INTERLEAVES[interleave], swizzle=_SWIZZLES[read("swizzle_mode")],
            atom=_ATOMS[read("swizzle_atomicity")], nan_fill=bool(read("fill_mode")),
        )  # fmt: skip


def replace(raw: bytes, field: str, value: int, ordinal: int = 0) -> bytes:
    """`tensormap.replace.tile.field`: the 128 bytes with one field changed.

    `raw`: a tensor map, or 128 zeros that are to become one. `field`: `global_address`, `rank` (the
    number of dimensions less one), `box_dim`, ... `value`: the new value; strides are in bytes.
    `ordinal`: the dimension, for the fields that have one. Raises `KeyError`: there is no such
    field. Raises `ValueError`: the value or the dimension does not fit.
    """
    start, width, step = _FIELDS[field]
    number = value - (field in _LESS_ONE)
    is_stride = field == "global_stride"
    number, rest = divmod(number, 16) if is_stride else (number, 0)
    if not 0 <= ordinal < _DIMENSIONS or rest or not 0 <= number < 1 << width + 4 * is_stride:
        raise ValueError(f"tensormap.replace of {field}[{ordinal}] with {value}")
    bits = int.from_bytes(raw, "little")

    def put(start: int, width: int, value: int) -> None:
        nonlocal bits
        mask = (1 << width) - 1
        bits = bits & ~(mask << start) | (value & mask) << start

    if field == "elemtype":
        is_tf32 = ELEMENTS[number].startswith("tf32")
        put(_TF32, 1, is_tf32)
        number -= 4 * is_tf32 + 2 * (number > 12)
    put(start + step * ordinal, width, number)
    if is_stride:
        put(_UPPER_STRIDE + 4 * ordinal, 4, number >> 32)
    return bits.to_bytes(MAP_BYTES, "little")


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

    `tile`: the tensor map. `coordinates`: int64 (..., rank): the corner of each tile, innermost
    first; may be negative. `writes`: for a store or a reduction. An H200 writes whole units of 16
    bytes: where a row of the tensor ends inside of one, up to 15 bytes of the padding behind it are
    written. Returns byte addresses (..., n) and bool (..., n). An address out of bounds is not to
    be accessed.
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

    `tile`: a map whose box has one row. `column`: int64 (...), the first element of each row.
    `rows`: int64 (..., 4). Returns as `tile_elements`: the rows one after the other. Raises
    `ValueError`: the map has another shape.
    """
    if tile.rank != 2 or tile.box[1] != 1:
        raise ValueError(
            "gather4 and scatter4 take a tensor of two dimensions and a box of one row"
        )
    corner = np.stack(np.broadcast_arrays(column[..., None], rows), axis=-1)
    address, inside = tile_elements(tile, corner)
    return (address.reshape(*rows.shape[:-1], -1), inside.reshape(*rows.shape[:-1], -1))


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


def fill_bits(tile: TileMap) -> int:
    """The bits of an element out of bounds: zero, or the NaN that an H200 fills in."""
    if not tile.nan_fill or tile.element[0] in "us":
        return 0
    return int.from_bytes(_FILL * (tile.element_bytes // len(_FILL)), "little")


def loaded(tile: TileMap, elements: Bits, inside: NDArray[np.bool_]) -> Bits:
    """What a load writes to shared memory.

    `tile`: the tensor map. `elements`: (..., n) elements as unsigned integers; anything where
    `inside` is False. `inside`: from `tile_elements`. Returns the elements with the fill value out
    of bounds, and tf32 rounded to nearest even. A type with `_ftz` flushes nothing here, only in
    reductions (so does an H200).
    """
    if tile.element.removesuffix("_ftz") == "tf32":
        elements = convert(elements, "tf32", "f32", rounding="rn")
    if inside.all():
        return elements
    return np.where(inside, elements, elements.dtype.type(fill_bits(tile)))


def reduced(tile: TileMap, operation: str, old: Bits, new: Bits) -> Bits:
    """`cp.reduce.async.bulk.tensor`: the new elements of global memory.

    `tile`: the tensor map; its element type decides the arithmetic. `operation`: add, min, max,
    inc, dec, and, or, xor. `old`: elements of global memory, unsigned. `new`: elements of shared
    memory. Returns elements. f16 and bf16 are rounded to nearest even and keep subnormal numbers.
    Raises `ValueError`: there is no such operation on this type.
    """
    if operation in ("inc", "dec") and tile.element[0] not in "us":
        raise ValueError(f"there is no tensor reduction {operation} on {tile.element}")
    return combine(operation, tile.element.removesuffix("_ftz"), ftz=tile.element.endswith("_ftz"))(
        old, new
    )
